"""Families whose experts transformers calls in ways of their own; engine/model/experts_adapters.py answers for them.

Sources: transformers 5.24, models/longcat_flash. Letters as in shape.py.
"""

from dataclasses import replace

from engine.contract.families_anatomy import Anatomy, AnatomyRule, DenseCount, Family, Mixer, gated_mlp
from engine.contract.families_facts import ConfigFacts
from engine.contract.families_latent import latent_attention


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
    "longcat_flash": longcat_flash,
}
