"""How fast this machine moves and computes expert weights, as measured by engine/experts/measure_rates.py."""

from typing import Self

from pydantic import Field, model_validator

from engine.contract.formats import WeightFormat
from engine.contract.record import Record

KERNELS = 1  # goes up with every change of the kernels that makes earlier figures wrong: they do not count any more


class KernelRates(Record):
    """One kind of weights on one processor."""

    bytes_s: float = Field(gt=0, description="weights read a second while one token is computed")
    flops_s: float = Field(gt=0, description="operations a second while many tokens are computed at once")


class MeasuredRates(Record):
    """Bytes and operations a second. None: there is no GPU to measure."""

    device: str = Field(description="name of the GPU, 'simulated GPU' or 'CPU'")
    simulated: bool = False
    kernels: int = Field(default=KERNELS, description="`KERNELS` of the engine that was measured")
    threads: int = Field(gt=0)
    cpu: dict[WeightFormat, KernelRates] = Field(description="expert kernel on the CPU")
    call_s: float = Field(gt=0, description="one expert so small that only the calls of its operations take time")
    memcpy_bytes_s: float = Field(gt=0, description="copies within RAM")
    gpu: dict[WeightFormat, KernelRates] = Field(default_factory=dict)
    gpu_call_s: float | None = None
    pinned_copy_bytes_s: float | None = Field(default=None, description="pinned RAM to GPU")
    pageable_copy_bytes_s: float | None = Field(default=None, description="ordinary RAM to GPU")
    elapsed_s: float = Field(ge=0, description="how long the measurement took")

    @property
    def current(self) -> bool:
        """Whether the engine still computes as it did then."""
        return self.kernels == KERNELS

    def with_earlier(self, earlier: "MeasuredRates | None") -> "MeasuredRates":
        """The same with formats that only an earlier measurement of the same device has."""
        if earlier is None or not earlier.current or earlier.device != self.device:
            return self
        return self.model_copy(update={"cpu": {**earlier.cpu, **self.cpu}, "gpu": {**earlier.gpu, **self.gpu}})

    @model_validator(mode="after")
    def _gpu_whole(self) -> Self:
        parts = (self.gpu_call_s, self.pinned_copy_bytes_s, self.pageable_copy_bytes_s)
        if any((part is None) != (not self.gpu) for part in parts):
            raise ValueError("all figures of a GPU, or none")
        return self
