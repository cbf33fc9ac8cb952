"""Locking on Windows: minimum and maximum working set rise first, and sink again."""

import pytest

from engine.contract.units import GIB, MIB
from engine.system.protocols import LockRefusedError
from engine.system.windows_lock import CHUNK_BYTES, SOFT, WindowsLocker
from tests.support.lock_calls import PAGE, SimulatedLockCalls

ADDRESS = 0x10_0000_0000


def test_the_flags_are_a_valid_pair() -> None:
    minimum, maximum = SOFT & 0b0011, SOFT & 0b1100
    assert minimum in (1, 2)  # enable or disable, never both
    assert maximum in (4, 8)


def test_the_working_set_grows_before_the_lock_and_covers_it() -> None:
    calls = SimulatedLockCalls()
    before = calls.size
    WindowsLocker(calls).lock(ADDRESS, 64 * MIB)
    assert calls.journal == ["lock", "unlock", "size", "lock"]  # the first two look whether the locked bit shows
    assert len(calls.locked) * PAGE == 64 * MIB
    assert calls.size.minimum - before.minimum >= 64 * MIB
    assert calls.size.maximum - before.maximum >= 64 * MIB


def test_everything_is_put_back_after_the_last_unlock() -> None:
    calls = SimulatedLockCalls()
    before, locker = calls.size, WindowsLocker(calls)
    locker.lock(ADDRESS, 8 * MIB)
    locker.lock(ADDRESS + GIB, 4 * MIB)
    assert calls.size.minimum - before.minimum >= 12 * MIB
    locker.unlock(ADDRESS, 8 * MIB)
    assert 4 * MIB <= calls.size.minimum - before.minimum < 8 * MIB + 16 * MIB
    locker.unlock(ADDRESS + GIB, 4 * MIB)
    assert calls.size == before
    assert calls.locked == set()


def test_large_ranges_are_locked_in_chunks() -> None:
    calls = SimulatedLockCalls()
    WindowsLocker(calls).lock(ADDRESS, 2 * CHUNK_BYTES + PAGE)
    assert calls.journal[3:] == ["lock", "lock", "lock"]
    assert len(calls.locked) * PAGE == 2 * CHUNK_BYTES + PAGE


def test_a_working_set_that_is_still_too_small_is_raised_again() -> None:
    calls = SimulatedLockCalls(hungry_bytes=40 * MIB)
    WindowsLocker(calls).lock(ADDRESS, 64 * MIB)
    assert calls.journal[2:] == ["size", "lock", "size", "lock"]


def test_a_refusal_half_way_leaves_nothing_locked_and_the_working_set_as_it_was() -> None:
    calls = SimulatedLockCalls(hungry_bytes=CHUNK_BYTES)
    before, locker = calls.size, WindowsLocker(calls)
    with pytest.raises(LockRefusedError) as refused:
        locker.lock(ADDRESS, 2 * CHUNK_BYTES)
    assert refused.value.code == 1453
    assert "2.0 GiB could not be locked" in refused.value.sentence
    assert "working set" in refused.value.words
    assert calls.locked == set()
    assert calls.size == before


def test_more_than_is_available_is_refused_by_the_working_set() -> None:
    calls = SimulatedLockCalls(available_bytes=GIB)
    before = calls.size
    with pytest.raises(LockRefusedError) as refused:
        WindowsLocker(calls).lock(ADDRESS, 2 * GIB)
    assert refused.value.code == 1450
    assert (calls.locked, calls.size) == (set(), before)


def test_a_refusal_keeps_earlier_locks() -> None:
    calls = SimulatedLockCalls(available_bytes=GIB)
    locker = WindowsLocker(calls)
    locker.lock(ADDRESS, 8 * MIB)
    with pytest.raises(LockRefusedError):
        locker.lock(ADDRESS + GIB, 2 * GIB)
    assert len(calls.locked) * PAGE == 8 * MIB
    assert calls.size.minimum >= 8 * MIB


def test_pages_that_are_not_locked_although_windows_agreed_are_a_refusal() -> None:
    calls = SimulatedLockCalls(drops=frozenset(range(ADDRESS + 4 * MIB, ADDRESS + 8 * MIB, PAGE)))
    with pytest.raises(LockRefusedError) as refused:
        WindowsLocker(calls).lock(ADDRESS, 8 * MIB)
    assert refused.value.code is None
    assert "128 of 256 pages" in refused.value.words
    assert calls.locked == set()


def test_where_the_locked_bit_never_shows_the_word_of_windows_counts() -> None:
    calls = SimulatedLockCalls(shows_locked=False)
    WindowsLocker(calls).lock(ADDRESS, 8 * MIB)
    assert len(calls.locked) * PAGE == 8 * MIB
