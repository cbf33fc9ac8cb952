"""One request: what is computed, what is said, what is reported."""

import itertools

import pytest

from engine.contract.errors import ContextTooLongError
from engine.contract.events import Event, PrefillProgress, RequestDone, RequestStarted
from engine.contract.residency import SlotUse
from engine.generate.detokenize import REPLACEMENT, Detokenizer
from engine.generate.loop import Generation, answer_room
from engine.generate.meter import Meter
from engine.generate.request import GenerationRequest, Outcome, Sampling
from tests.support.fake_model import FakeModel

GREEDY = Sampling(temperature=0.0)


class Run:
    """Runs one generation and keeps everything it gave out. The clock moves one second at each look."""

    def __init__(
        self,
        model: FakeModel,
        prompt: str = "hi",
        *,
        max_tokens: int | None = None,
        stop: tuple[str, ...] = (),
        cancel_after_pieces: int | None = None,
    ) -> None:
        self.pieces: list[str] = []
        self.events: list[Event] = []
        prompt_ids = tuple(model.tokenizer.encode(prompt, add_special_tokens=False))
        request = GenerationRequest("r1", prompt_ids, GREEDY, max_tokens, stop)
        ticks = itertools.count()
        generation = Generation(
            model, Detokenizer(model.tokenizer), request, accepted_s=0.0, clock=lambda: float(next(ticks))
        )

        def cancelled() -> bool:
            return cancel_after_pieces is not None and len(self.pieces) >= cancel_after_pieces

        self.outcome: Outcome = generation.run(
            on_text=self.pieces.append, report=self.events.append, cancelled=cancelled
        )

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def test_an_answer_ends_at_the_models_stop_token_which_is_not_counted() -> None:
    run = Run(FakeModel(answers=["Paris."]))
    assert run.text == "Paris."
    assert (run.outcome.finish_reason, run.outcome.answer_tokens) == ("stop", 6)


def test_characters_outside_ascii_arrive_whole() -> None:
    run = Run(FakeModel(answers=["🍎 你好, é"]))
    assert run.text == "🍎 你好, é"
    assert not any(REPLACEMENT in piece for piece in run.pieces)


def test_max_tokens_ends_an_answer_and_half_a_character_is_flushed_as_one_replacement() -> None:
    run = Run(FakeModel(answers=["A🍎"]), max_tokens=3)
    assert run.text == "A" + REPLACEMENT
    assert (run.outcome.finish_reason, run.outcome.answer_tokens) == ("length", 3)


def test_the_context_limits_the_answer_if_max_tokens_does_not() -> None:
    model = FakeModel(answers=["x" * 50], context_tokens=12)
    run = Run(model, "12345", max_tokens=1000)
    assert (run.outcome.finish_reason, run.outcome.answer_tokens) == ("length", 7)
    assert model.cached_tokens <= 12


def test_the_last_token_of_a_limit_is_not_computed_further() -> None:
    model = FakeModel(answers=["abcdef"])
    Run(model, max_tokens=3)
    assert model.decoded == 2


def test_a_stop_string_ends_the_answer_and_never_shows() -> None:
    model = FakeModel(answers=["one\nTWO three"])
    run = Run(model, stop=("TWO",))
    assert run.text == "one\n"
    assert run.outcome.finish_reason == "stop"
    assert model.decoded < len("one\nTWO three")


def test_a_beginning_of_a_stop_string_at_the_very_end_is_given_out() -> None:
    assert Run(FakeModel(answers=["so TW"]), stop=("TWO",)).text == "so TW"


def test_cancelling_costs_at_most_one_more_token() -> None:
    model = FakeModel(answers=["abcdefgh"])
    run = Run(model, cancel_after_pieces=3)
    assert run.outcome.finish_reason == "cancelled"
    assert len(run.pieces) == 3
    assert model.decoded <= 3


def test_cancelling_during_prefill_ends_between_two_chunks() -> None:
    model = FakeModel(chunk=4)
    run = Run(model, "0123456789", cancel_after_pieces=0)
    assert run.outcome.finish_reason == "cancelled"
    assert model.cached_tokens == 0


