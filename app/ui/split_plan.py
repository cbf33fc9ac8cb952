"""From wishes to what the Split page needs: plan or refusal, stops, quota. Pure; every number is the planner's."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.orphans.verdicts import Orphan, Verdicts
from app.planning.held import Held, facts_without
from app.planning.others import Program
from app.planning.planner import make_plan
from app.planning.quota import pin_quota
from app.planning.stops import SliderStops, slider_stops
from app.planning.wishes import Wishes
from app.supervision.held import held_by
from app.ui.split_inputs import LeftOver, QuotaFacts
from app.ui.wording import layers
from engine.contract.errors import Problem, SplitpinError, UsageError
from engine.contract.estimate import KV_PAGE_TOKENS
from engine.contract.facts import UNKNOWN, HardwareFacts, Source
from engine.contract.plan import MemoryPlan, Tier
from engine.contract.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be planned: model, machine, wishes; and what left-over processes and other programs hold."""

    shape: ModelShape
    facts: HardwareFacts
    wishes: Wishes
    folder: Path
    held: tuple[Held, ...] = ()
    programs: tuple[Program, ...] = ()

    def plan(self) -> MemoryPlan:
        """The plan for the wishes.

        Raises:
            SplitpinError: they do not fit, or something is not known.
        """
        return make_plan(
            self.shape,
            self.facts,
            self.wishes,
            model_dir=str(self.folder),
            held=self.held,
            programs=self.programs,
        )

    def with_wishes(self, **changes: object) -> "Question":
        """The same question with other wishes."""
        return replace(self, wishes=self.wishes.model_copy(update=changes))

    def possible(self) -> MemoryPlan | None:
        """The plan, or None where there is none."""
        try:
            return self.plan()
        except SplitpinError:
            return None


@dataclass(frozen=True, slots=True)
class Answer:
    """`drawn` is shown where there is no `plan`: the same split with pageable layers, or else the largest that fits.

    `question` is the one that was answered; None: there was none yet.
    """

    question: Question | None = None
    plan: MemoryPlan | None = None
    drawn: MemoryPlan | None = None
    problem: Problem | None = None
    stops: SliderStops = field(default_factory=lambda: SliderStops(()))
    quota: QuotaFacts | None = None
    largest_context: int | None = None


def answer(question: Question, before: Answer | None = None) -> Answer:
    """Everything that follows from a question. A refusal is an answer, not an escape.

    Args:
        before: an earlier answer. Its stops are taken over where the slider is the same, which is nearly all of the
            time that a step of the slider takes.
    """
    same = before is not None and before.question is not None and _same_slider(before.question, question)
    stops = before.stops if before is not None and same else _stops(question)
    quota = _quota(question)
    try:
        return Answer(question, plan=question.plan(), stops=stops, quota=quota)
    except SplitpinError as error:
        problem = error.problem
    largest = largest_context(question, stops)
    return Answer(
        question,
        drawn=_drawn(question, largest),
        problem=problem,
        stops=stops,
        quota=quota,
        largest_context=largest,
    )


def largest_context(question: Question, stops: SliderStops) -> int | None:
    """The longest context of a stop for which the other wishes can be kept; None: there is none."""
    for stop in reversed(stops.stops):
        if question.with_wishes(context_tokens=stop.context_tokens).possible() is not None:
            return stop.context_tokens
    return None


def gain(question: Question, orphans: Sequence[Orphan]) -> str:
    """What the plan would win if left-over processes were gone, in words; empty if nothing."""
    now, then = question.possible(), _without(question, orphans).possible()
    if then is None:
        return ""
    if now is None:
        return "Without it, this split fits."
    won = []
    for tier, words in ((Tier.VRAM, "fit in VRAM"), (Tier.PINNED, "can be pinned")):
        more = then.layers_in(tier) - now.layers_in(tier)
        if more > 0:
            won.append(
                f"{layers(more).replace(' ', ' more ', 1)} {words if more > 1 else words.replace('fit', 'fits')}"
            )
    return f"Without it, {' and '.join(won)}." if won else ""


def left_over(orphans: Sequence[Orphan]) -> LeftOver:
    """Memory of the processes that are provably ours."""
    held = held_by(Verdicts(orphans=tuple(orphans)))
    return LeftOver(
        sum(one.vram_bytes for one in held), sum(one.ram_bytes for one in held), sum(one.pinned_bytes for one in held)
    )


def _without(question: Question, orphans: Sequence[Orphan]) -> Question:
    held = held_by(Verdicts(orphans=tuple(orphans)))
    return replace(question, facts=facts_without(question.facts, held)) if held else question


def _drawn(question: Question, largest: int | None) -> MemoryPlan | None:
    """The nearest thing to the wish that can be shown: with pageable layers, or shorter, or beyond what the system
    promises. It is never sent to an engine."""
    open_ended = {"commit_limit": UNKNOWN, "commit_used": UNKNOWN}
    endless = replace(question, facts=question.facts.model_copy(update=open_ended))
    attempts = [question.with_wishes(allow_pageable=True)]
    if largest is not None:
        attempts.append(question.with_wishes(context_tokens=largest))
    attempts.append(endless.with_wishes(allow_pageable=True))
    attempts.append(endless.with_wishes(allow_pageable=True, context_tokens=KV_PAGE_TOKENS))
    attempts.append(endless.with_wishes(allow_pageable=True, context_tokens=KV_PAGE_TOKENS, pinned_layers=0, forced={}))
    return next((plan for attempt in attempts if (plan := attempt.possible()) is not None), None)


def _same_slider(one: Question, other: Question) -> bool:
    """Whether both have the same stops: those know nothing of the context and the layers in VRAM that are wished."""
    if one.shape is not other.shape or one.facts is not other.facts:
        return False
    free: dict[str, object] = {"context_tokens": None, "vram_layers": None}
    return one.wishes.model_copy(update=free) == other.wishes.model_copy(update=free)


def _stops(question: Question) -> SliderStops:
    try:
        return slider_stops(question.shape, question.facts, question.wishes)
    except UsageError:
        return SliderStops(())  # wishes that contradict the model: make_plan refuses them with the reason


def _quota(question: Question) -> QuotaFacts | None:
    found = pin_quota(question.facts, question.wishes)
    if found.bytes is None:
        return None  # only RAM limits
    rule = found.terms[0].what if found.source is Source.ASSUMED and found.terms else ""
    return QuotaFacts(found.bytes, found.source, found.reason, rule, found.ceiling_bytes, found.held_bytes)
