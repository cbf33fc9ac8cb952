"""What the engine tells of itself while it runs: a step that does not end, books that do not agree."""

from app.core.session import SessionState
from app.ui.notices import Action, Notice
from app.ui.wording import rough_duration
from engine.contract.events import StepStalled

STOP_ENGINE, END_ENGINE = "stop_engine", "end_engine"
_STOP = Action("Stop engine", STOP_ENGINE, "danger")
_END = Action("End engine", END_ENGINE, "danger")  # what hangs may not hear that it is to stop
_WORK = {"prefill": "a part of the prompt", "decode": "one token"}


def of_engine(session: SessionState) -> list[Notice]:
    """Notices of an engine that runs; waiting is always the other choice, nothing is ended by itself."""
    made = []
    if session.stalled is not None:
        made.append(of_stall(session.stalled))
    if session.findings:
        made.append(of_findings(session.findings))
    return made


def of_stall(stalled: StepStalled) -> Notice:
    """The engine has computed one step for very long."""
    return Notice(
        "warn",
        f"The engine has not finished a step for {rough_duration(stalled.running_s)}",
        f"It computes {_WORK[stalled.phase]}; by what was measured on this PC that takes less than "
        f"{rough_duration(stalled.limit_s)}. It may still come to an end. If it does not, end the engine; chats "
        "keep what has arrived.",
        (_END,),
        dismissable=False,
        about="stalled",
    )


def of_findings(findings: tuple[str, ...]) -> Notice:
    """A fault of Splitpin: the engine holds other memory than it believes."""
    more = f" {len(findings) - 1} more are in the log." if len(findings) > 1 else ""
    return Notice(
        "error",
        "The engine's account of its memory does not add up",
        f"{findings[0]}{more} Answers may be wrong from here on. Start the engine again; the log has the details.",
        (_STOP,),
        "\n".join(findings),
        about="integrity",
    )
