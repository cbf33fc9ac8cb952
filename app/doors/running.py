"""An engine that another program has started and holds: found by the run ledger, asked over HTTP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from app.chat.chunks import problem_of
from app.supervision.ledger import RunLedger
from engine.contract.errors import Problem, ReportedError, SplitpinError, UsageError
from engine.contract.events import PlanChanged
from engine.contract.plan import MemoryPlan
from engine.contract.processes import RunEntry
from engine.contract.residency import ResidencyReport
from engine.system.ports import port_owner

_ASK_S = 30.0  # while a change is being made the engine still answers questions about itself
_TRY_AGAIN = "Try again when it is done."
_WAIT_S = 86_400  # the most an engine takes; Ctrl-C calls a change off that waits


class NoEngineError(SplitpinError):
    """No engine of this profile runs, or the one that was named does not."""

    kind = "no_engine"


@dataclass(frozen=True, slots=True)
class Running:
    """What an engine runs now."""

    entry: RunEntry
    plan: MemoryPlan
    residency: ResidencyReport

    @property
    def base(self) -> str:
        """Address of its API."""
        return f"http://127.0.0.1:{self.entry.port}/v1"


def find_running(ledger: RunLedger, pid: int | None = None) -> Running:
    """The engine of this profile that listens; `pid` names one where there are several.

    Raises:
        NoEngineError: there is none.
        UsageError: there are several, and none was named.
        ReportedError: it is loading, stops, or is taking another split.
    """
    entries = [entry for entry in ledger.read() if _listens(entry) and pid in (None, entry.engine.pid)]
    if not entries:
        named = "" if pid is None else f" with PID {pid}"
        raise NoEngineError(f"No engine of this profile{named} runs.", "Start one in the window.")
    if len(entries) > 1:
        raise UsageError(_several(entries), "Name one of them with --pid.")
    document = _json(_get(f"http://127.0.0.1:{entries[0].port}/v1/plan"))
    plan = MemoryPlan.model_validate(document.get("plan"))
    residency = ResidencyReport.model_validate(document.get("residency"))
    if residency.ledger_asked != plan.ledger:
        raise ReportedError(Problem(kind="busy", sentence="The split is being changed now.", fix=_TRY_AGAIN))
    return Running(entries[0], plan, residency)


def change_plan(running: Running, plan: MemoryPlan) -> PlanChanged:
    """Have the engine take a plan, after the answers that were asked for before.

    Raises:
        ReportedError: it refused, or ended meanwhile; a refusal leaves all as it was.
    """
    try:
        with httpx.Client(trust_env=False, timeout=httpx.Timeout(10, read=None)) as client:
            url, body = f"{running.base}/plan?wait_s={_WAIT_S}", plan.model_dump_json()
            return PlanChanged.model_validate(
                _json(client.post(url, content=body, headers={"Content-Type": "application/json"}))
            )
    except httpx.HTTPError as cause:
        raise ReportedError(_gone(cause)) from cause


def _listens(entry: RunEntry) -> bool:
    """Whether the port is the engine's own: a later program may have got it."""
    if entry.port is None:
        return False
    owner = port_owner(entry.port)
    return owner is not None and owner.pid in (entry.engine.pid, *(child.pid for child in entry.children))


def _several(entries: Sequence[RunEntry]) -> str:
    return f"{len(entries)} engines of this profile run: PID {', '.join(str(entry.engine.pid) for entry in entries)}."


def _get(url: str) -> httpx.Response:
    try:
        with httpx.Client(trust_env=False, timeout=_ASK_S) as client:
            return client.get(url)
    except httpx.HTTPError as cause:
        raise ReportedError(_gone(cause)) from cause


def _json(response: httpx.Response) -> dict[str, Any]:
    """The document of an answer.

    Raises:
        ReportedError: the engine refused, or answered with something else.
    """
    try:
        document = response.json()
    except ValueError:
        document = None
    if response.status_code != httpx.codes.OK or not isinstance(document, dict):
        raise ReportedError(problem_of(document, response.status_code))
    return document


def _gone(cause: Exception) -> Problem:
    return Problem(
        kind="no_answer",
        sentence=f"The engine did not answer: {str(cause) or type(cause).__name__}.",
        fix="See whether it still runs, and try again.",
    )
