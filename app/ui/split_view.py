"""What the Split page shows, as values. No Qt here: `split_presenter` makes them, widgets paint them."""

from dataclasses import dataclass
from typing import Literal

from engine.contract.plan import Tier

Tone = Literal["muted", "warn", "error"]
PillShape = Literal["ring", "arc", "dot", "triangle", "cross"]
PillTone = Literal["text2", "accent", "ok", "warn", "error"]
SegmentKind = Literal["other", "leftover", "weights", "runtime", "kv", "slots", "vram", "pinned", "locked", "pageable"]
MainAction = Literal["start", "starting", "stop", "stopping", "measuring"]


@dataclass(frozen=True, slots=True)
class Tile:
    """One of the big numbers."""

    caption: str
    value: str
    detail: str
    tone: Tone = "muted"

    @property
    def spoken(self) -> str:
        return f"{self.caption}: {self.value}. {self.detail}"


@dataclass(frozen=True, slots=True)
class SpeedView:
    """The speed line. `value` is empty where nothing is known; `hint` says it in one sentence."""

    value: str
    detail: str
    hint: str
    measurable: bool = False  # a click may measure what is missing
    instead: str = "Not known"  # where nothing is known and a click does not help
    prompt: str = ""  # the same of prompts, where that is known too

    @property
    def caption(self) -> str:
        return "Tokens per second" if self.value else "Speed"


@dataclass(frozen=True, slots=True)
class Marker:
    """A limit on the slider: `stop` is the first stop beyond it."""

    stop: int
    kind: Literal["pin", "ram"]
    label: str


@dataclass(frozen=True, slots=True)
class SliderView:
    """The main slider: `position` indexes the stops; `unmet` says that the wish fits none of them; `running` is the
    stop of the engine that runs, where something else is wished for; `longest` the longest number it can lead to."""

    stops: int = 0
    position: int = 0
    markers: tuple[Marker, ...] = ()
    assumed: bool = False
    unmet: bool = False
    enabled: bool = False
    described: str = ""
    captions: tuple[str, str] = ("More layers in VRAM", "More context")
    hint: str = ""
    running: int | None = None
    longest: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One layer of the strip. `fill` is the share that is loaded, 0..1."""

    layer: int
    tier: Tier
    asked: Tier
    bytes: int
    fill: float = 1.0
    forced: bool = False
    now: Tier | None = None  # where it is, if `tier` is where it would go
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class StripView:
    """The layer strip; `two_rows` shows asked above settled, or what is above what would be; `waits` that nothing can
    be read yet."""

    cells: tuple[Cell, ...] = ()
    tiers: tuple[Tier, ...] = tuple(Tier)  # those this machine can have
    two_rows: bool = False
    waits: bool = False
    note: str = ""

    def count(self, tier: Tier) -> int:
        return sum(cell.tier == tier for cell in self.cells)

    def tier_bytes(self, tier: Tier) -> int:
        return sum(cell.bytes for cell in self.cells if cell.tier == tier)


@dataclass(frozen=True, slots=True)
class ChangeView:
    """What another split of a running engine would change, or what has become of it.

    `apply` and `undo` are the labels of its buttons; without one there is no button. While it is `busy`, `share` is how
    far it is, 0..1; None: that cannot be told.
    """

    title: str
    text: str
    tone: Tone = "muted"
    apply: str = ""
    enabled: bool = True
    hint: str = ""
    undo: str = ""
    busy: bool = False
    share: float | None = None


@dataclass(frozen=True, slots=True)
class PinnedView:
    """The second control: `value` of 0..`most` layers."""

    visible: bool = False
    value: int = 0
    most: int = 0
    outside_vram: int = 0
    fill: bool = True
    enabled: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a memory bar."""

    name: str
    kind: SegmentKind
    bytes: int


@dataclass(frozen=True, slots=True)
class Bar:
    """One memory bar: segments against a total, with a mark where the plan must end."""

    title: str
    segments: tuple[Segment, ...]
    total_bytes: int
    note: str = ""
    limit_bytes: int | None = None

    @property
    def used_bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)

    @property
    def over(self) -> bool:
        return self.used_bytes > (self.total_bytes if self.limit_bytes is None else self.limit_bytes)


@dataclass(frozen=True, slots=True)
class PillView:
    """The state of the engine: shape and word carry it, the colour repeats it.

    `share` is for the arc, 0..1; None turns it: how far it is cannot be told.
    """

    text: str
    tone: PillTone = "text2"
    shape: PillShape = "ring"
    share: float | None = 0.0


@dataclass(frozen=True, slots=True)
class MainButton:
    """The one big button of the page."""

    text: str
    action: MainAction
    enabled: bool = True
    hint: str = ""

    @property
    def icon(self) -> str:
        return "play" if self.action in ("start", "starting") else "stop"

    @property
    def kind(self) -> str:
        return "primary" if self.action == "start" else ""


@dataclass(frozen=True, slots=True)
class Tag:
    """A short warning beside the title; `hint` is its tool tip."""

    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class QuickMark:
    """A shortcut to a context; `context_tokens` None is the largest that fits."""

    label: str
    context_tokens: int | None


@dataclass(frozen=True, slots=True)
class SplitView:
    """The whole page. The cards are shown if there are cells to show."""

    subtitle: str
    tags: tuple[Tag, ...]
    pill: PillView
    button: MainButton
    tiles: tuple[Tile, ...] = ()
    speed: SpeedView | None = None
    slider: SliderView = SliderView()
    quick_marks: tuple[QuickMark, ...] = ()
    strip: StripView = StripView()
    pinned: PinnedView = PinnedView()
    memory_note: str = ""
    memory_hint: str = ""
    change: ChangeView | None = None
    can_choose: bool = True  # another model
    bars: tuple[Bar, ...] = ()
