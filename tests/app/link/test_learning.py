"""What the window keeps of its engine's runs."""

from pathlib import Path

from pytestqt.qtbot import QtBot

from app.core.learned import LearnedStore
from app.core.session import StartRequested
from app.link.background import Background
from app.link.learning import Learning
from app.link.store import SessionStore
from engine.contract.events import Ready, RequestDone
from tests.app.ui import samples

WAIT_MS = 30_000
DONE = RequestDone(request_id="a", finish_reason="stop", prompt_tokens=40, answer_tokens=30, decode_tok_s=9.4)


def test_a_run_that_was_granted_less_is_remembered_and_applied_to_the_next_reading(
    qtbot: QtBot, tmp_path: Path
) -> None:
    settled = samples.settled()
    assert settled.plan is not None and settled.session.residency is not None
    learned = LearnedStore(tmp_path / "learned.json")
    background, store = Background(), SessionStore()
    learning = Learning(lambda: samples.BIG, learned, background, store)
    assert learning.read_facts().pin_granted.value is None
    store.apply(StartRequested(settled.plan))
    store.apply(Ready(residency=settled.session.residency))
    qtbot.waitUntil(lambda: not background.busy, timeout=WAIT_MS)
    facts = learning.read_facts()
    assert facts.pin_granted.value == sum(x.bytes for x in settled.session.residency.layers if x.settled == "pinned")
    assert facts.pin_refused.value is not None

    store.apply(DONE)
    qtbot.waitUntil(lambda: not background.busy, timeout=WAIT_MS)
    (run,) = learned.experience(samples.BIG).runs
    assert (run.decode_tok_s, run.prefill_tok_s) == (9.4, None)
    assert background.close()


def test_nothing_is_learned_before_the_machine_was_read(qtbot: QtBot, tmp_path: Path) -> None:
    ready = samples.ready()
    assert ready.plan is not None and ready.session.residency is not None
    background, store = Background(), SessionStore()
    learning = Learning(lambda: samples.BIG, LearnedStore(tmp_path / "learned.json"), background, store)
    store.apply(StartRequested(ready.plan))
    store.apply(Ready(residency=ready.session.residency))
    qtbot.waitUntil(lambda: not background.busy, timeout=WAIT_MS)
    assert not (tmp_path / "learned.json").exists()
    learning.deleteLater()
    assert background.close()
