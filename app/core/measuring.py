"""Measurements of this PC, each in a throw-away child: what a driver spoils there is gone with the process."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from app.paths import program_dir
from app.planning.quota import PROBE_MARGIN_SHARE
from engine.contract.errors import Problem, ReportedError, SplitpinError
from engine.contract.facts import HardwareFacts
from engine.contract.formats import WeightFormat
from engine.contract.probe import ProbeLine
from engine.contract.rates import MeasuredRates
from engine.system.protocols import ChildLauncher, ChildProcess
from engine.system.select import child_launcher

log = logging.getLogger(__name__)

PROBE_S = 60.0
_PATIENCE_S = 30.0  # beyond that, for a driver that takes its time to pin or to give back
RATES_S = 120.0
FORMAT_RATES_S = 30.0  # more for each kind of weights: slow PCs unpack some of them for seconds
_END_S = 10.0


@dataclass(frozen=True, slots=True)
class Measuring:
    """What is being measured. `goal_bytes`: where the probe for pinned memory will stop; None: nobody knows."""

    what: Literal["preparing", "pins", "speed"] = "preparing"
    pinned_bytes: int = 0
    goal_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found; None: it was not asked for."""

    pins: ProbeLine | None = None
    rates: MeasuredRates | None = None


class MeasuringError(SplitpinError):
    """The child ended without a result."""

    kind = "measuring"


class MeasuringCancelledError(SplitpinError):
    """Somebody ended the measurement."""

    kind = "cancelled"

    def __init__(self) -> None:
        super().__init__("The measurement was cancelled; nothing was learned from it.", "Measure again.")


