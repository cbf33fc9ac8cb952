"""Is the engine computing, or stuck? A heartbeat after steps, and a watchdog that tells when none has ended for long.

A step is one chunk of a prompt or one token of an answer. How long it may take depends on the machine, so the limit is
made of what was measured on it, and is never less than `LEAST_S`:

- a token: `MANY` times the slowest token so far; before there is one, `MANY` times the slowest chunk, since a token
  computes less than a chunk does;
- a chunk: `MANY` times what its tokens take at the slowest rate so far, or the slowest chunk where that is more;
- the first chunk: `MANY_LOADS` times as long as loading took. It reads every weight once from where it lies now;
  loading did that from the disk.

`LEAST_S` is what the launcher waits for the first piece of an answer. Time in which the watchdog itself did not run,
since the computer slept or was out of breath, is not counted. The watchdog only tells; it never ends anything.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from engine.contract.events import Event, Heartbeat, Phase, StepStalled

if TYPE_CHECKING:
    from torch import Tensor

    from engine.model.interface import LanguageModel

log = logging.getLogger(__name__)

LEAST_S = 120.0
MANY = 20.0
MANY_LOADS = 5.0
BEAT_S = 1.0  # heartbeats are not closer together than this
POLL_S = 1.0
_TOLD_AGAIN = 2.0  # told once more whenever the time has doubled


@dataclass(slots=True)
class _Step:
    phase: Phase
    tokens: int
    began_s: float


class Limits:
    """What was measured, and the limits that follow from it. Seconds of `time.monotonic`."""

    def __init__(self, load_s: float) -> None:
        self._load_s = load_s
        self._slowest_token_s = 0.0
        self._slowest_chunk_s = 0.0
        self._slowest_per_prompt_token_s = 0.0

    def measured(self, phase: Phase, tokens: int, took_s: float) -> None:
        """A step has ended."""
        if phase == "decode":
            self._slowest_token_s = max(self._slowest_token_s, took_s)
        else:
            self._slowest_chunk_s = max(self._slowest_chunk_s, took_s)
            self._slowest_per_prompt_token_s = max(self._slowest_per_prompt_token_s, took_s / max(tokens, 1))

    def limit_s(self, phase: Phase, tokens: int) -> float:
        """How long a step may take before it is told."""
        if phase == "decode":
            return max(LEAST_S, MANY * (self._slowest_token_s or self._slowest_chunk_s))
        if not self._slowest_chunk_s:
            return max(LEAST_S, MANY_LOADS * self._load_s)
        return max(LEAST_S, MANY * self._slowest_per_prompt_token_s * tokens, MANY * self._slowest_chunk_s)


class Watchdog:
    """Told of every step by the thread that computes; watched by a thread of its own."""

    def __init__(
        self,
        report: Callable[[Event], None],
        *,
        load_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = Limits(load_s)
        self._report = report
        self._clock = clock
        self._request_id = ""
        self._step: _Step | None = None
        self._steps = 0
        self._beat_at_s: float | None = None
        self._told_s: float | None = None  # of the current step: how long it had run when that was told last
        self._lock = threading.Lock()
        self._asleep_s = 0.0  # of the current step
        self._looked_at_s: float | None = None
        self._over = threading.Event()

    # -- from the thread that computes ----------------------------------------------------------------------------

    def request(self, request_id: str) -> None:
        """The next steps belong to this request."""
        self._request_id, self._steps = request_id, 0

    def begin(self, phase: Phase, tokens: int) -> None:
        """A step begins."""
        with self._lock:
            self._step = _Step(phase, tokens, self._clock())
            self._told_s, self._asleep_s = None, 0.0

    def end(self, tokens: int | None = None) -> None:
        """It has ended; `tokens` if it computed other than it was to."""
        with self._lock:
            step, self._step = self._step, None
            was_told = self._told_s is not None
        if step is None:
            return
        now = self._clock()
        took_s = now - step.began_s
        self.limits.measured(step.phase, step.tokens if tokens is None else tokens, took_s)
        self._steps += 1
        if was_told or self._beat_at_s is None or now - self._beat_at_s >= BEAT_S:
            self._beat_at_s = now
            self._report(Heartbeat(request_id=self._request_id, phase=step.phase, steps=self._steps, step_s=took_s))

    def abandon(self) -> None:
        """The request is over, in whatever step."""
        with self._lock:
            self._step = None

    # -- from its own thread --------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Look once a second until `close`; the body of the watchdog's thread."""
        while not self._over.wait(POLL_S):
            self.look()

    def look(self) -> None:
        """Tell, if the current step takes too long."""
        now = self._clock()
        with self._lock:
            before, self._looked_at_s = self._looked_at_s, now
            step = self._step
            if step is None:
                return
            if before is not None:
                self._asleep_s += max(0.0, now - max(before, step.began_s) - 2 * POLL_S)
            running_s = now - step.began_s - self._asleep_s
            limit_s = self.limits.limit_s(step.phase, step.tokens)
            if running_s < (limit_s if self._told_s is None else self._told_s * _TOLD_AGAIN):
                return
            self._told_s = running_s
            log.warning("a step (%s) has run for %.0f s; %.0f s were allowed", step.phase, running_s, limit_s)
            stalled = StepStalled(request_id=self._request_id, phase=step.phase, running_s=running_s, limit_s=limit_s)
            self._report(stalled)  # under the lock: the heartbeat that takes it back comes after it

    def close(self) -> None:
        """End `watch`."""
        self._over.set()


class WatchedModel:
    """A model that tells a watchdog of its steps; everything else is the model's own."""

    def __init__(self, model: "LanguageModel", watchdog: Watchdog, chunk_tokens: int) -> None:
        self._model = model
        self._watchdog = watchdog
        self._chunk_tokens = chunk_tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def prefill(
        self, token_ids: Sequence[int], *, on_progress: Callable[[int], None], cancelled: Callable[[], bool]
    ) -> "Tensor":
        """As the model's own."""
        watchdog, before = self._watchdog, 0

        def progress(done: int) -> None:
            nonlocal before
            watchdog.end(done - before)
            before = done
            on_progress(done)
            if done < len(token_ids):
                watchdog.begin("prefill", min(self._chunk_tokens, len(token_ids) - done))

        watchdog.begin("prefill", min(self._chunk_tokens, len(token_ids)))
        logits = self._model.prefill(token_ids, on_progress=progress, cancelled=cancelled)
        watchdog.abandon()
        return logits

    def decode(self, token_id: int) -> "Tensor":
        """As the model's own."""
        self._watchdog.begin("decode", 1)
        logits = self._model.decode(token_id)
        self._watchdog.end()
        return logits


def watched(model: "LanguageModel", watchdog: Watchdog) -> "LanguageModel":
    """The model, watched."""
    return cast("LanguageModel", WatchedModel(model, watchdog, model.plan.prefill_chunk))
