"""Families that choose the tokens they attend to by an index: blocks of tokens, pooled keys, or one index for several
layers; some have several residual streams.

tests/engine/contract/test_families.py compares every line of this table with the modules that transformers builds.
Letters as in families_anatomy.py.
"""

from dataclasses import replace

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import Anatomy, AnatomyRule, DenseCount, Family, Mixer
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_full import GATE
from engine.contract.families_latent import DEEPSEEK_V3, latent_attention, shared_index
from engine.contract.families_rules import FULL, mlp_kinds, no_size, required_size
from engine.contract.families_states import LINEAR, kimi_delta, layer_kinds
from engine.contract.families_streams import hyper_connection, hyper_head, independent_connection, with_streams

_INDEXED = "indexed_attention"
_BLOCK_SPARSE = "minimax_m3_sparse"
_OLD_INDEX = {"index_n_heads": "sparse_num_index_heads", "index_head_dim": "sparse_index_dim"}
_HYPER_BIAS = ("attn_hc.base", "attn_hc.scale", "ffn_hc.base", "ffn_hc.scale")
_HYPER_BIAS_IN_FILES = ("hc_attn_base", "hc_attn_scale", "hc_ffn_base", "hc_ffn_scale")


def _blocks(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    """Ordinary attention; the layers that `layer_types` names so choose blocks of tokens by a key of their own."""
    plain = family.attention(facts)
    old = facts.table("sparse_attention_config")
    given = facts.names("layer_types", len(plain))
    flags = old.numbers("sparse_attention_freq")
    if given is None and flags is not None:
        if len(flags) != len(plain):
            raise CannotEstimateError(
                f"sparse_attention_freq in config.json names {len(flags)} layers; the model has {len(plain)}.",
                CONFIG_FIX,
                fact="sparse_attention_freq",
            )
        given = tuple(_BLOCK_SPARSE if flag else FULL for flag in flags)
    kinds = given or (FULL,) * len(plain)
    if unknown := [kind for kind in kinds if kind not in (FULL, _BLOCK_SPARSE)]:
        raise CannotEstimateError(
            f"layer_types names {unknown[0]}, which {facts.model_type} models do not have.",
            CONFIG_FIX,
            fact="layer_types",
        )
    if _BLOCK_SPARSE not in kinds:
        return plain
    width = facts.required("hidden_size")
    heads, size = (old.optional(name) or facts.required(key) for key, name in _OLD_INDEX.items())
    index = DenseCount(width * heads * size + width * size + 2 * size)
    return tuple(
        _with_blocks(mixer, index, heads, size) if kind != FULL else mixer
        for mixer, kind in zip(plain, kinds, strict=True)
    )


def _with_blocks(mixer: Mixer, index: DenseCount, heads: int, size: int) -> Mixer:
    """A mask of the chosen blocks is written out for every head."""
    assert mixer.kv is not None
    more = {"index_dim": size, "index_heads": heads, "index_blocks": True, "writes_scores": True}
    return replace(mixer, kv=mixer.kv.model_copy(update=more), weights=mixer.weights + index)


def _block_experts(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
    """`mlp_layer_types`, or the older list of flags; without either all layers have experts."""
    flags = facts.numbers("moe_layer_freq")
    if facts.given("mlp_layer_types") is not None or flags is None:
        return mlp_kinds(no_size)(facts, layers)
    if len(flags) != layers:
        raise CannotEstimateError(
            f"moe_layer_freq in config.json names {len(flags)} layers; the model has {layers}.",
            CONFIG_FIX,
            fact="moe_layer_freq",
        )
    return tuple(bool(flag) for flag in flags)


def _index_owners(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
    """`indexer_types`; without it the first layer, and then every fourth one from the second on."""
    kinds = facts.names("indexer_types", layers)
    own = tuple(not layer or (layer - 1) % 4 == 0 for layer in range(layers))
    own = own if kinds is None else tuple(kind != "shared" for kind in kinds)
    if not own[0]:
        raise CannotEstimateError(
            "indexer_types in config.json begins with a layer that shares the index of one before it.",
            CONFIG_FIX,
            fact="indexer_types",
        )
    return own


def _hy_v4(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    """Latent attention with a gate as wide as its output, sinks, and an index for some layers each."""
    plain = latent_attention(facts, any_kv_heads=True)
    assert plain.kv is not None
    width, heads = facts.required("hidden_size"), facts.required("num_attention_heads")
    streams = independent_connection(facts.required("hc_mult"), width)
    weights = plain.weights + streams + streams + DenseCount(width * heads * facts.required("v_head_dim"), heads)
    shared = Mixer(kv=plain.kv.model_copy(update={"writes_scores": True}), weights=weights)
    size, index_heads = facts.required("index_head_dim"), facts.required("index_n_heads")
    index = DenseCount(
        facts.required("q_lora_rank") * index_heads * size + width * size, 2 * size + width * index_heads
    )
    assert shared.kv is not None
    kv = shared.kv.model_copy(update={"index_dim": size, "index_heads": index_heads})
    own = Mixer(kv=kv, weights=weights + index)
    return tuple(own if has else shared for has in _index_owners(facts, facts.required("num_hidden_layers")))


def _glm5(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    """Kimi delta attention, and latent attention without rotation that chooses pools of tokens.

    Keys of the index are pooled anew in every step, from a key, a gate and a mark of each token.
    """
    if facts.quiet("qk_rope_head_dim", 0):
        raise CannotEstimateError(
            f"config.json says qk_rope_head_dim = {facts.given('qk_rope_head_dim')}; {facts.model_type} models have no"
            " rotated keys.",
            CONFIG_FIX,
            fact="qk_rope_head_dim",
        )
    layers = facts.required("num_hidden_layers")
    kinds = layer_kinds(lambda facts, layer, layers: LINEAR if layer % 4 != 3 else _INDEXED, LINEAR, _INDEXED, FULL)(
        facts, layers
    )
    width, rank = facts.required("hidden_size"), facts.required("q_lora_rank")
    size, heads, pool = (facts.required(key) for key in ("index_head_dim", "index_n_heads", "index_kpool"))
    streams = hyper_connection(facts.required("hc_mult"), width, fp32=False)
    shared = latent_attention(facts, rotated=False)
    index = DenseCount(rank * heads * size + 2 * width * size + 2 * size + width * heads + pool * size)
    assert shared.kv is not None
    kv = shared.kv.model_copy(update={"index_dim": 2 * size + 1, "index_heads": heads})
    own, linear = Mixer(kv=kv, weights=shared.weights + index), kimi_delta(facts)
    linear = replace(linear, weights=linear.weights + _delta_in_fp32(facts))
    mixers: list[Mixer] = []
    for layer, (kind, has) in enumerate(zip(kinds, shared_index(facts, layers), strict=True)):
        mixer = linear if kind == LINEAR else own if has else shared
        if mixer is shared and (not layer or mixers[-1].kv is None or not mixers[-1].kv.index_dim):
            raise CannotEstimateError(
                f"Layer {layer} shares the index of the layer before it, which has none, says indexer_types in"
                " config.json.",
                CONFIG_FIX,
                fact="indexer_types",
            )
        mixers.append(mixer)
    return tuple(replace(mixer, weights=mixer.weights + streams + streams) for mixer in mixers)


def _delta_in_fp32(facts: ConfigFacts) -> DenseCount:
    """Convolution and decay rates of this family stay in fp32."""
    own = facts.table("linear_attn_config")
    heads = own.optional("num_heads") or facts.required("linear_num_heads")
    size = own.optional("head_dim") or facts.required("linear_head_dim")
    kernel = own.optional("short_conv_kernel_size") or facts.required("linear_conv_kernel_dim")
    moved = 3 * heads * size * kernel + heads
    return DenseCount(-moved, moved)


def _hy_head(anatomy: Anatomy, streams: int) -> DenseCount:
    """The output head stays in fp32, too, unless it is the embedding."""
    head = 0 if anatomy.tied else anatomy.vocab_size * anatomy.hidden_size
    return hyper_head(anatomy, streams) + DenseCount(-head, head)


_HY_V4 = replace(
    DEEPSEEK_V3,
    vocab_size=120832,
    max_context=262144,
    mixers=_hy_v4,
    moe=mlp_kinds(lambda facts: 1),
    fp32_names=(
        "attn_hc",
        "ffn_hc",
        "hc_",
        "sink",
        "weights_proj",
        "k_norm",
        "mlp.gate.weight",
        "lm_head",
        "e_score_correction_bias",
    ),
)

INDEXED_FAMILIES: dict[str, AnatomyRule] = {
    "glm5_next_text": with_streams(
        replace(
            DEEPSEEK_V3,
            vocab_size=154880,
            max_context=1048576,
            mixers=_glm5,
            moe=mlp_kinds(lambda facts: 3),
            fp32_names=(*GATE, "conv1d", "dt_bias", "A_log", *_HYPER_BIAS, *_HYPER_BIAS_IN_FILES),
        ),
        "hc_mult",
        lambda anatomy, streams: DenseCount(),
    ),
    "hy_v4": with_streams(_HY_V4, "hc_mult", _hy_head),
    "hy_v4_vl_text": with_streams(_HY_V4, "hc_mult", _hy_head),
    "minimax_m3_vl_text": Family(
        vocab_size=200064,
        max_context=524288,
        top_k=4,
        mixers=_blocks,
        windows=lambda facts, layers: (None,) * layers,
        head_size="key",
        qkv_bias=False,
        out_bias=False,
        qk_norm="head",
        moe=_block_experts,
        mlp=required_size("dense_intermediate_size"),
        inner_key="intermediate_size",
        shared=required_size("shared_intermediate_size"),
        correction="plain",
    ),
}
