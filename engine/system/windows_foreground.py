"""Who may come to the front on Windows."""

import ctypes

from engine.system.windows_dll import function, system_dll


def allow_foreground(pid: int) -> None:
    """Let a process raise its window in our place; without it Windows only lets its taskbar button flash."""
    allow = function(system_dll("user32.dll"), "AllowSetForegroundWindow", ctypes.c_int, ctypes.c_uint32)
    allow(pid)  # refused while we are not in front ourselves; then the button flashes
