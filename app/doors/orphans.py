"""`python -m app orphans`: engine processes left over from earlier runs, and their end."""

import argparse
from collections.abc import Sequence

from app.doors.common import EXIT_OK, EXIT_REFUSED, Subparsers, add_json, add_profile, profile_of, read_path
from app.doors.output import print_json, say
from app.orphans.classify import classify
from app.orphans.sweep import EndReport
from app.orphans.verdicts import Orphan, Verdicts
from app.supervision.ledger import RunLedger
from app.supervision.scan import Scanner
from engine.contract.errors import UsageError
from engine.contract.units import gib
from engine.system.recorded import RecordedProcesses


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("orphans", help="left-over engine processes", description=__doc__ or "")
    parser.add_argument(
        "--processes", type=read_path, metavar="FILE", help="a recorded process table instead of this PC"
    )
    parser.add_argument(
        "--end",
        nargs="*",
        type=int,
        metavar="PID",
        help="end those that are provably Splitpin's; with PIDs, the left-over trees these belong to",
    )
    add_profile(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the verdicts, and end what was asked for. Exit code 2 if something asked for did not end.

    Raises:
        UsageError: `--end` of a recorded table, or of a PID that is not left over.
        RecordedFileError: `--processes` names no process table.
    """
    if options.processes is not None:
        if options.end is not None:
            raise UsageError("Processes of a recorded table cannot be ended.", "Leave out --processes or --end.")
        _print(classify(RecordedProcesses(options.processes).read((), ())), (), as_json=options.json)
        return EXIT_OK
    scanner = Scanner(RunLedger(profile_of(options).runs_dir))
    verdicts = scanner.scan()
    chosen = () if options.end is None else _chosen(verdicts, options.end)
    reports = tuple(scanner.end(orphan) for orphan in chosen)
    _print(verdicts, reports, as_json=options.json)
    return EXIT_OK if all(report.success for report in reports) else EXIT_REFUSED


def _chosen(verdicts: Verdicts, pids: Sequence[int]) -> tuple[Orphan, ...]:
    if not pids:
        return tuple(orphan for orphan in verdicts.orphans if orphan.preselected)
    offered = {pid for orphan in verdicts.orphans for pid in orphan.pids}
    for pid in pids:
        if pid not in offered:
            raise UsageError(
                f"PID {pid} is not a left-over process.", "`python -m app orphans` lists the ones that can be ended."
            )
    return tuple(orphan for orphan in verdicts.orphans if set(orphan.pids) & set(pids))


def _print(verdicts: Verdicts, reports: Sequence[EndReport], *, as_json: bool) -> None:
    if as_json:
        document = verdicts.model_dump(mode="json")
        print_json({**document, "ended": [report.model_dump(mode="json") for report in reports]})
        return
    if not verdicts.orphans:
        say("No left-over processes.")
    for orphan in verdicts.orphans:
        say(f"{_mark(orphan)}  {orphan.name}, PID {', '.join(str(pid) for pid in orphan.pids)}, {_age(orphan.age_s)}")
        say(f"    holds {_size(orphan.gpu_bytes)} of VRAM and {_size(orphan.rss_bytes)} of RAM")
        say(f"    {orphan.reason}")
        if orphan.confidence != "ours" and orphan.command_line:
            say(f"    command line: {_printable(orphan.command_line)}")
    for other in verdicts.others:
        say(f"in use    {other.name}, PID {other.pid}: {other.reason}")
    for report in reports:
        say(report.sentence)


def _printable(text: str) -> str:
    """A foreign command line may hold anything, orders to the terminal too."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _mark(orphan: Orphan) -> str:
    return {"ours": "LEFT OVER", "possible": "possible ", "uncertain": "uncertain"}[orphan.confidence]


def _size(amount_bytes: int | None) -> str:
    return "an unknown amount" if amount_bytes is None else gib(amount_bytes)


def _age(age_s: float) -> str:
    minutes = int(age_s // 60)
    if minutes < 1:
        return f"started {age_s:.0f} s ago"
    return f"started {minutes} min ago" if minutes < 120 else f"started {minutes // 60} h ago"
