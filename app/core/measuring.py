"""Measurements of this PC, each in a throw-away child: what a driver spoils there is gone with the process."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from pydantic import BaseModel, ConfigDict, ValidationError

from app.paths import program_dir
from engine.contract.errors import Problem, ReportedError, SplitpinError
from engine.contract.probe import ProbeLine
from engine.contract.rates import MeasuredRates
from engine.system.protocols import ChildLauncher, ChildProcess
from engine.system.select import child_launcher

log = logging.getLogger(__name__)

PROBE_S = 60.0
_PATIENCE_S = 30.0  # beyond that, for a driver that takes its time to pin or to give back
RATES_S = 120.0
_END_S = 10.0


class MeasuringError(SplitpinError):
    """The child ended without a result."""

    kind = "measuring"


def probe_pins(
    *,
    need_bytes: int | None,
    vram_bytes: int,
    gpu_uuid: str | None,
    on_line: Callable[[ProbeLine], None] = lambda line: None,
    argv: Sequence[str] | None = None,
    launcher: ChildLauncher | None = None,
    time_s: float = PROBE_S,
) -> ProbeLine:
    """Measure how much can be pinned. Blocks for up to a minute and a half; not for the UI thread.

    Args:
        need_bytes: stop there. None: the other limits stop it.
        vram_bytes: GPU memory that is held meanwhile, as the engine would.
        on_line: sees every step.
        argv: what to run instead of Splitpin's own probe.

    Returns:
        The last line. Without `stopped` the child was ended, or ended itself: a lower bound.

    Raises:
        ReportedError: the child says that it cannot begin, for example without CUDA.
        MeasuringError: the child said nothing at all.
        LaunchRefusedError: it could not be started.
    """
    program = [sys.executable, "-m", "engine.system.pin_probe"] if argv is None else list(argv)
    program += ["--vram", str(vram_bytes), "--time-s", str(time_s)]
    program += [] if need_bytes is None else ["--need", str(need_bytes)]
    program += [] if gpu_uuid is None else ["--gpu", gpu_uuid]
    last: ProbeLine | None = None
    with _output(program, launcher, time_s + _PATIENCE_S) as lines:
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
    argv: Sequence[str] | None = None,
    launcher: ChildLauncher | None = None,
    time_s: float = RATES_S,
) -> MeasuredRates:
    """Measure kernels and copies; takes some seconds. Not for the UI thread.

    Args:
        device: "cpu", "cuda" or "simulated".

    Raises:
        ReportedError: the child says that it cannot, for example without a GPU.
        MeasuringError: it ended without a result.
        LaunchRefusedError: it could not be started.
    """
    program = [sys.executable, "-m", "engine.experts.measure_rates"] if argv is None else list(argv)
    program += ["--device", device, *([] if gpu_uuid is None else ["--gpu", gpu_uuid])]
    with _output(program, launcher, time_s) as lines:
        for raw in lines:
            try:
                return MeasuredRates.model_validate_json(raw)
            except ValidationError:
                problem = _problem(raw)
                if problem is not None:
                    raise ReportedError(problem) from None
                log.warning("the measurement printed %r", raw[:120])
    raise _silent("speed")


class _Refusal(BaseModel):
    model_config = ConfigDict(extra="forbid")

    problem: Problem


def _problem(raw: bytes) -> Problem | None:
    try:
        return _Refusal.model_validate_json(raw).problem
    except ValidationError:
        return None


@contextmanager
def _output(program: Sequence[str], launcher: ChildLauncher | None, time_s: float) -> Iterator[IO[bytes]]:
    """The standard output of a child that is ended after `time_s` at the latest, and gone afterwards in any case."""
    child = (launcher or child_launcher()).start(program, cwd=program_dir())
    drain = threading.Thread(target=_drain, args=(child,), name="measuring log", daemon=True)
    watch = threading.Timer(time_s, child.kill_tree)
    watch.name, watch.daemon = "measuring watch", True
    drain.start()
    watch.start()
    try:
        yield child.stdout
        child.wait(_END_S)
    finally:
        watch.cancel()
        watch.join()
        child.kill_tree()
        child.wait(_END_S)
        drain.join(_END_S)
        child.close()


def _drain(child: ChildProcess) -> None:
    """A full pipe would stop the child."""
    for raw in child.stderr:
        log.info("measuring: %s", raw.decode("utf-8", errors="replace").rstrip())


def _silent(what: str) -> MeasuringError:
    return MeasuringError(f"The measurement of {what} ended without a result.", "Look at the log, or try again.")
