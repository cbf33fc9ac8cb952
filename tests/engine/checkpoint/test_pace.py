"""As many readers as help: fewer while they wait for the disk, more while they are busy copying."""

from engine.checkpoint.pace import WINDOW_S, Pace


def test_readers_that_wait_for_the_disk_become_fewer_down_to_the_least() -> None:
    pace = Pace(4, least=1)
    for _ in range(10):
        pace.note(cpu_s=0.01, wall_s=1.0)
    assert pace.allowed == 1
    assert Pace(4, least=2).allowed == 4


def test_readers_that_copy_all_the_time_become_more_up_to_the_most() -> None:
    pace = Pace(4, least=1)
    for _ in range(3):
        pace.note(cpu_s=0.0, wall_s=1.0)
    for _ in range(10):
        pace.note(cpu_s=0.9, wall_s=1.0)
    assert pace.allowed == 4


def test_short_reads_are_judged_together() -> None:
    pace = Pace(2, least=1)
    for _ in range(9):
        pace.note(cpu_s=0.0, wall_s=WINDOW_S * 2 / 10)
    assert pace.allowed == 2
    pace.note(cpu_s=0.0, wall_s=WINDOW_S * 2 / 5)
    assert pace.allowed == 1


def test_between_the_two_nothing_changes() -> None:
    pace = Pace(4, least=1)
    pace.note(cpu_s=0.4, wall_s=1.0)
    assert pace.allowed == 4
