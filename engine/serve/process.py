"""The engine as a process: hello, listen, load, serve, stop. Every failure leaves as a `Failed` event, exit code 2."""

import importlib.metadata
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine.contract.errors import SplitpinError, UsageError, WireError
from engine.contract.events import WIRE_VERSION, Event, Failed, Hello, Listening, Loading, Stopped
from engine.contract.load_peak import weight_bytes
from engine.contract.plan import MemoryPlan
from engine.contract.record import first_fault
from engine.contract.wire import decode_command
from engine.serve.arguments import PROGRAM, Arguments, ArgumentsError
from engine.serve.event_writer import EventWriter
from engine.serve.problems import engine_problem
from engine.threads import prepare_threads

if TYPE_CHECKING:
    from engine.model.interface import LanguageModel

log = logging.getLogger(__name__)

EXIT_STOPPED = 0
EXIT_FAILED = 2
MOST_COMMAND_BYTES = 1 << 16
POLL_S = 0.2  # Windows delivers Ctrl-C only between waits
STOP_PATIENCE_S = 3.0  # a step in progress may take longer; the end of the process frees what it holds
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
SIGNALS = ("SIGINT", "SIGTERM", "SIGBREAK")


class EngineProcess:
    """Waits in the main thread for the first reason to end, and ends in order."""

    def __init__(self, events_descriptor: int) -> None:
        self._end = threading.Event()
        self._failure: SplitpinError | None = None
        self._events = EventWriter(events_descriptor, on_broken=self.request_stop)

    def request_stop(self) -> None:
        """End cleanly; from any thread, any number of times."""
        self._end.set()

    def run(self, arguments: Arguments | ArgumentsError) -> int:
        """Be the engine until stopped, in the main thread. Returns the exit code, after the last event was written, or
        could not be."""
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LOG_FORMAT)
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        run_id = arguments.run_id if isinstance(arguments, Arguments) else ""
        self._events.write(Hello(wire=WIRE_VERSION, engine_version=_version(), pid=os.getpid(), run_id=run_id))
        failure: SplitpinError | None
        try:
            if isinstance(arguments, ArgumentsError):
                raise UsageError(f"The command cannot be understood: {arguments}.", f"See {PROGRAM} serve --help.")
            self._serve(arguments)
            failure = self._failure
        except SplitpinError as error:
            failure = error
        except Exception as error:
            log.exception("the engine failed")
            failure = engine_problem(error)
        if failure is not None:
            self._events.write(Failed(problem=failure.problem))
        else:
            self._events.write(Stopped())
        self._events.flush(STOP_PATIENCE_S)
        return EXIT_STOPPED if failure is None else EXIT_FAILED

    def _serve(self, arguments: Arguments) -> None:
        for name in SIGNALS:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), lambda *_: self.request_stop())
        has_parent = arguments.parent_pid is not None
        threading.Thread(target=self._obey, args=(has_parent,), name="commands", daemon=True).start()
        _prepare_threads()
        plan = read_plan(arguments.plan)

        from engine.serve.http import create_app  # slow to import: only after hello
        from engine.serve.server import HOST, HttpServer, bind
        from engine.serve.session import Session

        session = Session(plan.model.name, _loader(plan), self._events.write, self._fail)
        server = HttpServer(create_app(session), bind(arguments.port))
        server.start()
        self._events.write(Listening(host=HOST, port=server.port))
        session.start()
        while not self._end.wait(POLL_S):
            pass
        if not session.stop(STOP_PATIENCE_S):
            log.warning("a step is still being computed; ending without it")
        server.stop(STOP_PATIENCE_S)

    def _fail(self, problem: SplitpinError) -> None:
        self._failure = problem
        self._end.set()

    def _obey(self, has_parent: bool) -> None:
        """Read commands; the end of the pipe means that the launcher is gone, if there ever was one."""
        while sys.stdin is not None and (line := sys.stdin.buffer.readline(MOST_COMMAND_BYTES)):
            if len(line) == MOST_COMMAND_BYTES:
                log.warning(
                    "what comes in is no command but more than %d B in one line; it is not read any further", len(line)
                )
                break
            try:
                decode_command(line)
            except WireError as error:
                log.warning("%s", error.sentence)
                continue
            self.request_stop()
        if has_parent:
            self.request_stop()


def _prepare_threads() -> None:
    try:
        prepare_threads()
    except ValueError as cause:
        raise UsageError(f"{cause}.", "Set it to the number of cores to use, or remove it.") from cause


def read_plan(file: Path) -> MemoryPlan:
    """Read a plan.

    Raises:
        UsageError: there is no such file, or it is not a plan.
    """
    fix = "Give a file that `python -m app plan --out FILE` wrote."
    try:
        return MemoryPlan.model_validate_json(file.read_bytes())
    except OSError as cause:
        raise UsageError(f"{file} cannot be read: {cause.strerror}.", fix) from cause
    except ValidationError as cause:
        raise UsageError(f"{file} is not a plan: {first_fault(cause).told}.", fix) from cause


def _loader(plan: MemoryPlan) -> Callable[[Callable[[Event], None], Callable[[], bool]], "LanguageModel"]:
    """Load the plan's model; torch is imported when this is called, in the thread that will use it."""

    def load(report: Callable[[Event], None], cancelled: Callable[[], bool]) -> "LanguageModel":
        layers, total = len(plan.model.moe_layers), weight_bytes(plan.model)
        report(
            Loading(stage="starting", layers_done=0, layers_total=layers, bytes_done=0, bytes_total=total, elapsed_s=0)
        )
        from engine.model.build import load_model

        return load_model(plan, report=report, cancelled=cancelled)

    return load


def _version() -> str:
    try:
        return importlib.metadata.version("splitpin")
    except importlib.metadata.PackageNotFoundError:
        return "source"  # run from the folder, not installed
