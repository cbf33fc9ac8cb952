"""DeepSeek V4: a short window of tokens in every layer, and behind it pooled entries that stand for many tokens each.

Source: transformers 5.24, models/deepseek_v4. Letters as in families_anatomy.py, and R rank of the queries, r tokens of
one entry, S residual streams. Keys are the values too, one head for all query heads.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import Anatomy, DenseCount, Family, Mixer
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_rules import SLIDING, every_layer
from engine.contract.families_streams import hyper_connection, hyper_head, with_streams
from engine.contract.shape import KvShape, PooledShape, StateShape, StateTensor

_SPARSE, _HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
_KINDS = (SLIDING, _SPARSE, _HEAVY)
_OF_RATIO = {0: SLIDING, 4: _SPARSE, 128: _HEAVY}
_HASHED, _ROUTED = "hash_moe", "moe"
_RATES: dict[str, tuple[int, str]] = {_SPARSE: (4, "compress_rate_csa"), _HEAVY: (128, "compress_rate_hca")}
_NOTE = (
    "compressed attention: a window of {window} tokens in every layer, and of all tokens one entry of {size} values for"
    " every {rates} tokens, by layer; complete entries are counted"
)


def _mixers(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    layers, width = facts.required("num_hidden_layers"), facts.required("hidden_size")
    kinds = _kinds(facts, layers)
    rates = {kind: _rate(facts, kind) for kind in (_SPARSE, _HEAVY) if kind in kinds}
    if rates:
        facts.assumptions.append(
            _NOTE.format(
                window=facts.required("sliding_window"),
                size=facts.required("head_dim"),
                rates=" or ".join(str(rate) for rate in rates.values()),
            )
        )
    per_kind = {kind: _mixer(facts, kind, rates.get(kind, 0)) for kind in set(kinds)}
    streams = hyper_connection(facts.required("hc_mult"), width, fp32=True)
    common = DenseCount(fp32=2 * width) + streams + streams  # two norms; around attention and around the experts
    return tuple(
        replace(per_kind[kind], weights=per_kind[kind].weights + common + routing)
        for kind, routing in zip(kinds, _routing(facts, layers), strict=True)
    )


def _mixer(facts: ConfigFacts, kind: str, rate: int) -> Mixer:
    """One layer of attention."""
    width, heads, size = (
        facts.required("hidden_size"),
        facts.required("num_attention_heads"),
        facts.required("head_dim"),
    )
    rank, groups, inner = facts.required("q_lora_rank"), facts.required("o_groups"), facts.required("o_lora_rank")
    if heads * size % groups:
        raise CannotEstimateError(
            f"o_groups {groups} in config.json does not divide {heads} heads of {size} values.",
            CONFIG_FIX,
            fact="o_groups",
        )
    plain = width * rank + rank * heads * size + width * size + heads * size * inner + groups * inner * width
    weights = DenseCount(plain, rank + size + heads)
    pooled: tuple[PooledShape, ...] = ()
    index_heads, index_size = 0, 0
    if kind == _SPARSE:
        index_heads, index_size = facts.required("index_n_heads"), facts.required("index_head_dim")
        pooled = (PooledShape(step=rate, dim=size), PooledShape(step=rate, dim=index_size, index=True))
        weights += _pooling(width, 2 * size, size, rate) + _pooling(width, 2 * index_size, index_size, rate)
        weights += DenseCount(rank * index_heads * index_size + width * index_heads)
    elif kind == _HEAVY:
        pooled = (PooledShape(step=rate, dim=size),)
        weights += _pooling(width, size, size, rate)
    kv = KvShape(
        n_kv_heads=1,
        key_dim=size,
        value_dim=0,
        keys_are_values=True,
        window=facts.required("sliding_window"),
        n_heads=heads,
        writes_scores=True,
        index_heads=index_heads,
        pooled=pooled,
    )
    return Mixer(kv=kv, state=_pending(pooled, overlapping=kind == _SPARSE), weights=weights)


def _pooling(width: int, projected: int, size: int, rate: int) -> DenseCount:
    """Values and gates of the tokens of one entry, a bias for each place in it, and the norm of the entry."""
    return DenseCount(2 * width * projected, rate * projected + size)


def _pending(pooled: tuple[PooledShape, ...], *, overlapping: bool) -> StateShape | None:
    """Values and gates of up to r - 1 tokens that make no entry yet.

    Where entries overlap, each token counts in two of them: it has twice the values, and those of the newest complete
    entry's tokens are kept, their gates in fp32 as they have the bias already.
    """
    tensors: list[StateTensor] = []
    for entries in pooled:
        waiting = (entries.step - 1, entries.dim * (2 if overlapping else 1))
        tensors += [StateTensor(kind="pending", sizes=waiting, dtype="model")] * 2
        if overlapping:
            before = (entries.step, entries.dim)
            tensors.append(StateTensor(kind="pending", sizes=before, dtype="model"))
            tensors.append(StateTensor(kind="pending", sizes=before, dtype="fp32"))
    if not tensors:
        return None
    return StateShape(tensors=tuple(tensors), work_values=sum(10 * entries.dim for entries in pooled))


def _kinds(facts: ConfigFacts, layers: int) -> tuple[str, ...]:
    """`layer_types`, or `compress_ratios` of published checkpoints, or the schedule of the modelling code."""
    given, ratios = facts.given("layer_types"), facts.numbers("compress_ratios")
    if given is not None:
        kinds = facts.names("layer_types", layers) or ()
    elif ratios is not None:
        if len(ratios) < layers:
            _refuse(
                f"compress_ratios in config.json names {len(ratios)} layers; the model has {layers}.", "compress_ratios"
            )
        if unknown := [ratio for ratio in ratios[:layers] if ratio not in _OF_RATIO]:
            _refuse(f"compress_ratios in config.json says {unknown[0]}; 0, 4 and 128 are known.", "compress_ratios")
        kinds = tuple(_OF_RATIO[ratio] for ratio in ratios[:layers])
    else:
        kinds = tuple(_HEAVY if layer < 2 or layer % 2 == 0 else _SPARSE for layer in range(layers))
    if unknown_kinds := [kind for kind in kinds if kind not in _KINDS]:
        _refuse(f"layer_types names {unknown_kinds[0]}, which deepseek_v4 models do not have.", "layer_types")
    return kinds


def _rate(facts: ConfigFacts, kind: str) -> int:
    """Tokens of one entry."""
    default, old_key = _RATES[kind]
    rates: Any = facts.given("compress_rates")
    if facts.given(old_key) is not None:
        rate: Any = facts.given(old_key)
    elif rates is None:
        if facts.given("compress_ratios") is None:
            facts.assumptions.append(f"compress_rates is not in config.json; {default} taken for {kind}")
        rate = default
    else:
        rate = rates.get(kind) if isinstance(rates, Mapping) else None
    if not isinstance(rate, int) or isinstance(rate, bool) or not 1 < rate <= 1 << 20:
        _refuse(
            f"config.json says compress_rates = {rates or rate!r:.60}; no number of tokens for {kind}.",
            "compress_rates",
        )
    return rate


def _routing(facts: ConfigFacts, layers: int) -> tuple[DenseCount, ...]:
    """A bias per expert in fp32, or in the first layers a table of the experts of every word, 8 bytes each."""
    kinds = facts.names("mlp_layer_types", layers)
    if kinds is None:
        hashed = facts.quiet("num_hash_layers", 3)
        kinds = tuple(_HASHED if layer < hashed else _ROUTED for layer in range(layers))
    if unknown := [kind for kind in kinds if kind not in (_HASHED, _ROUTED)]:
        _refuse(f"mlp_layer_types names {unknown[0]}, which deepseek_v4 models do not have.", "mlp_layer_types")
    vocab, top_k = facts.quiet("vocab_size", 129280, least=1), facts.quiet("num_experts_per_tok", 6, least=1)
    table, bias = DenseCount(fp32=2 * vocab * top_k), DenseCount(fp32=facts.required("num_experts"))
    return tuple(table if kind == _HASHED else bias for kind in kinds)


def _refuse(sentence: str, fact: str) -> NoReturn:
    raise CannotEstimateError(sentence, CONFIG_FIX, fact=fact)


def _once(anatomy: Anatomy, streams: int) -> DenseCount:
    """The last norm stays in fp32, too."""
    return hyper_head(anatomy, streams) + DenseCount(-anatomy.hidden_size, anatomy.hidden_size)


_FAMILY = Family(
    vocab_size=129280,
    max_context=1048576,
    top_k=6,
    mixers=_mixers,
    norms=0,  # in fp32, counted above
    moe=every_layer,
    mlp_bias=("mlp_bias", False),
    shared=lambda facts: facts.required("moe_intermediate_size"),
    # names in transformers, and in published files: hc_attn_fn, attn_sink, compressor.ape, gate.bias
    fp32_names=(
        "attn_hc", "ffn_hc", "hc_head", "sinks", "position_bias", "e_score_correction_bias", "norm",
        "hc_attn", "hc_ffn", "attn_sink", ".ape", "gate.bias",
    ),
)  # fmt: skip

DEEPSEEK_V4 = with_streams(_FAMILY, "hc_mult", _once)
