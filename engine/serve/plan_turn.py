"""One HTTP client that wants another split: it waits for its turn, for as long as it likes to, and may hang up."""

import asyncio
from typing import Any

from starlette.requests import Request

from engine.contract.events import PlanChanged
from engine.serve.openai import ApiError
from engine.serve.plan_jobs import PlanJob
from engine.serve.session import Session

USUAL_WAIT_S = 3600.0
MOST_WAIT_S = 86_400.0


def read_wait(text: str | None) -> float:
    """The query parameter `wait_s`: most seconds that a change waits for its turn; 0: it must not have to wait.

    Raises:
        ApiError: 400, it is no such number.
    """
    try:
        wait_s = USUAL_WAIT_S if text is None else float(text)
    except ValueError:
        wait_s = -1.0
    if not 0 <= wait_s <= MOST_WAIT_S:  # nor a NaN
        raise ApiError(
            400, f"wait_s is {text!r:.40}; it is a number of seconds from 0 to {MOST_WAIT_S:,.0f}.", param="wait_s"
        )
    return wait_s


async def turn_of(plan_job: PlanJob, request: Request, session: Session, wait_s: float | None) -> PlanChanged | None:
    """What became of a change; None: the client hung up. `wait_s` None: the change comes next anyway.

    A change that has not begun when the client hangs up or has waited long enough leaves the line. One that has begun
    comes to its end.

    Raises:
        ApiError: 409, it was not its turn within `wait_s`.
        SplitpinError: why the split was not changed.
    """
    done = asyncio.wrap_future(plan_job.done)
    done.add_done_callback(lambda future: future.cancelled() or future.exception())  # who hung up asks for neither
    gone = asyncio.create_task(_hung_up(request))
    either: tuple[asyncio.Future[Any], ...] = (done, gone)
    try:
        await asyncio.wait(either, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            if session.call_off(plan_job) and not gone.done():
                raise ApiError(409, f"The engine was still answering after {wait_s:g} s.", code="busy")
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return None if gone.done() else done.result()
    finally:
        gone.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
