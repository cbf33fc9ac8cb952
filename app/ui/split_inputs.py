"""Everything the Split page depends on, as one value."""

from dataclasses import dataclass, field

from app.core.learned import Experience
from app.core.measuring import Measuring
from app.core.session import EngineStage, SessionState
from app.planning.change import Change
from app.planning.stops import SliderStops
from app.planning.wishes import Wishes
from engine.contract.errors import Problem
from engine.contract.events import Loading
from engine.contract.facts import HardwareFacts, Source
from engine.contract.plan import MemoryPlan
from engine.contract.shape import ModelShape


@dataclass(frozen=True, slots=True)
class QuotaFacts:
    """The limit for pinned memory and where it is from."""

    bytes: int
    source: Source
    reason: str = ""
    rule: str = ""  # how it was assumed
    ceiling_bytes: int | None = None  # what the system names as its limit
    held_bytes: int = 0  # by other programs now, beside `bytes`

    @property
    def pool_bytes(self) -> int:
        """All that can be pinned, whoever holds it."""
        return self.bytes + self.held_bytes

    @property
    def assumed(self) -> bool:
        return self.source is Source.ASSUMED

    @property
    def tried(self) -> bool:
        """Whether somebody tried it or decided it, rather than a rule or a reading."""
        return self.source not in (Source.ASSUMED, Source.READ)


@dataclass(frozen=True, slots=True)
class LeftOver:
    """Memory that left-over engine processes of ours hold, in bytes."""

    vram_bytes: int = 0
    ram_bytes: int = 0
    pinned_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """Another split than the one that runs. `restart`: why only a start can bring it; None: the engine can take it.

    `refused`: the engine itself has said so.
    """

    plan: MemoryPlan
    change: Change
    restart: Problem | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class SplitInputs:
    """`plan` is for the wishes; `drawn` may be shown instead where `problem` says why there is none.

    `loading` is the last progress the engine told, also after it is ready; `ready_at` a time of day in words;
    `starting`: Start was pressed, and what comes before the engine is on its way. `known` is what runs and measurements
    taught of this PC; None until it was read.

    While an engine runs: `touched` says that other things are wished for than it was started with, `pending` is the
    split that follows from them, `applying` that the machine is read once more before the engine is asked for it.
    """

    model_name: str | None = None
    shape: ModelShape | None = None
    facts: HardwareFacts | None = None
    wishes: Wishes = field(default_factory=Wishes)
    plan: MemoryPlan | None = None
    drawn: MemoryPlan | None = None
    problem: Problem | None = None
    stops: SliderStops = field(default_factory=lambda: SliderStops(()))
    quota: QuotaFacts | None = None
    session: SessionState = field(default_factory=SessionState)
    loading: Loading | None = None
    ready_at: str = ""
    left_over: LeftOver = LeftOver()
    starting: bool = False
    known: Experience | None = None
    measuring: Measuring | None = None
    touched: bool = False
    pending: Pending | None = None
    applying: bool = False

    @property
    def adjustable(self) -> bool:
        """Whether other wishes can be taken: no engine runs, or one that is ready and not being changed."""
        if not self.session.running:
            return True
        return self.ready and self.session.change is None and not self.applying

    @property
    def wishing(self) -> bool:
        """Whether the wishes say more than the engine that runs."""
        return not self.session.running or self.touched

    @property
    def shown(self) -> MemoryPlan | None:
        """The plan on screen: what Start or Apply would send, else what the engine that runs was sent."""
        if self.pending is not None:
            return self.pending.plan
        if self.session.running and self.session.plan is not None:
            return self.session.plan
        return self.plan if self.plan is not None else self.drawn

    @property
    def blocked(self) -> str | None:
        """Why this model cannot be started whatever the split; None: nothing stands in the way."""
        if self.shape is None:
            return None
        if self.shape.source == "config":
            return "This folder holds no weight files; the plan is made from config.json alone"
        if self.shape.not_runnable is not None:
            return f"{self.shape.not_runnable[0].upper()}{self.shape.not_runnable[1:]}; this is a plan only"
        if self.replayed:
            return "This is a recorded machine; an engine can only be started on the PC it was recorded on"
        return None

    @property
    def replayed(self) -> bool:
        """The machine was read from a file. A simulated GPU runs in the memory of this PC all the same."""
        return self.facts is not None and self.facts.recorded and self.wishes.simulated_gpu is None

    @property
    def blocked_briefly(self) -> str:
        """The same in a few words."""
        return "a recorded machine" if self.replayed else "this model can only be planned"

    @property
    def measurable(self) -> bool:
        """Whether this is a PC that can be measured, and a moment for it."""
        idle = not self.session.running and not self.starting and self.measuring is None
        return idle and self.facts is not None and not self.facts.recorded and self.wishes.simulated_gpu is None

    @property
    def pins_measurable(self) -> bool:
        """Whether how much can be pinned is only assumed or read, and can be tried out."""
        gpu = None if self.facts is None else self.facts.cuda_gpu
        return self.measurable and gpu is not None and self.quota is not None and not self.quota.tried

    @property
    def ready(self) -> bool:
        return self.session.stage is EngineStage.READY

    @property
    def changed(self) -> bool:
        """The engine settled on another split than it was asked for."""
        return self.ready and self.session.residency is not None and bool(self.session.residency.fallen)

    @property
    def on_gpu(self) -> bool:
        """Whether VRAM and pinned memory exist here, real or simulated."""
        shown = self.shown
        if shown is not None:
            return shown.device != "cpu"
        return self.wishes.simulated_gpu is not None or (self.facts is not None and self.facts.cuda_gpu is not None)
