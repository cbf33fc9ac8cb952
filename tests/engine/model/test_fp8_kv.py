"""Keys and values in fp8: the planned bytes, the same answers in any chunks, little lost against the own type."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.banks.cpu_device import CpuDevice
from engine.contract.checkpoint import read_shape
from engine.contract.errors import UsageError
from engine.contract.estimate import kv_cache_bytes, prefix_bytes, unpacked_kv_bytes
from engine.contract.estimate_work import workspace_bytes
from engine.contract.kv_types import kept_in, why_not_fp8
from engine.model.dense import model_class
from engine.model.kv_cache import KvCache, cache_for
from engine.model.loaded import LoadedModel
from tests.bench.kv_quality import compare
from tests.engine.model.conftest import Load, Tiny
from tests.support.live_memory import LiveMemory
from tests.support.parity import differences
from tests.support.reference import prefill, random_prompt
from tests.support.tiny_families import TINY_FAMILIES, tiny_config
from tests.support.tiny_models import TinyModel, plan_for
from tests.support.turns import ask

FAMILIES = ("qwen3_moe", "gpt_oss", "qwen3_next", "zaya")  # full, sliding, beside states, both in one layer
Start = Callable[..., LoadedModel]


@pytest.fixture
def start(load: Load, checkpoint: Tiny) -> Start:
    """A loaded model of a family whose KV cache is kept in fp8, or as the model computes."""

    def one(family: str, *, fp8: bool = True, prefill_chunk: int = 16, layers: str = "l") -> LoadedModel:
        model = checkpoint(family)
        counted = TinyModel(model.folder, kept_in(model.shape, "fp8" if fp8 else None))
        plan = plan_for(counted, layers * len(model.shape.moe_layers), context_tokens=120, prefill_chunk=prefill_chunk)
        return load(plan)

    return one


@pytest.mark.parametrize("layers", ["l", "p"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_fp8_takes_is_what_was_planned(family: str, layers: str, start: Start) -> None:
    model = start(family, layers=layers)
    plan, report = model._parts.plan, model.residency()
    assert plan.kv_dtype == "fp8"
    assert differences(report) == ""
    settled = {line.what: line.bytes for line in report.ledger_settled}
    assert settled["KV cache"] == kv_cache_bytes(plan.model, 120)
    assert settled["unpacked KV"] == unpacked_kv_bytes(plan.model, 120)
    assert settled.get("prefix snapshots", 0) == prefix_bytes(plan.model, 120)
    assert model.check_integrity() == ()


def test_closing_gives_back_the_room_for_unpacking(checkpoint: Tiny) -> None:
    device = CpuDevice()
    shape = kept_in(checkpoint("gpt_oss").shape, "fp8")
    cache = KvCache(shape, 40, device, torch.float32)
    assert set(device.allocated) == {"KV cache", "unpacked KV"}
    cache.close()
    assert device.allocated == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_fp8_changes_the_probabilities_a_little_and_in_every_step_alike(family: str, start: Start) -> None:
    """Weights drawn at random are no language model, but they are hard: nothing is certain, every value counts."""
    prompt = random_prompt(40)
    own, fp8 = (prefill(start(family, fp8=kind), prompt).log_softmax(dim=-1) for kind in (False, True))
    divergence = float((own.exp() * (own - fp8)).sum())
    assert 0 < divergence < 0.05


@pytest.mark.parametrize("family", FAMILIES)
def test_the_chunks_of_a_prompt_and_reuse_change_nothing(family: str, start: Start) -> None:
    """A value on the border between two numbers may fall to either side, so small differences are left."""
    first = random_prompt(50)
    model = start(family)
    told = ask(model, first, 3)
    second = [*first, *told.answer, *random_prompt(9, seed=2)]
    warm = ask(model, second, 4)
    cold = ask(start(family, prefill_chunk=64), second, 4)
    assert (warm.reused, cold.reused) == (52, 0)
    torch.testing.assert_close(torch.stack(warm.logits), torch.stack(cold.logits), rtol=0, atol=0.05)


@pytest.mark.parametrize("family", ["mixtral", *FAMILIES])
def test_packing_and_unpacking_stay_within_the_planned_workspace(family: str, tmp_path: Path) -> None:
    config = tiny_config(family)
    config.dtype = torch.float32
    config.save_pretrained(tmp_path)
    shape = kept_in(read_shape(tmp_path), "fp8")
    cache = cache_for(config, shape, 256, CpuDevice(), torch.float32)
    model = model_class(config)._from_config(config, dtype=torch.float32).eval()
    with torch.inference_mode(), LiveMemory() as memory:
        model(torch.tensor([random_prompt(256)]), cache=cache, use_cache=True, logits_to_keep=1)
    assert memory.peak_bytes <= workspace_bytes(shape, 256, 256)


@pytest.mark.slow
def test_the_demo_model_says_nearly_the_same_in_fp8(demo_model: Path) -> None:
    """Measured with more tokens: see tests/bench/kv_quality.py."""
    found = compare(demo_model, answer_tokens=8, text_tokens=60)
    assert found["kv_bytes"][1] < 0.52 * found["kv_bytes"][0]
    assert found["mean_kl_nats"] < 0.02
    assert found["top_1_agreement"] >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_every_family_runs_in_fp8_or_has_a_reason(family: str, start: Start, checkpoint: Tiny) -> None:
    shape = checkpoint(family).shape
    if (reason := why_not_fp8(shape)) is not None:
        with pytest.raises(UsageError, match=reason):
            kept_in(shape, "fp8")
        return
    prompt = random_prompt(40)
    own, fp8 = (prefill(start(family, fp8=kind), prompt).log_softmax(dim=-1) for kind in (False, True))
    assert not torch.equal(own, fp8)
    assert float((own.exp() * (own - fp8)).sum()) < 0.2
