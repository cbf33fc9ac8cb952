"""What the name of a tensor says: the layer, and for routed experts the expert, the matrix and the purpose.

Forms in use: `experts.7.up_proj.weight` with w1 (gate), w3 (up), w2 (down) in older families; all experts in one
tensor as `experts.gate_up_proj` or `experts.gate_up_proj_blocks`; aria's `experts.fc1.weight`; granite's
`block_sparse_moe.input_linear.weight`. Suffixes of quantised weights: GPTQ and AWQ (qweight, qzeros, scales, g_idx),
modelopt (weight_scale, weight_scale_2, input_scale), compressed-tensors (weight_packed, weight_scale,
weight_global_scale, weight_zero_point, weight_g_idx, weight_shape), gpt-oss (_blocks, _scales).
"""

import re
from dataclasses import dataclass
from typing import Literal

Matrix = Literal["gate", "up", "gate_up", "down"]
Purpose = Literal["weight", "scale", "whole scale", "zero", "order", "bias", "not kept"]

_EXPERT = re.compile(
    r"\.experts\.(?:(?P<expert>\d+)\.(?P<own>[^.]*)|(?P<all>(?:gate_up|gate|up|down)_proj|w[123]\b|fc[12]\b))"
    r"(?P<suffix>.*)$"
    r"|\.block_sparse_moe\.(?P<linear>input|output)_linear(?P<rest>.*)$"
)
# layers of the language model, not those of parts for pictures and sound
_LAYER = re.compile(r"^(?:thinker\.|model\.|language_model\.|text_model\.|backbone\.)*layers\.(\d{1,9})\.")
_NOT_LOADED = re.compile(r"^(talker|code2wav)\.|(^|\.)(mtp|mtp_layers)\.|rotary_emb\.inv_freq$")

_MATRICES: dict[str, Matrix] = {
    "gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up", "gate_up_proj": "gate_up", "fc1": "gate_up",
    "input": "gate_up", "down_proj": "down", "w2": "down", "fc2": "down", "output": "down",
}  # fmt: skip
_PURPOSES: dict[str, Purpose] = {
    "": "weight", "weight": "weight", "weight_packed": "weight", "qweight": "weight", "blocks": "weight",
    "scale": "scale", "scales": "scale", "weight_scale": "scale", "weight_scale_inv": "scale", "scale_inv": "scale",
    "weight_scale_2": "whole scale", "scale_2": "whole scale", "weight_global_scale": "whole scale",
    "qzeros": "zero", "weight_zero_point": "zero", "g_idx": "order", "weight_g_idx": "order", "bias": "bias",
    "input_scale": "not kept", "input_global_scale": "not kept", "activation_scale": "not kept",
    "weight_shape": "not kept", "act_scale": "not kept", "input_zero_point": "not kept",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExpertName:
    """A tensor of the routed experts. `expert` None: it holds all experts of the layer."""

    expert: int | None
    matrix: Matrix | None  # None: a name that is not known
    purpose: Purpose | None  # None: a suffix that is not known


def expert_name(name: str) -> ExpertName | None:
    """Take a tensor's name apart; None where it belongs to no routed expert (shared expert, router, norms)."""
    found = _EXPERT.search(name)
    if found is None:
        return None
    suffix = (found["suffix"] or found["rest"] or "").lstrip("._")
    number = found["expert"]
    return ExpertName(
        expert=int(number) if number and len(number) < 10 else None,
        matrix=_MATRICES.get(found["own"] or found["all"] or found["linear"]),
        purpose=_PURPOSES.get(suffix),
    )


def is_expert_tensor(name: str) -> bool:
    """Whether a tensor belongs to the routed experts: weights, biases and scales, but not the router."""
    return _EXPERT.search(name) is not None


def is_quantisation_tensor(name: str) -> bool:
    """Whether a tensor describes packed weights, so that its own number type stays: scales, zero points, order."""
    last = name.rpartition(".")[2]
    return last != "scale" and _PURPOSES.get(last) not in (None, "weight", "bias")


def layer_of(name: str) -> int | None:
    """The decoder layer of the language model that a tensor's name gives, if any."""
    match = _LAYER.search(name)
    return int(match[1]) if match else None


def is_not_loaded(name: str) -> bool:
    """Whether a tensor is left out: parts that only guess ahead or speak, and tables that are computed anew."""
    return _NOT_LOADED.search(name) is not None
