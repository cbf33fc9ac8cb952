"""What a measurement found, in words."""

from app.core.measuring import Measured
from app.planning.speed import Speed, number_span
from app.ui.notices import Notice
from app.ui.split_inputs import QuotaFacts
from app.ui.wording import duration
from engine.contract.probe import ProbeLine
from engine.contract.units import gib

ABOUT = "measured"


def result_notice(found: Measured, quota: QuotaFacts | None, speed: Speed | None) -> Notice | None:
    """One notice for all that was measured; `quota` and `speed` are those of the plan made with it."""
    titles, texts = [], []
    if found.pins is not None:
        titles.append(_pinned_title(found.pins))
        texts.append(_why_no_more(found.pins))
        if quota is not None:
            texts.append(f"Splitpin plans with {gib(quota.bytes)}.")
    if found.rates is not None:
        took = duration(found.rates.elapsed_s)
        (texts if titles else titles).append(f"The speed of this PC was measured in {took}{'.' if titles else ''}")
        if speed is not None:
            prompts = (
                "" if speed.prefill_tok_s is None else f", and reads {number_span(speed.prefill_tok_s)} of a prompt"
            )
            texts.append(f"This split answers with about {number_span(speed.decode_tok_s)} tokens a second{prompts}.")
    if not titles:
        return None
    return Notice("ok", titles[0], " ".join(texts), about=ABOUT)


def _pinned_title(last: ProbeLine) -> str:
    at_least = "" if last.stopped == "refused" else "at least "
    return f"Measured: {at_least}{gib(last.pinned_bytes)} of RAM can be pinned"


def _why_no_more(last: ProbeLine) -> str:
    match last.stopped:
        case "refused":
            return "The driver refused more; a tenth is kept free."
        case "need":
            return "The system grants no more to any program; a tenth is kept free."
        case "ram":
            return "More was not tried, so that other programs keep their RAM; a tenth is kept free."
        case "time":
            return "More was not tried: it took too long; a tenth is kept free."
        case None:
            return "The measurement ended early; a tenth is kept free."
