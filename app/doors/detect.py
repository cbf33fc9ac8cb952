"""`python -m app detect`: what is known of this machine, and where every number is from."""

import argparse

from app.core.measuring import measure_rates, probe_goal, probe_pins
from app.doors.common import (
    EXIT_OK,
    Subparsers,
    add_json,
    add_machine,
    add_profile,
    facts_of,
    learned_of,
    profile_of,
    read_amount,
    read_path,
)
from app.doors.output import say, tell
from app.planning.budgets import budgets
from app.planning.figures import needed_formats
from app.planning.wishes import Wishes
from app.supervision.ledger import RunLedger
from app.supervision.may_measure import refuse_measuring
from app.supervision.scan import Scanner
from engine.contract.checkpoint import read_shape
from engine.contract.errors import UsageError
from engine.contract.facts import HardwareFacts
from engine.contract.probe import ProbeLine
from engine.contract.rates import MeasuredRates
from engine.contract.units import gib
from engine.system.__main__ import as_text
from engine.system.cuda_driver import no_cuda
from engine.system.power import on_battery

_GB = 1e9


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("detect", help="hardware facts with their sources", description=__doc__ or "")
    parser.add_argument(
        "--measure-pins",
        action="store_true",
        help="try out how much can be pinned, in a throw-away process; takes up to a minute",
    )
    parser.add_argument("--need", type=read_amount, metavar="SIZE", help="with --measure-pins: stop at so much")
    parser.add_argument(
        "--measure-speed", action="store_true", help="measure kernels and copies of this PC; takes some seconds"
    )
    parser.add_argument(
        "--model", type=read_path, metavar="DIR", help="with --measure-speed: measure the formats of this model"
    )
    add_machine(parser)
    add_profile(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the facts; the JSON can be read again with `--machine`.

    Raises:
        RecordedFileError: `--machine` names no recorded machine.
        SplitpinError: a measurement is not possible here, or not now.
    """
    facts = facts_of(options)
    if options.measure_pins or options.measure_speed:
        _refuse_measuring(options, facts)
    if options.measure_pins:
        facts = _measure_pins(options, facts)
    rates = _measure_speed(options, facts) if options.measure_speed else None
    if options.json:
        say(facts.model_dump_json(indent=2))
    else:
        say("\n".join([as_text(facts), *([] if rates is None else _rates_lines(rates))]))
    return EXIT_OK


def _refuse_measuring(options: argparse.Namespace, facts: HardwareFacts) -> None:
    if facts.recorded:
        raise UsageError("A recorded machine cannot be measured.", "Leave out --machine.")
    refuse_measuring(Scanner(RunLedger(profile_of(options).runs_dir)), on_battery)


def _measure_pins(options: argparse.Namespace, facts: HardwareFacts) -> HardwareFacts:
    gpu = facts.cuda_gpu
    if gpu is None:
        raise no_cuda("this PC has no CUDA GPU")
    limits = budgets(facts, Wishes())
    last = probe_pins(
        need_bytes=probe_goal(facts, options.need),
        vram_bytes=limits.vram.bytes or 0,
        gpu_uuid=gpu.uuid,
        on_line=lambda line: tell(line.model_dump_json() if options.json else _step(line)),
    )
    store = learned_of(options)
    store.learn_probe(facts, last)
    return store.applied_to(facts)


def _step(line: ProbeLine) -> str:
    match line.stopped:
        case None:
            return f"{gib(line.pinned_bytes)} pinned"
        case "need":
            return f"{gib(line.pinned_bytes)} pinned: enough"
        case "ram":
            return f"{gib(line.pinned_bytes)} pinned: stopped, so that other programs keep their RAM"
        case "time":
            return f"{gib(line.pinned_bytes)} pinned: stopped after {line.elapsed_s:.0f} s"
        case _:
            return f"{gib(line.pinned_bytes)} pinned, {gib(line.refused_bytes or 0)} refused: {line.words}"


def _measure_speed(options: argparse.Namespace, facts: HardwareFacts) -> MeasuredRates:
    gpu = facts.cuda_gpu
    formats = () if options.model is None else needed_formats(read_shape(options.model))
    rates = measure_rates(
        device="cpu" if gpu is None else "cuda",
        gpu_uuid=None if gpu is None else gpu.uuid,
        formats=formats,
    )
    learned_of(options).learn_rates(facts, rates)
    if options.json:
        tell(rates.model_dump_json())
    return rates


def _rates_lines(rates: MeasuredRates) -> list[str]:
    """The figures for people; GB is 10^9 bytes, as bandwidths are usually told."""
    lines = [f"speed, measured with {rates.threads} threads in {rates.elapsed_s:.0f} s"]
    for name, kernels in (("CPU", rates.cpu), (rates.device, rates.gpu)):
        lines += [
            f"  {name}, experts in {form.value}: {kernel.bytes_s / _GB:.1f} GB/s for one token, "
            f"{kernel.flops_s / _GB:,.0f} GFLOP/s for many"
            for form, kernel in kernels.items()
        ]
    for name, attention in (("CPU", rates.attention), (rates.device, rates.gpu_attention)):
        if attention is not None:
            lines.append(
                f"  {name}, attention: {attention.token_flops_s / _GB:.1f} GFLOP/s for one token, "
                f"{attention.prompt_flops_s / _GB:,.0f} GFLOP/s for many"
            )
    copies = (
        ("copies within RAM", rates.memcpy_bytes_s),
        ("copies to the GPU, pinned", rates.pinned_copy_bytes_s),
        ("copies to the GPU, pageable", rates.pageable_copy_bytes_s),
    )
    return lines + [f"  {what}: {rate / _GB:.1f} GB/s" for what, rate in copies if rate is not None]
