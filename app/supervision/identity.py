"""Who this launcher is, for the engines it starts."""

import os
from functools import cache

import psutil

from engine.contract.processes import ProcessIdentity


@cache
def own_identity() -> ProcessIdentity:
    """Pid and creation time of this process."""
    return ProcessIdentity(pid=os.getpid(), create_time=psutil.Process().create_time())
