"""Another split for the engine that runs: asked for over HTTP; where that is refused, the engine is started again."""

import json
import logging
from typing import Final

from PySide6.QtCore import QObject, QTimer, QUrl, Signal
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkProxy, QNetworkReply, QNetworkRequest

from app.chat.chunks import problem_of
from app.core.session import EngineStage, SessionState
from app.link.engine_process import EngineProcess
from app.link.store import SessionStore
from engine.contract.errors import Problem
from engine.contract.plan import MemoryPlan
from engine.contract.plan_change import KEPT, RESTART

log = logging.getLogger(__name__)

_ERROR_STATUS: Final = 400
BUSY: Final = "busy"  # kind of the problem that an engine which answers somebody has


class PlanApply(QObject):
    """Changes the split without a restart, one change at a time. Lives on the UI thread and never blocks it.

    There is no time limit: moving a hundred GiB takes a minute, and the engine goes on whatever happens here. The new
    split reaches the store by the engine's own event.

    Signals:
        applied: the engine runs the plan (MemoryPlan).
        refused: it does not, and runs on with the old one (Problem). `BUSY` goes by itself; for other kinds `restart`
            is what is left.
        restarting: the engine ends and will be started with the plan (MemoryPlan).
    """

    applied = Signal(object)
    refused = Signal(object)
    restarting = Signal(object)

    def __init__(self, store: SessionStore, engine: EngineProcess, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._engine = engine
        self._network = QNetworkAccessManager(self)
        self._network.setProxy(QNetworkProxy(QNetworkProxy.ProxyType.NoProxy))  # the engine is on this computer
        self._reply: QNetworkReply | None = None
        self._plan: MemoryPlan | None = None
        self._next: tuple[MemoryPlan, int] | None = None  # to start, and the port to listen on
        engine.ended.connect(self._start_next)
        store.changed.connect(self._follow)

    @property
    def busy(self) -> bool:
        """A change is under way."""
        return self._reply is not None or self._next is not None

    def can_apply(self, plan: MemoryPlan) -> bool:
        """Whether the running engine may take this plan without a restart: same model and device, nothing under way."""
        state, running = self._store.state, self._store.state.plan
        if state.stage is not EngineStage.READY or running is None or state.request is not None or self.busy:
            return False
        return plan != running and all(getattr(plan, name) == getattr(running, name) for name in KEPT)

    def apply(self, plan: MemoryPlan) -> None:
        """Ask the engine; does nothing where `can_apply` says no."""
        base = self._store.state.api_base
        if base is None or not self.can_apply(plan):
            return
        request = QNetworkRequest(QUrl(f"{base}/plan"))
        request.setHeader(QNetworkRequest.KnownHeaders.ContentTypeHeader, "application/json")
        request.setAttribute(
            QNetworkRequest.Attribute.RedirectPolicyAttribute, QNetworkRequest.RedirectPolicy.ManualRedirectPolicy
        )
        self._network.clearConnectionCache()  # never a connection that the engine is about to close
        self._plan = plan
        self._reply = self._network.post(request, plan.model_dump_json().encode())
        self._reply.finished.connect(self._answered)

    def restart(self, plan: MemoryPlan, *, port: int = 0) -> None:
        """End the engine and start it with the plan once its memory is back."""
        if not self._store.state.running:
            self._engine.start(plan, port=port)
            return
        self._next = (plan, port)
        self.restarting.emit(plan)
        self._engine.stop()

    def _answered(self) -> None:
        reply, self._reply = self._reply, None
        plan, self._plan = self._plan, None
        if reply is None or plan is None:
            return
        status = reply.attribute(QNetworkRequest.Attribute.HttpStatusCodeAttribute)
        body = bytes(reply.readAll().data())
        reply.deleteLater()
        if status == 200:
            self.applied.emit(plan)
            return
        problem = _problem(status if isinstance(status, int) else 0, body, reply.errorString())
        log.warning("the split was not changed: %s: %s", problem.kind, problem.sentence)
        self.refused.emit(problem)

    def _follow(self, state: SessionState) -> None:
        """An engine that ends takes the question with it."""
        if not state.running and self._reply is not None:
            reply, self._reply, self._plan = self._reply, None, None
            reply.abort()
            reply.deleteLater()

    def _start_next(self, problem: Problem | None) -> None:
        if self._next is None:
            return
        plan, port = self._next
        self._next = None
        if problem is None:  # the end of an engine is told before its memory is said to be back
            QTimer.singleShot(0, self, lambda: self._engine.start(plan, port=port))


def _problem(status: int, body: bytes, words: str) -> Problem:
    if status >= _ERROR_STATUS:
        try:
            parsed: object = json.loads(body)
        except ValueError:
            parsed = None
        return problem_of(parsed, status)
    return Problem(
        kind="connection",
        sentence=f"The engine could not be asked for another split: {words}.",
        fix=RESTART,
    )
