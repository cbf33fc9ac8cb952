"""Ending one process on Linux, safe against re-used pids."""

import signal

from engine.contract.processes import ProcessIdentity
from engine.system.posix_proc import SAME_START_S, ends_within, freeze, handle_of, read_stat
from engine.system.protocols import EndResult

HOLD_S = 1.0


def hold_process(identity: ProcessIdentity) -> None:
    """Hold the process where it is. Nothing happens if it is gone, another one now, or not ours."""
    stat = read_stat(identity.pid)
    if stat is not None and abs(stat.create_time - identity.create_time) <= SAME_START_S:
        freeze((stat,), HOLD_S)


def end_process(identity: ProcessIdentity, wait_s: float) -> EndResult:
    """Kill the process and wait until it is gone."""
    stat = read_stat(identity.pid)
    if stat is None or not stat.alive:
        return EndResult.GONE
    if abs(stat.create_time - identity.create_time) > SAME_START_S:
        return EndResult.NOT_THE_SAME
    with handle_of(stat) as handle:
        if handle is None:
            return EndResult.GONE
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            return EndResult.GONE
        except PermissionError:
            return EndResult.DENIED
        return EndResult.ENDED if ends_within(handle, wait_s) else EndResult.LINGERS
