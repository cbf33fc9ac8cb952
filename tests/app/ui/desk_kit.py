"""A Split page with its desk, engine and left-over processes, all in the test's hands."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.core.learned import LearnedStore
from app.core.library import Library
from app.core.measuring import measure_rates, probe_pins
from app.core.shape_cache import ShapeCache
from app.link.background import Background
from app.link.engine_process import EngineProcess
from app.link.learning import Learning
from app.link.measurement import Measurement
from app.link.orphan_watch import OrphanWatch
from app.link.plan_apply import PlanApply
from app.link.store import SessionStore
from app.orphans.sweep import EndReport
from app.orphans.verdicts import Orphan, ProgramUse, Verdicts
from app.planning.wishes import Wishes
from app.supervision.ledger import RunLedger
from app.ui.pages.split_page import SplitPage
from app.ui.split_desk import SplitDesk
from app.ui.theme import Theme
from engine.contract.errors import SplitpinError, UsageError
from engine.contract.facts import HardwareFacts
from engine.contract.plan import SimulatedGpu
from tests.app.supervision.recorder import FAST, fake_engine
from tests.app.ui import samples

WAIT_MS = 30_000


def measuring(mode: str) -> list[str]:
    """The command of a child that measures nothing."""
    return [sys.executable, "-m", "tests.support.fake_measurement", mode]


@dataclass
class World:
    """What the desk is told when it asks."""

    facts: HardwareFacts = samples.NO_GPU
    orphans: list[Orphan] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    denied: bool = False
    blind: bool = False
    probe: str = "refused"  # mode of the fake measurement
    refused: SplitpinError | None = None  # why nothing can be measured now
    windows: bool = False
    programs: tuple[ProgramUse, ...] = ()

    def refuse_measuring(self) -> None:
        if self.refused is not None:
            raise self.refused

    def scan(self) -> Verdicts:
        if self.blind:
            raise UsageError("The process table cannot be read.", "Start again.")
        return Verdicts(orphans=tuple(self.orphans), programs=self.programs)

    def end(self, orphan: Orphan, give_up: Callable[[], bool]) -> EndReport:
        if self.denied:
            raise UsageError("Windows did not allow ending process 18244.", "Open the Task Manager.")
        self.ended.extend(orphan.pids)
        self.orphans = [kept for kept in self.orphans if kept.pids != orphan.pids]
        return EndReport(
            ended=orphan.pids,
            kept={},
            vram_back_bytes=None,
            ram_back_bytes=1 << 30,
            elapsed_s=0.8,
            settled=True,
            sentence="Ended. 1.0 GiB of RAM came back in 0.8 s.",
        )


class DeskKit:
    """Use as a context: nothing is left running."""

    def __init__(
        self,
        qtbot: QtBot,
        theme: Theme,
        folder: Path,
        world: World | None = None,
        *,
        engine_options: Sequence[str] = (),
        simulated_gpu: SimulatedGpu | None = None,
    ) -> None:
        self.qtbot = qtbot
        self.world = world or World()
        self.store = SessionStore()
        self.background = Background()
        self.engine = EngineProcess(
            self.store, RunLedger(folder / "runs"), engine_argv=fake_engine(*engine_options), ladder=FAST
        )
        self.watch = OrphanWatch(self.world.scan, self.world.end, self.background, self.store)
        self.page = SplitPage(theme)
        self.page.resize(980, 800)
        qtbot.addWidget(self.page)
        self.learning = Learning(
            lambda: self.world.facts, LearnedStore(folder / "learned.json"), self.background, self.store
        )
        self.measurement = Measurement(
            self.learning,
            self.background,
            refuse=self.world.refuse_measuring,
            probe=partial(probe_pins, argv=measuring(self.world.probe)),
            rates=partial(measure_rates, argv=measuring("rates")),
        )
        self.desk = SplitDesk(
            self.page,
            self.store,
            self.watch,
            self.background,
            self.measurement,
            PlanApply(self.store),
            read_facts=self.learning.read_facts,
            shapes=ShapeCache(folder / "shapes.json"),
            simulated_gpu=simulated_gpu,
            can_open_page_file=self.world.windows,
            clock=lambda: datetime(2026, 9, 1, 14, 6),
        )
        self.learning.learned.connect(self.desk.show_known)
        self.desk.launch_wanted.connect(self.engine.start)
        self.desk.stop_wanted.connect(self.engine.stop)
        self.desk.end_wanted.connect(self.engine.kill)

    def __enter__(self) -> "DeskKit":
        return self

    def __exit__(self, *_: object) -> None:
        self.desk.close()
        assert self.engine.close()
        self.watch.close()
        assert self.background.close()

    def open(self, folder: Path, wishes: Wishes | None = None) -> None:
        """Choose the model in `folder`, read the machine, wait for the plan or the problem."""
        self.desk.show_library(Library((folder,)), {folder: wishes} if wishes else {}, folder)
        self.desk.read_machine()
        self.qtbot.waitUntil(
            lambda: self.desk.plan is not None or self.desk.inputs.problem is not None, timeout=WAIT_MS
        )

    def wait_for(self, stage: str) -> None:
        self.qtbot.waitUntil(lambda: self.store.state.stage == stage, timeout=WAIT_MS)

    @property
    def titles(self) -> list[str]:
        """Titles of the banners on screen."""
        return [banner.notice.title for banner in self.page.banners.banners]

    @property
    def _buttons(self) -> list[QPushButton]:
        return [button for banner in self.page.banners.banners for button in banner.findChildren(QPushButton)]

    @property
    def labels(self) -> list[str]:
        """Texts of the buttons of all banners."""
        return [button.text() for button in self._buttons]

    def press(self, label: str) -> None:
        """Press a button of a banner."""
        found = [button for button in self._buttons if button.text() == label]
        assert found, f"no button {label!r} in {self.titles}"
        found[0].click()
