"""`python -m app detect`: what is known of this machine, and where every number is from."""

import argparse

from app.doors.common import EXIT_OK, Subparsers, add_json, add_machine, add_profile, facts_of
from app.doors.output import say
from engine.system.__main__ import as_text


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("detect", help="hardware facts with their sources", description=__doc__ or "")
    add_machine(parser)
    add_profile(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the facts; the JSON can be read again with `--machine`.

    Raises:
        RecordedFileError: `--machine` names no recorded machine.
    """
    facts = facts_of(options)
    say(facts.model_dump_json(indent=2) if options.json else as_text(facts))
    return EXIT_OK
