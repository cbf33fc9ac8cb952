"""What was found out about the machine. Every number says where it is from; unknown is None."""

from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from engine.contract.record import Record
from engine.contract.units import GIB, reported_bytes

MOST_GPU_BYTES = 1024 * GIB  # no card has more; drivers that know nothing answer -1, which is 2^32 - 1 or 2^64 - 1


class Source(StrEnum):
    """Where a number is from, strongest first."""

    MEASURED = "measured"  # by trying it on this machine
    LEARNED = "learned"  # from what earlier engine runs were granted
    READ = "read"  # reported by the operating system or the driver
    ASSUMED = "assumed"  # a rule of thumb
    USER = "user"  # typed in by the user
    SIMULATED = "simulated"  # belongs to a simulated device


class Reading(Record):
    """A number and its origin. In JSON a bare number means {"value": n, "source": "read"} and null means unknown.

    So does text as driver tools print it: "24564 MiB" is a number of bytes, "[N/A]" and "[Not Supported]" are unknown,
    and so is a number below zero.
    """

    value: int | None = None
    source: Source | None = None
    detail: str = Field(default="", description="which call or rule, in a few words")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, data: Any) -> Any:
        if data is None:
            return {}
        if isinstance(data, str):
            value = reported_bytes(data)
            return {"detail": f"no number: {data}"} if value is None else {"value": value, "source": Source.READ}
        if isinstance(data, int) and not isinstance(data, bool):
            data = {"value": data, "source": Source.READ}
        if isinstance(data, dict) and isinstance(data.get("value"), int) and data["value"] < 0:
            return {"detail": f"impossible: {data['value']}"}
        return data

    @model_validator(mode="after")
    def _known_has_source(self) -> Self:
        if (self.value is None) != (self.source is None):
            raise ValueError("a reading has a value and a source, or neither")
        return self


UNKNOWN = Reading()


def possible(reading: Reading, most: int) -> Reading:
    """The reading, or unknown where the number cannot be true."""
    if reading.value is None or reading.value <= most:
        return reading
    return Reading(detail=f"{reading.detail or 'read'}: impossible, {reading.value:,} B")


class GpuFacts(Record):
    """One graphics adapter."""

    name: str
    vendor: Literal["nvidia", "amd", "intel", "other"] = "other"
    cuda: bool = Field(default=False, description="the engine can use it")
    uuid: str | None = Field(default=None, description="stable across boots (NVML)")
    luid: str | None = Field(default=None, description="Windows, this boot only")
    driver: str | None = None
    vram_total: Reading = UNKNOWN
    vram_used: Reading = Field(default=UNKNOWN, description="by all programs, now")
    shared_limit: Reading = Field(default=UNKNOWN, description="DXGI SharedSystemMemory: ceiling of pinned memory")
    shared_used: Reading = Field(default=UNKNOWN, description="by all programs, now")
    context_bytes: Reading = Field(default=UNKNOWN, description="VRAM the driver takes for one CUDA process")

    @field_validator("vram_total", "vram_used")
    @classmethod
    def _possible(cls, reading: Reading) -> Reading:
        return possible(reading, MOST_GPU_BYTES)


class HardwareFacts(Record):
    """The machine at one moment; also the file format of a recorded machine (`--machine facts.json`)."""

    label: str = Field(default="this PC", description="for people")
    os: Literal["windows", "linux", "wsl2"]
    os_version: str | None = None
    cpu: str | None = None
    cores_physical: int | None = None
    cores_logical: int | None = None
    ram_total: Reading = UNKNOWN
    ram_available: Reading = UNKNOWN
    commit_limit: Reading = UNKNOWN
    commit_used: Reading = UNKNOWN
    memlock_limit: Reading = Field(default=UNKNOWN, description="bytes one process may lock (Linux)")
    memlock_unlimited: bool = False
    pin_measured: Reading = Field(
        default=UNKNOWN, description="pin quota found by a probe, by real loads, or set by hand; used as it is"
    )
    pin_probed: Reading = Field(
        default=UNKNOWN, description="what a probe pinned before the driver refused; used with a margin"
    )
    pin_granted: Reading = Field(
        default=UNKNOWN, description="most that was pinned at once without a refusal: the quota is not smaller"
    )
    pin_refused: Reading = Field(
        default=UNKNOWN, description="least sum that an engine run was refused: the quota is smaller"
    )
    gpus: tuple[GpuFacts, ...] = ()
    recorded: bool = Field(default=False, description="replayed from a file, not this PC")

    @property
    def cuda_gpu(self) -> GpuFacts | None:
        """The adapter the engine would use: the CUDA one with most VRAM."""
        usable = [gpu for gpu in self.gpus if gpu.cuda and gpu.vram_total.value]
        return max(usable, key=lambda gpu: gpu.vram_total.value or 0, default=None)
