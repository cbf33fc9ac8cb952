"""Thread settings: one core is left to others, waiting threads sleep, and the user's own settings stay."""

import os

import pytest

from engine.threads import prepare_threads

CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
NAMES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", *CACHES)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No OpenMP settings before the test, the old ones after it."""
    for name in NAMES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (8, 7)])
def test_one_core_is_left_to_others(cores: int, threads: int) -> None:
    assert prepare_threads(cores) == threads
    assert os.environ["OMP_NUM_THREADS"] == str(threads)
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert prepare_threads(8) == 3
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


@pytest.mark.parametrize("asked", ["abc", "0", "-2", "", ",2"])
def test_a_setting_that_is_no_number_of_threads_is_named(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    with pytest.raises(ValueError, match=f"OMP_NUM_THREADS is '{asked}'"):
        prepare_threads(8)


def test_of_a_list_for_nested_loops_the_first_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    assert prepare_threads(8) == 4


def test_code_for_shapes_seen_once_is_not_kept_for_ever() -> None:
    prepare_threads(8)
    assert all(int(os.environ[name]) <= 64 for name in CACHES)
