"""Experts that transformers does not call through its experts interface, made to look as if it did."""

from collections.abc import Callable
from types import MethodType
from typing import Any, cast

from torch import Tensor, nn


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


def _gated(self: Any, gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return cast(Tensor, self.act_fn(gate) * up)


def _through_interface(experts: Any, hidden_states: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """[T, M], [T, A], [T, A] to [T, M]."""
    from engine.model.experts_function import splitpin_experts

    return splitpin_experts(experts, hidden_states, index, weights)


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


_ADAPTERS: dict[str, Callable[[Any], None]] = {
    "Llama4TextMoe": _llama4,
    "LongcatFlashExperts": _longcat,
}
