"""The routed experts of one layer, ready to compute: where the weights are, or on the GPU once they are there.

A layer outside VRAM has two ways. Which one a step takes is decided by engine/contract/steps.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.banks.bank import ExpertBank
from engine.contract.steps import Step, StepRates, on_host
from engine.experts.copies import gap_experts
from engine.experts.expert_kernel import ExpertKernel
from engine.experts.kernels import Expert, ExpertMath, SeveralExperts, routed_forward
from engine.experts.native_kernel import several_of
from engine.experts.ring import TransferRing
from engine.experts.transfer import SlotPool


class RecordStream(Protocol):
    """Hands out records of a bank on the device that computes."""

    def stream(self, bank: ExpertBank, experts: list[int], tokens: int) -> Iterator[Tensor]:
        """Records of these experts, each valid until the next one is asked for; `tokens` want them."""
        ...

    def missing(self, bank: ExpertBank, experts: list[int]) -> int:
        """How many of them would have to come to the device first."""
        ...


class InPlace:
    """Records where the bank lives: in VRAM, or in RAM for the CPU."""

    def stream(self, bank: ExpertBank, experts: list[int], tokens: int) -> Iterator[Tensor]:
        """Views of the bank."""
        return map(bank.record, experts)

    def missing(self, bank: ExpertBank, experts: list[int]) -> int:
        """None."""
        return 0


class ThroughSlots:
    """Pinned layers: single tokens through the slots, prompts through the ring and past the slots."""

    def __init__(self, slots: SlotPool, ring: TransferRing | None, rates: StepRates | None = None) -> None:
        """Without a ring prompts take slots too."""
        self._slots = slots
        self._ring = ring
        self._rates = rates

    def stream(self, bank: ExpertBank, experts: list[int], tokens: int) -> Iterator[Tensor]:
        """Records in device memory."""
        if tokens == 1 or self._ring is None:
            return self._slots.stream(bank, experts)
        gap = gap_experts(bank.layout.record.bytes, self._rates, staged=False)
        return self._slots.stream_prompt(bank, experts, self._ring, gap=gap)

    def missing(self, bank: ExpertBank, experts: list[int]) -> int:
        """Those in no slot."""
        return self._slots.missing(bank.layer, experts)


class ThroughRing:
    """Layers that are not pinned: everything through both sides of the ring."""

    def __init__(self, ring: TransferRing, rates: StepRates | None = None) -> None:
        self._ring = ring
        self._rates = rates

    def stream(self, bank: ExpertBank, experts: list[int], tokens: int) -> Iterator[Tensor]:
        """Records in device memory."""
        gap = gap_experts(bank.layout.record.bytes, self._rates, staged=True)
        return self._ring.stream(bank, experts, staged=True, gap=gap)

    def missing(self, bank: ExpertBank, experts: list[int]) -> int:
        """All."""
        return len(experts)


@dataclass(slots=True)
class Way:
    """One processor, what it computes with, and how it gets at the weights."""

    device: torch.device
    kernel: ExpertKernel
    records: RecordStream
    on_host: bool  # the CPU, with the bank where it is


class ExpertLayer:
    """Computes one layer's experts from its bank."""

    def __init__(
        self,
        bank: ExpertBank,
        usual: Way,
        other: Way | None = None,
        rates: StepRates | None = None,
        *,
        staged: bool = False,
    ) -> None:
        """`usual` and `other` are CPU and GPU in either order; a layer in VRAM or without a GPU has one way only.

        Args:
            rates: what the ways cost; None: not measured.
            staged: the bank is not pinned, so the way to the GPU leads through the ring.
        """
        self.bank = bank
        self.usual = usual
        self.other = other
        self._rates = rates
        self._staged = staged

    @property
    def kernel(self) -> ExpertKernel:
        """Of the usual way."""
        return self.usual.kernel

    @property
    def device(self) -> torch.device:
        """Of the usual way."""
        return self.usual.device

    @property
    def ways(self) -> tuple[Way, ...]:
        """The usual one first."""
        return (self.usual,) if self.other is None else (self.usual, self.other)

    def forward(self, hidden: Tensor, ids: Tensor, scores: Tensor, math: ExpertMath, way: Way | None = None) -> Tensor:
        """[T, M], chosen experts [T, A] and their weights [T, A] to [T, M] on the device of `hidden`.

        `way` None: the one that engine/contract/steps.py chooses.
        """
        way = way or self._choose(ids)
        home = hidden.device
        if home != way.device:
            hidden, ids, scores = hidden.to(way.device), ids.to(way.device), scores.to(way.device)
        source = _Source(self.bank, way, hidden.shape[0])
        out = routed_forward(hidden, ids, scores, self.bank.layout.n_experts, source, math)
        return out.to(home)

    def _choose(self, ids: Tensor) -> Way:
        if self.other is None or (self._rates is None and not self._staged):
            return self.usual
        gpu = self.other if self.usual.on_host else self.usual
        tokens, active = ids.shape
        size = self.bank.layout.record.bytes
        if tokens == 1:  # if the GPU is the faster one even where all are missing, nobody waits for it to say which
            step = Step(active, active, active, size, self._staged)
            host = on_host(step, self._rates)
            if self._staged or not host:
                return self._way(host)
        n_experts = self.bank.layout.n_experts
        counts = torch.bincount(ids.flatten().clamp(max=n_experts), minlength=n_experts)[:n_experts].tolist()
        chosen = [expert for expert, count in enumerate(counts) if count]
        step = Step(len(chosen), sum(counts), gpu.records.missing(self.bank, chosen), size, self._staged)
        return self._way(on_host(step, self._rates))

    def _way(self, host: bool) -> Way:
        assert self.other is not None
        return self.usual if host is self.usual.on_host else self.other


@dataclass(slots=True)
class _Source:
    """Experts of one step."""

    bank: ExpertBank
    way: Way
    tokens: int

    def several(self, tokens: int) -> SeveralExperts | None:
        """Where the bank lies in host memory and the kernel can."""
        return several_of(self.way.kernel, self.bank.record, tokens) if self.way.on_host else None

    def stream(self, experts: list[int]) -> Iterator[Expert]:
        """These experts, one after another."""
        records = self.way.records.stream(self.bank, experts, self.tokens)
        for number, record in zip(experts, records, strict=True):
            yield self.way.kernel.expert(record, number)