def test_events_come_in_order_with_the_prompts_progress() -> None:
    run = Run(FakeModel(chunk=4), "0123456789")
    assert [type(event) for event in run.events] == [RequestStarted, *[PrefillProgress] * 3, RequestDone]
    progress = [event.done_tokens for event in run.events if isinstance(event, PrefillProgress)]
    assert progress == [4, 8, 10]
    done = run.events[-1]
    assert isinstance(done, RequestDone)
    assert (done.finish_reason, done.prompt_tokens, done.answer_tokens) == ("stop", 10, 6)
    assert done.decode_tok_s == run.outcome.timings.decode_tok_s


def test_only_what_is_not_cached_is_computed_and_every_event_says_so() -> None:
    model = FakeModel(answers=["ab", "c"], chunk=4, reuses=True)
    Run(model, "0123456789")
    run = Run(model, "0123456789abXYZ")
    assert model.prompts[-1] == "XYZ"
    told = [(event.reused_tokens, event.prompt_tokens) for event in run.events if isinstance(event, RequestStarted)]
    assert told == [(12, 15)]
    progress = [event for event in run.events if isinstance(event, PrefillProgress)]
    assert [(event.done_tokens, event.total_tokens, event.reused_tokens) for event in progress] == [(15, 15, 12)]
    done = run.events[-1]
    assert isinstance(done, RequestDone)
    assert (done.reused_tokens, run.outcome.reused_tokens) == (12, 12)
    assert run.outcome.timings.prefill_tok_s == 3.0, "3 tokens in one tick: the cached ones took no time"


def test_the_model_hears_of_the_end_of_every_request() -> None:
    model = FakeModel(fail_prefill=lambda: MemoryError("no") if model.ended == 2 else None)
    Run(model)
    Run(model, cancel_after_pieces=0)
    with pytest.raises(MemoryError):
        Run(model)
    assert model.ended == 3


def test_an_error_is_reported_as_the_end_of_the_request() -> None:
    model = FakeModel(fail_prefill=lambda: MemoryError("no"))
    events: list[Event] = []
    request = GenerationRequest("r1", (1, 2), GREEDY)
    generation = Generation(model, Detokenizer(model.tokenizer), request, accepted_s=0.0)
    with pytest.raises(MemoryError):
        generation.run(on_text=lambda _: None, report=events.append, cancelled=lambda: False)
    assert isinstance(events[-1], RequestDone)
    assert events[-1].finish_reason == "error"


def test_a_second_request_starts_from_an_empty_cache() -> None:
    model = FakeModel(answers=["a", "b"], context_tokens=8)
    assert [Run(model, "12345").text, Run(model, "12345").text] == ["a", "b"]


@pytest.mark.parametrize(
    ("prompt", "limit", "room"), [(8000, 1000, 209), (8000, None, 209), (8000, 5, 5), (8208, 9, 1)]
)
def test_t23_the_answer_is_limited_to_the_rest_of_the_pool(prompt: int, limit: int | None, room: int) -> None:
    assert answer_room(prompt, 8209, limit) == room


@pytest.mark.parametrize("prompt", [8209, 21661])
def test_t23_a_prompt_that_leaves_no_room_is_refused_with_both_numbers(prompt: int) -> None:
    with pytest.raises(ContextTooLongError) as caught:
        answer_room(prompt, 8209, None)
    assert caught.value.numbers == {"prompt_tokens": prompt, "context_tokens": 8209}


def test_rates_are_counted_as_their_names_say() -> None:
    now = [10.0]
    meter = Meter(accepted_s=1.0, clock=lambda: now[0])
    meter.prefill_begins()
    now[0] = 12.0
    meter.prefill_ends(100)
    for moment in (12.5, 13.0, 13.5):
        now[0] = moment
        meter.token()
    timings = meter.timings
    assert (timings.ttft_s, timings.prefill_tok_s, timings.decode_tok_s) == (11.5, 50.0, 2.0)


def test_a_single_token_has_no_decode_rate() -> None:
    meter = Meter(accepted_s=0.0, clock=lambda: 1.0)
    meter.token()
    assert meter.timings.decode_tok_s is None
    assert meter.timings.prefill_tok_s is None


def test_the_use_of_the_slots_is_told_for_each_request_alone() -> None:
    model = FakeModel(answers=["Paris."])
    for _ in range(2):
        done = Run(model).events[-1]
        assert isinstance(done, RequestDone)
        assert done.slots == (SlotUse(layer=0, hits=6, misses=0, prompt_hits=0, prompt_copies=1),)
