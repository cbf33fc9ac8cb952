"""One request from prompt to last token: prefill of what is not cached, then decode until something ends it."""

import time
from collections.abc import Callable

from engine.contract.errors import ContextTooLongError
from engine.contract.events import Event, PrefillProgress, RequestDone, RequestStarted
from engine.contract.residency import used_since
from engine.generate.detokenize import Detokenizer
from engine.generate.meter import Meter
from engine.generate.request import FinishReason, GenerationRequest, Outcome
from engine.generate.sampling import Sampler
from engine.generate.stops import StopStrings
from engine.model.interface import GenerationCancelledError, LanguageModel


def answer_room(prompt_tokens: int, context_tokens: int, max_tokens: int | None) -> int:
    """Most tokens an answer may have: the request's limit, or what the prompt leaves of the context if that is less.

    Raises:
        ContextTooLongError: the prompt leaves no room for a single token.
    """
    room = context_tokens - prompt_tokens
    if room < 1:
        raise ContextTooLongError(prompt_tokens=prompt_tokens, context_tokens=context_tokens)
    return room if max_tokens is None else min(room, max_tokens)


class Generation:
    """Answers one request with a model that nobody else uses meanwhile."""

    def __init__(
        self,
        model: LanguageModel,
        detokenizer: Detokenizer,
        request: GenerationRequest,
        *,
        accepted_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._request = request
        self._text = detokenizer.stream()
        self._stops = StopStrings(request.stop)
        self._sampler = Sampler(request.sampling, request.prompt_ids)
        self._meter = Meter(accepted_s, clock)
        self._reused = 0
        self._slots_before = model.slot_use()

    def run(
        self,
        *,
        on_text: Callable[[str], None],
        report: Callable[[Event], None],
        cancelled: Callable[[], bool],
    ) -> Outcome:
        """Compute the answer. `on_text` gets it in pieces; `cancelled` is asked before every token.

        Raises:
            ContextTooLongError: the prompt leaves no room; nothing was computed.
        """
        request_id, prompt = self._request.request_id, self._request.prompt_ids
        room = answer_room(len(prompt), self._model.context_tokens, self._request.max_tokens)
        finish: FinishReason | None = None
        try:
            self._reused = self._model.begin(prompt)
            report(RequestStarted(request_id=request_id, prompt_tokens=len(prompt), reused_tokens=self._reused))
            try:
                finish = self._compute(room, on_text, report, cancelled)
            finally:
                self._model.end()
        finally:
            report(self._done(finish))
        return Outcome(finish, len(prompt), self._meter.answer_tokens, self._meter.timings, self._reused)

    def _compute(
        self,
        room: int,
        on_text: Callable[[str], None],
        report: Callable[[Event], None],
        cancelled: Callable[[], bool],
    ) -> FinishReason:
        request_id, prompt, reused = self._request.request_id, self._request.prompt_ids, self._reused

        def progress(done_tokens: int) -> None:
            report(
                PrefillProgress(
                    request_id=request_id,
                    done_tokens=reused + done_tokens,
                    total_tokens=len(prompt),
                    reused_tokens=reused,
                )
            )

        def give(text: str) -> None:
            if text:
                on_text(text)

        self._meter.prefill_begins()
        try:
            logits = self._model.prefill(prompt[reused:], on_progress=progress, cancelled=cancelled)
        except GenerationCancelledError:
            return "cancelled"
        self._meter.prefill_ends(len(prompt) - reused)
        finish: FinishReason = "length"
        while not cancelled():
            token_id = self._sampler.pick(logits)
            if token_id in self._model.stop_token_ids:
                finish = "stop"
                break
            self._meter.token()
            give(self._stops.feed(self._text.feed(token_id)))
            if self._stops.found:
                finish = "stop"
                break
            if self._meter.answer_tokens == room:
                break
            logits = self._model.decode(token_id)
        else:
            return "cancelled"
        give(self._stops.feed(self._text.flush()))
        if self._stops.found:
            finish = "stop"
        give(self._stops.flush())
        return finish

    def _done(self, finish: FinishReason | None) -> RequestDone:
        timings = self._meter.timings
        return RequestDone(
            request_id=self._request.request_id,
            finish_reason=finish or "error",
            prompt_tokens=len(self._request.prompt_ids),
            reused_tokens=self._reused,
            answer_tokens=self._meter.answer_tokens,
            ttft_s=timings.ttft_s,
            prefill_tok_s=timings.prefill_tok_s,
            decode_tok_s=timings.decode_tok_s,
            slots=used_since(self._slots_before, self._model.slot_use()),
        )
