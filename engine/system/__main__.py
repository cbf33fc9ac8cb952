"""`python -m engine.system [--json] [--machine facts.json]`: what is known of the machine, and from where."""

import argparse
import json
import sys
from pathlib import Path

from engine.contract.errors import SplitpinError
from engine.contract.facts import GpuFacts, HardwareFacts, Reading
from engine.contract.units import gib
from engine.system.recorded import RecordedMachine
from engine.system.select import machine_probe


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0, or 2 with the problem on stderr."""
    parser = argparse.ArgumentParser(prog="python -m engine.system", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document, readable by --machine")
    parser.add_argument("--machine", type=Path, metavar="FILE", help="print a recorded machine instead of this one")
    options = parser.parse_args(arguments)
    probe = machine_probe() if options.machine is None else RecordedMachine(options.machine)
    try:
        facts = probe.read()
    except SplitpinError as error:
        if options.json:
            print(json.dumps({"error": error.problem.model_dump()}))
        print(f"{error.sentence} {error.fix}", file=sys.stderr)
        return 2
    print(facts.model_dump_json(indent=2) if options.json else as_text(facts))
    return 0


def as_text(facts: HardwareFacts) -> str:
    """One fact a line, each with its source."""
    cores = f"{facts.cores_physical or '?'} cores, {facts.cores_logical or '?'} threads"
    lines = [
        f"{facts.label}: {facts.os_version or facts.os}{' (recorded)' if facts.recorded else ''}",
        f"processor        {facts.cpu or 'unknown'}, {cores}",
        _line("RAM", facts.ram_total),
        _line("RAM available", facts.ram_available),
        _line("commit limit", facts.commit_limit),
        _line("commit used", facts.commit_used),
        "lock limit       none" if facts.memlock_unlimited else _line("lock limit", facts.memlock_limit),
        _line("pin limit found", facts.pin_measured),
    ]
    learned = (
        ("pinned by probe", facts.pin_probed),
        ("pinned before", facts.pin_granted),
        ("refused", facts.pin_refused),
    )
    lines += [_line(name, reading) for name, reading in learned if reading.value is not None]
    for gpu in facts.gpus:
        lines += _gpu_lines(gpu)
    if not facts.gpus:
        lines.append("no graphics adapter")
    return "\n".join(lines)


def _gpu_lines(gpu: GpuFacts) -> list[str]:
    driver = f", driver {gpu.driver}" if gpu.driver else ""
    return [
        f"{gpu.name}{driver}{'' if gpu.cuda else ' (not usable by the engine)'}",
        _line("  VRAM", gpu.vram_total),
        _line("  VRAM used", gpu.vram_used),
        _line("  shared limit", gpu.shared_limit),
        _line("  shared used", gpu.shared_used),
        _line("  driver context", gpu.context_bytes),
    ]


def _line(name: str, reading: Reading) -> str:
    amount = "unknown" if reading.value is None else f"{gib(reading.value)}, {reading.source}"
    return f"{name:<16} {amount}{f' ({reading.detail})' if reading.detail else ''}"


if __name__ == "__main__":
    sys.exit(main())
