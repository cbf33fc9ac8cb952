"""`python -m app`: the window, or one of the doors without a window. Loads Qt for the window only, and never torch."""

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import cast

from app.doors.common import (
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    EXIT_UNEXPECTED,
    PROGRAM,
    Parser,
    Subparsers,
    add_engine,
    add_machine,
    add_profile,
    add_simulated_gpu,
    engine_argv_of,
    print_problem,
    profile_of,
    speak_utf8,
)
from app.logs import logging_to
from engine.contract.errors import Problem, SplitpinError

log = logging.getLogger(__name__)

DOORS = {
    "detect": "hardware facts with their sources",
    "plan": "where every byte of a model would go",
    "orphans": "left-over engine processes",
    "chat": "one question and its answer",
    "selfcheck": "paths, versions, dry engine start",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code: 0, 2 for a refusal, 1 for a fault of Splitpin, 130 after Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        speak_utf8()
    as_json = "--json" in words
    try:
        options, door = _parse(words)
    except SplitpinError as misuse:
        print_problem(misuse.problem, as_json=as_json)
        return EXIT_REFUSED
    with logging_to(profile_of(options).logs_dir) as log_file:
        try:
            return _open_window(options) if door is None else int(door.run(options))
        except SplitpinError as refusal:
            log.info("refused: %s %s", refusal.kind, refusal.sentence)
            print_problem(refusal.problem, as_json=as_json)
            return EXIT_REFUSED
        except KeyboardInterrupt:
            log.info("interrupted")
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            return EXIT_INTERRUPTED  # the reader of our output is gone
        except Exception as fault:
            log.exception("unexpected")
            print_problem(_unexpected(fault, log_file), as_json=as_json)
            return EXIT_UNEXPECTED


def _parse(words: Sequence[str]) -> tuple[argparse.Namespace, ModuleType | None]:
    """Read the command line; only the module of the door that is asked for is loaded."""
    parser = Parser(prog=PROGRAM, description="Splitpin: opens the window, or does one thing without it.")
    add_profile(parser)
    add_machine(parser)
    add_engine(parser)
    add_simulated_gpu(parser)
    parser.add_argument("--model", type=Path, default=argparse.SUPPRESS, metavar="DIR", help="choose this model folder")
    doors = parser.add_subparsers(dest="door", metavar="DOOR", title="doors without a window", parser_class=Parser)
    loaded: dict[str, ModuleType] = {}
    for name, purpose in DOORS.items():
        if name in words:
            loaded[name] = importlib.import_module(f"app.doors.{name}")
            loaded[name].add_parser(cast(Subparsers, doors))
        else:
            doors.add_parser(name, help=purpose)
    options = parser.parse_args(words)
    return options, None if options.door is None else loaded[options.door]


def _open_window(options: argparse.Namespace) -> int:
    from app.wiring import LaunchOptions, open_window  # Qt takes a quarter of a second; the doors do without

    return open_window(
        LaunchOptions(
            profile=profile_of(options),
            machine=getattr(options, "machine", None),
            engine_argv=engine_argv_of(options),
            model=getattr(options, "model", None),
            simulated_gpu=getattr(options, "simulate_gpu", None),
        )
    )


def _unexpected(fault: Exception, log_file: Path | None) -> Problem:
    where = f"The details are in {log_file}." if log_file is not None else "The log could not be written."
    return Problem(
        kind="unexpected", sentence=f"Something unexpected happened: {type(fault).__name__}: {fault}.", fix=where
    )


if __name__ == "__main__":
    sys.exit(main())
