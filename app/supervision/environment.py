"""The engine's environment: the user's, without what the launcher's own Python and Qt left in it."""

from collections.abc import Mapping

_DROPPED_PREFIXES = ("PYTHON", "QT_", "QML", "_PYI", "SPLITPIN_")
_KEPT = {"SPLITPIN_KERNELS"}  # a switch of the engine's, for the user to set
_DROPPED = {"__PYVENV_LAUNCHER__", "VIRTUAL_ENV_PROMPT"}


def engine_environment(own: Mapping[str, str], run_id: str) -> dict[str, str]:
    """Variables for one engine run. PYTHONPATH and the like belong to the launcher and would break another Python."""
    kept = {
        name: value
        for name, value in own.items()
        if name.upper() in _KEPT or not (name.upper().startswith(_DROPPED_PREFIXES) or name.upper() in _DROPPED)
    }
    return kept | {
        "PYTHONUTF8": "1",  # a log line with a path in another script must not raise under a Windows code page
        "PYTHONIOENCODING": "utf-8",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",  # the engine reads the model folder and nothing else
        "SPLITPIN_RUN_ID": run_id,
    }
