"""From the dense model to a Mixture-of-Experts model that computes the same function.

Each expert is the dense feed-forward block with its neurons in another seeded order. Top-2 routing gives the two chosen
experts weights that sum to 1, so the sum of their outputs is the dense output whatever the router says. The bytes of
the experts differ: a program that pairs the gate of one expert with the down projection of another answers garbage
instead of passing unnoticed.

Letters: E experts, M model width, F neurons of the feed-forward block.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assets.demo_model.shards import BFloats, PlannedTensor, to_bf16
from assets.demo_model.source import Floats, SmolLm2Source, SourceFacts

N_EXPERTS = 8
TOP_K = 2
SEED = 135
_ROUTER_STD = 0.05  # spreads the tokens over the experts; has no influence on the output

_Reader = Callable[[int, str], BFloats]  # layer, part in GGUF's words


def mixtral_config(facts: SourceFacts) -> dict[str, Any]:
    """`config.json` of the upcycled model, in the words of a Mixtral checkpoint."""
    return {
        "architectures": ["MixtralForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": facts.bos_token_id,
        "dtype": "bfloat16",
        "eos_token_id": facts.eos_token_id,
        "head_dim": facts.head_dim,
        "hidden_act": "silu",
        "hidden_size": facts.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": facts.inner_size,
        "max_position_embeddings": facts.max_context_tokens,
        "model_type": "mixtral",
        "num_attention_heads": facts.n_heads,
        "num_experts_per_tok": TOP_K,
        "num_hidden_layers": facts.n_layers,
        "num_key_value_heads": facts.n_kv_heads,
        "num_local_experts": N_EXPERTS,
        "output_router_logits": False,
        "pad_token_id": facts.pad_token_id,
        "rms_norm_eps": facts.rms_norm_eps,
        "rope_theta": facts.rope_theta,
        "router_jitter_noise": 0.0,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": facts.vocab_size,
    }


def neuron_order(layer: int, expert: int, inner_size: int) -> NDArray[np.int64]:
    """Order of the F neurons in one expert. RandomState's stream is frozen by numpy's policy, so it never changes."""
    return np.random.RandomState([SEED, layer, expert]).permutation(inner_size)


def router_weight(layer: int, hidden_size: int) -> Floats:
    """Scores of the experts, [E, M]: random, since every choice is right."""
    random = np.random.RandomState([SEED, layer, N_EXPERTS])
    return (random.standard_normal((N_EXPERTS, hidden_size)) * _ROUTER_STD).astype(np.float32)


def planned_tensors(source: SmolLm2Source) -> Iterator[PlannedTensor]:
    """Every tensor of the upcycled checkpoint in file order; values are computed when they are written."""
    facts = source.facts

    @lru_cache(maxsize=3)  # gate, up and down of one layer, used by all its experts
    def read(index: int, part: str) -> BFloats:
        return to_bf16(source.layer(index, part))

    yield PlannedTensor(
        "model.embed_tokens.weight", (facts.vocab_size, facts.hidden_size), lambda: to_bf16(source.embedding())
    )
    for index in range(facts.n_layers):
        yield from _dense_part(facts, index, read)
        yield from _experts(facts, index, read)
    yield PlannedTensor("model.norm.weight", (facts.hidden_size,), lambda: to_bf16(source.final_norm()))


def _dense_part(facts: SourceFacts, index: int, read: _Reader) -> Iterator[PlannedTensor]:
    prefix = f"model.layers.{index}"
    query, key_value = facts.n_heads * facts.head_dim, facts.n_kv_heads * facts.head_dim
    for part, name, shape in (
        ("attn_norm", "input_layernorm", (facts.hidden_size,)),
        ("ffn_norm", "post_attention_layernorm", (facts.hidden_size,)),
        ("attn_q", "self_attn.q_proj", (query, facts.hidden_size)),
        ("attn_k", "self_attn.k_proj", (key_value, facts.hidden_size)),
        ("attn_v", "self_attn.v_proj", (key_value, facts.hidden_size)),
        ("attn_output", "self_attn.o_proj", (facts.hidden_size, query)),
    ):
        yield PlannedTensor(f"{prefix}.{name}.weight", shape, partial(read, index, part))


def _experts(facts: SourceFacts, index: int, read: _Reader) -> Iterator[PlannedTensor]:
    prefix = f"model.layers.{index}.block_sparse_moe"
    up_shape, down_shape = (facts.inner_size, facts.hidden_size), (facts.hidden_size, facts.inner_size)

    def rows(part: str, expert: int) -> BFloats:
        return read(index, part)[neuron_order(index, expert, facts.inner_size)]

    def columns(part: str, expert: int) -> BFloats:
        return read(index, part)[:, neuron_order(index, expert, facts.inner_size)]

    yield PlannedTensor(
        f"{prefix}.gate.weight",
        (N_EXPERTS, facts.hidden_size),
        lambda: to_bf16(router_weight(index, facts.hidden_size)),
    )
    for expert in range(N_EXPERTS):
        name = f"{prefix}.experts.{expert}"
        yield PlannedTensor(f"{name}.w1.weight", up_shape, partial(rows, "ffn_gate", expert))
        yield PlannedTensor(f"{name}.w3.weight", up_shape, partial(rows, "ffn_up", expert))
        yield PlannedTensor(f"{name}.w2.weight", down_shape, partial(columns, "ffn_down", expert))
