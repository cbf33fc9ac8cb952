"""What the thread of the model does beside answering: a change of the split, asked for over HTTP."""

import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine.contract.errors import SplitpinError
from engine.contract.events import PlanChanged, PlanChanging
from engine.contract.plan import MemoryPlan
from engine.contract.plan_change import PlanWish, changed_plan, check_change
from engine.contract.record import first_fault
from engine.serve.openai import ApiError
from engine.serve.problems import answer_problem

if TYPE_CHECKING:
    from engine.model.interface import LanguageModel

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class PlanJob:
    """A wish for another split, and the answer to come. `done` can be cancelled as long as nothing has begun."""

    wanted: MemoryPlan | PlanWish
    done: Future[PlanChanged] = field(default_factory=Future)


def read_wish(body: bytes) -> MemoryPlan | PlanWish:
    """The body of POST /v1/plan: a whole plan, or the fields that are to change.

    Raises:
        ApiError: 400, it is neither.
    """
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as cause:
        raise ApiError(400, f"The body is not JSON: {cause}.") from cause
    kind: type[MemoryPlan] | type[PlanWish] = MemoryPlan if isinstance(fields, dict) and "model" in fields else PlanWish
    try:
        return kind.model_validate_json(body)
    except ValidationError as cause:
        fault = first_fault(cause)
        raise ApiError(400, fault.told, param=fault.field or None, code="plan") from cause


def possible_plan(plan: MemoryPlan, wanted: MemoryPlan | PlanWish) -> MemoryPlan:
    """The whole plan that is wanted of an engine that runs `plan`.

    Raises:
        PlanMismatchError, NotEnoughMemoryError: an engine that runs `plan` can never take it.
    """
    if isinstance(wanted, PlanWish):
        return changed_plan(plan, wanted)
    check_change(plan, wanted)
    return wanted


def run_plan_job(
    plan_job: PlanJob,
    model: "LanguageModel",
    report: Callable[[PlanChanging | PlanChanged], None],
    settled: Callable[[], None],
) -> None:
    """Change the split and answer. `settled` is called when it is over, before anybody hears of it.

    Raises:
        ChangeNotUndoneError: the model cannot be used any more; whoever asked is told first.
    """
    from engine.model.change import ChangeNotUndoneError

    if not plan_job.done.set_running_or_notify_cancel():
        return
    began_s = time.monotonic()
    try:
        plan = possible_plan(model.plan, plan_job.wanted)
        residency = model.change_plan(
            plan, lambda done, total: report(PlanChanging(bytes_done=done, bytes_total=total))
        )
    except ChangeNotUndoneError as error:
        plan_job.done.set_exception(error)
        raise
    except Exception as error:
        log.warning("the split was not changed: %s", error, exc_info=not isinstance(error, SplitpinError))
        settled()
        plan_job.done.set_exception(answer_problem(error, "while the split was changed"))
        return
    changed = PlanChanged(plan=plan, residency=residency, took_s=time.monotonic() - began_s)
    log.info("the split was changed in %.1f s", changed.took_s)
    settled()
    report(changed)
    plan_job.done.set_result(changed)
