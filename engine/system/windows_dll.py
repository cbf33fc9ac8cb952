"""System DLLs through ctypes. The modules that use this can be imported on any system; calls work on Windows."""

import ctypes
from collections.abc import Callable
from typing import Any, cast

LOAD_LIBRARY_SEARCH_SYSTEM32 = 0x800

# what users meet most; the system's own words would come in its own language
_WORDS = {
    5: "access is denied",
    8: "the system is out of memory",
    87: "the system calls a parameter invalid",
    158: "the pages were not locked",
    998: "the address range is not committed memory",
    1314: "this account lacks a privilege",
    1450: "too little RAM is available, or the system is out of resources",
    1453: "the working set of this process may not grow that far",
    1455: "RAM and page file cannot promise that much",
    1816: "a memory quota of this process or its job is used up",
}


def system_dll(name: str) -> ctypes.CDLL:
    """Load a DLL of the system folder and of no other.

    Raises:
        OSError: it is not there, or this is not Windows.
    """
    loader = getattr(ctypes, "WinDLL", None)
    if loader is None:
        raise OSError(f"{name} exists on Windows only")
    return cast(ctypes.CDLL, loader(name, use_last_error=True, winmode=LOAD_LIBRARY_SEARCH_SYSTEM32))


def function(dll: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """An exported function with its types; without them ctypes cuts 64-bit values.

    Raises:
        OSError: this version of the system does not export it.
    """
    try:
        found = getattr(dll, name)
    except AttributeError as cause:
        raise OSError(f"this system has no {name}") from cause
    found.restype = result
    found.argtypes = arguments
    return cast(Callable[..., Any], found)


def last_error() -> int:
    """The Win32 error of the last call on this thread; errno is something else."""
    return cast(int, getattr(ctypes, "get_last_error", lambda: 0)())


def words(code: int) -> str:
    """A Win32 error in words."""
    known = _WORDS.get(code)
    return known or str(getattr(ctypes, "FormatError", lambda code: f"error {code}")(code)).strip().rstrip(".")


def failure(call: str) -> OSError:
    """The last error as an exception that names the call."""
    code = last_error()
    return OSError(code, f"{call}: {words(code)}")
