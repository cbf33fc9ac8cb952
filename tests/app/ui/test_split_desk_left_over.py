"""The Split page and the memory of others: left-over processes, and programs that hold what a split needs."""

from pathlib import Path

from pytestqt.qtbot import QtBot

from app.orphans.verdicts import ProgramUse
from app.ui.theme import Theme
from engine.contract.facts import Reading, Source
from engine.contract.units import GIB
from tests.app.ui import samples
from tests.app.ui.desk_kit import WAIT_MS, DeskKit, World
from tests.app.ui.test_notices import an_orphan


def test_start_is_refused_while_an_engine_of_ours_holds_memory_unless_the_user_says_so(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    world = World(orphans=[an_orphan()])
    with DeskKit(qtbot, theme, tmp_path, world) as kit:
        kit.open(model)
        kit.page.main_button.click()
        qtbot.waitUntil(lambda: bool(kit.titles) and kit.titles[0].startswith("The engine was not started"))
        assert not kit.store.state.running
        kit.press("Start anyway")
        kit.wait_for("ready")


def test_one_click_ends_a_process_of_ours_and_reports_what_came_back(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    world = World(orphans=[an_orphan()])
    with DeskKit(qtbot, theme, tmp_path, world) as kit:
        kit.open(model)
        kit.watch.begin()
        qtbot.waitUntil(lambda: kit.titles == ["An engine process from an earlier run still holds memory"])
        kit.press("End process")
        qtbot.waitUntil(lambda: kit.titles == ["Ended. 1.0 GiB of RAM came back in 0.8 s"], timeout=WAIT_MS)
        assert world.ended == [18244]
        assert kit.desk.left_over.orphans == ()


def test_a_process_that_may_be_somebody_elses_needs_a_second_click(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    world = World(orphans=[an_orphan("possible")])
    with DeskKit(qtbot, theme, tmp_path, world) as kit:
        kit.open(model)
        kit.watch.begin()
        qtbot.waitUntil(lambda: kit.titles == ["A process may be left over"])
        kit.press("End process")
        assert world.ended == []
        assert kit.titles == ["End python.exe, PID 18244? Splitpin is not sure that it is its own"]
        kit.press("Keep")
        assert kit.titles == ["A process may be left over"]
        kit.press("End process")
        kit.press("End process")
        qtbot.waitUntil(lambda: world.ended == [18244], timeout=WAIT_MS)


def test_a_process_that_cannot_be_ended_is_offered_again_with_the_reason(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, World(orphans=[an_orphan()], denied=True)) as kit:
        kit.open(model)
        kit.watch.begin()
        qtbot.waitUntil(lambda: len(kit.titles) == 1)
        kit.press("End process")
        qtbot.waitUntil(lambda: "Windows did not allow ending process 18244" in kit.titles, timeout=WAIT_MS)
        kit.press("End process")


def test_a_possible_process_does_not_stop_a_start(qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path) -> None:
    with DeskKit(qtbot, theme, tmp_path, World(orphans=[an_orphan("possible")])) as kit:
        kit.open(model)
        kit.page.main_button.click()
        kit.wait_for("ready")


def test_a_process_table_that_cannot_be_read_is_told_and_refuses_no_start(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, World(blind=True)) as kit:
        kit.open(model)
        kit.page.main_button.click()
        kit.wait_for("ready")
        assert kit.titles == ["The process table cannot be read"]


def test_ending_a_left_over_engine_is_a_button_where_that_makes_the_split_fit(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    short = samples.NO_GPU.model_copy(update={"ram_available": Reading(value=GIB, source=Source.READ)})
    with DeskKit(qtbot, theme, tmp_path, World(facts=short, orphans=[an_orphan()])) as kit:
        kit.open(model)
        kit.watch.begin()
        qtbot.waitUntil(lambda: "End process 18244" in kit.labels, timeout=WAIT_MS)
        [refusal] = [one.notice for one in kit.page.banners.banners if "of RAM" in one.notice.title]
        assert "end python.exe (PID 18244), which holds 28.9 GiB of RAM" in refusal.text.replace("End", "end")
        kit.world.facts = samples.NO_GPU
        kit.press("End process 18244")
        qtbot.waitUntil(lambda: kit.desk.plan is not None, timeout=WAIT_MS)
        assert kit.world.ended == [18244]


def test_a_refusal_reads_on_while_programs_take_and_give_back_a_little(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    short = samples.NO_GPU.model_copy(update={"ram_available": Reading(value=GIB // 5, source=Source.READ)})
    game = ProgramUse(name="game.exe", rss_bytes=20 * GIB, gpu_bytes=0)
    with DeskKit(qtbot, theme, tmp_path, World(facts=short, programs=(game,))) as kit:
        kit.open(model)
        kit.watch.begin()
        qtbot.waitUntil(lambda: "20.0 GiB by game.exe" in kit.page.banners.banners[0].notice.text, timeout=WAIT_MS)
        banner = kit.page.banners.banners[0]
        said = banner.notice
        for tenths in (203, 197, 206):
            kit.world.programs = (game.model_copy(update={"rss_bytes": tenths * GIB // 10}),)
            with qtbot.waitSignal(kit.watch.verdicts, timeout=WAIT_MS):
                kit.watch.scan()
            assert banner.notice == said
        kit.world.programs = (game.model_copy(update={"rss_bytes": 15 * GIB}),)
        with qtbot.waitSignal(kit.watch.verdicts, timeout=WAIT_MS):
            kit.watch.scan()
        assert "15.0 GiB by game.exe" in banner.notice.text
        assert kit.page.banners.banners[0] is banner, "the words changed in place"


def test_where_other_programs_hold_the_ram_they_are_named_and_the_pc_can_be_looked_at_again(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    short = samples.NO_GPU.model_copy(update={"ram_available": Reading(value=GIB // 5, source=Source.READ)})
    game = ProgramUse(name="game.exe", rss_bytes=20 * GIB, gpu_bytes=0)
    with DeskKit(qtbot, theme, tmp_path, World(facts=short, programs=(game,))) as kit:
        kit.open(model)
        kit.watch.begin()
        qtbot.waitUntil(lambda: "20.0 GiB by game.exe" in kit.page.banners.banners[0].notice.text, timeout=WAIT_MS)
        assert kit.page.banners.banners[0].notice.text.startswith("Close other programs until")
        kit.world.facts = samples.NO_GPU
        kit.press("Check again")
        qtbot.waitUntil(lambda: kit.desk.plan is not None, timeout=WAIT_MS)
        assert kit.titles == []
