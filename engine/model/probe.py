"""A few random rows through one layer's experts: the same rows every time, so that two computations can be compared."""

import torch
from torch import Tensor

from engine.contract.shape import ExpertShape
from engine.experts.kernels import ExpertMath
from engine.experts.layer import ExpertLayer

TOKENS = 4
SEED = 20240229
# Largest difference allowed, relative to the largest output. The reference multiplies in float32 on the CPU; a GPU or
# a bf16 kernel rounds each of its steps to the type of the weights.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 4e-2}


class Probe:
    """Rows [T, M], chosen experts [T, A] and their weights [T, A] for one layer, on the CPU."""

    def __init__(self, layer: int, shape: ExpertShape, dtype: torch.dtype) -> None:
        random = torch.Generator().manual_seed(SEED + layer)
        self.hidden = torch.randn(TOKENS, shape.width, generator=random).to(dtype)
        self.ids = torch.stack(
            [torch.randperm(shape.n_experts, generator=random)[: shape.top_k] for _ in range(TOKENS)]
        )
        self.scores = torch.rand(TOKENS, shape.top_k, generator=random)

    def run(self, layer: ExpertLayer, math: ExpertMath, device: torch.device) -> Tensor:
        """What the layer makes of them, [T, M] float32 on the CPU; `device` is where hidden states are."""
        with torch.inference_mode():
            out = layer.forward(self.hidden.to(device), self.ids.to(device), self.scores.to(device), math)
            return out.float().cpu()


def difference(got: Tensor, want: Tensor) -> float:
    """Largest difference, relative to the largest value wanted; NaN where something is no number."""
    return float((got - want).abs().max() / want.abs().max().clamp(min=1e-20))
