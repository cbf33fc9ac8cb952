"""Qwen 4 (experimental): delta nets, attention that chooses tokens by pooled keys, and tables of word groups.

Source: transformers 5.24, models/qwen4_exp. Letters as in families_anatomy.py, and S residual streams. A layer may add
what a hash of the newest words finds in a table of its own, which makes up most of the weights outside of the experts.
"""

import math
from dataclasses import replace
from functools import lru_cache

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import Anatomy, DenseCount, Family, Mixer
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_rules import FULL, every_layer, size_of
from engine.contract.families_states import LINEAR, convolution, delta_net, every_nth, layer_kinds
from engine.contract.families_streams import with_streams
from engine.contract.shape import StateTensor

_INDEXED = "indexed_attention"
_KINDS = layer_kinds(every_nth("full_attention_interval", 4), FULL, LINEAR, _INDEXED)
_AXES = 3  # time, height and width of a position
_MOST_GROUPS = 512  # heads of all tables; published models have tens
_MOST_ROWS = 1 << 31
_BASES = (2, 3, 5, 7)
_NOTE = (
    "keys of the index are pooled anew for every token of a prompt, one token after another: prompts are read slowly"
)


def _mixers(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    kinds = _KINDS(facts, facts.required("num_hidden_layers"))
    tables = _tables(facts, len(kinds))
    attention, linear = _attention(facts, family), delta_net(facts)
    facts.assumptions.append(_NOTE)
    first = next((layer for layer, kind in enumerate(kinds) if kind != LINEAR), None)
    mixers: list[Mixer] = []
    for layer, kind in enumerate(kinds):
        mixer = linear if kind == LINEAR else attention
        if layer == first:
            assert attention.kv is not None
            mixer = replace(attention, kv=attention.kv.model_copy(update={"index_positions": _AXES}))
        if layer in tables:
            if kind != LINEAR:
                raise CannotEstimateError(
                    f"ple_layer_ids in config.json names layer {layer + 1}, which has no linear attention.",
                    CONFIG_FIX,
                    fact="ple_layer_ids",
                )
            mixer = _with_table(facts, linear, tables.index(layer))
        mixers.append(
            replace(mixer, weights=mixer.weights + _gated_residual(facts, True) + _gated_residual(facts, True))
        )
    return tuple(mixers)


def _attention(facts: ConfigFacts, family: Family) -> Mixer:
    """Attention with an output gate in the query projection, and the index; queries are scored one after another."""
    kv = family.kv_shapes(facts)[0]
    width, size, heads = facts.required("hidden_size"), kv.key_dim, kv.n_heads or kv.n_kv_heads
    if facts.required("indexer_kv_heads") != 1:
        raise CannotEstimateError(
            "config.json says more than one indexer_kv_heads.", CONFIG_FIX, fact="indexer_kv_heads"
        )
    index_heads, index_size = facts.required("indexer_n_heads"), facts.required("indexer_head_dim")
    projected = 2 * heads * size + 2 * kv.n_kv_heads * size
    plain = width * (projected + heads * size) + 2 * size
    plain += projected + width if facts.flag(("attention_bias", False)) else 0
    plain += width * (index_heads + 1) * index_size + 2 * index_size
    return Mixer(kv=kv.model_copy(update={"index_dim": index_size}), weights=DenseCount(plain))


def _gated_residual(facts: ConfigFacts, spreads: bool) -> DenseCount:
    """Norm of all streams, a low-rank mixer, and where an answer is spread over the streams a weight for each."""
    streams = facts.required("hc_count")
    wide = streams * facts.required("hidden_size")
    return DenseCount(wide + 2 * wide * facts.required("hc_lowrank") + (wide * streams if spreads else 0))


def _tables(facts: ConfigFacts, layers: int) -> list[int]:
    """Layers with a table of word groups, ascending."""
    named = sorted(set(facts.numbers("ple_layer_ids") or ()))
    if any(not 1 <= layer <= layers for layer in named):
        raise CannotEstimateError(
            f"ple_layer_ids in config.json names layer {named[-1]}; the model has {layers}.",
            CONFIG_FIX,
            fact="ple_layer_ids",
        )
    return [layer - 1 for layer in named]


def _with_table(facts: ConfigFacts, linear: Mixer, number: int) -> Mixer:
    """A delta net behind the `number`-th table; states of the words before and of a convolution over their values."""
    wide, width = facts.required("hc_count") * facts.required("hidden_size"), facts.required("hidden_size")
    embedded = facts.optional("ple_embed_dim") or width
    longest, per_length = facts.required("ngram_size"), facts.required("heads_per_ngram")
    kernel, base = facts.required("ple_conv_kernel_size"), facts.required("ngram_vocab_size_base")
    heads = (longest - 1) * per_length
    if not 0 < heads <= _MOST_GROUPS or embedded % heads:
        raise CannotEstimateError(
            f"config.json says ple_embed_dim {embedded} for {heads} heads of word groups, which does not divide it.",
            CONFIG_FIX,
            fact="ple_embed_dim",
        )
    rows = sum(primes(base, (number + 1) * heads)[number * heads :])
    step = facts.required("make_ngram_vocab_size_divisible_by")
    table = math.ceil(rows / step) * step * (embedded // heads)
    plain = table + embedded * wide + embedded * width + 3 * wide + wide * kernel
    assert linear.state is not None
    tensors = (
        *(tensor for tensor in linear.state.tensors if tensor.kind == "convolution"),
        convolution(wide, (kernel - 1) * longest),
        StateTensor(kind="convolution", sizes=(longest - 1,), dtype="int64"),
        *(tensor for tensor in linear.state.tensors if tensor.kind != "convolution"),
    )
    return Mixer(
        state=linear.state.model_copy(update={"tensors": tensors}),
        weights=linear.weights + DenseCount(plain, 2 * _hash_numbers(facts)),
    )


@lru_cache(maxsize=64)
def primes(start: int, count: int) -> tuple[int, ...]:
    """The first `count` primes from `start` on, as the hash of word groups takes them."""
    if start > _MOST_ROWS or count > _MOST_GROUPS:
        raise CannotEstimateError(
            f"config.json says ngram_vocab_size_base = {start} and {count} heads of word groups; this is not believed.",
            CONFIG_FIX,
            fact="ngram_vocab_size_base",
        )
    found: list[int] = []
    number = start
    while len(found) < count:
        if _is_prime(number):
            found.append(number)
        number += 1
    return tuple(found)


def _is_prime(number: int) -> bool:
    """Miller and Rabin with the bases 2, 3, 5, 7, which are enough below 3,215,031,751."""
    if number < 2 or any(number % base == 0 for base in _BASES):
        return number in _BASES
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in _BASES:
        power = pow(base, odd, number)
        if power not in (1, number - 1) and all(
            (power := power * power % number) != number - 1 for _ in range(twos - 1)
        ):
            return False
    return True


def qwen4_exp(facts: ConfigFacts, tied: bool) -> Anatomy:
    """Read a qwen4_exp configuration.

    Raises:
        CannotEstimateError: a fact is missing or of an unknown kind.
        UnsupportedModelError: the model has no routed experts.
    """
    anatomy = _QWEN4_EXP(facts, tied)
    if not (tables := _tables(facts, len(anatomy.layers))):
        return anatomy
    return replace(anatomy, computed_bytes=len(tables) * 8 * _hash_numbers(facts))


def _hash_numbers(facts: ConfigFacts) -> int:
    """A factor for each word of a group, and for each head rows and where they begin, 8 bytes each."""
    longest = facts.required("ngram_size")
    return longest + 2 * (longest - 1) * facts.required("heads_per_ngram")


def _once(anatomy: Anatomy, streams: int) -> DenseCount:
    """There is no last norm; what joins the streams is counted with the layers' sizes."""
    return DenseCount(-anatomy.hidden_size)


_QWEN4_EXP = with_streams(
    Family(
        vocab_size=248320,
        max_context=32768,
        top_k=10,
        mixers=_mixers,
        windows=lambda facts, layers: (None,) * layers,
        head_size="key",
        norms=0,
        moe=every_layer,
        shared=size_of("shared_expert_intermediate_size", 512),
        shared_gate=True,
        once=lambda facts: _gated_residual(facts, False).plain,
    ),
    "hc_count",
    _once,
)
