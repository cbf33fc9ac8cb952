"""Pictures of every page state, to look at: `python -m tests.gallery OUTDIR [NAME …]`. Needs no screen."""

import os
import sys
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import cast

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication, QWidget

from app.core.library import ModelEntry
from app.core.measuring import Measured
from app.orphans.verdicts import Orphan
from app.planning.held import Held
from app.planning.others import Program
from app.planning.wishes import Wishes
from app.ui.change_desk import not_changed
from app.ui.crash_fix import crash_fix
from app.ui.main_window import MainWindow
from app.ui.measure_words import result_notice
from app.ui.notices import Notice
from app.ui.pages.split_page import SplitPage
from app.ui.split_inputs import SplitInputs
from app.ui.split_notices import NoticeInputs, compose
from app.ui.split_plan import Question, answer, gain, left_over
from app.ui.split_presenter import present
from app.ui.split_speed import known_speed
from app.ui.theme import Theme, ThemeChoice
from app.ui.widgets.rail import RailEntry
from app.ui.window_memory import WindowMemory
from engine.contract.errors import Problem
from engine.contract.facts import HardwareFacts, Reading, Source
from engine.contract.plan_change import RESTART
from engine.contract.probe import ProbeLine
from engine.contract.processes import ProcessIdentity
from engine.contract.units import GIB
from engine.system.protocols import MemoryUse
from tests import gallery_chat, gallery_tray
from tests.app.ui import samples

THEMES: tuple[ThemeChoice, ...] = ("dark", "light", "contrast")


