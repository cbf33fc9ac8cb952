"""One layer's routed experts in memory: E records one after another, each laid out as the contract says."""

import torch
from torch import Tensor

from engine.contract.errors import PlanMismatchError
from engine.contract.estimate import ExpertPart, ExpertRecord, bank_bytes, expert_record
from engine.contract.formats import ExpertStorage, WeightFormat, alike, usual_storage
from engine.contract.shape import ExpertShape
from engine.system.protocols import HostBlock

PLAIN_DTYPES = {
    WeightFormat.FP32: torch.float32,
    WeightFormat.BF16: torch.bfloat16,
    WeightFormat.FP16: torch.float16,
}


class BankLayout:
    """Where each part of each expert lies in the bank of one layer."""

    def __init__(self, experts: ExpertShape, stored: WeightFormat | ExpertStorage) -> None:
        """Lay out a bank; what the bytes mean is for the kernel to know."""
        self.experts = experts
        self.storage = stored if isinstance(stored, ExpertStorage) else alike(usual_storage(stored))
        self.n_experts = experts.n_experts
        self.record: ExpertRecord = expert_record(experts, self.storage)
        self.nbytes = bank_bytes(experts, self.storage)
        plain = self.storage.plain_format(experts.has_bias)
        self.dtype = None if plain is None else PLAIN_DTYPES[plain]  # None: packed, or of several types
        self._parts = {part.name: part for part in self.record.parts}

    def part(self, name: str) -> ExpertPart:
        """Offset and size of "gate_up", "down_scale", "down_bias", ..."""
        return self._parts[name]

    def has(self, name: str) -> bool:
        """Whether records have this part."""
        return name in self._parts

    def raw(self, record: Tensor, name: str) -> Tensor:
        """The bytes of one part of a record (uint8 [record.bytes], host or device); shares the memory."""
        part = self._parts[name]
        return record[part.offset : part.offset + part.bytes]

    def view(self, record: Tensor, name: str, shape: tuple[int, ...]) -> Tensor:
        """One part of a record as a matrix of the layout's number type; shares the memory."""
        if self.dtype is None:
            raise ValueError(f"{name} is packed")
        return self.raw(record, name).view(self.dtype).view(shape)


class ExpertBank:
    """The records of one layer. Filled in host memory; may live on the device alone afterwards."""

    def __init__(self, layer: int, layout: BankLayout, block: HostBlock) -> None:
        """Take over a block of exactly the layout's size.

        Raises:
            PlanMismatchError: the block has another size than the plan counted.
        """
        if block.nbytes != layout.nbytes:
            raise PlanMismatchError(
                f"Layer {layer} was given {block.nbytes:,} B; the plan counts {layout.nbytes:,} B.",
                "Plan the start again.",
                planned_bytes=layout.nbytes,
                actual_bytes=block.nbytes,
            )
        self.layer = layer
        self.layout = layout
        self.block: HostBlock | None = block
        self.bytes: Tensor = torch.empty(0, dtype=torch.uint8)
        if block.nbytes:
            self.bytes = torch.frombuffer(block.buffer, dtype=torch.uint8)

    def record(self, expert: int) -> Tensor:
        """The bytes of one expert, uint8 [record.bytes], where the bank lives now."""
        size = self.layout.record.bytes
        return self.bytes[expert * size : (expert + 1) * size]

    def host_part(self, name: str, expert: int) -> memoryview:
        """Writable host bytes of one part of one expert.

        Raises:
            ValueError: the bank has left the host.
        """
        if self.block is None:
            raise ValueError(f"layer {self.layer} has no host copy")
        part = self.layout.part(name)
        start = expert * self.layout.record.bytes + part.offset
        return self.block.buffer[start : start + part.bytes]

    def move_to(self, device_bytes: Tensor) -> None:
        """Live in `device_bytes`, a filled copy, from now on and give the host block back."""
        block, self.block = self.block, None
        self.bytes = device_bytes  # the last view of the block is gone with this
        if block is not None:
            block.free()

    def sit(self, filled: Tensor, block: HostBlock | None) -> None:
        """Live in `filled`, a view of `block` or bytes on the device; what the bank lived in before is the caller's."""
        self.bytes, self.block = filled, block

    def free(self) -> None:
        """Give all memory back, on the host or on the device; views of it must be gone."""
        self.move_to(torch.empty(0, dtype=torch.uint8))
