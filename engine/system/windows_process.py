"""Ending one process on Windows, safe against re-used pids."""

from engine.contract.processes import ProcessIdentity
from engine.system.protocols import EndResult
from engine.system.windows_handles import (
    ERROR_ACCESS_DENIED,
    ERROR_INVALID_PARAMETER,
    QUERY_LIMITED,
    SAME_START_S,
    SYNCHRONIZE,
    TERMINATE,
    create_time,
    ends_within,
    open_process,
    terminate,
)

EXIT_CODE = 1


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
