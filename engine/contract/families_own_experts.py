"""Families whose experts transformers calls in ways of their own; engine/model/experts_adapters.py answers for them.

Sources: transformers 5.24, models/dbrx, jetmoe and longcat_flash. Letters as in shape.py.
"""

from dataclasses import replace

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import Anatomy, AnatomyRule, DenseCount, Family, Mixer, gated_mlp
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_latent import latent_attention
from engine.contract.families_step3p7 import step3p5
from engine.contract.shape import KvShape

_DBRX = Family(
    vocab_size=32000,
    max_context=2048,
    top_k=1,
    head_size="quotient",
    qkv_bias=False,
    out_bias=False,
    inner_key="ffn_hidden_size",
)


def dbrx(facts: ConfigFacts, tied: bool) -> Anatomy:
    """Read a dbrx configuration, which keeps sizes of attention and experts in tables of their own.

    Raises:
        CannotEstimateError: a fact is missing, also one without which transformers cannot run the model.
        UnsupportedModelError: the model has no routed experts.
    """
    attention, experts = facts.table("attn_config"), facts.table("ffn_config")
    for key in ("clip_qkv", "rope_theta"):
        if attention.given(key) is None:
            raise CannotEstimateError(
                f"config.json of this dbrx model does not say {key} in attn_config; transformers needs it.",
                CONFIG_FIX,
                fact=key,
            )
    own = facts.replaced(
        num_key_value_heads=attention.required("kv_n_heads"),
        num_experts=experts.required("moe_num_experts"),
        num_experts_per_tok=experts.given("moe_top_k"),
        ffn_hidden_size=experts.required("ffn_hidden_size"),
    )
    return _DBRX(own, tied)


def _jetmoe_mixers(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    """Experts of attention, each with queries and an output of its own; they are always in use and count as dense."""
    width, experts = facts.required("hidden_size"), facts.required("num_experts")
    kv_heads, head_size = facts.required("num_key_value_heads"), facts.required("kv_channels")
    inner = kv_heads * head_size
    plain = 2 * width * inner + 2 * experts * width * inner + experts * width  # keys and values, experts, their router
    plain += 2 * width  # biases behind the sums of experts, here and in the feed-forward block
    kv = KvShape(
        n_kv_heads=kv_heads,
        key_dim=head_size,
        value_dim=head_size,
        n_heads=kv_heads * family.expert_shape(facts).top_k,
    )
    note = f"experts of attention, {2 * experts * width * inner:,} weights a layer, are counted with the dense weights"
    if note not in facts.assumptions:
        facts.assumptions.append(note)
    return (Mixer(kv=kv, weights=DenseCount(plain)),) * facts.required("num_hidden_layers")


def _longcat_mixers(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    """Two latent attentions with a dense block behind each, and a router that may also choose to do nothing."""
    facts.required("q_lora_rank")  # without it this family cannot be built
    attention, width = latent_attention(facts), facts.required("hidden_size")
    assert attention.kv is not None
    choices = facts.required("num_experts") + _idle(facts)
    router = choices * (width + 1) + (choices if facts.flag(("router_bias", False)) else 0)
    dense = 2 * gated_mlp(width, facts.required("ffn_hidden_size")) + router
    both = attention.weights + attention.weights + DenseCount(dense)
    return (replace(attention, more_kv=(attention.kv,), weights=both),) * facts.required("num_layers")


def _idle(facts: ConfigFacts) -> int:
    """Choices of the router that hand their input on unchanged."""
    return facts.assumed("zero_expert_num", 256)


_LONGCAT = Family(
    vocab_size=131072,
    max_context=131072,
    top_k=12,
    mixers=_longcat_mixers,
    norms=4,
    inner_key="expert_ffn_hidden_size",
    router=False,
)


def longcat_flash(facts: ConfigFacts, tied: bool) -> Anatomy:
    """Read a longcat_flash configuration; its `num_layers` are layers of two attentions.

    Raises:
        CannotEstimateError: a fact is missing or of an unknown kind.
        UnsupportedModelError: the model has no routed experts.
    """
    return replace(_LONGCAT(facts, tied), idle_experts=_idle(facts))


OWN_EXPERTS_FAMILIES: dict[str, AnatomyRule] = {
    "dbrx": dbrx,
    "jetmoe": Family(
        vocab_size=32000,
        max_context=4096,
        top_k=2,
        mixers=_jetmoe_mixers,
        inner_key="intermediate_size",
    ),
    "longcat_flash": longcat_flash,
    "step3p5": step3p5,
}
