"""What stands in the place of attention: gated delta nets, Kimi delta attention, Mamba 1 and 2, short convolutions.

Each part is its weights and the states that transformers 5.24 keeps of it. Letters as in shape.py, and k the width of
a convolution. Convolutions keep the newest k inputs; recurrent states stay in fp32 unless a line says otherwise.
"""

import math
from collections.abc import Callable

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import DenseCount, Family, Mixer, MixerRule
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_rules import FULL, SLIDING
from engine.contract.shape import StateShape, StateTensor

LINEAR = "linear_attention"
_BLOCK = 64  # tokens that delta rules compare with each other at a time; transformers' default
_OLD_KINDS = {"attention": FULL, "mamba": LINEAR}

KindRule = Callable[[ConfigFacts, int], tuple[str, ...]]  # facts, layers -> kind of each layer


def convolution(channels: int, width: int) -> StateTensor:
    """The newest `width` inputs of a convolution, in the model's type."""
    return StateTensor(kind="convolution", sizes=(channels, width), dtype="model")


def recurrent(*sizes: int) -> StateTensor:
    """A recurrent state in fp32."""
    return StateTensor(kind="recurrent", sizes=sizes, dtype="fp32")


def layer_kinds(otherwise: Callable[[ConfigFacts, int, int], str] | None, *known: str) -> KindRule:
    """`layer_types`, or where it is missing `otherwise(facts, layer, layers)`; only the `known` kinds are accepted."""

    def rule(facts: ConfigFacts, layers: int) -> tuple[str, ...]:
        given = facts.names("layer_types", layers)
        if given is None and otherwise is None:
            raise CannotEstimateError(
                f"config.json of this {facts.model_type} model does not say layer_types; no memory figure without it.",
                CONFIG_FIX,
                fact="layer_types",
            )
        if given is None and otherwise is not None:
            kinds = tuple(otherwise(facts, layer, layers) for layer in range(layers))
        else:
            kinds = tuple(_OLD_KINDS.get(kind, kind) for kind in given or ())
        for kind in kinds:
            if kind not in known:
                raise CannotEstimateError(
                    f"layer_types names {kind}, which {facts.model_type} models do not have.",
                    CONFIG_FIX,
                    fact="layer_types",
                )
        return kinds

    return rule


def every_nth(key: str, default: int) -> Callable[[ConfigFacts, int, int], str]:
    """Every `key`-th layer has full attention, the others are linear."""
    return lambda facts, layer, layers: LINEAR if (layer + 1) % facts.quiet(key, default, least=1) else FULL


