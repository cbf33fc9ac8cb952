"""`python -m app apply`: another split for the engine that runs, without loading again. README.md has the JSON."""

import argparse
from typing import Any

from app.core.learned import LearnedStore
from app.doors.common import EXIT_OK, Subparsers, add_json, add_profile, learned_of, profile_of, read_natural
from app.doors.output import print_json, say
from app.doors.plan import add_wishes, plan_part, wishes_of
from app.doors.running import Running, change_plan, find_running
from app.planning.beside import facts_beside
from app.planning.change import Change, change_of, same_split, why_restart
from app.planning.planner import make_plan
from app.planning.wishes import Wishes
from app.supervision.ledger import RunLedger
from engine.contract.errors import ReportedError
from engine.contract.events import PlanChanged
from engine.contract.plan import MemoryPlan
from engine.contract.units import gib
from engine.system.select import machine_probe


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("apply", help="another split for the engine that runs", description=__doc__ or "")
    parser.add_argument("--pid", type=read_natural, metavar="PID", help="of the engine, where several run")
    parser.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")
    add_wishes(parser)
    parser.set_defaults(prefill_chunk=None)  # as it is
    add_profile(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Plan with the model that runs, and have its engine take the plan; a wish that is left out stays as it is.

    Raises:
        NoEngineError: nothing runs.
        SplitpinError: the split does not fit, or only a start can bring it; the engine runs on with what it has.
    """
    running = find_running(RunLedger(profile_of(options).runs_dir), options.pid)
    wanted = _planned(running, _wishes(options, running.plan), learned_of(options))
    change = change_of(running.plan, running.residency, wanted)
    if (problem := why_restart(running.plan, running.residency, wanted)) is not None:
        raise ReportedError(problem)
    is_new = not same_split(running.plan, wanted)
    done = change_plan(running, wanted) if is_new and not options.dry_run else None
    if options.json:
        print_json(_document(running, wanted, change, done))
    else:
        say(_as_text(change, done, is_new=is_new))
    return EXIT_OK


def _wishes(options: argparse.Namespace, plan: MemoryPlan) -> Wishes:
    """Those of the command line; context, type of the KV cache, chunk and simulated GPU stay where none is named."""
    named = argparse.Namespace(**vars(options))
    named.prefill_chunk = options.prefill_chunk or plan.prefill_chunk
    named.context = options.context or plan.context_tokens
    named.simulate_gpu = plan.simulated
    wishes = wishes_of(named)
    return wishes if wishes.kv_dtype is not None else wishes.model_copy(update={"kv_dtype": plan.kv_dtype})


def _planned(running: Running, wishes: Wishes, learned: LearnedStore) -> MemoryPlan:
    plan = running.plan
    now = learned.applied_to(machine_probe().read())
    return make_plan(plan.model, facts_beside(now, running.residency, plan), wishes, model_dir=plan.model_dir)


def _document(running: Running, wanted: MemoryPlan, change: Change, done: PlanChanged | None) -> dict[str, Any]:
    return {
        "engine": {"pid": running.entry.engine.pid, "port": running.entry.port, "run_id": running.entry.run_id},
        "before": plan_part(running.plan),
        "plan": plan_part(wanted),
        "change": {
            "moves": [
                {"from": move.from_tier.value, "to": move.to_tier.value, "layers": move.layers, "bytes": move.bytes}
                for move in change.moves
            ],
            "to_vram_bytes": change.to_vram_bytes,
            "from_vram_bytes": change.from_vram_bytes,
            "context_tokens": list(change.context_tokens),
            "kv_bytes": list(change.kv_bytes),
            "expert_slots": list(change.expert_slots),
        },
        "took_s": None if done is None else done.took_s,
        "residency": None if done is None else done.residency.model_dump(mode="json"),
    }


def _as_text(change: Change, done: PlanChanged | None, *, is_new: bool) -> str:
    if not is_new:
        return "The engine runs this split already."
    lines = ["Nothing was changed (--dry-run). The engine could take:" if done is None else "The engine runs"]
    if done is not None:
        lines = [f"The split was changed in {done.took_s:.1f} s:"]
    for move in change.moves:
        layers = f"{move.layers} layer{'' if move.layers == 1 else 's'}"
        lines.append(f"  {move.from_tier.value} to {move.to_tier.value}: {layers}, {gib(move.bytes)}")
    (before, after), (kv_before, kv_after) = change.context_tokens, change.kv_bytes
    if before != after:
        lines.append(f"  context: {before:,} to {after:,} tokens; KV cache {gib(kv_before)} to {gib(kv_after)}")
    if change.expert_slots[0] != change.expert_slots[1]:
        lines.append(f"  expert slots: {change.expert_slots[0]:,} to {change.expert_slots[1]:,}")
    if done is not None:
        lines.append(f"self-test: {done.residency.self_test}")
    return "\n".join(lines)
