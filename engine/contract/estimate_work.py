"""Bytes of what is short-lived: tensors of one step, and experts while they are unpacked. A part of estimate.py.

Letters as in shape.py.
"""

from engine.contract.shape import KvShape, ModelShape, StateShape
from engine.contract.units import round_up

UNPACK_STRIP_VALUES = 1 << 20  # packed weights become numbers a strip of rows at a time, at most so many of them
_UNPACK_VALUE_BYTES = 32  # short-lived tensors of a strip: words, numbers, scales, zero points, products


def workspace_bytes(shape: ModelShape, prefill_chunk: int, context_tokens: int = 0) -> int:
    """Reserve for the short-lived tensors of one prefill step of T tokens, an upper bound rather than an allocation.

    T · ((3 + 5 · S) · M + 4 · A · F) values of 4 bytes for S streams of hidden states and routed activations, and one
    row of logits twice.
    Attention over n tokens: masks of T · n values, see `_mask_bytes`, and what `_attention_bytes` says of the
    hungriest layer. Packed experts are unpacked one after another: `unpacked_bytes`.
    """
    experts = shape.experts
    hidden = (3 + 5 * shape.streams) * shape.hidden_size
    values = prefill_chunk * (hidden + 4 * experts.top_k * experts.inner) + 2 * shape.vocab_size
    size = shape.value_bytes
    attention = max((_attention_bytes(kv, prefill_chunk, context_tokens, size) for kv in shape.kv_layers), default=0)
    attention = max((attention, *(_state_work_bytes(state, prefill_chunk) for state in shape.different_states)))
    mask = _mask_bytes(shape) * min(prefill_chunk, context_tokens) * context_tokens
    return 4 * values + attention + mask + unpacked_bytes(shape)


def unpacked_bytes(shape: ModelShape) -> int:
    """Room for one unpacked expert and what is in between; 0 where no expert has to be unpacked.

    Its matrices in the type of the dense part, which engine/experts/reference_kernel.py allocates once, and a strip of
    rows on its way.
    """
    matrices = unpacked_expert_bytes(shape)
    experts = shape.experts
    up = experts.width * experts.inner * (2 if experts.has_gate else 1)
    return matrices + min(UNPACK_STRIP_VALUES, up) * _UNPACK_VALUE_BYTES if matrices else 0


def unpacked_expert_bytes(shape: ModelShape) -> int:
    """Matrices of one unpacked expert in the type of the dense part; 0 where no expert has to be unpacked."""
    experts = shape.experts
    if all(storage.plain_format(experts.has_bias) for storage in shape.different_storages):
        return 0
    return (3 if experts.has_gate else 2) * experts.width * experts.inner * shape.value_bytes


def _mask_bytes(shape: ModelShape) -> int:
    """Of one token and one that it attends to: 4 for the two forms of a mask; where scores are written out, one that is
    added to them for each kind of layer, in the model's type, and what it is made of."""
    if not any(kv.writes_scores for kv in shape.kv_layers):
        return 4
    return max(4, len({kv.window for kv in shape.kv_layers}) * (shape.value_bytes + 1))


def _attention_bytes(kv: KvShape, prefill_chunk: int, context_tokens: int, bytes_per_value: int) -> int:
    """Short-lived tensors of one attention layer over n tokens.

    Keys and values repeated for all H query heads, which transformers' `sdpa_attention_forward` does whenever there
    is a mask. Without a fused kernel also the scores, T · n · H values in three copies (sum with the mask, with the
    sinks, softmax: `eager_attention_forward` of gpt_oss; that of flint keeps them in fp32). Latents expanded to
    keys and values of all heads, once from the projection and once more as keys with their rotated part
    (`expand_kv` of deepseek_v3). Scores of the index, in fp32 twice and once more with the mask, and the mask of
    the chosen tokens (`DeepseekV32Indexer`); the same for pooled entries, which attention sees behind its window.
    Biases of distances for every pair of tokens and head, picked from those of all distances, and scores in fp32
    twice (`InklingRelativeLogits`).
    """
    heads = kv.n_heads or kv.n_kv_heads
    seen = context_tokens if kv.window is None else min(context_tokens, kv.window + prefill_chunk)
    values = kv.key_dim if kv.keys_are_values else kv.value_dim
    repeated = heads * (kv.key_dim + values) if heads != kv.n_kv_heads else 0
    new = min(prefill_chunk, context_tokens)
    scores = 3 * new * heads * (4 if kv.scores_in_fp32 else bytes_per_value) if kv.writes_scores else 0
    biases = new * heads * (seen * (2 * bytes_per_value + 8) + 2 * kv.bias_extent * bytes_per_value)
    index = 4 * new * (2 * kv.index_heads + 3) if kv.index_heads else 0
    if kv.expanded_values:
        repeated = 2 * kv.expanded_values
    chosen_of = sum(context_tokens // entries.step for entries in kv.pooled if entries.index) if kv.pooled else seen
    seen += sum(context_tokens // entries.step for entries in kv.pooled if not entries.index)
    return seen * (repeated * bytes_per_value + scores) + chosen_of * index + (biases if kv.bias_extent else 0)


def _state_work_bytes(state: StateShape, prefill_chunk: int) -> int:
    """Short-lived fp32 tensors of a layer that keeps a state; where that is more, they stand for attention's."""
    return 4 * round_up(prefill_chunk, state.work_block) * state.work_values
