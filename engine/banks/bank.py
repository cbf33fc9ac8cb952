"""One layer's routed experts in memory: E records one after another, each laid out as the contract says."""

import torch
from torch import Tensor

from engine.contract.errors import PlanMismatchError
from engine.contract.estimate import ExpertPart, ExpertRecord, bank_bytes, expert_record
from engine.contract.formats import WeightFormat
from engine.contract.shape import ExpertShape
from engine.system.protocols import HostBlock

PLAIN_DTYPES = {WeightFormat.FP32: torch.float32, WeightFormat.BF16: torch.bfloat16}


class BankLayout:
    """Where each part of each expert lies; the same for all layers of a model."""

    def __init__(self, experts: ExpertShape, weight_format: WeightFormat) -> None:
        """Lay out the banks.

        Raises:
            PlanMismatchError: weights of this format cannot be computed.
        """
        if weight_format not in PLAIN_DTYPES:
            raise PlanMismatchError(
                f"Expert weights in {weight_format.value} cannot be computed.",
                "Choose a bf16 or fp32 copy of the model.",
            )
        self.n_experts = experts.n_experts
        self.dtype = PLAIN_DTYPES[weight_format]
        self.record: ExpertRecord = expert_record(experts, weight_format)
        self.nbytes = bank_bytes(experts, weight_format)
        self._parts = {part.name: part for part in self.record.parts}

    def part(self, name: str) -> ExpertPart:
        """Offset and size of "gate_up", "up", "down", or one of these with "_bias"."""
        return self._parts[name]

    def view(self, record: Tensor, name: str, shape: tuple[int, ...]) -> Tensor:
        """One part of a record (uint8 [record.bytes], host or device) as a matrix; shares the memory."""
        part = self._parts[name]
        return record[part.offset : part.offset + part.bytes].view(self.dtype).view(shape)


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

    def free(self) -> None:
        """Give all memory back, on the host or on the device; views of it must be gone."""
        self.move_to(torch.empty(0, dtype=torch.uint8))
