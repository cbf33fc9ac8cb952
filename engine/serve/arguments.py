"""The command line of the engine. Standard library only: it is read before anything slow is imported."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from typing_extensions import override

PROGRAM = "python -m engine"
MAX_PORT = 65535
MAX_PID = 2**32 - 1  # on Windows; Linux ends at 2**22


class ArgumentsError(Exception):
    """The command line cannot be understood; the message says why."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """`serve plan.json` and who asked for it. With a parent given, the engine ends when the parent or its pipe does."""

    plan: Path
    port: int = 0
    run_id: str = ""
    parent_pid: int | None = None
    parent_create_time: float | None = None


class _Parser(argparse.ArgumentParser):
    @override
    def error(self, message: str) -> NoReturn:
        raise ArgumentsError(message)


def parse(argv: Sequence[str]) -> Arguments:
    """Read the words after `python -m engine`.

    Raises:
        ArgumentsError: they make no sense.
    """
    parser = _Parser(prog=PROGRAM, description="Splitpin's engine: events on standard output, log on standard error.")
    serve = parser.add_subparsers(required=True, metavar="serve").add_parser(
        "serve", help="load the model of a plan and answer on 127.0.0.1"
    )
    serve.add_argument("plan", type=Path, help="a memory plan, as `python -m app plan --out FILE` writes it")
    serve.add_argument("--port", type=int, default=0, help="0 takes any free port")
    serve.add_argument("--run-id", default="", help="repeated in the first event")
    serve.add_argument("--parent-pid", type=int, help="end when this process does")
    serve.add_argument("--parent-create-time", type=float, help="its start, in seconds since the epoch")
    serve.add_argument("--json", action="store_true", help="events are JSON in any case")
    given = parser.parse_args(argv)
    if (given.parent_pid is None) != (given.parent_create_time is None):
        raise ArgumentsError("--parent-pid and --parent-create-time belong together")
    if given.parent_pid is not None and not 0 < given.parent_pid <= MAX_PID:
        raise ArgumentsError(f"--parent-pid is {given.parent_pid}; that is no process")
    if not 0 <= given.port <= MAX_PORT:
        raise ArgumentsError(f"--port is {given.port}; ports go from 0 to {MAX_PORT}")
    return Arguments(given.plan, given.port, given.run_id, given.parent_pid, given.parent_create_time)
