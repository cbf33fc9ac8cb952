"""The process table of Linux."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

if os.name == "nt":
    pytest.skip("reads /proc", allow_module_level=True)

from engine.contract.units import MIB
from engine.system.posix_gpu import all_asleep
from engine.system.posix_table import PosixReader
from engine.system.select import process_reader


def test_a_row_says_what_psutil_says_and_more() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "held = bytearray(8 << 20); input('ready')"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stdin is not None
    child.stdout.read(5)
    seen = psutil.Process(child.pid)
    [row] = [row for row in process_reader().read((), ()).processes if row.pid == child.pid]
    assert row.ppid == os.getpid()
    assert row.create_time == pytest.approx(seen.create_time(), abs=0.02)
    assert row.exe == seen.exe()
    assert row.cmdline == tuple(seen.cmdline())
    assert row.user == seen.username()
    assert row.rss_bytes == pytest.approx(seen.memory_info().rss, abs=2 * MIB)
    assert row.private_bytes is not None and row.rss_bytes is not None
    assert 8 * MIB <= row.private_bytes <= row.rss_bytes
    assert row.locked_bytes == 0
    assert row.gpu_bytes is None
    child.communicate(b"\n")


def test_what_is_locked_is_counted() -> None:
    code = (
        "from engine.system.select import host_allocator, page_locker; block = host_allocator().allocate(1 << 20);"
        "page_locker().lock(block.address, block.nbytes); print('ready', flush=True); input()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    [row] = [row for row in process_reader().read((), ()).processes if row.pid == child.pid]
    assert row.locked_bytes == MIB
    child.communicate(b"\n")


def _process(proc: Path, pid: int, stat: str, cmdline: bytes = b"", exe: str = "/usr/bin/python3.11") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(stat, "utf-8")
    (folder / "cmdline").write_bytes(cmdline)
    (folder / "status").write_text("Name:\tx\nUid:\t4294967\t0\t0\t0\nVmLck:\t     8 kB\n", "utf-8")
    (folder / "statm").write_text("900 300 100 1 0 1 0\n", "utf-8")
    (folder / "exe").symlink_to(exe)


def test_odd_names_rewritten_command_lines_and_vanished_processes(tmp_path: Path) -> None:
    fields = "S 7 0 7 " + "0 " * 15 + "500 " + "0 " * 30
    _process(tmp_path, 10, f"10 (a) b ({fields}", b"renamed: by itself")
    (tmp_path / "10" / "stat").write_text(f"10 (evil) Z 1 (x)) {fields}", "utf-8")
    _process(tmp_path, 11, f"11 (python) {fields}", b"python\0-c\0\0", "/opt/py/python (deleted)")
    (tmp_path / "12").mkdir()  # ended while we looked
    rows = {row.pid: row for row in PosixReader(lambda: {11: 5}, str(tmp_path)).read((), ()).processes}
    assert set(rows) == {10, 11}
    assert (rows[10].ppid, rows[10].status) == (7, "sleeping")
    assert rows[10].cmdline == ("renamed:", "by", "itself")
    assert rows[11].cmdline == ("python", "-c", "")
    assert rows[11].exe == "/opt/py/python"
    assert rows[11].user == "4294967"
    assert (rows[11].locked_bytes, rows[11].gpu_bytes) == (8192, 5)
    assert rows[11].private_bytes == 200 * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("cards", "asleep"),
    [
        ([("0x10de", "0x030000", "suspended")], True),
        ([("0x10de", "0x030000", "suspended"), ("0x10de", "0x040300", "active")], True),  # its sound device
        ([("0x10de", "0x030000", "suspended"), ("0x10de", "0x030200", "active")], False),
        ([("0x10de", "0x030000", "active")], False),
        ([("0x8086", "0x030000", "suspended")], False),
        ([], False),
    ],
)
def test_a_sleeping_card_is_not_asked(tmp_path: Path, cards: list[tuple[str, str, str]], asleep: bool) -> None:
    for number, (vendor, kind, state) in enumerate(cards):
        device = tmp_path / f"0000:0{number}:00.0"
        (device / "power").mkdir(parents=True)
        (device / "vendor").write_text(vendor, "utf-8")
        (device / "class").write_text(kind, "utf-8")
        (device / "power" / "runtime_status").write_text(state, "utf-8")
    assert all_asleep(tmp_path) is asleep
