"""Multi-head latent attention: one latent and one rotated key a token, expanded to all heads in every step.

transformers 5.24 keeps the latents: `expand_kv` of deepseek_v3 computes keys and values of the whole context anew in
each layer and step, which the workspace counts. Letters as in shape.py, and R ranks of the latents.
"""

from collections.abc import Callable
from dataclasses import replace

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import AnatomyRule, DenseCount, Family, Mixer, MixerRule
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_full import GATE, MLP
from engine.contract.families_rules import MoeRule, after_dense, mlp_kinds, quiet_size_of, shared_experts
from engine.contract.shape import ExpertShape, KvShape

_NOTE = (
    "latent attention: {latent} + {rope} values a token and layer are kept, not keys and values of {heads} heads;"
    " these are computed anew in every step and counted as workspace"
)


def latent_attention(facts: ConfigFacts, *, rotated: bool = True, any_kv_heads: bool = False) -> Mixer:
    """One layer of latent attention.

    Args:
        rotated: whether keys have a rotated part.
        any_kv_heads: whether the modelling code takes all heads whatever num_key_value_heads says.

    Raises:
        CannotEstimateError: a fact is missing, or keys are shared between heads.
    """
    width, heads = facts.required("hidden_size"), facts.required("num_attention_heads")
    latent, rope = facts.required("kv_lora_rank"), facts.required("qk_rope_head_dim") if rotated else 0
    plain_key, value = facts.required("qk_nope_head_dim"), facts.required("v_head_dim")
    query_rank = facts.optional("q_lora_rank")
    kv_heads = facts.optional("num_key_value_heads")
    if kv_heads not in (None, heads) and not any_kv_heads:
        raise CannotEstimateError(
            f"config.json says {kv_heads} KV heads for {heads} query heads; latent attention has as many of both.",
            CONFIG_FIX,
            fact="num_key_value_heads",
        )
    note = _NOTE.format(latent=latent, rope=rope, heads=heads)
    if note not in facts.assumptions:
        facts.assumptions.append(note)
    bias = facts.flag(("attention_bias", False))
    queries = heads * (plain_key + rope)
    plain = width * queries if query_rank is None else width * query_rank + query_rank + query_rank * queries
    plain += width * (latent + rope) + latent + latent * heads * (plain_key + value) + heads * value * width
    plain += (query_rank or 0) + latent + rope + width if bias else 0
    kv = KvShape(
        n_kv_heads=1,
        key_dim=latent,
        value_dim=rope,
        n_heads=heads,
        expanded_values=heads * (plain_key + rope + value),
    )
    return Mixer(kv=kv, weights=DenseCount(plain))


