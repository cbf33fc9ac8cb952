"""Ending one process on Windows, safe against re-used pids, and keeping our own at full speed."""

import ctypes

from engine.contract.processes import ProcessIdentity
from engine.system.protocols import EndResult
from engine.system.windows_dll import function, system_dll
from engine.system.windows_handles import (
    ERROR_ACCESS_DENIED,
    ERROR_INVALID_PARAMETER,
    QUERY_LIMITED,
    SAME_START_S,
    SYNCHRONIZE,
    TERMINATE,
    create_time,
    current_process,
    ends_within,
    open_process,
    terminate,
)

EXIT_CODE = 1
PROCESS_POWER_THROTTLING = 4
EXECUTION_SPEED = 1


class PowerThrottling(ctypes.Structure):
    """PROCESS_POWER_THROTTLING_STATE."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("control_mask", ctypes.c_uint32),
        ("state_mask", ctypes.c_uint32),
    )


def end_process(identity: ProcessIdentity, wait_s: float) -> EndResult:
    """End the process and wait until it is gone. The open handle pins it while its start time is compared."""
    try:
        with open_process(identity.pid, QUERY_LIMITED | SYNCHRONIZE) as handle:
            if ends_within(handle, 0):
                return EndResult.GONE
            if abs(create_time(handle) - identity.create_time) > SAME_START_S:
                return EndResult.NOT_THE_SAME
            with open_process(identity.pid, TERMINATE) as deadly:
                refused = not terminate(deadly, EXIT_CODE)
            if ends_within(handle, wait_s):
                return EndResult.ENDED
            return EndResult.DENIED if refused else EndResult.LINGERS
    except OSError as cause:
        if cause.errno == ERROR_INVALID_PARAMETER:
            return EndResult.GONE
        if cause.errno == ERROR_ACCESS_DENIED:
            return EndResult.DENIED
        raise


def full_speed(handle: int | None = None) -> bool:
    """Switch efficiency mode off, which Windows may put on programs without a window. False: not known here.

    It is not inherited: the process that computes must ask for itself, not the venv's launcher in front of it.
    """
    try:
        kernel = system_dll("kernel32.dll")
        ask = function(
            kernel,
            "SetProcessInformation",
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_uint32,
        )
    except OSError:  # Windows before 8
        return False
    wish = PowerThrottling(version=1, control_mask=EXECUTION_SPEED, state_mask=0)
    process = current_process() if handle is None else handle
    return bool(ask(process, PROCESS_POWER_THROTTLING, ctypes.byref(wish), ctypes.sizeof(wish)))
