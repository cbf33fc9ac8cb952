"""`--force`: single layers and their tiers, on the command line and in the plan."""

import json
from pathlib import Path

import pytest

from app.__main__ import main
from app.doors.forced import read_forced
from engine.contract.errors import UsageError
from engine.contract.plan import Tier
from tests.support.model_configs import QWEN3_30B, folder_with

DESKTOP = str(Path(__file__).parents[2] / "machines" / "desktop_63gb_rtx4090.json")


def test_ranges_and_single_layers_are_read() -> None:
    assert read_forced("0-2=vram, 17=locked") == {0: Tier.VRAM, 1: Tier.VRAM, 2: Tier.VRAM, 17: Tier.LOCKED}


@pytest.mark.parametrize(
    "text",
    ["", "3", "=vram", "3=ram", "5-3=vram", "1=vram,1=locked", "-1=vram", "1-=vram", "0-99999999=vram", "²=vram"],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_forced(text)
    assert "0-3=vram,17=locked" in refused.value.fix


def test_constraints_of_the_command_line_are_kept_in_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = folder_with(QWEN3_30B, tmp_path / "model")
    words = ["--force", "5=vram,20-21=locked", "--vram-reserve", "3GiB", "--ram-reserve", "2GiB", "--kv-dtype", "bf16"]
    command = ["--profile-dir", str(tmp_path / "p"), "plan", "--model", str(model), "--machine", DESKTOP, "--json"]
    assert main([*command, "--context", "8192", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    tiers = found["plan"]["tiers"]
    assert (tiers[5], tiers[20], tiers[21]) == ("vram", "locked", "locked")
    reserves = {
        name: next(term["bytes"] for term in budget["terms"] if term["what"] == "reserve")
        for name, budget in found["machine"]["budgets"].items()
        if name in ("vram", "ram")
    }
    assert reserves == {"vram": -(3 << 30), "ram": -(2 << 30)}
    assert found["plan"]["load_peak"]["ram"] > 0
    assert main([*command, "--force", "99=vram"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "usage"


def test_a_refusal_lists_its_fixes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder_with(QWEN3_30B, tmp_path / "model")
    command = ["--profile-dir", str(tmp_path / "p"), "plan", "--model", str(model), "--machine", DESKTOP]
    assert main([*command, "--vram-layers", "0", "--ram-reserve", "8GiB", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["fixes"][0]["sentence"] == error["fix"]
    assert {"change", "sentence", "numbers"} <= set(error["fixes"][0])
    assert len(error["fixes"]) > 1
    assert main([*command, "--vram-layers", "0", "--ram-reserve", "8GiB"]) == 2
    assert capsys.readouterr().err.count("\nOr: ") == len(error["fixes"]) - 1
