"""A left-over worker in the real window: found, shown with its bytes, ended by one click; its double is let alone."""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from PySide6.QtWidgets import QApplication, QPushButton
from pytestqt.qtbot import QtBot

from app.paths import Profile
from app.wiring import App, LaunchOptions
from engine.contract.processes import ProcessIdentity
from engine.contract.units import MIB
from tests.support.planted import end_with_children, plant, stranger
from tests.support.processes import lives

WAIT_MS = 60_000
HELD_MIB = 96

pytestmark = [
    pytest.mark.qt_log_ignore("systemTrayWindowChanged", "does not support raise", "propagateSizeHints"),
    pytest.mark.skipif(os.name == "nt", reason="on Windows the job leaves nothing over"),
]


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(tmp_path / "profile")


@pytest.fixture
def worker(profile: Profile) -> Iterator[ProcessIdentity]:
    left = plant(profile.runs_dir, HELD_MIB)
    yield left
    end_with_children(left)


@pytest.fixture
def double() -> Iterator[ProcessIdentity]:
    program, its_worker = stranger(HELD_MIB)
    yield its_worker
    assert program.stdin is not None and program.stdout is not None
    program.stdin.close()
    program.wait()
    program.stdout.close()
    end_with_children(its_worker)


def test_t13_one_click_ends_the_invisible_child_and_tells_what_came_back(
    qtbot: QtBot,
    qapp: QApplication,
    profile: Profile,
    worker: ProcessIdentity,
    double: ProcessIdentity,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.orphans.classify.LARGE_BYTES", HELD_MIB * MIB // 2)  # else the double is too small to see
    command = psutil.Process(worker.pid).cmdline()
    assert "multiprocessing.spawn" in command[-2] and not any("splitpin" in word.lower() for word in command[1:])
    app = App(qapp, LaunchOptions(profile, demo_dir=None), pick=lambda _: None)
    app.begin()
    try:
        banners = app.split_page.banners
        qtbot.waitUntil(lambda: any("holds" in each.notice.text for each in banners.banners), timeout=WAIT_MS)
        [banner] = [each for each in banners.banners if "holds" in each.notice.text]
        assert banner.notice.title == "An engine process from an earlier run still holds memory"
        assert "GiB of RAM" in banner.notice.text and "Started" in banner.notice.text
        offered = {pid for orphan in app.desk.left_over.orphans for pid in orphan.pids}
        assert worker.pid in offered
        assert double.pid not in offered
        [button] = [each for each in banner.findChildren(QPushButton) if each.text().startswith("End ")]
        button.click()
        qtbot.waitUntil(lambda: any(each.notice.title.startswith("Ended") for each in banners.banners), timeout=WAIT_MS)
        assert not lives(worker)
        assert lives(double)
        qtbot.waitUntil(lambda: app.desk.left_over.orphans == (), timeout=WAIT_MS)
    finally:
        app.close()
        app.window.deleteLater()
