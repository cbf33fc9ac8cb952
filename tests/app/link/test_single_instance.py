"""A second start of Splitpin raises the first window."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PySide6.QtNetwork import QLocalSocket
from pytestqt.qtbot import QtBot

from app.link.single_instance import AlreadyOpenError, SingleInstance

# A second start with the same profile; says what became of it.
SECOND = """
import sys
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from app.link.single_instance import SingleInstance
qt = QCoreApplication([])
instance = SingleInstance(Path(sys.argv[1]))
if instance.acquire():
    print("first", flush=True)
    sys.stdin.read()
else:
    instance.call_first(Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    print("raised the first", flush=True)
"""


def _start(folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SECOND, str(folder), *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_second_start_raises_the_first_and_ends(qtbot: QtBot, tmp_path: Path) -> None:
    first = SingleInstance(tmp_path)
    assert first.acquire()
    with qtbot.waitSignal(first.raise_wanted, timeout=20_000):
        second = _start(tmp_path)
    assert second.communicate()[0] == "raised the first\n"
    assert second.returncode == 0
    first.close()
    assert list(tmp_path.iterdir()) == [], "no lock file stays"


def test_a_second_start_hands_on_the_model_it_was_to_open(qtbot: QtBot, tmp_path: Path) -> None:
    first = SingleInstance(tmp_path / "profile")
    assert first.acquire()
    model = tmp_path / "a model – 中文 \N{ROCKET}"
    with qtbot.waitSignals([first.raise_wanted, first.model_wanted], timeout=20_000):
        heard: list[Path] = []
        first.model_wanted.connect(heard.append)
        second = _start(tmp_path / "profile", str(model))
    assert second.communicate()[0] == "raised the first\n"
    assert heard == [model]
    first.close()


@pytest.mark.parametrize("line", [b"open \n", b"open 7\n", b'open ""\n', b"open {\n", b"close\n", b"open \xff\n"])
def test_a_line_that_is_no_wish_is_not_followed(line: bytes, qtbot: QtBot, tmp_path: Path) -> None:
    first = SingleInstance(tmp_path)
    assert first.acquire()
    caller = QLocalSocket()
    with (
        qtbot.assertNotEmitted(first.raise_wanted),
        qtbot.assertNotEmitted(first.model_wanted),
        qtbot.waitSignal(caller.disconnected, timeout=20_000),
    ):
        caller.connectToServer(first._name)
        assert caller.waitForConnected(5_000)
        caller.write(line)
    first.close()


def test_profiles_do_not_know_each_other(qtbot: QtBot, tmp_path: Path) -> None:
    one, other = SingleInstance(tmp_path / "one"), SingleInstance(tmp_path / "other")
    assert one.acquire()
    assert other.acquire()
    one.close()
    other.close()


def test_after_the_first_was_killed_the_next_start_is_the_first(qtbot: QtBot, tmp_path: Path) -> None:
    killed = _start(tmp_path)
    assert killed.stdout is not None and killed.stdout.readline() == "first\n"
    _end(killed)
    assert (tmp_path / "window.lock").exists()
    again = SingleInstance(tmp_path)
    assert again.acquire()
    again.close()


def test_a_lock_whose_pid_passed_to_another_program_is_taken_over(qtbot: QtBot, tmp_path: Path) -> None:
    killed = _start(tmp_path)
    assert killed.stdout is not None and killed.stdout.readline() == "first\n"
    _end(killed)
    lock = tmp_path / "window.lock"
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    lock.write_text(lock.read_text().replace(str(killed.pid), str(stranger.pid), 1))
    hour_ago = time.time() - 3600
    os.utime(lock, (hour_ago, hour_ago))
    instance = SingleInstance(tmp_path)
    assert instance.acquire()
    instance.close()
    stranger.communicate(b"\n")


def test_a_first_that_hangs_is_named(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.link.single_instance.ANSWER_MS", 100)
    first = _start(tmp_path)  # has no event loop: it listens and never answers
    assert first.stdout is not None and first.stdout.readline() == "first\n"
    second = SingleInstance(tmp_path)
    assert not second.acquire()
    with pytest.raises(AlreadyOpenError) as caught:
        second.call_first()
    assert f"PID {first.pid}" in caught.value.sentence
    _end(first)


def test_a_folder_that_cannot_be_written_keeps_nobody_from_opening_a_window(qtbot: QtBot, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder", "utf-8")
    instance = SingleInstance(tmp_path / "file")
    assert instance.acquire()
    instance.close()
