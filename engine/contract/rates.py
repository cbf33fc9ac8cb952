"""How fast this machine moves and computes expert weights, as measured by engine/experts/measure_rates.py."""

from typing import Self

from pydantic import Field, model_validator

from engine.contract.formats import WeightFormat
from engine.contract.record import Record


class KernelRates(Record):
    """One kind of weights on one processor."""

    bytes_s: float = Field(gt=0, description="weights read a second while one token is computed")
    flops_s: float = Field(gt=0, description="operations a second while many tokens are computed at once")


class MeasuredRates(Record):
    """Bytes and operations a second. None: there is no GPU to measure."""

    device: str = Field(description="name of the GPU, 'simulated GPU' or 'CPU'")
    simulated: bool = False
    threads: int = Field(gt=0)
    cpu: dict[WeightFormat, KernelRates] = Field(description="expert kernel on the CPU")
    call_s: float = Field(gt=0, description="one expert so small that only the calls of its operations take time")
    memcpy_bytes_s: float = Field(gt=0, description="copies within RAM")
    gpu: dict[WeightFormat, KernelRates] = Field(default_factory=dict)
    gpu_call_s: float | None = None
    pinned_copy_bytes_s: float | None = Field(default=None, description="pinned RAM to GPU")
    pageable_copy_bytes_s: float | None = Field(default=None, description="ordinary RAM to GPU")
    elapsed_s: float = Field(ge=0, description="how long the measurement took")

    @model_validator(mode="after")
    def _gpu_whole(self) -> Self:
        parts = (self.gpu_call_s, self.pinned_copy_bytes_s, self.pageable_copy_bytes_s)
        if any((part is None) != (not self.gpu) for part in parts):
            raise ValueError("all figures of a GPU, or none")
        return self
