"""One answer, streamed from the engine's HTTP API on this computer."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from PySide6.QtCore import QElapsedTimer, QObject, QTimer, QUrl, Signal
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkProxy, QNetworkReply, QNetworkRequest

from app.chat.chunks import DONE, Chunk, problem_of, read_chunk
from app.chat.conversation import AnswerStats
from app.chat.sse import SseParser
from engine.contract.errors import Problem

logger = logging.getLogger(__name__)

WATCHDOG_MS: Final = 120_000
STOPPED: Final = "stopped_by_user"  # finish_reason of an answer that `stop()` ended
NO_ANSWER: Final = "no_answer"  # kind of the problem that the watchdog makes
_REFUSED, _CLOSED = "connection", "connection_closed"
BROKEN_KINDS: Final = frozenset({_REFUSED, _CLOSED})  # of problems that an engine which is gone explains
_LONGEST_EVENT_BYTES: Final = 8 << 20
_ERROR_STATUS: Final = 400

_Error = QNetworkReply.NetworkError


@dataclass(frozen=True, slots=True)
class ChatResult:
    """How an answer ended. `finish_reason` is the engine's word ("stop", "length", "cancelled") or `STOPPED`.

    `stats` is what the engine reported; `first_text_s` and `text_events` were measured here.
    """

    finish_reason: str
    stats: AnswerStats | None
    first_text_s: float | None
    text_events: int


class ChatStream(QObject):
    """Sends one chat request at a time and hands the answer on as it arrives.

    There is no transfer timeout: a long prompt may take minutes. Instead, a request is given up after `watchdog_ms`
    without a byte from the engine and without a call of `still_alive`.

    Signals:
        delta: a piece of the answer's text (str).
        finished: `ChatResult`; also after `stop()`.
        failed: `Problem`; what arrived before stays valid. Exactly one of finished and failed ends a request.
    """

    delta = Signal(str)
    finished = Signal(object)
    failed = Signal(object)

    def __init__(self, parent: QObject | None = None, *, watchdog_ms: int = WATCHDOG_MS) -> None:
        super().__init__(parent)
        self._network = QNetworkAccessManager(self)
        self._network.setProxy(QNetworkProxy(QNetworkProxy.ProxyType.NoProxy))  # the engine is on this computer
        self._watchdog = QTimer(self)
        self._watchdog.setSingleShot(True)
        self._watchdog.setInterval(watchdog_ms)
        self._watchdog.timeout.connect(self._give_up)
        self._clock = QElapsedTimer()
        self._reply: QNetworkReply | None = None
        self._begin()

    @property
    def busy(self) -> bool:
        """An answer is awaited or arriving."""
        return self._reply is not None

    @property
    def text_events(self) -> int:
        """Pieces of text so far: the engine sends one for each token that made text."""
        return self._text_events

    @property
    def text_events_per_s(self) -> float | None:
        """Rate after the first piece; None before it can be told."""
        if self._first_text_s is None or self._text_events < 2:
            return None
        took_s = self._clock.elapsed() / 1000 - self._first_text_s
        return (self._text_events - 1) / took_s if took_s > 0 else None

    def send(self, api_base: str, messages: Sequence[Mapping[str, str]], *, model: str | None = None) -> None:
        """Ask for an answer.

        Args:
            api_base: "http://127.0.0.1:1919/v1".
            messages: role and content, oldest first.
            model: name to put into the request; the engine holds one model and does not need it.

        Raises:
            RuntimeError: a request is under way.
        """
        if self._reply is not None:
            raise RuntimeError("one request at a time")
        self._begin()
        body: dict[str, object] = {
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if model is not None:
            body["model"] = model
        request = QNetworkRequest(QUrl(f"{api_base}/chat/completions"))
        request.setHeader(QNetworkRequest.KnownHeaders.ContentTypeHeader, "application/json")
        request.setRawHeader(b"Accept", b"text/event-stream")
        request.setAttribute(
            QNetworkRequest.Attribute.RedirectPolicyAttribute, QNetworkRequest.RedirectPolicy.ManualRedirectPolicy
        )
        self._network.clearConnectionCache()  # never a connection that the engine is about to close
        reply = self._network.post(request, json.dumps(body, ensure_ascii=False).encode())
        self._reply = reply
        reply.readyRead.connect(self._read)
        reply.finished.connect(self._ended)
        self._clock.start()
        self._watchdog.start()

    def stop(self) -> None:
        """Hang up; the engine stops at the next token. `finished` is emitted before this returns."""
        if self._reply is not None:
            self._finish(STOPPED)

    def still_alive(self) -> None:
        """The engine showed by other means that it works, such as progress of the prompt."""
        if self._reply is not None:
            self._watchdog.start()

    def _begin(self) -> None:
        self._parser = SseParser()
        self._error_body = bytearray()
        self._finish_reason: str | None = None
        self._stats: AnswerStats | None = None
        self._first_text_s: float | None = None
        self._text_events = 0

    def _read(self) -> None:
        reply = self._reply
        if reply is None:
            return
        self._watchdog.start()
        data = bytes(reply.readAll().data())
        if _status(reply) >= _ERROR_STATUS:
            self._error_body += data
            return
        for payload in self._parser.feed(data):
            if payload == DONE:
                self._finish(self._finish_reason or "stop")
            else:
                self._take(payload)
            if self._reply is not reply:  # ended by this event, or by whoever heard of it
                return
        if self._parser.waiting_bytes > _LONGEST_EVENT_BYTES:
            self._fail(_not_a_stream(f"{self._parser.waiting_bytes} bytes without the end of an event"))

    def _take(self, payload: str) -> None:
        try:
            chunk = read_chunk(payload)
        except ValueError:
            self._fail(_not_a_stream(f"an event that is no JSON object: {payload[:80]!r}"))
            return
        if chunk.problem is not None:
            self._fail(chunk.problem)
            return
        self._note(chunk)
        if chunk.text:
            self._text_events += 1
            if self._first_text_s is None:
                self._first_text_s = self._clock.elapsed() / 1000
            self.delta.emit(chunk.text)

    def _note(self, chunk: Chunk) -> None:
        self._finish_reason = chunk.finish_reason or self._finish_reason
        if chunk.stats is not None:
            before = {} if self._stats is None else self._stats.model_dump(exclude_none=True)
            self._stats = AnswerStats(**{**before, **chunk.stats.model_dump(exclude_none=True)})

    def _ended(self) -> None:
        """The connection is closed, by the engine or by a failure of the network."""
        reply = self._reply
        if reply is None:
            return
        self._read()
        if self._reply is not reply:
            return
        status, error = _status(reply), reply.error()
        if status >= _ERROR_STATUS:
            self._fail(problem_of(_json(bytes(self._error_body)), status))
        elif self._finish_reason is not None:  # all was said but [DONE]
            self._finish(self._finish_reason)
        elif error is _Error.ConnectionRefusedError or (status == 0 and error is not _Error.NoError):
            self._fail(
                Problem(
                    kind=_REFUSED,
                    sentence=f"The engine could not be reached: {reply.errorString()}.",
                    fix="Start the engine, then send the message again.",
                )
            )
        elif status and not _is_stream(reply) and not self._text_events:
            self._fail(_not_a_stream("something that is not a stream of events"))
        else:
            self._fail(
                Problem(
                    kind=_CLOSED,
                    sentence=f"The engine closed the connection after {self._text_events} tokens of the answer.",
                    fix="What arrived is kept. If it happens again, look into the log of the engine.",
                    numbers={"tokens": self._text_events},
                )
            )

    def _give_up(self) -> None:
        seconds = self._watchdog.interval() / 1000
        self._fail(
            Problem(
                kind=NO_ANSWER,
                sentence=f"The engine has not answered for {seconds:g} seconds.",
                fix="Send the message again; if the engine stays silent, stop it and start it again.",
                numbers={"seconds": seconds},
            )
        )

    def _finish(self, reason: str) -> None:
        self._hang_up()
        self.finished.emit(ChatResult(reason, self._stats, self._first_text_s, self._text_events))

    def _fail(self, problem: Problem) -> None:
        self._hang_up()
        logger.warning("no whole answer: %s: %s", problem.kind, problem.sentence)
        self.failed.emit(problem)

    def _hang_up(self) -> None:
        reply, self._reply = self._reply, None  # first, so that signals of abort() find nobody
        self._watchdog.stop()
        if reply is not None:
            reply.abort()
            reply.deleteLater()


def _status(reply: QNetworkReply) -> int:
    """HTTP status; 0 before the header arrived."""
    status = reply.attribute(QNetworkRequest.Attribute.HttpStatusCodeAttribute)
    return status if isinstance(status, int) else 0


def _is_stream(reply: QNetworkReply) -> bool:
    content_type = reply.header(QNetworkRequest.KnownHeaders.ContentTypeHeader)
    return isinstance(content_type, str) and content_type.startswith("text/event-stream")


def _json(body: bytes) -> object:
    try:
        parsed: object = json.loads(body)
    except ValueError:
        return None
    return parsed


def _not_a_stream(what: str) -> Problem:
    return Problem(
        kind="wire",
        sentence=f"The engine sent {what}.",
        fix="Reinstall Splitpin so that launcher and engine are of the same version.",
    )
