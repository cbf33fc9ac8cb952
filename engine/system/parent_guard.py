"""The engine's first act: never outlive the launcher. Imports nothing heavy."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.contract.processes import ProcessIdentity


def die_with_parent(parent: "ProcessIdentity | None") -> None:
    """End this process as soon as `parent` has ended, at once if it already has. None: nobody to follow.

    Call it before anything slow is imported. A second fence beside what the launcher does (job object, session):
    it also holds when the launcher was killed before its own fence stood.
    """
    if parent is not None:
        follow(parent.pid, parent.create_time)


def follow(pid: int, create_time: float) -> None:
    """`die_with_parent` without the record: pid and creation time in seconds since the epoch.

    A process that follows another has no window of its own. Windows slows such programs down; this one asks not to be.
    """
    if os.name == "nt":
        from engine.system.windows_parent import guard
        from engine.system.windows_speed import full_speed

        full_speed()
    else:
        from engine.system.posix_parent import guard
    guard(pid, create_time)
