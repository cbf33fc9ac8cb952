"""From the words of a command line to a door or the window, and to an exit code. Whatever happens is said in words."""

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
    EXIT_OK,
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
    profile_of,
    read_path,
)
from app.doors.interrupts import interruptible
from app.doors.output import OutputError, flush, print_problem, speak_utf8
from app.logs import logging_to
from engine.contract.errors import Problem, SplitpinError

log = logging.getLogger(__name__)

DOORS = {
    "detect": "hardware facts with their sources",
    "plan": "where every byte of a model would go",
    "orphans": "left-over engine processes",
    "chat": "one question and its answer",
    "apply": "another split for the engine that runs",
    "selfcheck": "paths, versions, dry engine start",
}


def run(argv: Sequence[str] | None = None) -> int:
    """Do what a command line asks; None: that of this process, whose standard streams are then set up too.

    Returns:
        The exit code: 0; 2 for a refusal; 1 for a fault of Splitpin; 130 after Ctrl-C or a request to end, and where
        the reader of the output went away.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        speak_utf8()
    try:
        code = _obey(words, as_json="--json" in words)
        flush()
    except (KeyboardInterrupt, BrokenPipeError):
        return EXIT_INTERRUPTED
    except OutputError as refusal:
        print_problem(refusal.problem, as_json=False)  # the document cannot be written either
        return EXIT_REFUSED
    return code


def _obey(words: Sequence[str], *, as_json: bool) -> int:
    """The exit code.

    Raises:
        KeyboardInterrupt, BrokenPipeError, OutputError: for `run` to say.
    """
    try:
        options, door = _parse(words)
        logs_dir = profile_of(options).logs_dir
    except SplitpinError as misuse:
        print_problem(misuse.problem, as_json=as_json)
        return EXIT_REFUSED
    except SystemExit:  # how argparse ends after --help
        return EXIT_OK
    with logging_to(logs_dir) as log_file:
        try:
            if door is None:
                return _open_window(options)
            with interruptible():
                return int(door.run(options))
        except SplitpinError as refusal:
            log.info("refused: %s %s", refusal.kind, refusal.sentence)
            if isinstance(refusal, OutputError):
                raise
            print_problem(refusal.problem, as_json=as_json)
            return EXIT_REFUSED
        except (KeyboardInterrupt, BrokenPipeError) as end:
            log.info("interrupted: %s", type(end).__name__)
            raise
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
    parser.add_argument(
        "--model", type=read_path, default=argparse.SUPPRESS, metavar="DIR", help="choose this model folder"
    )
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
