"""The speed on the page: only what was measured or seen, and what is missing where it is not known."""

from dataclasses import replace

from app.ui.split_speed import missing_formats, speed_view, wanted_formats
from app.ui.split_view import SpeedView
from engine.contract.formats import WeightFormat
from tests.app.ui import samples


def test_runs_of_the_very_split_are_told_with_their_number() -> None:
    found = speed_view(samples.with_speed(samples.stopped(), runs=3))
    assert found is not None
    assert (found.caption, found.value, found.detail) == ("Tokens per second", "8.3 to 10", "from 3 runs of this split")
    assert found.prompt == "prompts 319 to 386", "310 a second were seen, of a prompt of 900 tokens"
    assert found.hint.startswith("About 8.3 to 10 tokens a second; a prompt of 4,096 tokens takes")


def test_figures_give_a_range_and_say_so() -> None:
    found = speed_view(samples.with_speed(samples.stopped()))
    assert found is not None
    assert " to " in found.value
    assert found.detail == "from figures measured here"
    assert not found.measurable


def test_prompts_that_were_not_seen_are_told_by_figures_and_both_sources_are_named() -> None:
    known = samples.with_speed(samples.stopped(), runs=1)
    assert known.known is not None
    (run,) = known.known.runs
    answers = known.known.model_copy(update={"runs": (run.model_copy(update={"prefill_tok_s": None}),)})
    found = speed_view(replace(known, known=answers))
    assert found is not None
    assert (found.value, found.detail) == ("8.3 to 10", "from runs and figures")
    assert found.prompt.startswith("prompts ")
    only = speed_view(replace(known, known=answers.model_copy(update={"rates": None})))
    assert only is not None
    assert (only.prompt, only.detail) == ("", "from 1 run of this split"), "nothing tells how fast prompts are"


def test_before_a_measurement_a_click_may_measure() -> None:
    assert speed_view(samples.stopped()) == SpeedView(
        "", "not measured on this PC", "Speed not measured on this PC.", measurable=True
    )
    assert missing_formats(samples.stopped()) == wanted_formats(samples.stopped()) == (WeightFormat.BF16,)
    running = speed_view(samples.ready())
    assert running is not None and not running.measurable


def test_a_format_that_was_not_measured_is_named() -> None:
    known = samples.with_speed(samples.stopped())
    assert known.plan is not None and known.shape is not None
    shape = known.shape.model_copy(update={"expert_format": WeightFormat.NVFP4})
    packed = replace(known, shape=shape, plan=known.plan.model_copy(update={"model": shape}))
    found = speed_view(packed)
    assert found is not None
    assert (found.value, found.detail, found.measurable) == ("", "not measured for NVFP4", True)
    assert missing_formats(packed) == (WeightFormat.NVFP4,)
    assert wanted_formats(packed) == (WeightFormat.BF16, WeightFormat.NVFP4)


def test_what_cannot_be_measured_here_is_not_offered() -> None:
    recorded = speed_view(replace(samples.stopped(), facts=samples.BIG.model_copy(update={"recorded": True})))
    assert recorded is None, "nothing can be started, so nothing has a speed"
    simulated = speed_view(samples.simulated())
    assert simulated is not None
    assert (simulated.value, simulated.measurable) == ("", False)
    assert speed_view(samples.over()) is None, "a split that does not fit has no speed"
    assert missing_formats(samples.simulated()) == ()
