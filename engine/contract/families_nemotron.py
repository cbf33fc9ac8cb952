"""Nemotron-H: every layer is one thing, Mamba 2, attention, experts or a dense block; experts have no gate.

Source: transformers 5.24, models/nemotron_h.
"""

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import DenseCount, Family, Mixer
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_full import GATE
from engine.contract.families_rules import FULL
from engine.contract.families_states import LINEAR, mamba_2
from engine.contract.shape import ExpertShape, KvShape

_LETTERS = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}
_OLD_KINDS = {"mamba": LINEAR, "attention": FULL}


def _kinds(facts: ConfigFacts) -> tuple[str, ...]:
    """`layers_block_type`, or one letter a layer in `hybrid_override_pattern`."""
    pattern = facts.given("hybrid_override_pattern")
    listed = facts.given("layer_types")
    if isinstance(listed, list):
        kinds = tuple(_OLD_KINDS.get(str(kind), str(kind)) for kind in listed)
    elif isinstance(pattern, str):
        kinds = tuple(_LETTERS.get(letter, letter) for letter in pattern)
    else:
        raise CannotEstimateError(
            f"config.json of this {facts.model_type} model does not say layers_block_type; no memory figure without.",
            CONFIG_FIX,
            fact="layers_block_type",
        )
    if strange := [kind for kind in kinds if kind not in _LETTERS.values()]:
        raise CannotEstimateError(
            f"config.json names layers of kind {strange[0]:.40}, which {facts.model_type} models do not have.",
            CONFIG_FIX,
            fact="layers_block_type",
        )
    return kinds


def _mixers(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    width, bias = facts.required("hidden_size"), facts.flag(("mlp_bias", False))
    kinds = _kinds(facts)
    dense = 0
    if "mlp" in kinds:
        inner = facts.required("intermediate_size")
        dense = 2 * width * inner + (inner + width if bias else 0)
    found = {"moe": Mixer(), "mlp": Mixer(weights=DenseCount(dense))}
    if FULL in kinds:
        found[FULL] = _attention(facts, width)
    if LINEAR in kinds:
        found[LINEAR] = mamba_2(
            facts,
            heads=facts.required("mamba_num_heads"),
            head_size=facts.required("mamba_head_dim"),
            groups=facts.optional("mamba_n_groups") or facts.quiet("n_groups", 8, least=1),
            states=facts.required("ssm_state_size"),
            kernel=facts.optional("mamba_d_conv") or facts.quiet("conv_kernel", 4, least=1),
            block=facts.optional("mamba_chunk_size") or facts.quiet("chunk_size", 128, least=1),
            bias=(facts.flag(("use_conv_bias", True)), facts.flag(("use_bias", False))),
        )
    return tuple(found[kind] for kind in kinds)


def _attention(facts: ConfigFacts, width: int) -> Mixer:
    heads, head_size = facts.required("num_attention_heads"), facts.required("head_dim")
    kv_heads = facts.optional("num_key_value_heads") or heads
    kv = KvShape(n_kv_heads=kv_heads, key_dim=head_size, value_dim=head_size, n_heads=heads)
    return Mixer(kv=kv, weights=DenseCount(2 * width * head_size * (heads + kv_heads)))


def _has_experts(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
    return tuple(kind == "moe" for kind in _kinds(facts))


def _around_experts(facts: ConfigFacts, experts: ExpertShape, moe: bool) -> DenseCount:
    """The shared expert, and projections in and out where experts have a width of their own."""
    if not moe:
        return DenseCount()
    width, shared = facts.required("hidden_size"), facts.required("moe_shared_expert_intermediate_size")
    bias = facts.flag(("mlp_bias", False))
    plain = 2 * width * shared + (shared + width if bias else 0)
    if latent := facts.optional("moe_latent_size"):
        plain += 2 * width * latent + (latent + width if bias else 0)
    return DenseCount(plain)


NEMOTRON_H = Family(
    vocab_size=131072,
    max_context=4096,
    top_k=2,
    mixers=_mixers,
    norms=1,
    moe=_has_experts,
    width_keys=("moe_latent_size", "hidden_size"),
    gated=False,
    router_fp32=True,
    correction="fp32",
    more=_around_experts,
    fp32_names=GATE,
)