class Cancel:
    """Ends a measurement from another thread, now or before it begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        self._wanted = False

    @property
    def wanted(self) -> bool:
        """Somebody has called `cancel`."""
        return self._wanted

    def cancel(self) -> None:
        """End the child that measures; the measurement then raises `MeasuringCancelledError`."""
        with self._lock:
            self._wanted = True
            if self._child is not None:
                self._child.kill_tree()

    def follow(self, child: ChildProcess | None) -> None:
        """The child to end; None: it is about to be closed."""
        with self._lock:
            self._child = child
            if child is not None and self._wanted:
                child.kill_tree()


def probe_pins(
    *,
    need_bytes: int | None,
    vram_bytes: int,
    gpu_uuid: str | None,
    on_line: Callable[[ProbeLine], None] = lambda line: None,
    argv: Sequence[str] | None = None,
    launcher: ChildLauncher | None = None,
    time_s: float = PROBE_S,
    cancel: Cancel | None = None,
) -> ProbeLine:
    """Measure how much can be pinned. Blocks for up to a minute and a half; not for the UI thread.

    Args:
        need_bytes: stop there. None: the other limits stop it.
        vram_bytes: GPU memory that is held meanwhile, as the engine would.
        on_line: sees every step.
        argv: what to run instead of Splitpin's own probe.
        cancel: ends it early.

    Returns:
        The last line. Without `stopped` the child was ended, or ended itself: a lower bound.

    Raises:
        ReportedError: the child says that it cannot begin, for example without CUDA.
        MeasuringError: the child said nothing at all.
        MeasuringCancelledError: `cancel` was called.
        LaunchRefusedError: it could not be started.
    """
    cancel = cancel or Cancel()
    program = [sys.executable, "-m", "engine.system.pin_probe"] if argv is None else list(argv)
    program += ["--vram", str(vram_bytes), "--time-s", str(time_s)]
    program += [] if need_bytes is None else ["--need", str(need_bytes)]
    program += [] if gpu_uuid is None else ["--gpu", gpu_uuid]
    last: ProbeLine | None = None
    with _output(program, launcher, time_s + _PATIENCE_S, cancel) as lines:
        for raw in lines:
            try:
                line = ProbeLine.model_validate_json(raw)
            except ValidationError:
                log.warning("the probe printed %r", raw[:120])
                continue
            if line.problem is not None:
                raise ReportedError(line.problem)
            last = line
            on_line(line)
    if last is None:
        raise _silent("pinned memory")
    return last


def measure_rates(
    *,
    device: str,
    gpu_uuid: str | None = None,
    formats: Sequence[WeightFormat] = (),
    argv: Sequence[str] | None = None,
    launcher: ChildLauncher | None = None,
    time_s: float | None = None,
    cancel: Cancel | None = None,
) -> MeasuredRates:
    """Measure kernels and copies; takes some seconds for each format. Not for the UI thread.

    Args:
        device: "cpu", "cuda" or "simulated".
        formats: kinds of weights to measure; none: those that need no unpacking.
        time_s: most seconds; None: enough for so many formats.
        cancel: ends it early.

    Raises:
        ReportedError: the child says that it cannot, for example without a GPU.
        MeasuringError: it ended without a result.
        MeasuringCancelledError: `cancel` was called.
        LaunchRefusedError: it could not be started.
    """
    program = [sys.executable, "-m", "engine.experts.measure_rates"] if argv is None else list(argv)
    program += ["--device", device, *([] if gpu_uuid is None else ["--gpu", gpu_uuid])]
    program += ["--formats", ",".join(formats)] if formats else []
    most_s = RATES_S + FORMAT_RATES_S * len(formats) if time_s is None else time_s
    with _output(program, launcher, most_s, cancel or Cancel()) as lines:
        for raw in lines:
            try:
                return MeasuredRates.model_validate_json(raw)
            except ValidationError:
                problem = _problem(raw)
                if problem is not None:
                    raise ReportedError(problem) from None
                log.warning("the measurement printed %r", raw[:120])
    raise _silent("speed")


def probe_goal(facts: HardwareFacts, asked_bytes: int | None = None) -> int | None:
    """Where a probe may stop: what is needed and the margin that is taken off again, at most what can ever be had.

    None: nobody knows; RAM will end it.
    """
    gpu = facts.cuda_gpu
    ceiling = gpu.shared_limit.value if gpu is not None else None
    if ceiling is None and facts.ram_total.value is not None and facts.os != "linux":
        ceiling = facts.ram_total.value // 2
    if asked_bytes is None:
        return ceiling
    grown = -(-asked_bytes * PROBE_MARGIN_SHARE // (PROBE_MARGIN_SHARE - 1))
    return grown if ceiling is None else min(grown, ceiling)


class _Refusal(BaseModel):
    model_config = ConfigDict(extra="forbid")

    problem: Problem


def _problem(raw: bytes) -> Problem | None:
    try:
        return _Refusal.model_validate_json(raw).problem
    except ValidationError:
        return None


@contextmanager
def _output(
    program: Sequence[str], launcher: ChildLauncher | None, time_s: float, cancel: Cancel
) -> Iterator[IO[bytes]]:
    """The standard output of a child that is ended after `time_s` at the latest, and gone afterwards in any case.

    Raises:
        MeasuringCancelledError: the child was ended by `cancel`, whatever it has said.
    """
    if cancel.wanted:
        raise MeasuringCancelledError
    child = (launcher or child_launcher()).start(program, cwd=program_dir())
    drain = threading.Thread(target=_drain, args=(child,), name="measuring log", daemon=True)
    watch = threading.Timer(time_s, child.kill_tree)
    watch.name, watch.daemon = "measuring watch", True
    drain.start()
    watch.start()
    cancel.follow(child)
    try:
        yield child.stdout
        child.wait(_END_S)
    finally:
        cancel.follow(None)
        watch.cancel()
        watch.join()
        child.kill_tree()
        child.wait(_END_S)
        drain.join(_END_S)
        child.close()
    if cancel.wanted:
        raise MeasuringCancelledError


def _drain(child: ChildProcess) -> None:
    """A full pipe would stop the child."""
    for raw in child.stderr:
        log.info("measuring: %s", raw.decode("utf-8", errors="replace").rstrip())


def _silent(what: str) -> MeasuringError:
    return MeasuringError(f"The measurement of {what} ended without a result.", "Look at the log, or try again.")