_IDLE = MemoryUse(
    ram_used=int(14.6 * GIB), ram_total=int(191.7 * GIB), vram_used=int(0.9 * GIB), vram_total=int(31.8 * GIB)
)


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture: the inputs of the page, its notices, and the readings of the rail."""

    inputs: SplitInputs
    notices: tuple[Notice, ...] = ()
    use: MemoryUse = _IDLE
    pinned_bytes: int | None = 0
    size: tuple[int, int] = (1180, 800)


_LOADED = MemoryUse(
    ram_used=int(117.6 * GIB), ram_total=int(191.7 * GIB), vram_used=int(30.8 * GIB), vram_total=int(31.8 * GIB)
)
_SMALL = MemoryUse(ram_used=int(5.7 * GIB), ram_total=int(31.1 * GIB))


def an_orphan() -> Orphan:
    return Orphan(
        pids=(18244,),
        identities=(ProcessIdentity(pid=18244, create_time=datetime(2026, 9, 1, 13, 41).timestamp()),),
        name="python.exe",
        command_line="python.exe -m engine serve plan.json",
        reason="Its parent ended (PID 16804 is gone); Splitpin noted it as part of its engine run r7.",
        confidence="ours",
        preselected=True,
        rss_bytes=int(28.9 * GIB),
        gpu_bytes=int(14.2 * GIB),
        gpu_shared_bytes=int(28.9 * GIB),
        age_s=1500,
    )


def _after_crash(inputs: SplitInputs, now: datetime) -> tuple[Notice, ...]:
    assert inputs.shape is not None and inputs.facts is not None
    question = Question(inputs.shape, inputs.facts, inputs.wishes, Path("/models/sample"))
    fix = crash_fix(inputs, question, can_open_page_file=True)
    return compose(NoticeInputs(inputs, now, crash_fix=fix))


def _read(gib: float) -> Reading:
    return Reading(value=int(gib * GIB), source=Source.READ)


def _pc(
    *, vram: tuple[float, float], ram: tuple[float, float], pins: float = 0.0, name: str = "RTX 5090"
) -> HardwareFacts:
    """A Windows PC by GiB in use and in total; `pins` are held by others. A probe was refused beyond 106.2 GiB."""
    gpu = samples.BIG.gpus[0].model_copy(
        update={
            "name": f"NVIDIA GeForce {name}",
            "vram_used": _read(vram[0]),
            "vram_total": _read(vram[1]),
            "shared_limit": _read(ram[1] / 2),
            "shared_used": _read(pins),
        }
    )
    probed = Reading(value=int(106.2 * GIB), source=Source.MEASURED)
    return samples.BIG.model_copy(
        update={
            "gpus": (gpu,),
            "ram_total": _read(ram[1]),
            "ram_available": _read(ram[1] - ram[0]),
            "pin_probed": probed if ram[1] > 150 else Reading(value=int(70.0 * GIB), source=Source.MEASURED),
        }
    )


def _planned(question: Question, now: datetime, orphans: tuple[Orphan, ...] = ()) -> Scene:
    """What the planner says, and what the page makes of it."""
    found, facts = answer(question), question.facts
    inputs = SplitInputs(
        model_name=samples.MINIMAX.name,
        shape=samples.MINIMAX,
        facts=facts,
        wishes=question.wishes,
        plan=found.plan,
        drawn=found.drawn,
        problem=found.problem,
        stops=found.stops,
        quota=found.quota,
        left_over=left_over(orphans),
    )
    won = gain(question, orphans) if orphans else ""
    told = NoticeInputs(inputs, now, largest_context=found.largest_context, orphans=orphans, gain=won)
    gpu, total = facts.gpus[0], facts.ram_total.value or 0
    used = total - (facts.ram_available.value or 0)
    use = MemoryUse(used, total, gpu.vram_used.value, gpu.vram_total.value)
    return Scene(inputs, compose(told), use, pinned_bytes=gpu.shared_used.value or 0)


def _over(now: datetime) -> Scene:
    """The user wants more context than the RAM has room for layers."""
    small = _pc(vram=(0.7, 47.5), ram=(9.8, 127.7), name="RTX 6000")
    return _planned(Question(samples.MINIMAX, small, Wishes(context_tokens=150_016), Path("/models/sample")), now)


def _orphan(now: datetime) -> Scene:
    """A left-over engine holds VRAM, RAM and pins."""
    held = _pc(vram=(15.1, 31.8), ram=(44.7, 191.7), pins=28.9)
    return _planned(Question(samples.MINIMAX, held, Wishes(), Path("/models/sample")), now, (an_orphan(),))


def _refused(now: datetime) -> Scene:
    """Other programs hold the RAM; ending a left-over engine is not enough."""
    short = samples.BIG.model_copy(update={"ram_available": Reading(value=40 * GIB, source=Source.READ)})
    held = (Held(18244, "python.exe", int(28.9 * GIB)),)
    programs = (Program("game.exe", 61 * GIB), Program("browser.exe", 12 * GIB))
    return _planned(Question(samples.MINIMAX, short, Wishes(), Path("/models/sample"), held, programs), now)


_REFUSED = Problem(
    kind="pin_refused",
    sentence="The driver refused to pin 1.9 GiB after 94.9 GiB: out of memory (code 2).",
    fix=RESTART,
    numbers={"asked_bytes": 2038431744, "code": 2},
)


def _running(inputs: SplitInputs, now: datetime, *reports: Notice) -> Scene:
    """An engine has loaded."""
    notices_of = compose(NoticeInputs(inputs, now, reports=reports))
    return Scene(inputs, notices_of, use=_LOADED, pinned_bytes=int(95.5 * GIB))


def _unfit() -> SplitInputs:
    """An exact context was typed that does not fit beside what other programs use."""
    over = samples.over()
    return replace(samples.ready(), plan=None, drawn=over.drawn, problem=over.problem, wishes=over.wishes, touched=True)


def _measured() -> Scene:
    """What "Measure now" found."""
    inputs = samples.with_speed(samples.stopped())
    assert inputs.known is not None and inputs.plan is not None
    pins = ProbeLine(pinned_bytes=int(106.2 * GIB), stopped="refused")
    notice = result_notice(Measured(pins, inputs.known.rates), inputs.quota, known_speed(inputs, inputs.plan))
    assert notice is not None
    return Scene(inputs, (notice,))


def scenes() -> dict[str, Scene]:
    """Every state, by name."""
    now = datetime(2026, 9, 1, 14, 6)
    over, unreadable = _over(now), samples.unreadable()
    return {
        "split": Scene(samples.with_speed(samples.stopped(), runs=3)),
        "measured": _measured(),
        "measuring": Scene(samples.measuring(), pinned_bytes=int(41 * GIB)),
        "loading": Scene(samples.loading(), use=_LOADED, pinned_bytes=int(51.8 * GIB)),
        "ready": Scene(samples.ready(), use=_LOADED, pinned_bytes=int(95.5 * GIB)),
        "settled": Scene(
            samples.settled(), compose(NoticeInputs(samples.settled(), now)), use=_LOADED, pinned_bytes=int(89.8 * GIB)
        ),
        "pending": _running(samples.wishing(), now),
        "restart": _running(samples.wishing_for_room(), now),
        "repinned": _running(samples.wishing_after_refused_pins(), now),
        "waiting": _running(samples.changing(waits=True), now),
        "changing": _running(samples.changing(), now),
        "unfit": _running(_unfit(), now),
        "kept": _running(samples.wishing(refused=_REFUSED), now, not_changed(_REFUSED)),
        "stalled": _running(samples.stalled(), now),
        "small-pending": replace(_running(samples.wishing(), now), size=(880, 600)),
        "orphan": _orphan(now),
        "over": over,
        "unknown": Scene(samples.unknown_quota(), compose(NoticeInputs(samples.unknown_quota(), now))),
        "crashed": Scene(samples.pins_refused(), _after_crash(samples.pins_refused(), now)),
        "nogpu": Scene(samples.no_gpu(), use=_SMALL),
        "simulated": Scene(samples.simulated(), use=_SMALL),
        "refused": _refused(now),
        "unreadable": Scene(unreadable, compose(NoticeInputs(unreadable, now, removable=True))),
        "nomodel": Scene(SplitInputs()),
        "many": Scene(samples.many_layers()),
        "small": replace(over, size=(880, 600)),
        "narrow": Scene(
            samples.unknown_quota(),
            compose(NoticeInputs(samples.unknown_quota(), now)),
            size=(900, 800),
        ),
    }


def build(theme: Theme, scene: Scene, folder: Path) -> MainWindow:
    """A window that shows a scene."""
    page = SplitPage(theme)
    pages = (
        (RailEntry("split", "split", "Split"), cast(QWidget, page)),
        (RailEntry("chat", "chat", "Chat"), QWidget()),
    )
    window = MainWindow(theme, pages, WindowMemory(folder / "window.ini"))
    window.resize(*scene.size)
    name = scene.inputs.model_name
    entry = ModelEntry(Path(name), name) if name else None
    page.show_models((entry,) if entry else (), entry)
    page.show_view(present(scene.inputs))
    page.show_notices(scene.notices)
    quota = scene.inputs.quota if scene.inputs.on_gpu else None
    window.rail.show_memory(
        scene.use,
        pinned_bytes=scene.pinned_bytes,
        quota_bytes=None if quota is None else quota.pool_bytes,
        assumed=quota is not None and not quota.tried,
    )
    return window


def settle(app: QApplication) -> None:
    """Lay out and animate to the end."""
    for _ in range(12):
        app.processEvents()
        app.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


def main(argv: list[str]) -> int:
    out = Path(argv[0]) if argv else Path("gallery")
    out.mkdir(parents=True, exist_ok=True)
    app = QApplication([])
    names = argv[1:]
    for choice in THEMES[:2] if not names else THEMES:
        theme = Theme(app, choice)
        if not names or "tray" in names:
            gallery_tray.glyph_sheet(theme).save(str(out / f"tray-glyphs-{choice}.png"))
            gallery_tray.menu_sheet(app, theme, an_orphan()).save(str(out / f"tray-menu-{choice}.png"))
        for name, scene in scenes().items():
            if names and name not in names:
                continue
            window = build(theme, scene, out)
            window.show()
            settle(app)
            window.grab().save(str(out / f"{name}-{choice}.png"))
            window.close()
            window.deleteLater()
        for name, chat in gallery_chat.scenes().items():
            if names and name not in names:
                continue
            with gallery_chat.shown(app, theme, chat, out) as window:
                settle(app)
                window.grab().save(str(out / f"{name}-{choice}.png"))
    print(f"pictures are in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
