"""`python -m app plan` for weight files with a storage of their own in each layer, and for damaged ones."""

import json
from pathlib import Path

import pytest

from app.__main__ import main
from tests.support.weight_files import write_gguf

DESKTOP = str(Path(__file__).parents[2] / "machines" / "desktop_63gb_rtx4090.json")
ARCH = "qwen3moe"
METADATA = {
    "general.architecture": ARCH, f"{ARCH}.block_count": 6, f"{ARCH}.context_length": 4096,
    f"{ARCH}.embedding_length": 2048, f"{ARCH}.feed_forward_length": 6144, f"{ARCH}.attention.head_count": 32,
    f"{ARCH}.attention.head_count_kv": 4, f"{ARCH}.attention.key_length": 128,
    f"{ARCH}.attention.value_length": 128, f"{ARCH}.expert_count": 128, f"{ARCH}.expert_used_count": 8,
    f"{ARCH}.expert_feed_forward_length": 768,
}  # fmt: skip
MATRIX = 128 * 2048 * 768 // 256


def _write(file: Path) -> int:
    tensors = {"token_embd.weight": ("Q8_0", (2048, 1000))}
    for layer in range(6):
        for name, shape in (("gate", (2048, 768, 128)), ("up", (2048, 768, 128)), ("down", (768, 2048, 128))):
            six = name == "down" and layer in (0, 5)
            tensors[f"blk.{layer}.ffn_{name}_exps.weight"] = ("Q6_K" if six else "Q4_K", shape)  # type: ignore[assignment]
    return write_gguf(file, METADATA, tensors)


def _plan(tmp_path: Path, *words: str) -> int:
    return main(["--profile-dir", str(tmp_path / "profile"), "plan", "--machine", DESKTOP, *words])


def test_e17_a_mixed_gguf_file_is_planned_layer_by_layer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mixed.gguf"
    _write(file)
    assert _plan(tmp_path, "--model", str(file), "--context", "4096", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    model = found["model"]
    outer, inner = MATRIX * (144 + 144 + 210), 3 * MATRIX * 144
    assert model["bank_bytes"] == [outer, inner, inner, inner, inner, outer]
    assert model["bank_total_bytes"] == sum(model["bank_bytes"])
    assert (model["container"], model["runnable"], model["stored_as"]) == ("gguf", True, "q4_k and q6_k")
    assert model["expert_formats"][0] == ["q4_k", "q4_k", "q6_k"]
    held = {tier: 0 for tier in ("vram", "pinned", "locked", "pageable")}
    for tier, size in zip(found["plan"]["tiers"], model["bank_bytes"], strict=True):
        held[tier] += size
    vram = {line["what"]: line["bytes"] for line in found["plan"]["ledger"] if line["pool"] == "vram"}
    assert vram.get("expert layers", 0) == held["vram"]
    assert found["plan"]["pools"]["pinned"]["planned_bytes"] == held["pinned"]


def test_people_read_the_range_of_sizes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _write(tmp_path / "mixed.gguf")
    assert _plan(tmp_path, "--model", str(tmp_path / "mixed.gguf"), "--context", "4096") == 0
    assert "0.3 GiB to 0.4 GiB each, 2.0 GiB in all" in capsys.readouterr().out


def test_a_truncated_file_is_refused_with_both_lengths(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mixed.gguf"
    length = _write(file)
    with file.open("r+b") as stream:
        stream.truncate(length - 4096)
    assert _plan(tmp_path, "--model", str(file), "--json") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "model_file"
    assert (error["numbers"]["declared_bytes"], error["numbers"]["actual_bytes"]) == (length, length - 4096)
    assert "4,096 B short" in error["sentence"]
