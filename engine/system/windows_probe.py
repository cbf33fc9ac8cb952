"""The facts of a Windows machine."""

import ctypes

import psutil
from typing_extensions import override

from engine.contract.facts import HardwareFacts
from engine.system import windows_memory
from engine.system.cuda_facts import read
from engine.system.protocols import MachineProbe
from engine.system.windows_adapters import read_gpus
from engine.system.windows_dll import function, system_dll

HKEY_LOCAL_MACHINE = 0x8000_0002
RRF_RT_REG_SZ = 0x2
PROCESSOR_KEY = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
FIRST_BUILD_OF_11 = 22000


class _Version(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("build", ctypes.c_uint32),
        ("platform", ctypes.c_uint32),
        ("service_pack", ctypes.c_uint16 * 128),
    )


class WindowsProbe(MachineProbe):
    """Reads kernel32, the registry, DXGI, PDH and NVML."""

    @override
    def read(self) -> HardwareFacts:
        memory = windows_memory.ram()
        commit = windows_memory.commit()
        return HardwareFacts(
            os="windows",
            os_version=os_version(),
            cpu=registry_text(PROCESSOR_KEY, "ProcessorNameString"),
            cores_physical=psutil.cpu_count(logical=False),
            cores_logical=psutil.cpu_count(),
            ram_total=read(memory.total, "GlobalMemoryStatusEx ullTotalPhys"),
            ram_available=read(memory.available, "GlobalMemoryStatusEx ullAvailPhys"),
            commit_limit=read(commit.limit, "GetPerformanceInfo CommitLimit"),
            commit_used=read(commit.used, "GetPerformanceInfo CommitTotal"),
            gpus=read_gpus(),
        )


def os_version() -> str | None:
    """Name and build, "Windows 11 (build 26100)". RtlGetVersion answers truly, whatever the manifest says."""
    version = _Version(size=ctypes.sizeof(_Version))
    ask = function(system_dll("ntdll.dll"), "RtlGetVersion", ctypes.c_int32, ctypes.c_void_p)
    if ask(ctypes.byref(version)) != 0:
        return None
    major = 11 if version.major == 10 and version.build >= FIRST_BUILD_OF_11 else version.major
    return f"Windows {major} (build {version.build})"


def registry_text(key: str, name: str) -> str | None:
    """A text value under HKEY_LOCAL_MACHINE, or None if it is not there."""
    pointer, text, number = ctypes.c_void_p, ctypes.c_wchar_p, ctypes.c_uint32
    advapi = system_dll("advapi32.dll")
    ask = function(advapi, "RegGetValueW", ctypes.c_int32, ctypes.c_size_t, text, text, number, *(pointer,) * 3)
    buffer = ctypes.create_unicode_buffer(256)
    size = number(ctypes.sizeof(buffer))
    if ask(HKEY_LOCAL_MACHINE, key, name, RRF_RT_REG_SZ, None, buffer, ctypes.byref(size)) != 0:
        return None
    return buffer.value.strip() or None
