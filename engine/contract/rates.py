"""How fast this machine moves and computes expert weights, as measured by engine/experts/measure_rates.py."""

from typing import Self

from pydantic import Field, model_validator

from engine.contract.formats import WeightFormat
from engine.contract.record import Record
from engine.contract.steps import ExpertRates

KERNELS = 4  # goes up when other kernels or other ways to measure make earlier figures wrong: they do not count then


class KernelRates(Record):
    """One kind of weights on one processor, measured with large experts."""

    bytes_s: float = Field(gt=0, description="weights read a second while one token is computed")
    flops_s: float = Field(gt=0, description="operations a second while every expert gets `rows` tokens at once")
    rows: float = Field(default=2, gt=1, description="earlier figures lack it, and do not count: see `KERNELS`")

    def token(self, nbytes: int, call_s: float, *, queued: bool) -> ExpertRates:
        """Of an expert of so many bytes for a single row.

        Args:
            call_s: of an expert so small that only calls take time.
            queued: the processor works while it is called, as a GPU does; else one comes after the other.
        """
        read_s = nbytes / self.bytes_s
        return ExpertRates(max(read_s, call_s) if queued else read_s + call_s, 0.0)

    def prompt(self, nbytes: int, row_operations: float, call_s: float, *, queued: bool) -> ExpertRates:
        """The same for many rows: the line through what was measured with 1 row and with `rows`.

        As engine/experts/measure_steps.py draws it; never below nothing, which noise could lead to.
        """
        one_s = self.token(nbytes, call_s, queued=queued).expert_s
        row_s = max(self.rows * row_operations / self.flops_s - nbytes / self.bytes_s, 0.0) / (self.rows - 1)
        return ExpertRates(max(one_s - row_s, 0.0), row_s)


class AttentionRates(Record):
    """Attention on one processor, measured over a long KV cache: operations a second, masked ones included.

    One token counts by operations too, not by bytes: a CPU went through the same keys and values once for each query
    head, at 0.2 to 0.8 GB/s.
    """

    token_flops_s: float = Field(gt=0, description="while one token is computed")
    prompt_flops_s: float = Field(gt=0, description="while many are computed at once")


class MeasuredRates(Record):
    """Bytes and operations a second. None: there is no GPU to measure."""

    device: str = Field(description="name of the GPU, 'simulated GPU' or 'CPU'")
    simulated: bool = False
    kernels: int = Field(default=KERNELS, description="`KERNELS` of the engine that was measured")
    threads: int = Field(gt=0)
    cpu: dict[WeightFormat, KernelRates] = Field(description="expert kernel on the CPU")
    attention: AttentionRates | None = Field(default=None, description="on the CPU; earlier figures lack it")
    call_s: float = Field(gt=0, description="one expert so small that only the calls of its operations take time")
    prompt_call_s: float | None = Field(
        default=None, gt=0, description="the same in a prompt, see engine/experts/rates.py"
    )
    memcpy_bytes_s: float = Field(gt=0, description="copies within RAM")
    gpu: dict[WeightFormat, KernelRates] = Field(default_factory=dict)
    gpu_attention: AttentionRates | None = None
    gpu_call_s: float | None = None
    gpu_prompt_call_s: float | None = None
    pinned_copy_bytes_s: float | None = Field(default=None, description="pinned RAM to GPU")
    copy_call_s: float | None = Field(default=None, description="of starting a copy to the GPU, however small")
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
        parts: list[object] = [self.gpu_call_s, self.pinned_copy_bytes_s, self.pageable_copy_bytes_s]
        if self.current:
            parts += [self.copy_call_s, self.gpu_attention, self.gpu_prompt_call_s]
            if self.attention is None or self.prompt_call_s is None:
                raise ValueError("figures of the CPU are missing")
        if any((part is None) != (not self.gpu) for part in parts):
            raise ValueError("all figures of a GPU, or none")
        return self
