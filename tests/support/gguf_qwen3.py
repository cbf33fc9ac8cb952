"""The metadata and tensors of a GGUF file of Qwen3 30B, without its bytes."""

from typing import Any

Metadata = dict[str, Any]
Tensors = dict[str, tuple[str, tuple[int, ...]]]

LAYERS, M, F, E, VOCAB = 48, 2048, 768, 128, 151936
QWEN3: Metadata = {
    "general.architecture": "qwen3moe", "general.name": "Qwen3 30B A3B", "qwen3moe.block_count": LAYERS,
    "qwen3moe.context_length": 40960, "qwen3moe.embedding_length": M, "qwen3moe.feed_forward_length": 6144,
    "qwen3moe.attention.head_count": 32, "qwen3moe.attention.head_count_kv": 4,
    "qwen3moe.attention.key_length": 128, "qwen3moe.attention.value_length": 128,
    "qwen3moe.expert_count": E, "qwen3moe.expert_used_count": 8, "qwen3moe.expert_feed_forward_length": F,
    "tokenizer.ggml.tokens": ["a", "b", "ü"] * 2000, "tokenizer.ggml.scores": [0.0] * 6000,
    "tokenizer.chat_template": "x" * 9000,
}  # fmt: skip


def gguf_experts(layer: int, up: str, down: str, sizes: tuple[int, int, int] = (M, F, E)) -> Tensors:
    """The matrices of one layer, gate and up of one type; `sizes` are M, F and E."""
    width, inner, experts = sizes
    return {
        f"blk.{layer}.ffn_gate_exps.weight": (up, (width, inner, experts)),
        f"blk.{layer}.ffn_up_exps.weight": (up, (width, inner, experts)),
        f"blk.{layer}.ffn_down_exps.weight": (down, (inner, width, experts)),
    }


DENSE: Tensors = {
    "token_embd.weight": ("Q4_K", (M, VOCAB)),
    "output.weight": ("Q6_K", (M, VOCAB)),
    "output_norm.weight": ("F32", (M,)),
}
DENSE_BYTES = 2 * (2 * M * VOCAB + M)  # unpacked to bf16


def q4_k_m() -> Tensors:
    """As a common mixture does it: every other layer has its down projection in six bits."""
    found = dict(DENSE)
    for layer in range(LAYERS):
        found |= gguf_experts(layer, "Q4_K", "Q6_K" if layer % 2 else "Q4_K")
    return found


def all_experts(kind: str) -> Tensors:
    """Those of all layers, of one type."""
    return {name: what for layer in range(LAYERS) for name, what in gguf_experts(layer, kind, kind).items()}
