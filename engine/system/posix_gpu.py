"""GPU memory of each process on Linux, asked without waking a card that sleeps."""

from pathlib import Path

from engine.system.nvml import Nvml

PCI = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
_DISPLAY = "0x03"  # PCI class of display controllers


def all_asleep(pci: Path = PCI) -> bool:
    """Every NVIDIA card is powered down: then nobody holds memory of one, and asking the driver would wake it."""
    states = [
        _text(device / "power" / "runtime_status")
        for device in (pci.iterdir() if pci.is_dir() else ())
        if _text(device / "vendor") == _NVIDIA and _text(device / "class").startswith(_DISPLAY)
    ]
    return bool(states) and all(state == "suspended" for state in states)


def gpu_bytes_by_pid(pci: Path = PCI) -> dict[int, int]:
    """GPU memory of each process, with the driver held only for this question."""
    if all_asleep(pci):
        return {}
    nvml = Nvml()
    try:
        return nvml.bytes_by_pid()
    finally:
        nvml.close()


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except OSError:  # this kernel or device does not offer the file
        return ""
