"""What holds for every test: no screen, no traces in the user's folders, nothing left running.

The environment is set while this file is imported, which is before any test module can import torch or Qt.
"""

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from app.paths import demo_model_dir
from engine.threads import prepare_threads
from tests.support.leaks import LeakCheck, ThreadLeakCheck

_FAILED = pytest.StashKey[bool]()
_tests_run = count(1)
_FULL_COLLECTION_EVERY = 50  # tests
_USES_QT = {"qapp", "qtbot", "qapp_cls", "qtmodeltester"}
_DEMO_MODEL = Path(os.environ.get("SPLITPIN_DEMO_MODEL") or demo_model_dir())  # before the folders move

if sys.platform.startswith("linux"):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    _home = tempfile.TemporaryDirectory(prefix="splitpin-tests-")  # lives as long as the test run
    for _name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        os.environ[_name] = str(Path(_home.name) / _name.lower())
prepare_threads()

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(  # the same examples every time: red means that the change did it
    "ci", max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """Folder of the demo model; SPLITPIN_DEMO_MODEL names another place than the usual one."""
    from assets.demo_model.build import is_complete  # reads the marker; loads no model

    if not is_complete(_DEMO_MODEL):
        pytest.fail(f"There is no demo model in {_DEMO_MODEL}. `python run.py test` prepares it.")
    return _DEMO_MODEL


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Collect only what the test made: closing models and windows collects, and libraries are a million objects."""
    gc.freeze()
    yield
    gc.unfreeze()
    if next(_tests_run) % _FULL_COLLECTION_EVERY == 0:
        gc.collect()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember a failed test body: what it left over is not worth a second message."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.when == "call" and report.failed:
        item.stash[_FAILED] = True


@pytest.fixture(autouse=True)
def nothing_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test ends its threads, timers and windows, or it fails."""
    checks: list[LeakCheck] = [ThreadLeakCheck()]
    if _USES_QT & set(request.fixturenames):
        request.getfixturevalue("qapp")
        from tests.support.qt_leaks import QtLeakCheck  # Qt only for tests that have it anyway

        checks.append(QtLeakCheck())
    for check in checks:
        check.begin()
    yield
    left_over = [line for check in reversed(checks) for line in check.end()]
    if left_over and not request.node.stash.get(_FAILED, False):
        pytest.fail("Left running by this test:\n  " + "\n  ".join(left_over), pytrace=False)
