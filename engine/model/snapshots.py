"""Copies of windows and states in host memory: what a sequence needs to go on from the length it was left at."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.banks.host_refusal import host_refusal
from engine.contract.errors import PlanMismatchError
from engine.contract.ledger import PREFIX_SNAPSHOTS


class Snapshots:
    """A fixed number of slots, each as large as all windows and states of a sequence."""

    def __init__(self, slots: int, slot_bytes: int, layers: Sequence[Any]) -> None:
        """`layers`: those of the cache; what they keep for one sequence alone is copied.

        Raises:
            PlanMismatchError: a slot is not as large as what has to be copied.
            NotEnoughRamError, NotEnoughCommitError, AllocationRefusedError: the slots do not fit.
        """
        kept = [layer for layer in layers if slots and hasattr(layer, "state_parts")]
        self._parts: list[Tensor] = [part for layer in kept for part in layer.state_parts()]
        self._marked = [layer for layer in kept if hasattr(layer, "has_previous_state")]
        actual = sum(part.nbytes for part in self._parts)
        if slots and actual != slot_bytes:
            raise PlanMismatchError(
                f"A snapshot takes {actual:,} B; the plan counts {slot_bytes:,} B.",
                "Plan the start again.",
                actual_bytes=actual,
                planned_bytes=slot_bytes,
            )
        try:
            self._memory = torch.zeros(slots, slot_bytes, dtype=torch.uint8)
        except RuntimeError as cause:  # torch has no type of its own for a failed host allocation
            raise host_refusal(slots * slot_bytes, PREFIX_SNAPSHOTS, cause) from cause
        self._marks: list[list[dict[int, bool]]] = [[] for _ in range(slots)]

    @property
    def nbytes(self) -> int:
        """Of all slots."""
        return self._memory.nbytes

    def save(self, slot: int) -> None:
        """Copy the current sequence's windows and states into a slot."""
        for part, space in self._pairs(slot):
            space.copy_(part)
        self._marks[slot] = [dict(layer.has_previous_state) for layer in self._marked]

    def load(self, slot: int) -> None:
        """Copy them back."""
        for part, space in self._pairs(slot):
            part.copy_(space)
        for layer, marks in zip(self._marked, self._marks[slot], strict=True):
            layer.has_previous_state.update(marks)

    def _pairs(self, slot: int) -> Iterator[tuple[Tensor, Tensor]]:
        spaces = torch.split(self._memory[slot], [part.nbytes for part in self._parts])
        return zip(self._parts, spaces, strict=True)

    def close(self) -> None:
        """Forget the slots and the buffers they were copied from."""
        self._memory = self._memory.new_empty(0)
        self._parts, self._marked = [], []
