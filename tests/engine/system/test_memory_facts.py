"""The RAM figures agree with an independent reader, and control groups bound them."""

import os
from pathlib import Path

import psutil
import pytest

from engine.contract.facts import Source
from engine.contract.units import GIB, MIB
from engine.system.select import live_memory, machine_probe

if os.name == "nt":
    pytest.skip("reads /proc", allow_module_level=True)

from engine.system import posix_memory


def test_facts_agree_with_psutil() -> None:
    facts = machine_probe().read()
    seen = psutil.virtual_memory()
    group = posix_memory.control_group()
    expected = seen.total if group is None else min(seen.total, group.limit)
    assert facts.ram_total.value == expected
    assert facts.ram_total.source is Source.READ
    assert facts.ram_available.value is not None
    assert facts.ram_available.value <= expected
    if expected == seen.total:  # other programs run meanwhile
        assert facts.ram_available.value == pytest.approx(seen.available, abs=2 * GIB)
    assert facts.cores_logical == psutil.cpu_count()
    assert facts.cpu


def test_every_known_number_says_where_it_is_from() -> None:
    facts = machine_probe().read()
    readings = [facts.ram_total, facts.ram_available, facts.commit_limit, facts.commit_used, facts.memlock_limit]
    readings += [gpu.vram_total for gpu in facts.gpus]
    assert all(reading.detail for reading in readings if reading.value is not None)


def test_live_memory_agrees_with_the_facts() -> None:
    memory = live_memory()
    use = memory.read()
    memory.close()
    facts = machine_probe().read()
    assert use.ram_total == facts.ram_total.value
    assert use.ram_used is not None
    assert use.ram_total is not None
    assert 0 < use.ram_used < use.ram_total
    assert use.vram_total == (None if facts.cuda_gpu is None else facts.cuda_gpu.vram_total.value)


@pytest.fixture
def small_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 64 GiB on which our control group, version 2, may use 8 GiB and uses 3, 1 of it file cache."""
    root = tmp_path / "cgroup"
    ours = root / "user" / "engine"
    ours.mkdir(parents=True)
    (ours / "memory.max").write_text("max\n")
    (ours / "memory.current").write_text(f"{1 * GIB}\n")
    (ours.parent / "memory.max").write_text(f"{8 * GIB}\n")
    (ours.parent / "memory.current").write_text(f"{3 * GIB}\n")
    (ours.parent / "memory.stat").write_text(f"anon {2 * GIB}\ninactive_file {1 * GIB}\n")
    (tmp_path / "self").write_text("0::/user/engine\n")
    (tmp_path / "meminfo").write_text(
        f"MemTotal: {64 * GIB // 1024} kB\nMemAvailable: {50 * GIB // 1024} kB\nSwapFree: 0 kB\n"
        f"CommitLimit: {40 * GIB // 1024} kB\nCommitted_AS: {30 * GIB // 1024} kB\nHugePages_Total: 0\n"
    )
    (tmp_path / "overcommit").write_text("2\n")
    monkeypatch.setattr(posix_memory, "CGROUP_ROOT", root)
    monkeypatch.setattr(posix_memory, "CGROUP_OF_SELF", tmp_path / "self")
    monkeypatch.setattr(posix_memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(posix_memory, "OVERCOMMIT", tmp_path / "overcommit")
    return ours


def test_a_control_group_bounds_the_ram(small_group: Path) -> None:
    ram = posix_memory.ram()
    assert (ram.total, ram.available) == (8 * GIB, 6 * GIB)
    assert "cgroup" in ram.total_from


def test_a_tighter_group_nearer_to_us_wins(small_group: Path) -> None:
    (small_group / "memory.max").write_text(f"{1 * GIB}\n")
    (small_group / "memory.current").write_text(f"{300 * MIB}\n")
    ram = posix_memory.ram()
    assert (ram.total, ram.available) == (1 * GIB, 724 * MIB)


def test_a_strict_commit_limit_is_reported(small_group: Path) -> None:
    limit, used = posix_memory.commit_readings()
    assert (limit.value, used.value) == (40 * GIB, 30 * GIB)
    assert posix_memory.commit_left_bytes() == 10 * GIB


def test_without_a_strict_limit_the_commit_limit_is_unknown_and_says_why(small_group: Path, tmp_path: Path) -> None:
    (tmp_path / "overcommit").write_text("0\n")
    limit, used = posix_memory.commit_readings()
    assert limit.value is None
    assert used.value is None
    assert "overcommit" in limit.detail
