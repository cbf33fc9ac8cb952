"""What this PC taught: grants and refusals by machine, kept in a file that may be broken or missing."""

from pathlib import Path

import pytest

from app.core.learned import (
    KEPT_RUNS,
    LearnedStore,
    PinExperience,
    applied,
    machine_of,
    with_probe,
    with_residency,
    with_run,
)
from app.planning.quota import pin_quota
from app.planning.speed import SpeedRun
from app.planning.wishes import Wishes
from engine.contract.facts import HardwareFacts, Reading, Source
from engine.contract.formats import WeightFormat
from engine.contract.plan import Tier
from engine.contract.probe import ProbeLine
from engine.contract.rates import AttentionRates, KernelRates, MeasuredRates
from engine.contract.residency import LayerResidency, ResidencyReport
from engine.contract.units import GIB
from tests.support.machines import gib_bytes, gpu, machine

BANK = gib_bytes(1.9)
P, L = Tier.PINNED, Tier.LOCKED


def _report(pinned: int, fallen: int, *, simulated: bool = False) -> ResidencyReport:
    settled = [P] * pinned + [L] * fallen
    layers = tuple(
        LayerResidency(layer=index, asked=P, settled=tier, bytes=BANK, cause=None) for index, tier in enumerate(settled)
    )
    return ResidencyReport(
        device="card", simulated=simulated, layers=layers, ledger_asked=(), ledger_settled=(), self_test=""
    )


def _pins(granted: int | None = None, refused: int | None = None) -> PinExperience:
    return PinExperience(
        granted_bytes=None if granted is None else granted * BANK,
        refused_bytes=None if refused is None else refused * BANK,
    )


@pytest.mark.parametrize(
    ("before", "report", "after"),
    [
        (_pins(), _report(47, 0), _pins(47)),
        (_pins(), _report(5, 3), _pins(5, 6)),  # the sixth layer was refused; seven and eight were not tried again
        (_pins(), _report(0, 8), _pins(0, 1)),
        (_pins(47), _report(40, 0), _pins(47)),
        (_pins(5, 6), _report(4, 0), _pins(5, 6)),
        (_pins(5, 6), _report(7, 0), _pins(7)),  # granted now: the refusal was due to something else
        (_pins(5, 9), _report(6, 2), _pins(6, 7)),
        (_pins(47), _report(5, 3), _pins(5, 6)),  # the newest run counts most
        (_pins(5, 6), _report(0, 0), _pins(5, 6)),
        (_pins(5, 6), _report(9, 1, simulated=True), _pins(5, 6)),
    ],
)
def test_runs_teach_the_largest_grant_and_the_smallest_refusal(
    before: PinExperience, report: ResidencyReport, after: PinExperience
) -> None:
    assert with_residency(before, report) == after


def test_a_refusal_that_a_left_over_engine_caused_is_none_once_that_is_gone() -> None:
    crowded = _facts(gpus=(gpu(gib_bytes(24), shared_limit=gib_bytes(31.5), shared_used=gib_bytes(20.4)),))
    quiet = _facts(gpus=(gpu(gib_bytes(24), shared_limit=gib_bytes(31.5), shared_used=gib_bytes(0.4)),))
    pins = with_residency(_pins(), _report(5, 3), beside_bytes=gib_bytes(20.4))
    assert pin_quota(applied(crowded, pins), Wishes()).bytes == 5 * BANK
    assert pin_quota(applied(quiet, pins), Wishes()).bytes == round(gib_bytes(63) * 0.4)


def test_measuring_anew_takes_a_refusal_back_if_gpu_memory_was_held_meanwhile() -> None:
    empty = with_probe(_pins(5, 6), ProbeLine(pinned_bytes=9 * BANK, stopped="refused"))
    assert empty.refused_bytes == 6 * BANK
    loaded = with_probe(_pins(5, 6), ProbeLine(pinned_bytes=9 * BANK, vram_bytes=GIB, stopped="refused"))
    assert loaded.refused_bytes is None
    short = with_probe(_pins(5, 6), ProbeLine(pinned_bytes=5 * BANK, vram_bytes=GIB, stopped="refused"))
    assert short.refused_bytes == 6 * BANK


def test_a_probe_that_was_refused_is_a_limit_and_any_other_a_lower_bound() -> None:
    facts = machine(gib_bytes(64), gpu(gib_bytes(24)))
    limit = with_probe(_pins(), ProbeLine(pinned_bytes=10 * GIB, stopped="refused"))
    assert applied(facts, limit).pin_probed == Reading(
        value=10 * GIB, source=Source.MEASURED, detail="probe, then refused"
    )
    assert pin_quota(applied(facts, limit), Wishes()).bytes == 9 * GIB
    for stopped in ("ram", "time", "need", None):
        bound = with_probe(_pins(), ProbeLine(pinned_bytes=10 * GIB, stopped=stopped))
        assert applied(facts, bound).pin_probed.value is None
        quota = pin_quota(applied(facts, bound), Wishes())
        assert quota.bytes == round(gib_bytes(64) * 0.4), "the rule says more than this bound"
        large = with_probe(_pins(), ProbeLine(pinned_bytes=30 * GIB, stopped=stopped))
        raised = pin_quota(applied(facts, large), Wishes())
        assert (raised.bytes, raised.source) == (27 * GIB, Source.MEASURED)


