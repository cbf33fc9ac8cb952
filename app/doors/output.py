"""How the doors speak: answers on standard output, everything else on standard error."""

import errno
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from io import TextIOWrapper
from typing import Any

from engine.contract.errors import Problem, SplitpinError


class OutputError(SplitpinError):
    """Standard output cannot be written, for another reason than that nobody reads it."""

    kind = "output"


def speak_utf8() -> None:
    """Standard streams in UTF-8, whatever the console's code page is."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # told apart from text by whoever reads it


def say(text: str, end: str = "\n") -> None:
    """Write to standard output, at once. A closed standard output swallows it.

    Raises:
        BrokenPipeError: the reader is gone.
        OutputError: it could not be written.
    """
    _write(text + end)


def flush() -> None:
    """Write what others left in the buffer of standard output; the interpreter would do it too late for a message.

    Raises:
        BrokenPipeError: the reader is gone.
        OutputError: it could not be written.
    """
    _write("")


def _write(text: str) -> None:
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as cause:
        _give_up_stdout()
        if isinstance(cause, BrokenPipeError) or cause.errno == errno.EINVAL:  # EINVAL: the same on Windows
            raise BrokenPipeError from cause
        raise OutputError(
            f"The output could not be written: {cause.strerror}.",
            "Make room on the disk, or send the output elsewhere.",
        ) from cause


def _give_up_stdout() -> None:
    """What is still in the buffer goes nowhere; otherwise the interpreter complains about it while it ends."""
    with suppress(OSError, ValueError):  # not a file, or closed already
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def tell(text: str) -> None:
    """Write to standard error. Nobody has to read it."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(text, file=sys.stderr, flush=True)


def print_json(document: Mapping[str, Any]) -> None:
    """The one document of a door.

    Raises:
        BrokenPipeError, OutputError: as `say`.
    """
    say(json.dumps(document, indent=2, ensure_ascii=False))


def print_problem(problem: Problem, *, as_json: bool) -> None:
    """A refusal: as a document, or sentence and fix for people on standard error.

    Raises:
        BrokenPipeError, OutputError: as `say`, for the document.
    """
    if as_json:
        print_json({"error": problem.model_dump(mode="json")})
    else:
        tell(f"{problem.sentence}\n{problem.fix}".strip())
