"""A few random rows through one layer's experts: the same rows every time, so that two computations can be compared."""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.contract.errors import ModelFileError
from engine.contract.shape import ExpertShape
from engine.experts.kernels import ExpertMath
from engine.experts.layer import ExpertLayer, Way

TOKENS = 4
SEED = 20240229
# Largest difference allowed, relative to the largest output. The reference multiplies in float32 on the CPU; a GPU or
# a bf16 kernel rounds each of its steps to the type of the weights, and what comes out to that of hidden states.
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 4e-2}


def allowed(weights: torch.dtype | None, hidden: torch.dtype) -> float:
    """The largest difference for weights of a type (None: they are unpacked to that of hidden states)."""
    return max(_TOLERANCE[weights or hidden], _TOLERANCE[hidden])


@dataclass(frozen=True, slots=True)
class Probe:
    """Rows [T, M], chosen experts [T, A] and their weights [T, A], on the CPU."""

    hidden: Tensor
    ids: Tensor
    scores: Tensor

    @classmethod
    def of(cls, layer: int, shape: ExpertShape, dtype: torch.dtype) -> "Probe":
        """The rows of one layer."""
        random = torch.Generator().manual_seed(SEED + layer)
        hidden = torch.randn(TOKENS, shape.width, generator=random).to(dtype)
        ids = [torch.randperm(shape.n_experts, generator=random)[: shape.top_k] for _ in range(TOKENS)]
        return cls(hidden, torch.stack(ids), torch.rand(TOKENS, shape.top_k, generator=random))

    @property
    def first(self) -> "Probe":
        """The first row alone: single tokens and prompts are computed in different ways."""
        return Probe(self.hidden[:1], self.ids[:1], self.scores[:1])

    def run(self, layer: ExpertLayer, math: ExpertMath, device: torch.device, way: Way | None = None) -> Tensor:
        """What the layer makes of them, [T, M] float32 on the CPU; `device` is where hidden states are.

        `way` None: the one that engine/contract/steps.py chooses.
        """
        with torch.inference_mode():
            out = layer.forward(self.hidden.to(device), self.ids.to(device), self.scores.to(device), math, way)
            return out.float().cpu()


def check_finite(want: Tensor, what: str, layer: int) -> None:
    """Whether numbers that were computed from the files alone are numbers at all.

    Raises:
        ModelFileError: one is infinite or none: so are weights in the files.
    """
    if not torch.isfinite(want).all():
        raise ModelFileError(
            f"{what} of layer {layer} cannot be computed: weights in the files are infinite or no numbers.",
            "Copy or download the model again.",
            layer=layer,
        )


def difference(got: Tensor, want: Tensor) -> float:
    """Largest difference, relative to the largest value wanted; NaN where something is no number."""
    return float((got - want).abs().max() / want.abs().max().clamp(min=1e-20))