def latent(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    """Latent attention in every layer."""
    return (latent_attention(facts),) * facts.required("num_hidden_layers")


def indexed(facts: ConfigFacts, query_rank: int) -> tuple[int, int, DenseCount]:
    """The index that chooses tokens: key size, heads, weights."""
    width = facts.required("hidden_size")
    heads, head_size = facts.required("index_n_heads"), facts.required("index_head_dim")
    plain = query_rank * heads * head_size + width * head_size + 2 * head_size + width * heads
    return head_size, heads, DenseCount(plain)


def indexed_latent(
    full: Callable[[ConfigFacts, int], tuple[bool, ...]], more: Callable[[ConfigFacts], DenseCount] | None = None
) -> MixerRule:
    """Latent attention that chooses its tokens; only layers that `full` names keep an index, others use the one before.

    The index is computed for every layer but attention is not sparse on a CPU, so speed is that of full attention.
    """

    def rule(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
        plain = latent_attention(facts)
        if more:
            plain = replace(plain, weights=plain.weights + more(facts))
        assert plain.kv is not None
        size, heads, weights = indexed(facts, facts.required("q_lora_rank"))
        kv = plain.kv.model_copy(update={"index_dim": size, "index_heads": heads})
        with_index = Mixer(kv=kv, weights=plain.weights + weights)
        return tuple(with_index if own else plain for own in full(facts, facts.required("num_hidden_layers")))

    return rule


def own_index(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
    """Every layer has an index of its own."""
    return (True,) * layers


def shared_index(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
    """`indexer_types`, or the pattern or step of `index_topk_*` (glm_moe_dsa)."""
    kinds = facts.names("indexer_types", layers)
    if kinds is not None:
        return tuple(kind == "full" for kind in kinds)
    pattern = facts.given("index_topk_pattern")
    if isinstance(pattern, str):
        if len(pattern) != layers:
            raise CannotEstimateError(
                f"index_topk_pattern in config.json names {len(pattern)} layers; the model has {layers}.",
                CONFIG_FIX,
                fact="index_topk_pattern",
            )
        return tuple(letter == "F" for letter in pattern)
    step = max(facts.quiet("index_topk_freq", 1), 1)
    offset = facts.quiet("index_skip_topk_offset", 2)
    return tuple(max(layer - offset + 1, 0) % step == 0 for layer in range(layers))


def _sparse_after(default_dense: int) -> MoeRule:
    """`mlp_layer_types`, or the older `first_k_dense_replace`."""
    return mlp_kinds(quiet_size_of("first_k_dense_replace", default_dense))


def _axk1_layers(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
    """As `_sparse_after`, where the older key has a step beside it."""
    if facts.has("mlp_layer_types"):
        return _sparse_after(1)(facts, layers)
    dense, step = facts.quiet("first_k_dense_replace", 1), facts.quiet("moe_layer_freq", 1, least=1)
    return tuple(layer >= dense and layer % step == 0 for layer in range(layers))


def _axk2_queries(facts: ConfigFacts) -> DenseCount:
    """Queries and the gate of the output come from one projection of twice the rank."""
    heads, rank = facts.required("num_attention_heads"), facts.required("q_lora_rank")
    query = facts.required("qk_nope_head_dim") + facts.required("qk_rope_head_dim")
    return DenseCount(2 * rank * heads * (query + facts.required("v_head_dim")) - rank * heads * query)


def _axk2_norms(facts: ConfigFacts, experts: ExpertShape, moe: bool) -> DenseCount:
    """A small gate behind the first norm, and behind the second one where there are experts."""
    gate = 2 * facts.required("hidden_size") * facts.quiet("gated_norm_rank", 16, least=1)
    return DenseCount(gate * (2 if moe else 1))


DEEPSEEK_V3 = Family(
    vocab_size=129280,
    max_context=4096,
    top_k=8,
    mixers=latent,
    moe=after_dense("first_k_dense_replace", 3),
    mlp=MLP,
    shared=shared_experts("moe_intermediate_size", 1),
    router_fp32=True,
    correction="fp32",
    fp32_names=GATE,
)

LATENT_FAMILIES: dict[str, AnatomyRule] = {
    "axk1": replace(
        DEEPSEEK_V3,
        vocab_size=163840,
        max_context=32768,
        moe=_axk1_layers,
        more=lambda facts, experts, moe: DenseCount(facts.required("hidden_size") if moe else 0),
    ),
    "axk2": replace(
        DEEPSEEK_V3,
        vocab_size=163840,
        max_context=131072,
        mixers=indexed_latent(own_index, _axk2_queries),
        moe=_sparse_after(1),
        more=_axk2_norms,
    ),
    "deepseek_v2": replace(
        DEEPSEEK_V3,
        vocab_size=102400,
        max_context=2048,
        top_k=0,
        moe=after_dense("first_k_dense_replace", 0),
        mlp_bias=("mlp_bias", False),
        shared=shared_experts("moe_intermediate_size", 2),
        correction="none",
        fp32_names=("gate.weight",),
    ),
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v32": replace(DEEPSEEK_V3, max_context=163840, mixers=indexed_latent(own_index), moe=_sparse_after(3)),
    "glm4_moe_lite": replace(
        DEEPSEEK_V3, vocab_size=154880, max_context=202752, top_k=4, moe=mlp_kinds(lambda facts: 1)
    ),
    "glm_moe_dsa": replace(
        DEEPSEEK_V3,
        vocab_size=154880,
        max_context=202752,
        mixers=indexed_latent(shared_index),
        moe=_sparse_after(3),
    ),
    "mistral4": replace(
        DEEPSEEK_V3,
        vocab_size=131072,
        max_context=1048576,
        top_k=4,
        moe=after_dense("first_k_dense_replace", 0),
        router_fp32=False,
        correction="none",
        fp32_names=(),
    ),
    "sarvam_mla": replace(DEEPSEEK_V3, vocab_size=262144, moe=after_dense("first_k_dense_replace", 1)),
}
