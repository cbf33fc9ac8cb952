"""Looking at real processes in tests."""

import time
from collections.abc import Callable

import psutil

from engine.contract.processes import ProcessIdentity


def lives(identity: ProcessIdentity) -> bool:
    """This very process runs; a zombie does not."""
    try:
        process = psutil.Process(identity.pid)
        same = abs(process.create_time() - identity.create_time) <= 1.0
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def identity_of(pid: int) -> ProcessIdentity:
    """Who has this pid now."""
    return ProcessIdentity(pid=pid, create_time=psutil.Process(pid).create_time())


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Poll until something holds; False after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
