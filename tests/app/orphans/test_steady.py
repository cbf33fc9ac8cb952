"""What is told of processes holds still while nothing changes by much."""

from app.orphans.steady import steady
from app.orphans.verdicts import ProgramUse, Verdicts
from engine.contract.units import GIB
from tests.app.ui.test_notices import an_orphan


def programs(**gib: float) -> Verdicts:
    return Verdicts(programs=tuple(ProgramUse(name=n, rss_bytes=int(g * GIB), gpu_bytes=0) for n, g in gib.items()))


def orphan(gib: float) -> Verdicts:
    return Verdicts(orphans=(an_orphan().model_copy(update={"rss_bytes": int(gib * GIB), "age_s": gib}),))


def test_amounts_stay_as_they_were_told_while_they_are_about_right() -> None:
    told = programs(game=61.0, browser=12.0)
    assert steady(told, programs(game=60.2, browser=12.3)) == told
    assert steady(orphan(28.9), orphan(29.3)).orphans[0].rss_bytes == int(28.9 * GIB)


def test_a_change_by_much_is_told_also_if_it_comes_in_small_steps() -> None:
    shown = told = programs(game=20.0)
    for step in range(1, 9):
        shown = steady(shown, programs(game=20.0 + step * 0.2))
    assert told.programs[0].rss_bytes < shown.programs[0].rss_bytes <= int(21.6 * GIB)


def test_two_programs_that_hold_about_as_much_keep_their_order() -> None:
    told = programs(game=12.1, browser=12.0)
    assert [one.name for one in steady(told, programs(browser=12.2, game=12.1)).programs] == ["game", "browser"]


def test_another_process_and_one_that_is_gone_are_told_at_once() -> None:
    assert steady(orphan(28.9), Verdicts()) == Verdicts()
    assert steady(Verdicts(), orphan(28.9)) == orphan(28.9)
    other = Verdicts(orphans=(an_orphan(pids=(7,)),))
    assert steady(orphan(28.9), other) == other


def test_memory_that_was_given_back_altogether_is_told_however_little_it_was() -> None:
    assert steady(orphan(0.2), orphan(0)).orphans[0].rss_bytes == 0
