"""Owns the model and the one thread that uses it. Requests wait in line; one fails without taking the engine along.

Torch is imported by the loading thread, not here, so that the port answers while the model is still coming.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from engine.contract.errors import ContextTooLongError, SplitpinError
from engine.contract.events import Event, Loading, Ready
from engine.contract.plan import MemoryPlan
from engine.contract.plan_change import PlanWish
from engine.generate.request import GenerationRequest, sampling_for
from engine.serve.answer_errors import AnswerFailedError
from engine.serve.integrity_watch import IntegrityWatch
from engine.serve.line import Idle, Job, Line, Listener, Refusal
from engine.serve.messages import PromptMaker
from engine.serve.openai import ApiError, ChatRequest
from engine.serve.plan_jobs import PlanJob, possible_plan, run_plan_job
from engine.serve.problems import answer_problem, engine_problem
from engine.serve.recovery import recover
from engine.serve.watchdog import Watchdog, watched

if TYPE_CHECKING:
    from engine.generate.detokenize import Detokenizer
    from engine.model.interface import LanguageModel

log = logging.getLogger(__name__)

Report = Callable[[Event], None]
LoadModel = Callable[[Report, Callable[[], bool]], "LanguageModel"]
Status = Literal["loading", "ready", "stopping"]

RETRY_AFTER_S = 2
MOST_WAITING = 128  # half of the connections, so that others can ask how it goes
LOOK_AFTER_S = 30.0  # an idle engine looks this often whether its books agree


@dataclass(frozen=True, slots=True)
class _Loaded:
    model: "LanguageModel"
    prompts: PromptMaker
    detokenizer: "Detokenizer"


class Session:
    """Loads in its own thread, then answers requests there one after the other, first come first served."""

    def __init__(self, name: str, load: LoadModel, report: Report, on_failed: Callable[[SplitpinError], None]) -> None:
        self.name = name
        self.loading: Loading | None = None
        self._load = load
        self._report_out = report
        self._on_failed = on_failed
        self._line = Line()
        self._stopping = threading.Event()
        self._loaded: _Loaded | None = None
        self._thread = threading.Thread(target=self._run, name="generation", daemon=True)

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    @property
    def status(self) -> Status:
        """What `/health` says."""
        if self._stopping.is_set():
            return "stopping"
        return "loading" if self._loaded is None else "ready"

    @property
    def model(self) -> "LanguageModel":
        """The loaded model.

        Raises:
            ApiError: 503 while loading or stopping.
        """
        return self._ready().model

    def prepare(
        self, request_id: str, asked: ChatRequest, cancelled: Callable[[], bool] = lambda: False
    ) -> GenerationRequest:
        """Turn a chat request into token ids and limits. Takes milliseconds and may run beside an answer.

        Raises:
            ApiError: 503 while loading or stopping; 400 where the messages cannot become a prompt.
            ContextTooLongError: the prompt does not fit the context.
            TemplateLimitError: the model's chat template has no end.
            PromptCancelledError: `cancelled` said so.
        """
        from engine.generate.loop import answer_room  # torch is loaded by now

        loaded = self._ready()
        prompt_ids = loaded.prompts.token_ids(asked.messages, cancelled)
        answer_room(len(prompt_ids), loaded.model.context_tokens, asked.answer_limit)
        _check_vocabulary(prompt_ids, loaded.model.vocab_size)
        return GenerationRequest(
            request_id=request_id,
            prompt_ids=prompt_ids,
            sampling=sampling_for(asked.sampling_fields, loaded.model.generation_defaults, asked.seed),
            max_tokens=asked.answer_limit,
            stop=asked.stop_strings,
        )

    @property
    def waiting(self) -> int:
        """Requests in line, without the one being answered."""
        return len(self._line)

    def submit(self, request: GenerationRequest, listener: Listener, *, accepted_s: float) -> Job:
        """Put a request in line. `accepted_s`: when it came in, by `time.monotonic`.

        Raises:
            ApiError: 503, the engine is stopping, or very many wait already.
        """
        if self.waiting >= MOST_WAITING:
            raise ApiError(503, f"{MOST_WAITING} requests wait already.", code="busy")
        job = Job(request, accepted_s, listener)
        if not self._line.put(job):
            raise _stopping()
        return job

    def change_plan(self, wanted: MemoryPlan | PlanWish, *, waits: bool = True) -> PlanJob:
        """Ask for another split, made when everybody who is in line now has been answered.

        What becomes of it arrives in the job's future, from the generation thread. `waits` False: now or never.

        Raises:
            ApiError: 503 while loading or stopping; 409, another change waits or is being made, or nobody may wait.
            SplitpinError: the engine can never take this plan.
        """
        model = self._ready().model
        if self._line.changing:
            raise _changing()
        possible_plan(model.plan, wanted)
        plan_job = PlanJob(wanted)
        match self._line.put_plan(plan_job, waits=waits):
            case Refusal.CLOSED:
                raise _stopping()
            case Refusal.CHANGING:
                raise _changing()
            case Refusal.BUSY:
                raise ApiError(409, "The engine is answering; the split can be changed when it is idle.", code="busy")
            case None:
                return plan_job

    def call_off(self, plan_job: PlanJob) -> bool:
        """Nobody waits for this change any more. False: it has begun, and comes to its end all the same."""
        if not plan_job.done.cancel():
            return False
        self._line.drop(plan_job)
        return True

    def cancel(self, job: Job) -> None:
        """Nobody waits for it any more: it leaves the line, or ends before the next token."""
        job.cancelled.set()
        self._line.drop(job)

    def stop(self, timeout_s: float) -> bool:
        """End loading or the current answer, refuse who waits, free the model. True: the thread has ended."""
        self._stopping.set()
        self._line.close()
        return self.join(timeout_s)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; True: it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _ready(self) -> _Loaded:
        if self._stopping.is_set():
            raise _stopping()
        if self._loaded is None:
            raise ApiError(503, "The model is still loading.", code="loading")
        return self._loaded

    def _report(self, event: Event) -> None:
        if isinstance(event, Loading):
            self.loading = event
        self._report_out(event)

    def _run(self) -> None:
        try:
            self._load_and_serve()
        except Exception as error:
            if self._stopping.is_set():  # being told to stop while loading is no failure
                log.info("loading was given up: %s", type(error).__name__)
            else:
                log.exception("the generation thread ended early")
                self._on_failed(engine_problem(error))

    def _load_and_serve(self) -> None:
        began_s = time.monotonic()
        loaded = self._load_all()
        watchdog = Watchdog(self._report_out, load_s=time.monotonic() - began_s)
        threading.Thread(target=watchdog.watch, name="watchdog", daemon=True).start()
        try:
            residency = loaded.model.residency()
            self._loaded = loaded
            if not self._stopping.is_set():
                self._report(Ready(residency=residency))
            self._serve(loaded, watchdog)
        finally:
            watchdog.close()
            self._loaded = None
            loaded.model.close()

    def _load_all(self) -> _Loaded:
        model = self._load(self._report, self._stopping.is_set)
        from engine.generate.detokenize import Detokenizer

        return _Loaded(model, PromptMaker(model.tokenizer, model.context_tokens), Detokenizer(model.tokenizer))

    def _serve(self, loaded: _Loaded, watchdog: Watchdog) -> None:
        integrity = IntegrityWatch(loaded.model, self._report_out)
        while (job := self._line.take(LOOK_AFTER_S)) is not None:
            if isinstance(job, Idle):
                integrity.look()
            elif isinstance(job, PlanJob):
                loaded = self._change(loaded, job)
            elif self._stopping.is_set():
                job.listener.failed(_stopped())
            elif not self._answer(loaded, watchdog, job):
                integrity.look()

    def _change(self, loaded: _Loaded, plan_job: PlanJob) -> _Loaded:
        """Change the split; what is known of the context changes with it."""
        if self._stopping.is_set():
            if plan_job.done.set_running_or_notify_cancel():
                plan_job.done.set_exception(_stopping())
            return loaded
        model = loaded.model

        def settled() -> None:
            self._loaded = replace(loaded, prompts=PromptMaker(model.tokenizer, model.context_tokens))
            self._line.finished()

        run_plan_job(plan_job, model, self._report, settled)
        return self._loaded or loaded

    def _answer(self, loaded: _Loaded, watchdog: Watchdog, job: Job) -> bool:
        """Answer one request; False: it failed or was cancelled."""
        from engine.generate.loop import Generation

        def cancelled() -> bool:
            return job.cancelled.is_set() or self._stopping.is_set()

        try:
            watchdog.request(job.request.request_id)
            model = watched(loaded.model, watchdog)
            generation = Generation(model, loaded.detokenizer, job.request, accepted_s=job.accepted_s)
            outcome = generation.run(on_text=job.listener.text, report=self._report, cancelled=cancelled)
        except Exception as error:
            log.exception("request %s failed", job.request.request_id)
            problem = answer_problem(error)
            try:
                if not isinstance(error, ContextTooLongError):  # it waited while the context was made shorter
                    recover(loaded.model, error)
            finally:  # a GPU that is lost fails here too, and ends the engine
                self._line.finished()
                job.listener.failed(problem)
            return False
        finally:
            watchdog.abandon()
        self._line.finished()
        if outcome.finish_reason == "cancelled" and self._stopping.is_set():
            job.listener.failed(_stopped())
        else:
            job.listener.done(outcome)
        return outcome.finish_reason != "cancelled"


def _check_vocabulary(prompt_ids: tuple[int, ...], vocab_size: int) -> None:
    """On a GPU a token that the model does not have would end the engine, not the request.

    Raises:
        ApiError: 400, the tokenizer has more tokens than the model.
    """
    if (largest := max(prompt_ids)) >= vocab_size:
        raise ApiError(
            400,
            f"The tokenizer makes token {largest:,} of these messages; the model knows {vocab_size:,}."
            " Its tokenizer files do not belong to it.",
            code="tokenizer",
        )


def _stopped() -> AnswerFailedError:
    return AnswerFailedError("The engine was stopped before the answer was complete.", "Start the engine again.")


def _stopping() -> ApiError:
    return ApiError(503, "The engine is stopping.", code="stopping")


def _changing() -> ApiError:
    return ApiError(409, "Another change of the split waits for its turn or is being made.", code="busy")
