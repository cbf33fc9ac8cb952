"""How the taskbar looks. Windows keeps that apart from the look of programs, and a tray icon stands on the taskbar."""

import sys
from collections.abc import Callable

_KEY = r"Software\Microsoft\Windows\CurrentVersion\Themes\Personalize"
_VALUE = "SystemUsesLightTheme"  # not AppsUseLightTheme: that is for windows


def _windows_setting() -> int | None:
    """The value of the registry; None where there is none."""
    if sys.platform != "win32":
        return None
    import winreg

    try:
        with winreg.OpenKey(winreg.HKEY_CURRENT_USER, _KEY) as key:
            value, kind = winreg.QueryValueEx(key, _VALUE)
    except OSError:
        return None  # Windows 10 before 1903 does not have it
    return int(value) if kind == winreg.REG_DWORD else None


def dark_taskbar(read: Callable[[], int | None] = _windows_setting) -> bool | None:
    """Whether the taskbar is dark; None where the system does not say. Cheap enough for once a second."""
    setting = read()
    return None if setting is None else setting == 0
