"""Our experts in transformers' models: the function its experts interface calls, and taking the stock weights out."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from engine.contract.errors import UnsupportedModelError
from engine.experts.expert_kernel import PartShapes
from engine.experts.layer import ExpertLayer
from engine.model.experts_adapters import Place, adopt_experts
from engine.model.hub import transformers  # noqa: F401  first: it settles how transformers is imported
from engine.model.text_inside import leave_out_parts

IMPLEMENTATION = "splitpin"
PART_OF_PARAMETER = {
    "gate_up_proj": "gate_up",
    "up_proj": "up",
    "down_proj": "down",
    "gate_up_proj_bias": "gate_up_bias",
    "up_proj_bias": "up_bias",
    "down_proj_bias": "down_bias",
}
_LAYER = re.compile(r"(?:^|\.)(?:layers|blocks)\.(\d+)\.")


class ModuleMath:
    """The family's own activation and norm, as its experts module has them."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.transposed = bool(module.is_transposed)
        self._norm: nn.Module | None = module.post_expert_norm if module.has_post_expert_norm else None

    def activate(self, gate_up: Tensor) -> Tensor:
        """Activation with the gate where there is one."""
        return cast(
            Tensor, self._module._apply_gate(gate_up) if self._module.has_gate else self._module.act_fn(gate_up)
        )

    def finish(self, out: Tensor) -> Tensor:
        """Norm after the expert; it stays with the dense weights, so rows of CPU layers travel there and back."""
        if self._norm is None:
            return out
        weight = next(self._norm.parameters(), out)
        return cast(Tensor, self._norm(out.to(weight.device))).to(out.device)


@dataclass(frozen=True, slots=True)
class ExpertsModule:
    """One experts module of a built model, without its weights."""

    path: str
    layer: int
    module: nn.Module
    shapes: dict[str, tuple[int, ...]]  # parameter name to shape, E first
    places: dict[str, Place]  # what the checkpoint has under the module's path, to where it goes

    @property
    def part_shapes(self) -> PartShapes:
        """The matrices inside one record."""
        one = {PART_OF_PARAMETER[name]: shape[1:] for name, shape in self.shapes.items()}
        up = "gate_up" if "gate_up" in one else "up"
        return PartShapes(
            up_name=up,
            up=one[up],
            down=one["down"],
            up_bias=one.get(f"{up}_bias"),
            down_bias=one.get("down_bias"),
            down_turned=getattr(self.module, "down_turned", False),
        )

    def attach(self, layer: ExpertLayer) -> None:
        """Let the module compute with our banks."""
        self.module.__dict__["splitpin"] = (layer, ModuleMath(self.module))

    def detach(self) -> None:
        """Let go of the bank."""
        self.module.__dict__.pop("splitpin", None)


def splitpin_experts(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """What transformers calls instead of its own loop: [T, M], [T, A], [T, A] to [T, M]."""
    layer, math = module.splitpin
    return cast(ExpertLayer, layer).forward(hidden_states, top_k_index, top_k_weights, math)


def register() -> None:
    """Make "splitpin" a value of `experts_implementation`. Harmless when repeated."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(IMPLEMENTATION, splitpin_experts)


def strip_experts(model: nn.Module) -> list[ExpertsModule]:
    """Take the expert weights off every module of the experts interface, before they have any memory.

    Raises:
        UnsupportedModelError: the model has no such module, or one outside the numbered layers.
    """
    found: list[ExpertsModule] = []
    for path, module in model.named_modules():
        if not (hasattr(module, "is_transposed") and hasattr(module, "has_gate") and hasattr(module, "_apply_gate")):
            continue
        parameters = module._parameters
        shapes = {
            name: tuple(value.shape)
            for name, value in parameters.items()
            if name in PART_OF_PARAMETER and value is not None
        }
        for name in shapes:
            parameters[name] = None
        module.__dict__["_is_hf_initialized"] = True  # otherwise its initialisation reaches for the missing weights
        numbers = _LAYER.findall(path)
        if not numbers:
            raise _unsupported(model, f"its experts at {path} belong to no numbered layer")
        places = getattr(module, "places", {}) or {name: Place(name) for name in shapes}
        found.append(ExpertsModule(path, int(numbers[-1]), module, shapes, places))
    if not found:
        raise _unsupported(model, "it has no routed experts that transformers can hand over")
    return found


def _unsupported(model: nn.Module, reason: str) -> UnsupportedModelError:
    name = type(model).__name__
    return UnsupportedModelError(f"{name} cannot be run: {reason}.", "Choose a Mixture-of-Experts model.", model=name)


def without_experts(model_class: type[Any], name: str | None = None) -> type[Any]:
    """A subclass that builds like the stock model and strips its experts at once.

    Name and module stay, unless `name` is given: transformers looks both up. The result has `full_keys` (all parameter
    names of the stock model) and `experts_modules`.
    """

    def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        model_class.__init__(self, config, *args, **kwargs)
        leave_out_parts(self, config)
        self.__dict__["full_keys"] = frozenset(self.state_dict().keys())
        adopt_experts(self)
        self.__dict__["experts_modules"] = strip_experts(self)

    called = name or model_class.__name__
    return type(called, (model_class,), {"__init__": __init__, "__module__": model_class.__module__})


@contextmanager
def meta_parameter(found: ExpertsModule, name: str) -> Iterator[None]:
    """Give a module a weight without memory for a while: some conversions ask for the shape of their target."""
    found.module._parameters[name] = nn.Parameter(torch.empty(found.shapes[name], device="meta"), requires_grad=False)
    try:
        yield
    finally:
        found.module._parameters[name] = None
