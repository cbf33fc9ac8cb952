"""The end of the parent, noticed on Windows: a thread waits on the parent's handle."""

import threading

from engine.system import windows_handles as handles

EXIT_CODE = 1


def guard(pid: int, create_time: float) -> None:
    """Arrange that this process ends when the process `pid` that started at `create_time` does.

    Raises:
        OSError: the parent exists but may not be waited for.
    """
    standing = threading.Event()
    problems: list[OSError] = []
    arguments = (pid, create_time, standing, problems)
    threading.Thread(target=_follow, args=arguments, name="parent guard", daemon=True).start()
    standing.wait()
    if problems:
        raise problems[0]


def _follow(pid: int, create_time: float, standing: threading.Event, problems: list[OSError]) -> None:
    try:
        with handles.open_process(pid, handles.SYNCHRONIZE | handles.QUERY_LIMITED) as parent:
            same = abs(handles.create_time(parent) - create_time) <= handles.SAME_START_S
            if same and not handles.ends_within(parent, 0):
                standing.set()
                handles.ends_within(parent, None)
    except OSError as problem:
        if problem.errno != handles.ERROR_INVALID_PARAMETER:  # 87: the parent ended before the guard stood
            problems.append(problem)
            standing.set()
            return
    # not os._exit: that runs the clean-up of DLLs, which may wait for a lock that a stuck driver call holds
    handles.terminate(handles.current_process(), EXIT_CODE)
