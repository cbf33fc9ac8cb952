"""`python -m app plan`: the document for scripts, the table for people, refusals beside the model."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from engine.serve.process import read_plan
from tests.support.model_configs import GEMMA4_26B, QWEN3_30B, QWEN35_35B, folder_with

MACHINES = Path(__file__).parents[2] / "machines"
DESKTOP = str(MACHINES / "desktop_63gb_rtx4090.json")
SMALL = str(MACHINES / "desktop_32gb_rtx3080ti.json")


def _run(capsys: pytest.CaptureFixture[str], tmp_path: Path, *words: str) -> tuple[int, str, str]:
    code = main(["--profile-dir", str(tmp_path / "profile"), "plan", *words])
    out, err = capsys.readouterr()
    return code, out, err


def _document(capsys: pytest.CaptureFixture[str], tmp_path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    code, out, err = _run(capsys, tmp_path, *words, "--json")
    assert err == ""
    return code, json.loads(out)


def test_t04_on_a_recorded_machine_gives_exact_bytes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(folder_with(QWEN3_30B, tmp_path / "Qwen3-30B-A3B"))
    code, found = _document(capsys, tmp_path, "--model", folder, "--machine", DESKTOP, "--context", "32768", "--stops")
    assert code == 0
    model, plan = found["model"], found["plan"]
    assert model["name"] == "Qwen3-30B-A3B"
    assert model["family"] == "qwen3_moe"
    assert model["source"] == "config"
    assert model["moe_layers"] == list(range(48))
    assert model["kv_layers"] == list(range(48))
    assert model["bank_bytes"] == [1_207_959_552] * 48
    assert model["bank_total_bytes"] == 57_982_058_496
    assert model["kv_bytes_per_token"] == 98_304
    assert model["kv_bytes"] == 3 << 30
    assert plan["context_tokens"] == 32_768
    assert len(plan["tiers"]) == 48
    assert plan["vram_layers"] + plan["pinned_layers"] + plan["locked_layers"] == 48
    for pool in plan["pools"].values():
        assert pool["budget_bytes"] is None or pool["planned_bytes"] <= pool["budget_bytes"]
    sums: dict[str, int] = {}
    for line in plan["ledger"]:
        sums[line["pool"]] = sums.get(line["pool"], 0) + line["bytes"]
    assert sums == {name: pool["planned_bytes"] for name, pool in plan["pools"].items() if pool["planned_bytes"]}
    assert found["machine"]["recorded"]
    quota = found["machine"]["pin_quota"]
    assert quota["source"] == "read"
    assert sum(term["bytes"] for term in quota["terms"]) == quota["bytes"]


def test_no_stop_exceeds_a_limit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(folder_with(QWEN3_30B, tmp_path / "qwen"))
    _, found = _document(capsys, tmp_path, "--model", folder, "--machine", DESKTOP, "--stops")
    assert len(found["stops"]) > 3
    for stop in found["stops"]:
        words = ("--model", folder, "--machine", DESKTOP, "--context", str(stop["context_tokens"]))
        code, again = _document(capsys, tmp_path, *words)
        assert code == 0
        assert {key: again["plan"][key] for key in stop} == stop
        for pool in again["plan"]["pools"].values():
            assert pool["budget_bytes"] is None or pool["planned_bytes"] <= pool["budget_bytes"]
    assert found["markers"]["pin_full"]["limit"] == "quota"


def test_a_refusal_stands_beside_the_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(folder_with(GEMMA4_26B, tmp_path / "gemma"))
    code, found = _document(capsys, tmp_path, "--model", folder, "--machine", SMALL, "--stops")
    assert code == 2
    assert "plan" not in found
    assert found["error"]["kind"] == "ram"
    assert found["error"]["short_bytes"] > 0
    assert found["error"]["fix"]
    assert found["model"]["bank_total_bytes"] == 45_675_970_560
    assert found["stops"] == []


def test_wishes_and_the_simulated_gpu_are_understood(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(folder_with(QWEN3_30B | {"num_hidden_layers": 8}, tmp_path / "short"))
    words = ("--model", folder, "--machine", DESKTOP, "--simulate-gpu", "vram=8GiB,pin=3GiB", "--context", "8192")
    code, found = _document(capsys, tmp_path, *words, "--vram-layers", "2", "--pinned-layers", "1")
    assert code == 0
    plan = found["plan"]
    assert (plan["device"], plan["vram_layers"], plan["pinned_layers"], plan["locked_layers"]) == ("simulated", 2, 1, 5)
    assert found["machine"]["pin_quota"]["source"] == "simulated"
    assert plan["tiers"].count("vram") == 2


def test_states_of_linear_layers_stand_beside_the_kv_cache(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = folder_with(QWEN35_35B, tmp_path / "q")
    _, found = _document(capsys, tmp_path, "--model", str(folder), "--machine", DESKTOP)
    assert found["model"]["kv_layers"] == list(range(3, 40, 4))
    assert found["model"]["state_bytes"] == 30 * (32 * 128 * 128 * 4 + 8192 * 4 * 2)


def test_a_folder_that_is_no_model_is_refused_with_a_fix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, found = _document(capsys, tmp_path, "--model", str(tmp_path / "absent"), "--machine", DESKTOP)
    assert code == 2
    assert found["error"]["kind"] == "model_folder"
    assert found["error"]["fix"]
    code, found = _document(
        capsys, tmp_path, "--model", str(folder_with({"model_type": "rwkv7"}, tmp_path / "q")), "--machine", DESKTOP
    )
    assert code == 2
    assert found["error"]["kind"] == "cannot_estimate"


@pytest.mark.parametrize("words", [("--context", "0"), ("--context", "many"), ("--pin-cap", "lots"), ()])
def test_a_command_that_cannot_be_understood_is_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = ("--model", str(tmp_path)) if words else ()
    code, found = _document(capsys, tmp_path, *model, *words)
    assert code == 2
    assert found["error"]["kind"] == "usage"


def test_people_get_a_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(folder_with(QWEN3_30B, tmp_path / "Qwen3-30B-A3B"))
    code, out, err = _run(capsys, tmp_path, "--model", folder, "--machine", DESKTOP, "--context", "32768", "--stops")
    assert code == 0
    assert err == ""
    assert "48 of 48 layers have experts: 1.1 GiB each, 54.0 GiB in all" in out
    assert "32,768 tokens:" in out
    assert "Stops" in out


def test_people_get_the_refusal_on_standard_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(folder_with(GEMMA4_26B, tmp_path / "gemma"))
    code, out, err = _run(capsys, tmp_path, "--model", folder, "--machine", SMALL)
    assert code == 2
    assert "42.5 GiB in all" in out
    assert "of RAM" in err


def test_a_plan_can_be_written_for_the_engine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder, file = str(folder_with(QWEN3_30B, tmp_path / "qwen")), tmp_path / "new" / "plan.json"
    words = ("--model", folder, "--machine", DESKTOP, "--context", "32768", "--out", str(file))
    code, found = _document(capsys, tmp_path, *words)
    assert code == 0
    plan = read_plan(file)
    assert plan.context_tokens == 32_768
    assert [tier.value for tier in plan.tiers] == found["plan"]["tiers"]


def test_a_plan_that_cannot_be_written_is_a_refusal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(folder_with(QWEN3_30B, tmp_path / "qwen"))
    code, found = _document(capsys, tmp_path, "--model", folder, "--machine", DESKTOP, "--out", str(tmp_path))
    assert code == 2
    assert str(tmp_path) in found["error"]["sentence"]
