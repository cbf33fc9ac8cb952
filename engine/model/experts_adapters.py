"""Experts that transformers does not call through its experts interface, made to look as if it did."""

from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stored tensor with one matrix of all experts goes: it is the `number`-th of `count` in a parameter."""

    parameter: str
    number: int = 0
    count: int = 1


_GATE, _UP = Place("gate_up_proj", 0, 2), Place("gate_up_proj", 1, 2)


def adopt_experts(model: nn.Module) -> None:
    """Give the experts of such families the attributes of the interface, and a forward that uses it."""
    for module in list(model.modules()):
        if adapt := _ADAPTERS.get(type(module).__name__):
            adapt(cast(Any, module))


def _describe(experts: Any, activate: Callable[[Any, Tensor], Tensor], *, transposed: bool = False) -> None:
    """What the interface's decorator would have noted: gate and up fused, no biases."""
    experts.has_gate = True
    experts.has_bias = False
    experts.is_transposed = transposed
    experts.is_concatenated = True
    experts.has_post_expert_norm = False
    experts._apply_gate = MethodType(activate, experts)


def _replace(experts: Any, places: dict[str, Place], up: tuple[int, ...], down: tuple[int, ...]) -> None:
    """The parameters of the interface for those the module has; `places` says what the checkpoint calls its parts."""
    for name in places:
        delattr(experts, name.partition(".")[0])
    experts.gate_up_proj = nn.Parameter(torch.empty(up, device="meta"), requires_grad=False)
    experts.down_proj = nn.Parameter(torch.empty(down, device="meta"), requires_grad=False)
    experts.places = places


def _through_interface(experts: Any, hidden_states: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """[T, M], [T, A], [T, A] to [T, M]."""
    from engine.model.experts_function import splitpin_experts

    return splitpin_experts(experts, hidden_states, index, weights)


def _gated(self: Any, gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return cast(Tensor, self.act_fn(gate) * up)


def _dbrx(experts: Any) -> None:
    """All experts of a layer lie below each other; `w2` is [F, M], the other way round than usual."""
    own = experts.mlp
    own.act_fn = own.activation_fn
    count, inner, width = own.moe_num_experts, own.ffn_hidden_size, own.hidden_size
    places = {"w1": _GATE, "v1": _UP, "w2": Place("down_proj")}
    _replace(own, places, (count, 2 * inner, width), (count, inner, width))
    own.down_turned = True
    _describe(own, _gated)
    experts.forward = MethodType(_dbrx_experts, experts)


def _dbrx_experts(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """As DbrxExperts.forward, [..., M]."""
    rows = hidden_states.reshape(-1, self.hidden_size)
    return _through_interface(self.mlp, rows, top_k_index, top_k_weights).view(hidden_states.shape)


def _ernie_vl(block: Any) -> None:
    """Experts for pictures are never asked: the engine has no tokens of pictures."""
    block.vision_moe.experts = None


def _jetmoe(block: Any) -> None:
    """The block is its own experts module; the bias behind the sum of all experts stays with the dense weights."""
    count, inner, width = block.input_linear.num_experts, block.hidden_size, block.input_size
    block.act_fn = block.activation
    places = {"input_linear.weight": Place("gate_up_proj"), "output_linear.weight": Place("down_proj")}
    _replace(block, places, (count, 2 * inner, width), (count, width, inner))
    _describe(block, _gated)
    block.forward = MethodType(_jetmoe_block, block)


def _jetmoe_block(self: Any, layer_input: Tensor) -> Tensor:
    """As JetMoeMoE.forward, [..., M]."""
    rows = layer_input.reshape(-1, self.input_size)
    logits, chosen = self.router.layer(rows).float().topk(self.router.top_k, dim=1)
    weights = torch.softmax(logits, dim=1).type_as(rows)
    return cast(Tensor, _through_interface(self, rows, chosen, weights).view(layer_input.shape) + self.bias)


def _llama4(block: Any) -> None:
    _describe(block.experts, _gated, transposed=True)
    block.forward = MethodType(_llama4_block, block)


def _llama4_block(self: Any, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
    """As Llama4TextMoe.forward, [..., M]: inputs are weighted before the experts, and only the chosen ones compute.

    There every expert gets every token, with a weight of zero where it was not chosen; an expert without biases makes
    zero of that.
    """
    rows = hidden_states.reshape(-1, self.hidden_dim)
    scores, logits = self.router(rows)
    chosen = logits.topk(self.top_k, dim=1).indices
    weighted = rows[:, None, :] * scores.gather(1, chosen)[:, :, None]
    ones = scores.new_ones(chosen.numel(), 1)
    routed = _through_interface(self.experts, weighted.flatten(0, 1), chosen.reshape(-1, 1), ones)
    out = self.shared_expert(rows) + routed.view(*chosen.shape, -1).sum(dim=1)
    return out, logits


def _longcat(experts: Any) -> None:
    """Choices behind the last expert compute nothing; the module holds weights for them all the same."""
    _describe(experts, _gated)
    experts.gate_up_proj = nn.Parameter(experts.gate_up_proj[: experts.num_routed_experts], requires_grad=False)
    experts.forward = MethodType(_longcat_experts, experts)


def _longcat_experts(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """As LongcatFlashExperts.forward: a choice behind the last expert hands its input on."""
    routed = _through_interface(self, hidden_states, top_k_index, top_k_weights)
    unchanged = (top_k_weights * (top_k_index >= self.num_routed_experts)).sum(dim=-1, keepdim=True)
    return cast(Tensor, routed + (hidden_states * unchanged).to(routed.dtype))


def _step3p7(experts: Any) -> None:
    """Only the decorator is missing; its limited activation is a method of its own."""
    _describe(experts, type(experts)._apply_gate)
    experts.forward = MethodType(_through_interface, experts)


_ADAPTERS: dict[str, Callable[[Any], None]] = {
    "DbrxExperts": _dbrx,
    "Ernie4_5_VLMoeMoeBlock": _ernie_vl,
    "JetMoeMoE": _jetmoe,
    "Llama4TextMoe": _llama4,
    "LongcatFlashExperts": _longcat,
    "Step3p7Experts": _step3p7,
}
