"""Inkling: published names, biases of distances, layers that are passed through again."""

from pathlib import Path

import pytest
import torch

from engine.banks.cpu_device import CpuDevice
from engine.contract.estimate import kv_cache_bytes, state_bytes
from engine.model.kv_cache import KvCache
from tests.engine.model.conftest import Load
from tests.support.published_inkling import published_inkling
from tests.support.reference import prefill, random_prompt, stock_logits
from tests.support.tiny_families import tiny_family
from tests.support.tiny_models import plan_for


def test_a_published_model_runs_without_its_parts_for_pictures_and_sound(tmp_path: Path, load: Load) -> None:
    plain, whole = published_inkling(tmp_path)
    assert whole.shape.dense_bytes == plain.shape.dense_bytes
    assert whole.shape.differences == ()
    model = load(plan_for(whole, "lpl", prefill_chunk=7))
    prompt = random_prompt(20)
    torch.testing.assert_close(prefill(model, prompt), stock_logits(plain, prompt)[-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["inkling_text", "inkling2_text", "inkling2_loop_text"])
@pytest.mark.parametrize("chunk", [1, 5, 8, 40])
def test_distances_are_right_far_beyond_the_window(family: str, chunk: int, tmp_path: Path, load: Load) -> None:
    checkpoint = tiny_family(family, tmp_path / family)
    model = load(plan_for(checkpoint, "l" * len(checkpoint.shape.moe_layers), prefill_chunk=chunk))
    tokens = random_prompt(40)
    want = stock_logits(checkpoint, tokens)
    got = [prefill(model, tokens[:33]), *(model.decode(token) for token in tokens[33:])]
    torch.testing.assert_close(torch.stack(got), want[32:], rtol=0, atol=1e-5)


def test_each_pass_of_a_looped_layer_keeps_its_own(tmp_path: Path) -> None:
    shape = tiny_family("inkling2_loop_text", tmp_path / "loop", loop_num_passes=3).shape
    assert [layer.passes for layer in shape.layers] == [1, 3, 3, 1]
    assert [layer.index for layer in shape.cached_layers] == [0, 1, 2, 3, 1, 2, 1, 2]
    window, full = 2 * 3 * 6, 2 * 2 * 8  # values of a token in a sliding layer, and in one that sees all
    assert kv_cache_bytes(shape, 30) == 4 * ((1 + 3) * 8 * window + (1 + 3) * 30 * full)
    states = [2 * 3 * 6 + 2 * 32, 2 * 2 * 8 + 2 * 32]  # channels of the convolutions of both kinds of layers
    assert state_bytes(shape) == 4 * 3 * (4 * states[0] + 4 * states[1])
    device = CpuDevice()
    cache = KvCache(shape, 30, device, torch.float32)
    assert len(cache.layers) == 8
    assert device.allocated == {"KV cache": kv_cache_bytes(shape, 30), "state": state_bytes(shape)}
