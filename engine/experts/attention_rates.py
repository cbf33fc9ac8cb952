"""Measures attention over a KV cache as transformers computes it for most families, with heads of a usual size.

Letters: T new tokens, n tokens they attend to, H query heads, K KV heads, D head size.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812

from engine.contract.rates import AttentionRates

HEADS, KV_HEADS, HEAD_SIZE = 32, 4, 128
SEEN_TOKENS = 2048
PROMPT_TOKENS = 256
LAYERS = 16  # whose keys and values are read in turn: 64 MiB, so that they come from memory

MedianSeconds = Callable[[Callable[[], object]], float]


def attention_rates(device: torch.device, synchronize: Callable[[], None], median_s: MedianSeconds) -> AttentionRates:
    """One token over n cached ones without a mask, and T tokens over n with one.

    Args:
        synchronize: waits for the device.
        median_s: times a call, in seconds.
    """
    shape = (1, KV_HEADS, SEEN_TOKENS, HEAD_SIZE)
    cached = [torch.full((2, *shape), 0.01, dtype=torch.bfloat16, device=device) for _ in range(LAYERS)]
    one, many = (
        torch.full((1, HEADS, tokens, HEAD_SIZE), 0.01, dtype=torch.bfloat16, device=device)
        for tokens in (1, PROMPT_TOKENS)
    )
    first_seen = SEEN_TOKENS - PROMPT_TOKENS
    mask = torch.ones(PROMPT_TOKENS, SEEN_TOKENS, dtype=torch.bool, device=device).tril(first_seen)[None, None]

    def decode() -> None:
        for keys, values in cached:
            F.scaled_dot_product_attention(one, keys, values, enable_gqa=True)
        synchronize()

    def prefill() -> None:
        keys, values = (part.repeat_interleave(HEADS // KV_HEADS, dim=1) for part in cached[0])
        F.scaled_dot_product_attention(many, keys, values, attn_mask=mask)
        synchronize()

    operations = 2 * SEEN_TOKENS * HEADS * 2 * HEAD_SIZE  # of one token: with keys, and with values
    return AttentionRates(
        token_flops_s=LAYERS * operations / median_s(decode),
        prompt_flops_s=PROMPT_TOKENS * operations / median_s(prefill),
    )
