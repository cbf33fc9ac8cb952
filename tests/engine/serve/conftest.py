"""A session with a scripted model behind a real HTTP server, and clients of it."""

import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from typing_extensions import override

from engine.contract.errors import SplitpinError
from engine.contract.events import Event
from engine.generate.request import GenerationRequest
from engine.model.interface import LanguageModel
from engine.serve.http import create_app
from engine.serve.line import Job, Listener
from engine.serve.server import HttpServer, bind
from engine.serve.session import LoadModel, Session
from tests.support.fake_model import FakeModel

PATIENCE_S = 20.0


class RememberingSession(Session):
    """Keeps the jobs, so that a test can see when one was cancelled."""

    def __init__(
        self,
        name: str,
        load: LoadModel,
        report: Callable[[Event], None],
        on_failed: Callable[[SplitpinError], None],
    ) -> None:
        super().__init__(name, load, report, on_failed)
        self.jobs: list[Job] = []

    @override
    def submit(self, request: GenerationRequest, listener: Listener, *, accepted_s: float) -> Job:
        self.jobs.append(super().submit(request, listener, accepted_s=accepted_s))
        return self.jobs[-1]


class Served:
    """A running engine without the process around it."""

    def __init__(self, model: FakeModel, *, loaded: bool = True) -> None:
        self.model = model
        self.events: list[Event] = []
        self.problems: list[SplitpinError] = []
        self._changed = threading.Condition()
        self._may_load = threading.Event()
        self.load_error: Exception | None = None
        self.session = RememberingSession("scripted", self._load, self._heard, self.problems.append)
        self.server = HttpServer(create_app(self.session), bind(0))
        self.server.start()
        self.session.start()
        self.url = f"http://127.0.0.1:{self.server.port}"
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_S)
        if loaded:
            self.finish_loading()

    def _load(self, report: Callable[[Event], None], cancelled: Callable[[], bool]) -> LanguageModel:
        while not self._may_load.wait(0.02):
            if cancelled():
                raise RuntimeError("loading was cancelled")
        if self.load_error is not None:
            raise self.load_error
        return self.model

    def _heard(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def finish_loading(self) -> None:
        self._may_load.set()
        self.wait_for("ready")

    def fail_loading(self, error: Exception) -> None:
        self.load_error = error
        self._may_load.set()

    def wait_for(self, kind: str, count: int = 1) -> Event:
        """Until so many events of a kind were reported; the last of them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.seen(kind)) >= count, PATIENCE_S), (kind, self.events)
            return self.seen(kind)[count - 1]

    def seen(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.event == kind]

    def wait_until_cancelled(self) -> None:
        """Until the server has noticed that the client of the newest request hung up."""
        assert self.session.jobs[-1].cancelled.wait(PATIENCE_S)

    def wait_for_line(self, count: int) -> None:
        """Until so many requests wait in line."""
        deadline = time.monotonic() + PATIENCE_S
        while self.session.waiting != count:
            assert time.monotonic() < deadline, f"{self.session.waiting} in line, not {count}"
            time.sleep(0.005)

    def chat(self, content: str = "hi", **fields: object) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": content}], "temperature": 0, **fields}
        return self.client.post("/v1/chat/completions", json=body)

    def close(self) -> None:
        self.model.prefill_gate.open()
        self.model.decode_gate.open()
        assert self.session.stop(PATIENCE_S)
        self.client.close()
        self.server.stop(PATIENCE_S)


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts engines and stops them after the test."""
    started: list[Served] = []

    def start(model: FakeModel | None = None, *, loaded: bool = True) -> Served:
        started.append(Served(model or FakeModel(), loaded=loaded))
        return started[-1]

    yield start
    for served in started:
        served.close()