def test_a_refusal_of_a_loaded_engine_wins_over_a_probe_of_an_empty_process() -> None:
    pins = with_probe(with_residency(_pins(), _report(2, 3)), ProbeLine(pinned_bytes=28 * GIB, stopped="refused"))
    quota = pin_quota(applied(machine(gib_bytes(64), gpu(gib_bytes(16))), pins), Wishes())
    assert (quota.bytes, quota.source) == (2 * BANK, Source.LEARNED)


def test_facts_are_the_same_until_something_is_learned() -> None:
    facts = machine(gib_bytes(64), gpu(gib_bytes(24)))
    assert applied(facts, PinExperience()) == facts


def _facts(**changes: object) -> HardwareFacts:
    card = gpu(gib_bytes(24), uuid="GPU-1", driver="610.88")
    facts = machine(gib_bytes(63), card, os_version="Windows 11 (build 26100)")
    return facts.model_copy(update=changes)


def test_experience_belongs_to_one_machine(tmp_path: Path) -> None:
    store = LearnedStore(tmp_path / "learned.json")
    store.learn_residency(_facts(), _report(5, 3))
    assert store.experience(_facts()).pins == _pins(5, 6)
    updated = _facts(gpus=(gpu(gib_bytes(24), uuid="GPU-1", driver="620.10"),))
    assert store.experience(updated).pins == PinExperience()
    assert store.experience(_facts(os_version="Windows 11 (build 27000)")).pins == PinExperience()
    assert store.experience(_facts(ram_total=Reading(value=gib_bytes(127), source=Source.READ))).pins == PinExperience()
    assert machine_of(_facts(ram_total=Reading(value=gib_bytes(63) - 4096, source=Source.READ))) == machine_of(
        _facts()
    ), "a new kernel takes some pages"


def test_a_store_remembers_pins_rates_and_runs_side_by_side(tmp_path: Path) -> None:
    file = tmp_path / "profile" / "learned.json"
    store = LearnedStore(file)
    store.learn_residency(_facts(), _report(5, 0))
    store.learn_probe(_facts(), ProbeLine(pinned_bytes=GIB, stopped="refused"))
    store.learn_rates(_facts(), _rates())
    store.learn_run(_facts(), _run(9.0))
    known = LearnedStore(file).experience(_facts())
    assert known.pins == _pins(5).model_copy(update={"probed_bytes": GIB, "probe_refused": True})
    assert known.rates == _rates()
    assert known.runs == (_run(9.0),)


def test_recorded_machines_and_simulated_gpus_teach_nothing(tmp_path: Path) -> None:
    file = tmp_path / "learned.json"
    store = LearnedStore(file)
    recorded = _facts(recorded=True)
    store.learn_residency(recorded, _report(5, 3))
    store.learn_rates(_facts(), _rates().model_copy(update={"simulated": True}))
    store.learn_residency(_facts(), _report(5, 3, simulated=True))
    store.learn_run(_facts(), None)
    assert not file.exists()
    assert store.applied_to(recorded) == recorded


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 2}', '{"machines": [{"pins": 3}]}', "\x00"])
def test_a_file_that_is_not_understood_is_kept_under_another_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "learned.json"
    file.write_text(content, "utf-8")
    store = LearnedStore(file)
    assert store.experience(_facts()).pins == PinExperience()
    assert (tmp_path / "learned.broken-1.json").read_text("utf-8") == content
    store.learn_residency(_facts(), _report(5, 3))
    assert store.experience(_facts()).pins == _pins(5, 6)


def test_a_disk_that_cannot_be_written_costs_only_what_was_learned(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    store = LearnedStore(blocked / "learned.json")
    store.learn_residency(_facts(), _report(5, 3))
    assert store.experience(_facts()).pins == PinExperience()


def test_only_the_newest_runs_are_kept() -> None:
    runs: tuple[SpeedRun, ...] = ()
    for number in range(KEPT_RUNS + 5):
        runs = with_run(runs, _run(number + 1.0))
    assert len(runs) == KEPT_RUNS
    assert runs[-1].decode_tok_s == KEPT_RUNS + 5


def _run(decode_tok_s: float) -> SpeedRun:
    return SpeedRun(
        model="m (bf16)", device="cuda", tiers=(1, 2, 3, 0), expert_slots=9, prompt_tokens=8, answer_tokens=99,
        decode_tok_s=decode_tok_s,
    )  # fmt: skip


def _rates() -> MeasuredRates:
    return MeasuredRates(
        device="CPU", threads=4, cpu={WeightFormat.BF16: KernelRates(bytes_s=2e10, flops_s=3e11)}, call_s=2e-5,
        attention=AttentionRates(token_flops_s=5e9, prompt_flops_s=5e10), prompt_call_s=1e-4, memcpy_bytes_s=1e10,
        elapsed_s=3,
    )  # fmt: skip
