"""Times of one request. TTFT runs from accepting the request, so waiting in the queue counts."""

from collections.abc import Callable

from engine.generate.request import Timings


class Meter:
    """Told when things happen; answers with rates. `clock` counts seconds from any origin, as `time.monotonic`."""

    def __init__(self, accepted_s: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._accepted_s = accepted_s
        self._prefill_began_s: float | None = None
        self._prefill_took_s: float | None = None
        self._computed_tokens = 0
        self._first_s: float | None = None
        self._last_s: float | None = None
        self.answer_tokens = 0

    def prefill_begins(self) -> None:
        """What is not in the KV cache of the prompt is computed from now on."""
        self._prefill_began_s = self._clock()

    def prefill_ends(self, computed_tokens: int) -> None:
        """So many of its tokens were computed."""
        if self._prefill_began_s is None:
            raise RuntimeError("prefill ended before it began")
        self._prefill_took_s = self._clock() - self._prefill_began_s
        self._computed_tokens = computed_tokens

    def token(self) -> None:
        """One answer token was picked."""
        self._last_s = self._clock()
        if self._first_s is None:
            self._first_s = self._last_s
        self.answer_tokens += 1

    @property
    def timings(self) -> Timings:
        """Rates so far; None where too few tokens were computed, or the clock did not move."""
        return Timings(
            ttft_s=None if self._first_s is None else self._first_s - self._accepted_s,
            prefill_tok_s=_rate(self._computed_tokens, self._prefill_took_s),
            decode_tok_s=_rate(self.answer_tokens - 1, self._between()),
        )

    def _between(self) -> float | None:
        return None if self._first_s is None or self._last_s is None else self._last_s - self._first_s


def _rate(tokens: int, took_s: float | None) -> float | None:
    return tokens / took_s if took_s and tokens > 0 else None
