"""The KV cache: the plan's bytes, no more, and exact answers beyond the window and in any chunks."""

from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from engine.banks.cpu_device import CpuDevice
from engine.contract.errors import ContextTooLongError, PlanMismatchError
from engine.contract.estimate import kv_cache_bytes
from engine.contract.shape import KvShape
from engine.model.dense import read_config
from engine.model.kv_cache import KvCache, check_layers
from engine.model.kv_layers import KvLayer
from tests.engine.model.conftest import Load, Tiny
from tests.support.reference import greedy, prefill, random_prompt, stock_greedy, stock_logits
from tests.support.tiny_models import TinyModel, mixtral, plan_for

WINDOW = 8


@pytest.fixture(scope="module")
def sliding(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """Every layer attends to the last 8 tokens."""
    return mixtral(tmp_path_factory.mktemp("sliding") / "mixtral", sliding_window=WINDOW)


@pytest.mark.parametrize("context_tokens", [1, 5, WINDOW, 64])
def test_exactly_the_planned_bytes_are_allocated(context_tokens: int, tiny: Tiny, sliding: TinyModel) -> None:
    for checkpoint in (tiny("mixtral"), tiny("gpt_oss"), sliding):
        device = CpuDevice()
        cache = KvCache(checkpoint.shape, context_tokens, device, torch.float32)
        planned = kv_cache_bytes(checkpoint.shape, context_tokens)
        assert device.allocated == {"KV cache": planned}
        assert sum(layer.nbytes for layer in _layers(cache)) == planned
        cache.close()
        assert device.allocated == {}


def test_a_sliding_layer_holds_its_window_and_nothing_more(sliding: TinyModel) -> None:
    cache = KvCache(sliding.shape, 64, CpuDevice(), torch.float32)
    held = 2 * 2 * WINDOW * 8 * 4  # K and V, heads, tokens, head size, bytes
    assert {layer.nbytes for layer in _layers(cache)} == {held}


def _layers(cache: KvCache) -> list[KvLayer]:
    return [layer for layer in cache.layers if isinstance(layer, KvLayer)]


@pytest.mark.parametrize("chunk", [1, 3, 7, 8, 9, 16, 64])
def test_prompts_far_beyond_the_window_are_exact_in_any_chunks(chunk: int, sliding: TinyModel, load: Load) -> None:
    prompt = random_prompt(40)
    model = load(plan_for(sliding, "llll", prefill_chunk=chunk))
    torch.testing.assert_close(prefill(model, prompt), stock_logits(sliding, prompt)[-1], rtol=0, atol=1e-5)
    assert greedy(model, [9], 10) == stock_greedy(sliding, [*prompt, 9], 10)


@pytest.mark.parametrize("chunk", [5, 64])
@pytest.mark.parametrize("family", ["mixtral", "gpt_oss", "qwen3_moe"])
def test_each_decoded_token_is_exact(family: str, chunk: int, tiny: Tiny, load: Load) -> None:
    checkpoint = tiny(family)
    tokens = random_prompt(40)
    model = load(plan_for(checkpoint, "l" * len(checkpoint.shape.moe_layers), prefill_chunk=chunk))
    want = stock_logits(checkpoint, tokens)
    got = [prefill(model, tokens[:6])] + [model.decode(token) for token in tokens[6:]]
    torch.testing.assert_close(torch.stack(got), want[5:], rtol=0, atol=1e-5)


def test_after_a_reset_nothing_of_the_old_sequence_is_left(sliding: TinyModel, load: Load) -> None:
    model = load(plan_for(sliding, "llll", context_tokens=40))
    prompt = random_prompt(30)
    first = prefill(model, prompt)
    model.reset()
    assert model.cached_tokens == 0
    prefill(model, random_prompt(40, seed=5))
    model.reset()
    assert torch.equal(prefill(model, prompt), first)


def test_the_last_token_of_the_context_fits_and_the_next_is_refused(tiny: Tiny, load: Load) -> None:
    model = load(plan_for(tiny("mixtral"), "llll", context_tokens=12))
    prefill(model, random_prompt(11))
    model.decode(5)
    assert model.cached_tokens == 12
    with pytest.raises(ContextTooLongError) as why:
        model.decode(5)
    assert why.value.numbers == {"prompt_tokens": 13, "context_tokens": 12}


@given(window=st.integers(2, 9), steps=st.lists(st.integers(1, 12), min_size=1, max_size=10))
def test_a_sliding_layer_returns_what_transformers_own_layer_returns(window: int, steps: list[int]) -> None:
    """For a single token the order inside the window is free, so the sorted tokens are compared."""
    total = sum(steps)
    kv = KvShape(n_kv_heads=1, key_dim=2, value_dim=3, window=window)
    held = min(window, total)
    ours = KvLayer(kv, total, torch.zeros(held * 5 * 4, dtype=torch.uint8), torch.float32)
    theirs = transformers.cache_utils.DynamicSlidingWindowLayer(sliding_window=window)
    at = 0
    for step in steps:
        numbers = torch.arange(at, at + step, dtype=torch.float32)[None, None, :, None]
        keys, values = numbers.expand(1, 1, step, 2), numbers.expand(1, 1, step, 3)
        assert ours.get_mask_sizes(step) == theirs.get_mask_sizes(step)
        our_keys, our_values = ours.update(keys, values)
        their_keys, _ = theirs.update(keys, values)
        got, want = our_keys[0, 0, :, 0].tolist(), their_keys[0, 0, :, 0].tolist()
        assert (sorted(got) if step == 1 else got) == want
        assert our_values[0, 0, :, 2].tolist() == got
        at += step
    assert ours.get_seq_length() == theirs.get_seq_length() == total


def test_a_window_that_the_plan_does_not_know_is_a_wrong_plan(sliding: TinyModel) -> None:
    kv = KvShape(n_kv_heads=2, key_dim=8, value_dim=8)
    layers = tuple(layer.model_copy(update={"kv": kv}) for layer in sliding.shape.layers)
    full = sliding.shape.model_copy(update={"layers": layers})
    check_layers(read_config(Path(sliding.folder)), sliding.shape)
    with pytest.raises(PlanMismatchError, match="window of 8 tokens"):
        check_layers(read_config(Path(sliding.folder)), full)


def test_another_number_type_than_planned_is_refused(tiny: Tiny) -> None:
    with pytest.raises(PlanMismatchError, match="the plan counts 4 B"):
        KvCache(tiny("mixtral").shape, 8, CpuDevice(), torch.bfloat16)
