"""A job object: a fence around a process tree that falls with us, however we end."""

import ctypes
from functools import cache

from engine.system.windows_dll import failure, function, last_error, system_dll
from engine.system.windows_handles import close_handle

KILL_ON_JOB_CLOSE = 0x2000
DIE_ON_UNHANDLED_EXCEPTION = 0x0400  # no error box that keeps a dead engine standing
ERROR_MORE_DATA = 234
_BASIC_PROCESS_ID_LIST = 3
_EXTENDED_LIMIT_INFORMATION = 9
_FIRST_GUESS = 64


class BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    _fields_ = (
        ("process_user_time", ctypes.c_int64),
        ("job_user_time", ctypes.c_int64),
        ("limit_flags", ctypes.c_uint32),
        ("minimum_working_set", ctypes.c_size_t),
        ("maximum_working_set", ctypes.c_size_t),
        ("active_processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority_class", ctypes.c_uint32),
        ("scheduling_class", ctypes.c_uint32),
    )


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("basic", BasicLimits),
        ("io_counters", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )


class _Kernel:
    def __init__(self) -> None:
        dll = system_dll("kernel32.dll")
        yes, number, handle, pointer = ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p
        self.create = function(dll, "CreateJobObjectW", handle, pointer, ctypes.c_wchar_p)
        self.set = function(dll, "SetInformationJobObject", yes, handle, yes, pointer, number)
        self.query = function(dll, "QueryInformationJobObject", yes, handle, yes, pointer, number, pointer)
        self.assign = function(dll, "AssignProcessToJobObject", yes, handle, handle)
        self.terminate = function(dll, "TerminateJobObject", yes, handle, number)


@cache
def _kernel() -> _Kernel:
    return _Kernel()


class Job:
    """Processes in it, and all that they start, end when the last handle to it closes, also by our own death.

    No breakaway is allowed, memory is not limited (a working-set limit would make locking pretend to work), and the
    handle is not inherited: a child that held it would keep the fence up.
    """

    def __init__(self) -> None:
        self._handle: int | None = _kernel().create(None, None)
        if not self._handle:
            raise failure("CreateJobObject")
        limits = ExtendedLimits()
        limits.basic.limit_flags = KILL_ON_JOB_CLOSE | DIE_ON_UNHANDLED_EXCEPTION
        size = ctypes.sizeof(limits)
        if not _kernel().set(self._handle, _EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), size):
            problem = failure("SetInformationJobObject")
            self.close()
            raise problem

    def add(self, process: int) -> None:
        """Put a process in; what it starts from now on is in as well.

        Raises:
            OSError: refused.
        """
        if not _kernel().assign(self._handle, process):
            raise failure("AssignProcessToJobObject")

    def pids(self) -> tuple[int, ...]:
        """Who lives in the job now, descendants of dead parents included."""
        if self._handle is None:
            return ()
        capacity = _FIRST_GUESS
        while True:
            buffer = (ctypes.c_size_t * (capacity + 1))()  # two 32-bit counts, then the ids
            if _kernel().query(self._handle, _BASIC_PROCESS_ID_LIST, buffer, ctypes.sizeof(buffer), None):
                count = (ctypes.c_uint32 * 2).from_buffer(buffer)[1]
                return tuple(buffer[1 : count + 1])
            if last_error() != ERROR_MORE_DATA:
                raise failure("QueryInformationJobObject")
            capacity *= 2

    def terminate(self, exit_code: int) -> None:
        """End everybody in the job."""
        if self._handle is not None and not _kernel().terminate(self._handle, exit_code):
            raise failure("TerminateJobObject")

    def close(self) -> None:
        """Close our handle, the only one: whoever is left in the job ends."""
        if self._handle is not None:
            close_handle(self._handle)
            self._handle = None
