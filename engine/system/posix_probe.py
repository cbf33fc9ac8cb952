"""The facts of a Linux machine, WSL2 included."""

import os
import platform
from pathlib import Path
from typing import Literal

import psutil
from typing_extensions import override

from engine.contract.facts import GpuFacts, HardwareFacts, Reading
from engine.system.cuda_facts import cuda_gpu, read
from engine.system.nvml import Nvml
from engine.system.posix_memory import commit_readings, memlock, ram
from engine.system.protocols import LiveMemory, MachineProbe, MemoryUse

CARDS = Path("/sys/class/drm")
VENDORS: dict[str, Literal["nvidia", "amd", "intel"]] = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
WSL_DEVICE = Path("/dev/dxg")


class PosixProbe(MachineProbe):
    """Reads /proc, /sys and NVML."""

    @override
    def read(self) -> HardwareFacts:
        nvml = Nvml()
        try:
            usable = tuple(cuda_gpu(gpu) for gpu in nvml.gpus())
        finally:
            nvml.close()
        if is_wsl2():
            host = Reading(detail="unknown: a WSL2 guest cannot see the limit of its Windows host")
            usable = tuple(gpu.model_copy(update={"shared_limit": host}) for gpu in usable)
        memory = ram()
        commit_limit, commit_used = commit_readings()
        memlock_limit, memlock_unlimited = memlock()
        return HardwareFacts(
            os="wsl2" if is_wsl2() else "linux",
            os_version=_os_version(),
            cpu=cpu_name(),
            cores_physical=psutil.cpu_count(logical=False),
            cores_logical=psutil.cpu_count(),
            ram_total=read(memory.total, memory.total_from),
            ram_available=read(memory.available, memory.available_from),
            commit_limit=commit_limit,
            commit_used=commit_used,
            memlock_limit=memlock_limit,
            memlock_unlimited=memlock_unlimited,
            gpus=usable + other_cards(without_nvidia=bool(usable)),
        )


class PosixLiveMemory(LiveMemory):
    """RAM from /proc, the largest NVIDIA card through NVML. There is no pool for pinned memory on Linux."""

    def __init__(self) -> None:
        self._nvml = Nvml()

    @override
    def read(self) -> MemoryUse:
        memory = ram()
        card = max(self._nvml.gpus(), key=lambda gpu: gpu.total_bytes or 0, default=None)
        return MemoryUse(
            ram_used=memory.total - memory.available,
            ram_total=memory.total,
            vram_used=None if card is None else card.used_bytes,
            vram_total=None if card is None else card.total_bytes,
        )

    @override
    def close(self) -> None:
        self._nvml.close()


def is_wsl2() -> bool:
    """Whether this Linux is a guest of Windows, also from inside a container of it."""
    return "microsoft" in os.uname().release.lower() or WSL_DEVICE.exists()


def cpu_name() -> str | None:
    """The processor's name as /proc/cpuinfo has it."""
    for line in Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or None


def other_cards(*, without_nvidia: bool) -> tuple[GpuFacts, ...]:
    """Cards that the engine cannot use, from /sys/class/drm; NVIDIA ones too if their driver did not answer."""
    found: list[GpuFacts] = []
    for device in sorted(CARDS.glob("card[0-9]*/device")):
        vendor_id, device_id = _text(device / "vendor"), _text(device / "device")
        vendor = VENDORS.get(vendor_id, "other")
        if not vendor_id or (vendor == "nvidia" and without_nvidia) or "-" in device.parent.name:  # card0-HDMI-A-1
            continue
        total, used = _text(device / "mem_info_vram_total"), _text(device / "mem_info_vram_used")
        found.append(
            GpuFacts(
                name=f"graphics adapter {vendor_id[2:]}:{device_id[2:]}",
                vendor=vendor,
                vram_total=read(int(total), f"{device}/mem_info_vram_total") if total else Reading(),
                vram_used=read(int(used), f"{device}/mem_info_vram_used") if used else Reading(),
            )
        )
    return tuple(found)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except OSError:  # this driver does not offer the file
        return ""


def _os_version() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = "Linux"
    return f"{name}, kernel {os.uname().release}"
