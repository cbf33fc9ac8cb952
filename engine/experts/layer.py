"""The routed experts of one layer, ready to compute: in place, or through the slots."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from engine.banks.bank import ExpertBank
from engine.experts.expert_kernel import ExpertKernel
from engine.experts.kernels import Expert, ExpertMath, routed_forward


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

    def __init__(self, bank: ExpertBank, kernel: ExpertKernel, records: RecordStream, device: torch.device) -> None:
        """`records` decides where the weights are at the moment of use; `device` computes."""
        self.bank = bank
        self.device = device
        self.kernel = kernel
        self._records = records

    def forward(self, hidden: Tensor, ids: Tensor, scores: Tensor, math: ExpertMath) -> Tensor:
        """[T, M], chosen experts [T, A] and their weights [T, A] to [T, M] on the device of `hidden`."""
        home = hidden.device
        if home != self.device:
            hidden, ids, scores = hidden.to(self.device), ids.to(self.device), scores.to(self.device)
        out = routed_forward(hidden, ids, scores, self.bank.layout.n_experts, self, math)
        return out.to(home)

    def stream(self, experts: list[int]) -> Iterator[Expert]:
        """These experts, one after another."""
        for number, record in zip(experts, self._records.stream(self.bank, experts), strict=True):
            yield self.kernel.expert(record, number)
