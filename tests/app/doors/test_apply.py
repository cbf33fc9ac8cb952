"""`python -m app apply`: another split for an engine that somebody else holds."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from app.doors import common
from app.planning.planner import make_plan
from app.planning.wishes import Wishes
from app.supervision.engine_child import EngineChild
from app.supervision.ledger import RunLedger
from engine.contract.events import Event, PlanChanged
from engine.contract.plan import MemoryPlan, SimulatedGpu, Tier
from engine.contract.units import MIB
from engine.system.select import machine_probe
from tests.app.supervision.recorder import FAST, fake_engine
from tests.support.hollow_model import hollow_mixtral
from tests.support.processes import wait_until

GPU = SimulatedGpu(vram_bytes=24 * MIB, pin_bytes=1 * MIB)
START = Wishes(context_tokens=1024, simulated_gpu=GPU)


class Held:
    """An engine that another program holds."""

    def __init__(self, profile: Path, model: Path, *options: str) -> None:
        from engine.contract.checkpoint import read_shape

        self.profile = profile
        self.events: list[Event] = []
        self.plan = make_plan(read_shape(model), machine_probe().read(), START, model_dir=str(model))
        self.child = EngineChild.start(
            self.plan,
            run_ledger=RunLedger(profile / "runs"),
            on_event=self.events.append,
            on_log=lambda _: None,
            on_end=lambda _: None,
            engine_argv=fake_engine(*options),
            ladder=FAST,
        )
        assert wait_until(lambda: any(event.event == "ready" for event in self.events))

    def changed(self) -> MemoryPlan:
        """What it runs after a change; its holder hears of it a moment later than the door."""
        assert wait_until(lambda: any(isinstance(event, PlanChanged) for event in self.events))
        return self.runs

    @property
    def runs(self) -> MemoryPlan:
        """What it runs now, as its holder knows."""
        changed = [event.plan for event in self.events if isinstance(event, PlanChanged)]
        return changed[-1] if changed else self.plan


Hold = Callable[..., Held]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    held: list[Held] = []
    model = hollow_mixtral(tmp_path / "tiny-moe")

    def one(*options: str) -> Held:
        held.append(Held(tmp_path / "profile", model, *options))
        return held[-1]

    yield one
    for engine in held:
        engine.child.kill()
        assert engine.child.wait(20)


def door(tmp_path: Path, *words: str) -> int:
    return main(["--profile-dir", str(tmp_path / "profile"), "apply", *words])


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_longer_context_is_applied_and_everything_else_stays_as_wished(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = hold()
    assert door(tmp_path, "--context", "4096", "--json") == common.EXIT_OK
    found = document(capsys)
    assert found["before"]["context_tokens"] == 1024
    now = engine.changed()
    assert found["plan"]["context_tokens"] == 4096 == now.context_tokens
    assert found["plan"]["tiers"] == [tier.value for tier in now.tiers]
    assert found["change"]["context_tokens"] == [1024, 4096]
    assert found["took_s"] is not None
    assert found["residency"]["ledger_settled"] == found["plan"]["ledger"]
    assert found["engine"]["port"] is not None
    assert now.simulated == GPU


def test_layers_that_are_named_move_and_people_read_which(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = hold()
    before = engine.plan.layers_in(Tier.VRAM)
    assert before > 1
    assert door(tmp_path, "--vram-layers", str(before - 1)) == common.EXIT_OK
    said = capsys.readouterr().out
    assert said.startswith("The split was changed in 0.0 s:\n  vram to ")
    assert ": 1 layer, 0.1 MiB" in said
    assert engine.changed().layers_in(Tier.VRAM) == before - 1


def test_a_dry_run_says_what_would_change_and_changes_nothing(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = hold()
    assert door(tmp_path, "--context", "4096", "--dry-run") == common.EXIT_OK
    assert "context: 1,024 to 4,096 tokens; KV cache " in capsys.readouterr().out
    assert engine.runs == engine.plan


def test_the_split_that_runs_is_not_asked_for_again(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = hold()
    assert door(tmp_path) == common.EXIT_OK
    assert capsys.readouterr().out == "The engine runs this split already.\n"
    assert not any(isinstance(event, PlanChanged) for event in engine.events)


def test_a_refusal_of_the_engine_is_a_refusal_with_its_numbers(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = hold("--refuse-plan")
    assert door(tmp_path, "--context", "4096", "--json") == common.EXIT_REFUSED
    error = document(capsys)["error"]
    assert (error["kind"], error["numbers"]["needed_bytes"]) == ("vram", 2 * MIB)
    assert engine.runs == engine.plan


def test_what_only_a_start_can_bring_is_refused_with_the_reason(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = hold()
    assert door(tmp_path, "--kv-dtype", "fp8", "--json") == common.EXIT_REFUSED
    error = document(capsys)["error"]
    assert error["sentence"] == "The engine keeps keys and values in bf16; the plan is for fp8."
    assert error["fix"] == "Start the engine again with this split."
    assert door(tmp_path, "--context", "4096", "--vram-layers", "7", "--json") == common.EXIT_REFUSED
    assert document(capsys)["error"]["kind"] == "usage"
    assert engine.runs == engine.plan


def test_where_nothing_runs_that_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert door(tmp_path, "--context", "4096", "--json") == common.EXIT_REFUSED
    assert document(capsys)["error"]["kind"] == "no_engine"


def test_of_several_engines_one_is_named(tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = hold(), hold()
    assert door(tmp_path, "--context", "4096") == common.EXIT_REFUSED
    assert "2 engines of this profile run" in capsys.readouterr().err
    pid = second.child.identity.pid
    assert door(tmp_path, "--context", "4096", "--pid", str(pid)) == common.EXIT_OK
    assert (first.runs.context_tokens, second.changed().context_tokens) == (1024, 4096)
    assert door(tmp_path, "--context", "4096", "--pid", "1") == common.EXIT_REFUSED
    assert "with PID 1 runs" in capsys.readouterr().err
