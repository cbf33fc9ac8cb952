"""What Start would send: model, machine and wishes, planned anew whenever one of them changes."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.orphans.verdicts import Verdicts
from app.planning.wishes import Wishes
from app.supervision.held import held_by, programs_of
from app.ui.model_desk import ModelDesk
from app.ui.notices import Notice
from app.ui.split_plan import Answer, Question, answer, largest_context
from app.ui.split_wishes import SplitWishes
from app.ui.wording import tokens
from engine.contract.errors import FixOption
from engine.contract.estimate import KV_PAGE_TOKENS
from engine.contract.facts import HardwareFacts
from engine.contract.plan import SimulatedGpu, Tier
from engine.contract.units import round_up

LONGEST = "longest context"  # what a notice is about


class PlanDesk(QObject):
    """Signals:
    planned: `answer` may be another one.
    wishes_changed: the wishes for a model changed (its folder as Path, Wishes).
    pins_limited: the user takes a limit for pinned memory on this PC (bytes), or lifts it (None).
    reported: there is something to say (Notice).
    """

    planned = Signal()
    wishes_changed = Signal(object, object)
    pins_limited = Signal(object)
    reported = Signal(object)

    def __init__(
        self,
        models: ModelDesk,
        *,
        is_fixed: Callable[[], bool],
        simulated_gpu: SimulatedGpu | None = None,
        parent: QObject | None = None,
    ) -> None:
        """`is_fixed`: an engine loads, stops or takes another split, so this one stays."""
        super().__init__(parent)
        self._models = models
        self._is_fixed = is_fixed
        self._wishes = SplitWishes(simulated_gpu)
        self._verdicts = Verdicts()
        self.facts: HardwareFacts | None = None
        self.answer = Answer()

    @property
    def wishes(self) -> Wishes:
        """The wishes for the chosen model, with those that hold for all of them."""
        return self._wishes.of(self._models.folder)

    @property
    def saved_wishes(self) -> Wishes:
        """Those for the chosen model alone."""
        folder = self._models.folder
        return Wishes() if folder is None else self._wishes.saved.get(folder, Wishes())

    @property
    def question(self) -> Question | None:
        """What there is to plan; None until model and machine are read."""
        shape, facts, folder = self._models.shape, self.facts, self._models.folder
        if shape is None or facts is None or folder is None:
            return None
        seen = Verdicts() if facts.recorded else self._verdicts
        return Question(shape, facts, self.wishes, folder, held_by(seen), programs_of(seen))

    def take_saved(self, saved: dict[Path, Wishes]) -> None:
        """Wishes of earlier runs by model folder."""
        self._wishes.saved = saved

    def forget(self) -> None:
        """Another model is being read: nothing is planned yet."""
        self.answer = Answer()

    def take_facts(self, facts: HardwareFacts) -> None:
        """The machine was read."""
        self.facts = facts
        self.plan()

    def take_verdicts(self, verdicts: Verdicts) -> None:
        """Processes were looked at: what they hold may be the cure of a plan that does not fit."""
        before, self._verdicts = self._verdicts, verdicts
        if before != verdicts and self.answer.problem is not None:
            self.plan()

    def plan(self) -> None:
        """Plan anew."""
        question = self.question
        self.answer = Answer() if question is None else answer(question, self.answer)
        self.planned.emit()

    # -- wishes ---------------------------------------------------------------------------------------------------

    def wish(self, **changes: object) -> None:
        """Other wishes for the chosen model; ignored while they cannot change anything."""
        if self._is_fixed():
            return
        self._keep(**changes)
        self.plan()

    def wish_stop(self, index: int) -> None:
        """A stop of the slider."""
        stops = self.answer.stops.stops
        if index < len(stops):
            self.wish(context_tokens=stops[index].context_tokens)

    def wish_context(self, wanted: int | None) -> None:
        """An exact context, rounded up to whole pages; None: the largest that fits."""
        if (question := self.question) is None:
            return
        if wanted is None:
            wanted = largest_context(question, self.answer.stops)
        if wanted is None:
            return
        most = question.shape.max_context_tokens
        self.wish(context_tokens=min(round_up(min(wanted, most), KV_PAGE_TOKENS), most))
        if wanted > most:
            self.reported.emit(Notice("info", f"The longest context of this model is {tokens(most)}", about=LONGEST))

    def wish_tier(self, layer: int, tier: Tier | None) -> None:
        """A tier for one layer; None leaves it to the planner."""
        forced = {other: kept for other, kept in self.wishes.forced.items() if other != layer}
        self.wish(forced=forced if tier is None else {**forced, layer: tier})

    def follow(self, fix: FixOption) -> None:
        """Take the wishes that a fix names."""
        self.wish(
            **{
                name: True if name == "allow_pageable" else value
                for name, value in fix.numbers.items()
                if name in Wishes.model_fields
            }
        )

    def free_choices(self) -> None:
        """Leave to the planner again what only fixes have set."""
        self.wish(
            vram_layers=None, allow_pageable=False, kv_dtype=None, vram_reserve_bytes=None, ram_reserve_bytes=None
        )

    def restore(self, folder: Path, wishes: Wishes) -> None:
        """Take earlier wishes for a model again, all of them."""
        self._wishes.saved[folder] = wishes
        self.wishes_changed.emit(folder, wishes)
        if folder == self._models.folder:
            self.plan()

    def limit_pins(self, most_bytes: int | None) -> None:
        """Pin at most this much, whatever the quota; None: as much as the quota allows."""
        self._wishes.pin_cap_bytes = most_bytes
        if most_bytes is not None and self.wishes.pinned_layers is not None:
            self._keep(pinned_layers=None)  # a number of layers that was chosen before may be more than that
        self.plan()

    def keep_limit(self, most_bytes: int | None) -> None:
        """The same for good; what a simulated GPU refused says nothing of this PC."""
        self.limit_pins(most_bytes)
        if self.wishes.simulated_gpu is None:
            self.pins_limited.emit(most_bytes)

    def _keep(self, **changes: object) -> None:
        if (folder := self._models.folder) is not None:
            self.wishes_changed.emit(folder, self._wishes.change(folder, **changes))
