"""Another split for the engine that runs, asked for over HTTP."""

import json
import logging
from typing import Final

from PySide6.QtCore import QObject, QUrl, Signal
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkProxy, QNetworkReply, QNetworkRequest

from app.chat.chunks import problem_of
from app.core.session import ChangeGivenUp, ChangeRequested, EngineStage, SessionState, SplitChange
from app.link.store import SessionStore
from engine.contract.errors import Problem
from engine.contract.events import PlanChanged
from engine.contract.plan import MemoryPlan

log = logging.getLogger(__name__)

_ERROR_STATUS: Final = 400
BUSY: Final = "busy"  # kind of the problem where another change waits or is being made
_TRY_AGAIN: Final = "Try again when it is done."
_WAIT_S: Final = 86_400  # the most an engine takes; the user can call a change off that waits


class PlanApply(QObject):
    """Changes the split without a restart, one change at a time. Lives on the UI thread and never blocks it.

    The engine gives the answers first that were asked for before. There is no time limit: moving a hundred GiB takes a
    minute, and the engine goes on whatever happens here. The store knows of the change from `apply` until it is over.

    Signals:
        applied: the engine runs another split now (`PlanChanged`).
        refused: it does not, and runs on with the old one (`Problem`).
    """

    applied = Signal(object)
    refused = Signal(object)

    def __init__(self, store: SessionStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._network = QNetworkAccessManager(self)
        self._network.setProxy(QNetworkProxy(QNetworkProxy.ProxyType.NoProxy))  # the engine is on this computer
        self._reply: QNetworkReply | None = None
        store.changed.connect(self._follow)

    @property
    def busy(self) -> bool:
        """A change is under way."""
        return self._reply is not None

    def apply(self, plan: MemoryPlan) -> None:
        """Ask the engine; does nothing while a change is under way or no engine is ready."""
        if self.busy:
            return
        self._store.apply(ChangeRequested(SplitChange(plan)))
        state = self._store.state
        if state.change is None or state.api_base is None:
            return
        request = QNetworkRequest(QUrl(f"{state.api_base}/plan?wait_s={_WAIT_S}"))
        request.setHeader(QNetworkRequest.KnownHeaders.ContentTypeHeader, "application/json")
        request.setAttribute(
            QNetworkRequest.Attribute.RedirectPolicyAttribute, QNetworkRequest.RedirectPolicy.ManualRedirectPolicy
        )
        self._network.clearConnectionCache()  # never a connection that the engine is about to close
        self._reply = self._network.post(request, plan.model_dump_json().encode())
        self._reply.finished.connect(self._answered)

    def call_off(self) -> None:
        """Hang up: a change that waits for its turn leaves the line. What has begun comes to its end all the same, and
        the engine tells it."""
        if self._hang_up():
            self._store.apply(ChangeGivenUp())

    def _answered(self) -> None:
        reply, self._reply = self._reply, None
        if reply is None:
            return
        status = reply.attribute(QNetworkRequest.Attribute.HttpStatusCodeAttribute)
        body, words = bytes(reply.readAll().data()), reply.errorString()
        reply.deleteLater()
        found = _read(status if isinstance(status, int) else 0, body, words)
        if isinstance(found, PlanChanged):
            self._store.apply(found)  # the engine's own event says the same; whichever is first
            self.applied.emit(found)
            return
        log.warning("the split was not changed: %s: %s", found.kind, found.sentence)
        self._store.apply(ChangeGivenUp())
        if self._store.state.stage is EngineStage.READY:  # else its end explains more
            self.refused.emit(found)

    def _follow(self, state: SessionState) -> None:
        """An engine that ends takes the question with it."""
        if state.change is None and not state.running:
            self._hang_up()

    def _hang_up(self) -> bool:
        reply, self._reply = self._reply, None  # first, so that signals of abort() find nobody
        if reply is None:
            return False
        reply.abort()
        reply.deleteLater()
        return True


def _read(status: int, body: bytes, words: str) -> PlanChanged | Problem:
    if status >= _ERROR_STATUS:
        try:
            parsed: object = json.loads(body)
        except ValueError:
            parsed = None
        problem = problem_of(parsed, status)
        return problem.model_copy(update={"fix": _TRY_AGAIN}) if problem.kind == BUSY else problem
    if status:
        try:
            return PlanChanged.model_validate_json(body)
        except ValueError:
            words = "its answer cannot be understood"
    return Problem(
        kind="connection",
        sentence=f"The engine could not be asked for another split: {words}.",
        fix="Start the engine again with this split.",
    )
