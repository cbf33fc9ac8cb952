"""Efficiency mode of Windows, which slows programs without a window. Imports nothing heavy."""

import ctypes

from engine.system.windows_dll import function, system_dll
from engine.system.windows_handles import current_process

PROCESS_POWER_THROTTLING = 4
EXECUTION_SPEED = 1


class PowerThrottling(ctypes.Structure):
    """PROCESS_POWER_THROTTLING_STATE."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("control_mask", ctypes.c_uint32),
        ("state_mask", ctypes.c_uint32),
    )


def full_speed(handle: int | None = None) -> bool:
    """Switch efficiency mode off, by default for this process. False: this version of Windows does not know it.

    It is not inherited: the process that computes must ask for itself, not the venv's launcher in front of it.
    """
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    try:
        dll = system_dll("kernel32.dll")
        ask = function(dll, "SetProcessInformation", ctypes.c_int, pointer, ctypes.c_int, pointer, number)
    except OSError:  # Windows before 8
        return False
    wish = PowerThrottling(version=1, control_mask=EXECUTION_SPEED, state_mask=0)
    process = current_process() if handle is None else handle
    return bool(ask(process, PROCESS_POWER_THROTTLING, ctypes.byref(wish), ctypes.sizeof(wish)))