def hybrid(kinds: KindRule, other: Callable[[ConfigFacts], Mixer]) -> MixerRule:
    """Ordinary attention in the layers that the configuration names so, `other` in the rest."""

    def rule(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
        attention = family.attention(facts)
        named = kinds(facts, len(attention))
        state = other(facts)
        return tuple(mixer if kind in (FULL, SLIDING) else state for mixer, kind in zip(attention, named, strict=True))

    return rule


def windows_of(kinds: KindRule, window_key: str) -> Callable[[ConfigFacts, int], tuple[int | None, ...]]:
    """The window of sliding layers, and none for all others."""

    def rule(facts: ConfigFacts, layers: int) -> tuple[int | None, ...]:
        named = kinds(facts, layers)
        return tuple(facts.required(window_key) if kind == SLIDING else None for kind in named)

    return rule


def delta_net(facts: ConfigFacts) -> Mixer:
    """Gated delta net (qwen3_next, qwen3_5_moe, lara_mini)."""
    width = facts.required("hidden_size")
    key_heads, value_heads = facts.required("linear_num_key_heads"), facts.required("linear_num_value_heads")
    key_dim, value_dim = facts.required("linear_key_head_dim"), facts.required("linear_value_head_dim")
    kernel = facts.required("linear_conv_kernel_dim")
    keys, values = key_heads * key_dim, value_heads * value_dim
    channels = 2 * keys + values
    projections = width * (2 * keys + 3 * values + 2 * value_heads)  # q, k, v, z, out; b and a
    state = StateShape(
        tensors=(convolution(channels, kernel), recurrent(value_heads, key_dim, value_dim)),
        work_values=4 * channels + value_heads * (8 * (key_dim + value_dim) + 6 * _BLOCK),
        work_block=_BLOCK,
    )
    return Mixer(
        state=state,
        weights=DenseCount(projections + channels * kernel + 2 * value_heads + value_dim),
    )


def kimi_delta(facts: ConfigFacts) -> Mixer:
    """Kimi delta attention with its low-rank gates (kimi_linear); old checkpoints put its sizes in a table."""
    table = facts.given("linear_attn_config")
    own = ConfigFacts(table, facts.model_type) if isinstance(table, dict) else None
    heads = (own and own.optional("num_heads")) or facts.required("linear_num_heads")
    head_size = (own and own.optional("head_dim")) or facts.required("linear_head_dim")
    kernel = (own and own.optional("short_conv_kernel_size")) or facts.required("linear_conv_kernel_dim")
    width, inner = facts.required("hidden_size"), heads * head_size
    gates = 2 * (width * head_size + head_size * inner)
    plain = 4 * width * inner + 3 * inner * kernel + heads + gates + width * heads + head_size
    return Mixer(state=_delta_state(heads, head_size, kernel), weights=DenseCount(plain, inner))


def bailing_delta(facts: ConfigFacts) -> Mixer:
    """Kimi delta attention with full gates; convolution and decay stay in fp32 (bailing_hybrid)."""
    width = facts.required("hidden_size")
    heads = facts.optional("linear_num_heads") or facts.required("num_attention_heads")
    head_size = facts.optional("linear_head_dim") or facts.required("head_dim")
    kernel = facts.optional("linear_conv_kernel_dim") or facts.quiet("short_conv_kernel_size", 4, least=1)
    inner = heads * head_size
    plain = 6 * width * inner + width * heads + head_size
    return Mixer(
        state=_delta_state(heads, head_size, kernel), weights=DenseCount(plain, 3 * inner * kernel + heads + inner)
    )


def _delta_state(heads: int, head_size: int, kernel: int) -> StateShape:
    """Decay has a value for each channel and pair of tokens in a block; four such tables live at once."""
    inner = heads * head_size
    return StateShape(
        tensors=(convolution(3 * inner, kernel), recurrent(heads, head_size, head_size)),
        work_values=inner * (4 * _BLOCK + 24),
        work_block=_BLOCK,
    )


def mamba_1(facts: ConfigFacts) -> Mixer:
    """Mamba with norms of time step, B and C (jamba).

    Its scan begins at zero, so only single tokens go on from a state.
    """
    width = facts.required("hidden_size")
    inner = facts.quiet("mamba_expand", 2, least=1) * width
    states, kernel = facts.required("mamba_d_state"), facts.required("mamba_d_conv")
    given = facts.given("mamba_dt_rank")
    rank = math.ceil(width / 16) if given in (None, "auto") else facts.required("mamba_dt_rank")
    inputs = rank + 2 * states
    note = "a prompt longer than one prefill chunk is read token by token after the first chunk"
    if note not in facts.assumptions:
        facts.assumptions.append(note)
    plain = 3 * width * inner + inner * kernel + inner * inputs + rank * inner + inner  # in, conv, x, dt with bias, out
    plain += inner * states + inner + inputs  # A, D, norms
    plain += inner if facts.flag(("mamba_conv_bias", True)) else 0
    plain += 2 * inner + width if facts.flag(("mamba_proj_bias", False)) else 0
    return Mixer(
        state=StateShape(
            tensors=(convolution(inner, kernel), recurrent(inner, states)),
            resumes=False,
            work_values=inner * (4 * states + 12),
        ),
        weights=DenseCount(plain),
    )


def mamba_2(
    facts: ConfigFacts,
    *,
    heads: int,
    head_size: int,
    groups: int,
    states: int,
    kernel: int,
    block: int,
    bias: tuple[bool, bool],
) -> Mixer:
    """Mamba 2 with a gated norm (granitemoehybrid, nemotron_h).

    Args:
        block: tokens that are compared with each other; the scan fills up to a multiple of it.
        bias: of the convolution, of the projections.
    """
    width, inner = facts.required("hidden_size"), heads * head_size
    channels = inner + 2 * groups * states
    projected = inner + channels + heads
    plain = width * projected + channels * kernel + 3 * heads + inner + inner * width
    plain += channels if bias[0] else 0
    plain += projected + width if bias[1] else 0
    return Mixer(
        state=StateShape(
            tensors=(convolution(channels, kernel), recurrent(heads, head_size, states)),
            work_values=4 * projected + heads * (6 * block + 8 * (states + head_size)),
            work_block=block,
        ),
        weights=DenseCount(plain),
    )


def granite_mamba(facts: ConfigFacts) -> Mixer:
    """Mamba 2 under the names of granitemoehybrid."""
    heads = facts.required("mamba_n_heads")
    inner = facts.quiet("mamba_expand", 2, least=1) * facts.required("hidden_size")
    if inner % heads:
        raise CannotEstimateError(
            f"mamba_n_heads {heads} does not divide {inner}, the width of the Mamba layers.",
            CONFIG_FIX,
            fact="mamba_n_heads",
        )
    return mamba_2(
        facts,
        heads=heads,
        head_size=inner // heads,
        groups=facts.quiet("mamba_n_groups", 1, least=1),
        states=facts.required("mamba_d_state"),
        kernel=facts.required("mamba_d_conv"),
        block=facts.quiet("mamba_chunk_size", 256, least=1),
        bias=(facts.flag(("mamba_conv_bias", True)), facts.flag(("mamba_proj_bias", False))),
    )


def short_convolution(facts: ConfigFacts) -> Mixer:
    """A gated convolution over few tokens and nothing else (lfm2_moe)."""
    width, kernel = facts.required("hidden_size"), facts.required("conv_L_cache")
    plain = 4 * width * width + width * kernel
    plain += 5 * width if facts.flag(("conv_bias", False)) else 0
    state = StateShape(tensors=(convolution(width, kernel),), work_values=8 * width)
    return Mixer(state=state, weights=DenseCount(plain))


def lightning(facts: ConfigFacts) -> Mixer:
    """Lightning attention: one matrix a head in the model's type; tables of decay count as weights (minimax)."""
    width, heads = facts.required("hidden_size"), facts.required("num_attention_heads")
    head_size = facts.optional("head_dim") or width // heads
    block = facts.quiet("block_size", 256, least=1)
    inner = heads * head_size
    decay = heads * (1 + 2 * block + block * block)
    state = StateTensor(kind="recurrent", sizes=(heads, head_size, head_size), dtype="model")
    shape = StateShape(tensors=(state,), work_values=10 * inner + 4 * heads * block)
    return Mixer(state=shape, weights=DenseCount(5 * width * inner + inner + decay))
