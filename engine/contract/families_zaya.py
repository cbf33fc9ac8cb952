"""ZAYA: attention whose queries, keys and values pass through convolutions, and a router that is a small network.

Source: transformers 5.24, models/zaya.
"""

from engine.contract.families_anatomy import DenseCount, Family, Mixer
from engine.contract.families_facts import ConfigFacts
from engine.contract.families_states import convolution, layer_kinds
from engine.contract.shape import KvShape, StateShape, StateTensor

_HYBRID, _HYBRID_SLIDING = "hybrid", "hybrid_sliding"
_KINDS = layer_kinds(lambda facts, layer, layers: _HYBRID, _HYBRID, _HYBRID_SLIDING)


def _mixers(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    heads, kv_heads = facts.required("num_attention_heads"), facts.required("num_key_value_heads")
    head_size, width = facts.required("head_dim"), facts.required("hidden_size")
    first, second = facts.quiet("cca_time0", 2, least=1), facts.quiet("cca_time1", 2, least=1)
    queries, keys = heads * head_size, kv_heads * head_size
    channels = queries + keys
    state = StateShape(
        tensors=(
            convolution(channels, first + second - 2),
            StateTensor(kind="recurrent", sizes=(keys // 2,), dtype="model"),
        ),
        work_values=12 * channels,
    )
    plain = width * (2 * queries + 2 * keys) + kv_heads
    plain += channels * first + channels + channels * head_size * second + channels
    plain += channels + 2 * (keys // 2) + width if facts.flag(("attention_bias", False)) else 0
    plain += 8 * width + _router(facts, width)
    classes = facts.required("num_experts") + 1  # one of them computes nothing
    rank = facts.required("router_hidden_size")
    mixers: list[Mixer] = []
    for index, kind in enumerate(_KINDS(facts, facts.required("num_hidden_layers"))):
        window = facts.required("sliding_window") if kind == _HYBRID_SLIDING else None
        kv = KvShape(n_kv_heads=kv_heads, key_dim=head_size, value_dim=head_size, window=window, n_heads=heads)
        mixers.append(Mixer(kv=kv, state=state, weights=DenseCount(plain + (rank if index else 0), classes)))
    return tuple(mixers)


def _router(facts: ConfigFacts, width: int) -> int:
    """A projection down, a norm, two square layers with biases, and one row per expert and one more."""
    rank, experts = facts.required("router_hidden_size"), facts.required("num_experts")
    return width * rank + rank + rank + 2 * (rank * rank + rank) + (experts + 1) * rank


ZAYA = Family(
    vocab_size=262272,
    max_context=131072,
    top_k=1,
    mixers=_mixers,
    router=False,
    once=lambda facts: 2 * facts.required("hidden_size"),
    head_bias=("lm_head_bias", False),
    fp32_names=("balancing_biases",),
)
