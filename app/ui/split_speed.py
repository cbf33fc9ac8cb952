"""The speed of the split on screen: what was measured or seen on this PC, as a range; never a formula's promise."""

from app.planning.figures import needed_formats, not_measured
from app.planning.speed import Speed, number_span, predict, speed_line
from app.ui.split_inputs import SplitInputs
from app.ui.split_view import SpeedView
from engine.contract.formats import WeightFormat
from engine.contract.plan import MemoryPlan


def speed_view(inputs: SplitInputs) -> SpeedView | None:
    """What is known of the speed; None where there is no split, or one that no engine will run."""
    plan = inputs.shown
    if plan is None or inputs.blocked is not None or (inputs.plan is None and not inputs.session.running):
        return None
    found = known_speed(inputs, plan)
    if found is not None:
        prompt = "" if found.prefill_tok_s is None else f"prompts {number_span(found.prefill_tok_s)}"
        return SpeedView(number_span(found.decode_tok_s), source_words(found), f"{speed_line(found)}.", prompt=prompt)
    if plan.device == "simulated":
        return SpeedView("", "no run of this model yet", "Speed: only runs tell that of a simulated GPU.")
    if inputs.facts is not None and inputs.facts.recorded:
        return SpeedView("", "this PC is not the recorded one", "Speed: a recorded machine cannot be measured.")
    if inputs.measuring is not None:
        return SpeedView("", "figures of this PC", "Speed: this PC is being measured.", instead="Measuring")
    missing = missing_words(inputs, plan)
    return SpeedView("", missing, f"Speed {missing}.", inputs.measurable)


def known_speed(inputs: SplitInputs, plan: MemoryPlan) -> Speed | None:
    """By runs and figures of this PC."""
    known = inputs.known
    return None if known is None else predict(plan, known.rates, known.runs)


def missing_formats(inputs: SplitInputs) -> tuple[WeightFormat, ...]:
    """Formats that the split on screen needs and that were not measured."""
    plan = inputs.shown
    if plan is None or plan.device == "simulated" or inputs.blocked is not None:
        return ()
    return not_measured(plan, None if inputs.known is None else inputs.known.rates)


def wanted_formats(inputs: SplitInputs) -> tuple[WeightFormat, ...]:
    """All formats of the model on the page."""
    return () if inputs.shape is None or inputs.blocked is not None else needed_formats(inputs.shape)


def missing_words(inputs: SplitInputs, plan: MemoryPlan) -> str:
    """ "not measured on this PC", or for which formats where others were."""
    rates = None if inputs.known is None else inputs.known.rates
    missing = not_measured(plan, rates)
    if rates is None or not rates.current or not missing:
        return "not measured on this PC"
    return f"not measured for {' and '.join(form.value.upper() for form in missing)}"


def source_words(speed: Speed) -> str:
    """ "from 3 runs of this split"; both sources where answers and prompts have different ones."""
    if speed.prefill_tok_s is not None and speed.prompt_basis != speed.basis:
        return "from runs and figures" if "figures of this PC" in (speed.basis, speed.prompt_basis) else "from runs"
    runs = f"{speed.runs} run{'' if speed.runs == 1 else 's'}"
    match speed.basis:
        case "runs of this split":
            return f"from {runs} of this split"
        case "runs of this model":
            return f"from {runs} near this split"
        case "figures of this PC":
            return "from figures measured here"
