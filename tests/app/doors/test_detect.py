"""`python -m app detect`."""

import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.__main__ import main
from app.doors import detect
from app.supervision.ledger import RunLedger
from engine.contract.facts import HardwareFacts, Source
from engine.contract.probe import ProbeLine
from engine.contract.processes import ProcessIdentity, RunEntry
from engine.contract.units import GIB
from tests.support.fake_measurement import RATES
from tests.support.machines import gib_bytes, gpu, machine
from tests.support.model_configs import QWEN3_30B, folder_with


def test_this_machine_is_told_with_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile-dir", str(tmp_path), "detect", "--json"]) == 0
    facts = HardwareFacts.model_validate_json(capsys.readouterr().out)
    assert facts.ram_total.value is not None and facts.ram_total.source is not None
    assert not facts.recorded


def test_a_recorded_machine_is_read_back_as_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "facts.json"
    file.write_text('{"label": "a PC", "os": "windows", "ram_total": 68719476736}', "utf-8")
    assert main(["--profile-dir", str(tmp_path), "detect", "--machine", str(file), "--json"]) == 0
    facts = HardwareFacts.model_validate_json(capsys.readouterr().out)
    assert (facts.label, facts.ram_total.value, facts.recorded) == ("a PC", 64 << 30, True)
    assert main(["--profile-dir", str(tmp_path), "--machine", str(file), "detect"]) == 0
    assert "64.0 GiB" in capsys.readouterr().out


def test_a_file_that_is_no_machine_is_refused_with_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--profile-dir", str(tmp_path), "detect", "--machine", str(tmp_path / "absent.json")]
    assert main([*command, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "recorded_file"
    assert error["fix"]
    assert main(command) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "is not a recorded machine" in captured.err


@pytest.fixture
def on_mains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "on_battery", lambda: False)


def _door(tmp_path: Path, *words: str) -> int:
    return main(["--profile-dir", str(tmp_path / "profile"), *words])


def _error(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(capsys.readouterr().out)["error"]
    return error


def test_a_recorded_machine_cannot_be_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "facts.json"
    file.write_text('{"os": "windows"}', "utf-8")
    assert _door(tmp_path, "detect", "--machine", str(file), "--measure-pins", "--json") == 2
    assert _error(capsys)["kind"] == "usage"


@pytest.mark.usefixtures("on_mains")
def test_without_a_cuda_gpu_pins_are_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "facts_of", lambda options: machine(gib_bytes(32)))
    assert _door(tmp_path, "detect", "--measure-pins", "--json") == 2
    error = _error(capsys)
    assert error["kind"] == "no_cuda"
    assert error["sentence"] == "The limit for pinned memory cannot be measured: this PC has no CUDA GPU."


def test_nothing_is_measured_on_battery(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "on_battery", lambda: True)
    assert _door(tmp_path, "detect", "--measure-speed", "--json") == 2
    assert _error(capsys)["kind"] == "not_now"


@pytest.mark.usefixtures("on_mains")
def test_nothing_is_measured_while_an_engine_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    me = ProcessIdentity(pid=os.getpid(), create_time=psutil.Process().create_time())
    entry = RunEntry(run_id="20260101-000000-abcdef", engine=me, supervisor=me, model="x")
    RunLedger(tmp_path / "profile" / "runs").record(entry)
    assert _door(tmp_path, "detect", "--measure-speed", "--json") == 2
    error = _error(capsys)
    assert error["kind"] == "not_now"
    assert error["numbers"]["pid"] == os.getpid()


@pytest.mark.usefixtures("on_mains")
@pytest.mark.parametrize(
    ("words", "need"), [([], 32 * GIB), (["--need", "9GiB"], 10 * GIB), (["--need", "60GiB"], 32 * GIB)]
)
def test_a_measured_limit_is_stored_and_used_less_a_tenth(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    need: int,
) -> None:
    card = gpu(24 * GIB, uuid="GPU-7", shared_limit=32 * GIB)
    asked: dict[str, Any] = {}

    def probe(**options: Any) -> ProbeLine:
        asked.update(options)
        options["on_line"](ProbeLine(pinned_bytes=GIB))
        return ProbeLine(pinned_bytes=20 * GIB, stopped="refused", refused_bytes=21 * GIB, words="out of memory")

    monkeypatch.setattr(detect, "facts_of", lambda options: machine(64 * GIB, card))
    monkeypatch.setattr(detect, "probe_pins", probe)
    assert _door(tmp_path, "detect", "--measure-pins", "--json", *words) == 0
    captured = capsys.readouterr()
    facts = HardwareFacts.model_validate_json(captured.out)
    assert (facts.pin_probed.value, facts.pin_probed.source) == (20 * GIB, Source.MEASURED)
    assert ProbeLine.model_validate_json(captured.err.strip()).pinned_bytes == GIB, "one JSON line a step"
    assert (asked["need_bytes"], asked["gpu_uuid"]) == (need, "GPU-7")
    assert asked["vram_bytes"] == 24 * GIB - 24 * GIB // 32, "as much as an engine would take"


@pytest.mark.usefixtures("on_mains")
def test_measured_speed_is_stored_and_plans_tell_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = HardwareFacts.model_validate({"os": "linux", "ram_total": 128 * GIB, "ram_available": 128 * GIB})
    monkeypatch.setattr(detect, "facts_of", lambda options: here)
    monkeypatch.setattr("app.doors.plan.facts_of", lambda options: here)
    monkeypatch.setattr(detect, "measure_rates", lambda **options: RATES)
    model = folder_with(QWEN3_30B, tmp_path / "model")
    plan = ["plan", "--model", str(model), "--context", "4096", "--json"]
    assert _door(tmp_path, *plan) == 0
    assert json.loads(capsys.readouterr().out)["speed"]["sentence"] == "Speed: not measured on this PC"
    assert _door(tmp_path, "detect", "--measure-speed") == 0
    told = capsys.readouterr().out
    assert "CPU, experts in bf16: 20.0 GB/s for one token, 300 GFLOP/s for many" in told
    assert "CPU, attention: 5.0 GFLOP/s for one token, 50 GFLOP/s for many" in told
    assert _door(tmp_path, *plan) == 0
    speed = json.loads(capsys.readouterr().out)["speed"]
    assert speed["basis"] == speed["prompt_basis"] == "figures of this PC"
    slowest, fastest = speed["ttft_s"]
    assert slowest > fastest > 0
    assert slowest == pytest.approx(speed["prompt_tokens"] / speed["prefill_tok_s"][0])
    assert 0 < speed["decode_tok_s"][0] < speed["decode_tok_s"][1] < 20
