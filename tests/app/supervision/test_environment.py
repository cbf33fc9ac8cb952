"""What the engine inherits."""

from app.supervision.environment import engine_environment


def test_the_launchers_python_and_qt_do_not_reach_the_engine() -> None:
    own = {
        "PATH": "/usr/bin",
        "HOME": "/home/maria",
        "PYTHONHOME": "/opt/launcher",
        "PYTHONPATH": "/opt/launcher/lib",
        "__PYVENV_LAUNCHER__": "/opt/launcher/bin/python",
        "QT_QPA_PLATFORM": "offscreen",
        "SPLITPIN_RUN_ID": "old",
        "SPLITPIN_KERNELS": "off",
        "OMP_NUM_THREADS": "1",
    }
    assert engine_environment(own, "new") == {
        "PATH": "/usr/bin",
        "HOME": "/home/maria",
        "OMP_NUM_THREADS": "1",
        "SPLITPIN_KERNELS": "off",
        "PYTHONUTF8": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "SPLITPIN_RUN_ID": "new",
    }
