"""The engine's first act: never outlive the launcher. Imports nothing heavy."""

import os


def follow(pid: int, create_time: float) -> None:
    """End this process as soon as the one with this pid and creation time (seconds since the epoch) has ended.

    Call it before anything slow is imported. A second fence beside what the launcher does (job object, session):
    it also holds when the launcher was killed before its own fence stood.

    A process that follows another has no window of its own. Windows slows such programs down; this one asks not to be.
    """
    if os.name == "nt":
        from engine.system.windows_parent import guard
        from engine.system.windows_speed import full_speed

        full_speed()
    else:
        from engine.system.posix_parent import guard
    guard(pid, create_time)
