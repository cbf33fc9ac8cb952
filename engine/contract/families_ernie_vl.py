"""ERNIE 4.5 VL: in every sparse layer experts for text and, behind them in the files, as many for pictures.

Source: transformers 5.24, models/ernie4_5_vl_moe. Its block asks the experts for pictures about tokens of pictures
only; the engine has none, so they are not loaded. Their router stays: it is small and shares a tensor with the other.
"""

from dataclasses import replace

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import Anatomy, DenseCount, Family
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_rules import mlp_kinds, required_size, shared_experts

_FAMILY = Family(
    vocab_size=103424,
    max_context=131072,
    top_k=6,
    qkv_bias=("use_bias", False),
    out_bias=("use_bias", False),
    moe=mlp_kinds(lambda facts: 1),
    mlp=required_size("intermediate_size"),
    mlp_bias=("use_bias", False),
    shared=shared_experts("moe_intermediate_size", 2),
    router_fp32=True,
    correction="fp32",
    more=lambda facts, experts, moe: DenseCount(fp32=experts.n_experts * (experts.width + 1) if moe else 0),
    fp32_names=("gate.weight", "e_score_correction_bias"),
)


def ernie4_5_vl_moe(facts: ConfigFacts, tied: bool) -> Anatomy:
    """Read an ernie4_5_vl_moe text configuration.

    Raises:
        CannotEstimateError: a fact is missing or of an unknown kind.
        UnsupportedModelError: the model has no routed experts.
    """
    widths = facts.numbers("moe_intermediate_size")
    if widths is None or len(widths) != 2:
        raise CannotEstimateError(
            f"config.json says moe_intermediate_size = {facts.given('moe_intermediate_size')!r:.60}; this model type"
            " has two widths of experts, for text and for pictures.",
            CONFIG_FIX,
            fact="moe_intermediate_size",
        )
    anatomy = _FAMILY(facts.replaced(moe_intermediate_size=widths[0]), tied)
    count = anatomy.experts.n_experts
    facts.assumptions.append(f"{count} experts for pictures in each sparse layer are not loaded: text never uses them")
    return replace(anatomy, idle_experts=count)
