"""What the doors share: options, how their values are read, and the machine they look at."""

import argparse
import math
import shlex
from pathlib import Path
from typing import NoReturn, Protocol

from typing_extensions import override

from app.core.learned import LearnedStore
from app.paths import Profile
from engine.contract.errors import UsageError
from engine.contract.facts import HardwareFacts
from engine.contract.plan import SimulatedGpu
from engine.contract.units import parse_bytes
from engine.system.recorded import RecordedMachine
from engine.system.select import machine_probe

EXIT_OK = 0
EXIT_UNEXPECTED = 1
EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130

PROGRAM = "python -m app"
MOST = 1_000_000_000  # tokens, layers: more is a slip of the finger
_DIGITS = 100  # longer ones are not worth converting


class Subparsers(Protocol):
    """What argparse's `add_subparsers` gives back; its own class is private."""

    def add_parser(self, name: str, *, help: str, description: str) -> argparse.ArgumentParser: ...


class Parser(argparse.ArgumentParser):
    """Refuses in a typed way instead of ending the process."""

    @override
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"The command cannot be understood: {message}.", f"See {self.prog} --help.")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def add_profile(parser: argparse.ArgumentParser) -> None:
    # SUPPRESS: the same option before the name of the door must not be overwritten by a default behind it.
    parser.add_argument(
        "--profile-dir", type=read_path, default=argparse.SUPPRESS, metavar="DIR", help="settings, chats, runs and logs"
    )


def add_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machine",
        type=read_path,
        default=argparse.SUPPRESS,
        metavar="FILE",
        help="a recorded machine instead of this one",
    )


def add_simulated_gpu(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--simulate-gpu",
        type=simulated_gpu,
        default=argparse.SUPPRESS,
        metavar="vram=800MiB,pin=300MiB",
        help="a GPU in host memory with these limits; also refuse-pin-after=K and refuse-lock-after=K layers",
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine", default=argparse.SUPPRESS, metavar="CMD", help="command of another engine, for development"
    )


def read_path(text: str) -> Path:
    """A path as people type it; `~` is the home folder also where no shell has replaced it."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the path is empty")
    try:
        return Path(text).expanduser()
    except RuntimeError as cause:
        raise argparse.ArgumentTypeError(f"{text!r} names no home folder") from cause


def read_natural(text: str) -> int:
    """A whole number from 0 to `MOST`."""
    if not text.isdecimal() or not text.isascii():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    if len(text) > _DIGITS or int(text) > MOST:
        raise argparse.ArgumentTypeError(f"must be at most {MOST:,}")
    return int(text)


def read_positive(text: str) -> int:
    """A whole number from 1 to `MOST`."""
    if (number := read_natural(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def read_not_negative(text: str) -> float:
    """A number of at least 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return number


def read_amount(text: str) -> int:
    """Bytes, such as "20GiB"."""
    try:
        return parse_bytes(text)
    except ValueError as cause:
        raise argparse.ArgumentTypeError(str(cause)) from cause


def profile_of(options: argparse.Namespace) -> Profile:
    """The profile that was asked for, or the user's own."""
    folder: Path | None = getattr(options, "profile_dir", None)
    return Profile.default() if folder is None else Profile(folder.absolute())


def facts_of(options: argparse.Namespace) -> HardwareFacts:
    """The facts of the machine that was asked for; or of this one, with what earlier runs taught.

    Raises:
        RecordedFileError: the file is not a recorded machine.
    """
    file: Path | None = getattr(options, "machine", None)
    return learned_of(options).applied_to(machine_probe().read()) if file is None else RecordedMachine(file).read()


def learned_of(options: argparse.Namespace) -> LearnedStore:
    """What runs and measurements taught, in the profile that was asked for."""
    return LearnedStore(profile_of(options).learned_file)


def engine_argv_of(options: argparse.Namespace) -> list[str] | None:
    """The words of `--engine`, or None for Splitpin's own.

    Raises:
        UsageError: an unclosed quotation mark, or no word at all.
    """
    command: str | None = getattr(options, "engine", None)
    if command is None:
        return None
    try:
        # On Windows a backslash is part of a path; POSIX rules would eat it.
        words = [word.strip("\"'") for word in shlex.split(command, posix=False)] if "\\" in command else None
        words = words or shlex.split(command)
    except ValueError as cause:
        raise UsageError(f"The engine command {command!r} cannot be read: {cause}.", "Close the quotes.") from cause
    if not any(words[:1]):
        raise UsageError("The engine command is empty.", "Leave --engine out to run Splitpin's own engine.")
    return words


def simulated_gpu(text: str) -> SimulatedGpu:
    """Read "vram=800MiB,pin=300MiB,refuse-pin-after=4,refuse-lock-after=9".

    Raises:
        UsageError: an unknown key, or a value that is no amount.
    """
    fix = "Write it like vram=800MiB,pin=300MiB,refuse-pin-after=4."
    values: dict[str, int] = {}
    seen: set[str] = set()
    for part in text.split(","):
        key, _, value = part.strip().replace("_", "-").partition("=")
        if key in seen:
            raise UsageError(f"{key!r} of the simulated GPU is given twice.", fix)
        seen.add(key)
        try:
            match key:
                case "vram" | "pin":
                    values[f"{key}_bytes"] = parse_bytes(value)
                case "refuse-pin-after" | "refuse-lock-after":
                    values[f"{key.replace('-', '_')}_layers"] = int(value)
                case _:
                    raise UsageError(f"A simulated GPU has no {key!r}.", fix)
        except ValueError as cause:
            raise UsageError(f"{part.strip()!r} is not a limit of a simulated GPU.", fix) from cause
    try:
        return SimulatedGpu.model_validate({"pin_bytes": 0, **values})
    except ValueError as cause:
        raise UsageError("A simulated GPU needs vram above 0, and no limit below 0.", fix) from cause
