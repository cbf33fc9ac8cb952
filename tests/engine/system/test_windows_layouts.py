"""Structures of Windows have the sizes and offsets of the 64-bit headers, whichever system looks at them."""

import ctypes

import pytest

from engine.system import dxgi, pdh, windows_job, windows_lock, windows_memory, windows_speed, windows_table


@pytest.mark.parametrize(
    ("structure", "size"),
    [
        (windows_memory.MemoryStatus, 64),
        (windows_memory.PerformanceInformation, 104),
        (windows_job.BasicLimits, 64),
        (windows_job.ExtendedLimits, 144),
        (windows_lock.WorkingSetEntry, 16),
        (windows_speed.PowerThrottling, 12),
        (windows_table.SnapshotEntry, 568),
        (windows_table.MemoryCounters, 80),
        (dxgi.AdapterDescription, 312),
        (pdh.Item, 24),
    ],
)
def test_size(structure: type[ctypes.Structure], size: int) -> None:
    assert ctypes.sizeof(structure) == size


@pytest.mark.parametrize(
    ("structure", "field", "offset"),
    [
        (windows_job.ExtendedLimits, "io_counters", 64),
        (windows_job.BasicLimits, "limit_flags", 16),
        (dxgi.AdapterDescription, "dedicated_video_memory", 272),
        (dxgi.AdapterDescription, "shared_system_memory", 288),
        (dxgi.AdapterDescription, "luid", 296),
        (dxgi.AdapterDescription, "flags", 304),
        (pdh.Item, "status", 8),
        (pdh.Item, "value", 16),
        (windows_table.SnapshotEntry, "ppid", 32),
        (windows_table.SnapshotEntry, "exe_name", 44),
        (windows_memory.PerformanceInformation, "page_size", 80),
    ],
)
def test_offset(structure: type[ctypes.Structure], field: str, offset: int) -> None:
    assert getattr(structure, field).offset == offset
