"""The routed experts of one layer, ready to compute: in place, or through the slots."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.banks.bank import ExpertBank
from engine.experts.kernels import ExpertMath, ExpertWeights, routed_forward


@dataclass(frozen=True, slots=True)
class PartShapes:
    """Shapes of the matrices in a record, as the model's own module has them without the leading E."""

    up_name: str  # "gate_up" or "up"
    up: tuple[int, ...]
    down: tuple[int, ...]
    up_bias: tuple[int, ...] | None = None
    down_bias: tuple[int, ...] | None = None


class RecordStream(Protocol):
    """Hands out records of a bank on the device that computes."""

    def stream(self, bank: ExpertBank, experts: list[int]) -> Iterator[Tensor]: ...


class InPlace:
    """Records where the bank lives: in VRAM, or in RAM for the CPU."""

    def stream(self, bank: ExpertBank, experts: list[int]) -> Iterator[Tensor]:
        """Views of the bank."""
        return map(bank.record, experts)


class ExpertLayer:
    """Computes one layer's experts from its bank."""

    def __init__(self, bank: ExpertBank, shapes: PartShapes, records: RecordStream, device: torch.device) -> None:
        """`records` decides where the weights are at the moment of use; `device` computes."""
        self.bank = bank
        self.device = device
        self._shapes = shapes
        self._records = records

    def forward(self, hidden: Tensor, ids: Tensor, scores: Tensor, math: ExpertMath) -> Tensor:
        """[T, M], chosen experts [T, A] and their weights [T, A] to [T, M] on the device of `hidden`."""
        home = hidden.device
        if home != self.device:
            hidden, ids, scores = hidden.to(self.device), ids.to(self.device), scores.to(self.device)
        out = routed_forward(hidden, ids, scores, self.bank.layout.n_experts, self, math)
        return out.to(home)

    def stream(self, experts: list[int]) -> Iterator[ExpertWeights]:
        """Weights of these experts, one after another."""
        for record in self._records.stream(self.bank, experts):
            yield self.weights(record)

    def weights(self, record: Tensor) -> ExpertWeights:
        """The matrices inside a record (uint8 [record.bytes])."""
        layout, shapes = self.bank.layout, self._shapes
        up = shapes.up_name
        return ExpertWeights(
            up=layout.view(record, up, shapes.up),
            down=layout.view(record, "down", shapes.down),
            up_bias=None if shapes.up_bias is None else layout.view(record, f"{up}_bias", shapes.up_bias),
            down_bias=None if shapes.down_bias is None else layout.view(record, "down_bias", shapes.down_bias),
        )
