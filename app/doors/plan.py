"""`python -m app plan`: what a model folder needs on this machine, or on a recorded one. README.md has the JSON."""

import argparse
from pathlib import Path
from typing import Any

from app.core.learned import LearnedStore
from app.doors.common import (
    EXIT_OK,
    EXIT_REFUSED,
    Subparsers,
    add_json,
    add_machine,
    add_profile,
    add_simulated_gpu,
    facts_of,
    learned_of,
    profile_of,
    read_amount,
    read_natural,
    read_path,
    read_positive,
)
from app.doors.forced import read_forced
from app.doors.output import print_json, say, tell
from app.files import write_atomically
from app.planning.budgets import budgets
from app.planning.planner import make_plan
from app.planning.speed import predict, speed_line
from app.planning.stops import SliderStops, slider_stops
from app.planning.terms import Budget
from app.planning.wishes import DEFAULT_PREFILL_CHUNK, Wishes
from engine.contract.checkpoint import read_shape, resolve_model_folder
from engine.contract.errors import NotEnoughMemoryError, SplitpinError, UsageError
from engine.contract.estimate import banks, kv_bytes_per_token, kv_cache_bytes, state_bytes
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.shape import ModelShape
from engine.contract.units import gib


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("plan", help="where every byte of a model would go", description=__doc__ or "")
    parser.add_argument(
        "--model", type=read_path, required=True, metavar="DIR", help="model folder or GGUF file; config.json is enough"
    )
    parser.add_argument("--stops", action="store_true", help="list every stop of the slider")
    parser.add_argument("--out", type=read_path, metavar="FILE", help="write the plan for `python -m engine serve`")
    add_wishes(parser)
    add_simulated_gpu(parser)
    add_machine(parser)
    add_profile(parser)
    add_json(parser)


def add_wishes(parser: argparse.ArgumentParser) -> None:
    """The wishes a command line can express, for every door that plans."""
    parser.add_argument("--context", type=read_positive, metavar="N", help="tokens of prompt plus answer")
    parser.add_argument("--vram-layers", type=read_natural, metavar="N", help="default: as many as fit")
    parser.add_argument("--pinned-layers", type=read_natural, metavar="N", help="at most; default: fill the quota")
    parser.add_argument("--pin-cap", type=read_amount, metavar="SIZE", help="limit for pinned memory, such as 20GiB")
    parser.add_argument(
        "--force", type=read_forced, default={}, metavar="LAYERS=TIER", help="single layers, such as 0-3=vram,17=locked"
    )
    parser.add_argument("--vram-reserve", type=read_amount, metavar="SIZE", help="GPU memory for other programs")
    parser.add_argument("--ram-reserve", type=read_amount, metavar="SIZE", help="RAM for other programs")
    parser.add_argument(
        "--kv-dtype",
        choices=("auto", "bf16", "fp32", "fp8"),
        default="auto",
        help="type of the KV cache; auto: that of the model's other weights, fp8: about half of bf16",
    )
    parser.add_argument("--allow-pageable", action="store_true", help="layers beyond RAM may be moved to disk")
    parser.add_argument("--prefill-chunk", type=read_positive, metavar="N", default=DEFAULT_PREFILL_CHUNK)


def wishes_of(options: argparse.Namespace) -> Wishes:
    """The wishes of a parsed command line."""
    return Wishes(
        context_tokens=options.context,
        vram_layers=options.vram_layers,
        pinned_layers=options.pinned_layers,
        forced=options.force,
        vram_reserve_bytes=options.vram_reserve,
        ram_reserve_bytes=options.ram_reserve,
        kv_dtype=None if options.kv_dtype == "auto" else options.kv_dtype,
        pin_cap_bytes=options.pin_cap,
        allow_pageable=options.allow_pageable,
        prefill_chunk=options.prefill_chunk,
        simulated_gpu=getattr(options, "simulate_gpu", None),
    )


def plan_of(options: argparse.Namespace, facts: HardwareFacts | None = None) -> MemoryPlan:
    """The plan for `--model` under the wishes of the command line; `facts` None: they are read.

    Raises:
        SplitpinError: the model folder or the machine file cannot be read, or the plan does not fit.
    """
    shape = read_shape(options.model)
    machine = facts_of(options) if facts is None else facts
    return _plan_or_fixes(options, shape, machine, wishes_of(options))


def _plan_or_fixes(options: argparse.Namespace, shape: ModelShape, facts: HardwareFacts, wishes: Wishes) -> MemoryPlan:
    """The plan. Where it is refused on this very PC, left-over processes are looked for: ending one may be the fix."""
    folder = _model_dir(options)
    try:
        return make_plan(shape, facts, wishes, model_dir=folder)
    except NotEnoughMemoryError:
        if facts.recorded:
            raise
        from app.supervision.held import (  # the process table takes its time, and most plans are possible
            held_by,
            programs_of,
        )
        from app.supervision.ledger import RunLedger
        from app.supervision.scan import Scanner

        seen = Scanner(RunLedger(profile_of(options).runs_dir)).scan()
        return make_plan(shape, facts, wishes, model_dir=folder, held=held_by(seen), programs=programs_of(seen))


def run(options: argparse.Namespace) -> int:
    """Print the document, or a table for people; 2 where the plan does not fit.

    Raises:
        SplitpinError: the model folder or the machine file cannot be read.
    """
    found = document(options)
    if options.json:
        print_json(found)
    else:
        say(as_text(found))
    if "error" in found and not options.json:
        more = [f"Or: {fix['sentence']}" for fix in found["error"]["fixes"][1:]]
        tell("\n".join([found["error"]["sentence"], found["error"]["fix"], *more]))
    return EXIT_REFUSED if "error" in found else EXIT_OK


def document(options: argparse.Namespace) -> dict[str, Any]:
    """Model, machine, and the plan or the error that stands in its place; with `--stops` also the slider.

    Raises:
        SplitpinError: the model folder or the machine file cannot be read.
    """
    shape = read_shape(options.model)
    facts, wishes = facts_of(options), wishes_of(options)
    found: dict[str, Any] = {"model": {}, "machine": _machine_part(facts, wishes)}
    plan: MemoryPlan | None = None
    try:
        plan = _plan_or_fixes(options, shape, facts, wishes)
        found["plan"] = plan_part(plan)
        if options.out is not None:
            _write(plan, options.out)
        found["speed"] = _speed_part(plan, facts, learned_of(options))
        if options.stops:
            found |= _stops_part(slider_stops(shape, facts, wishes))
    except SplitpinError as error:
        found["error"] = error.problem.model_dump(mode="json")
        if options.stops and not isinstance(error, UsageError):
            found |= _stops_part(slider_stops(shape, facts, wishes))
    found["model"] = _model_part(shape if plan is None else plan.model, _asked_tokens(plan, wishes, shape))
    return found


def _write(plan: MemoryPlan, file: Path) -> None:
    try:
        write_atomically(file, plan.model_dump_json(indent=2) + "\n")
    except OSError as cause:
        raise UsageError(f"{file} cannot be written: {cause.strerror}.", "Choose another file.") from cause


def _model_dir(options: argparse.Namespace) -> str:
    return str(resolve_model_folder(options.model).resolve())


def _asked_tokens(plan: MemoryPlan | None, wishes: Wishes, shape: ModelShape) -> int | None:
    if plan is not None:
        return plan.context_tokens
    return None if wishes.context_tokens is None else min(wishes.context_tokens, shape.max_context_tokens)


def _model_part(shape: ModelShape, tokens: int | None) -> dict[str, Any]:
    sizes = banks(shape)
    return {
        "name": shape.name,
        "family": shape.family,
        "source": shape.source,
        "assumptions": list(shape.assumptions),
        "layers": len(shape.layers),
        "moe_layers": list(shape.moe_layers),
        "kv_layers": [layer.index for layer in shape.layers if layer.kv is not None],
        "experts": shape.experts.n_experts,
        "experts_per_token": shape.experts.top_k,
        "container": shape.container,
        "stored_as": shape.stored_as,
        "expert_format": shape.expert_format.value,
        "expert_formats": [[form.value for form in storage.formats] for storage in shape.layer_storages],
        "runnable": shape.not_runnable is None,
        "max_context_tokens": shape.max_context_tokens,
        "bank_bytes": list(sizes),
        "bank_total_bytes": sum(sizes),
        "kv_bytes_per_token": kv_bytes_per_token(shape),
        "kv_bytes": None if tokens is None else kv_cache_bytes(shape, tokens),
        "state_bytes": state_bytes(shape),
        "dense_bytes": shape.dense_bytes,
        "differences": [difference.model_dump(mode="json") for difference in shape.differences],
    }


def plan_part(plan: MemoryPlan) -> dict[str, Any]:
    """A plan as the documents of the doors have it."""
    return {
        "device": plan.device,
        "context_tokens": plan.context_tokens,
        "kv_dtype": plan.kv_dtype,
        "vram_layers": plan.layers_in(Tier.VRAM),
        "pinned_layers": plan.layers_in(Tier.PINNED),
        "locked_layers": plan.layers_in(Tier.LOCKED),
        "pageable_layers": plan.layers_in(Tier.PAGEABLE),
        "expert_slots": plan.expert_slots,
        "ring_experts": plan.ring_experts,
        "ring_staged": plan.ring_staged,
        "prefill_chunk": plan.prefill_chunk,
        "tiers": [tier.value for tier in plan.tiers],
        "ledger": [line.model_dump(mode="json") for line in plan.ledger],
        "pools": {
            pool.value: {"planned_bytes": plan.pool_bytes(pool), "budget_bytes": plan.budgets[pool]} for pool in Pool
        },
        "load_peak": {pool.value: size for pool, size in plan.load_peak.items()},
    }


def _speed_part(plan: MemoryPlan, facts: HardwareFacts, learned: LearnedStore) -> dict[str, Any]:
    """Rates by runs or figures of this PC; a recorded machine has none here."""
    known = None if facts.recorded else learned.experience(facts)
    found = None if known is None else predict(plan, known.rates, known.runs)
    prefill = None if found is None else found.prefill_tok_s
    waiting = None if found is None else found.ttft_s
    return {
        "basis": None if found is None else found.basis,
        "decode_tok_s": None if found is None else [found.decode_tok_s.slow, found.decode_tok_s.fast],
        "prefill_tok_s": None if prefill is None else [prefill.slow, prefill.fast],
        "prompt_tokens": None if found is None or prefill is None else found.prompt_tokens,
        "prompt_basis": None if found is None or prefill is None else found.prompt_basis,
        "ttft_s": None if waiting is None else [waiting.slow, waiting.fast],
        "sentence": speed_line(found),
    }


def _machine_part(facts: HardwareFacts, wishes: Wishes) -> dict[str, Any]:
    found = budgets(facts, wishes)
    quota = found.quota
    return {
        "label": facts.label,
        "recorded": facts.recorded,
        "device": found.device,
        "pin_quota": {
            "bytes": quota.bytes,
            "source": quota.source.value,
            "reason": quota.reason,
            "proven": quota.proven,
            "must_measure": quota.must_measure,
            "ceiling_bytes": quota.ceiling_bytes,
            "terms": _terms(quota.budget),
        },
        "budgets": {
            name: {"bytes": budget.bytes, "terms": _terms(budget)}
            for name, budget in (
                ("vram", found.vram),
                ("ram", found.ram),
                ("commit", found.commit),
                ("locked", found.locked),
            )
        },
    }


def _terms(budget: Budget) -> list[dict[str, Any]]:
    return [{"what": term.what, "bytes": term.bytes} for term in budget.terms]


def _stops_part(found: SliderStops) -> dict[str, Any]:
    markers = {"pin_full": found.pin_full, "ram_full": found.ram_full}
    return {
        "stops": [
            {
                "context_tokens": stop.context_tokens,
                "vram_layers": stop.vram_layers,
                "pinned_layers": stop.pinned_layers,
                "locked_layers": stop.locked_layers,
                "pageable_layers": stop.pageable_layers,
                "expert_slots": stop.expert_slots,
            }
            for stop in found.stops
        ],
        "markers": {
            name: None
            if marker is None
            else {"stop": marker.stop, "layers": marker.layers, "limit": marker.limit, "assumed": marker.assumed}
            for name, marker in markers.items()
        },
    }


def as_text(found: dict[str, Any]) -> str:
    """The document as a short table for people."""
    model, machine = found["model"], found["machine"]
    sizes = f"{_each(model['bank_bytes'])}, {gib(model['bank_total_bytes'])} in all"
    lines = [
        f"{model['name']} ({model['family']}, experts in {model['stored_as']}, from {model['source']})",
        f"  {len(model['moe_layers'])} of {model['layers']} layers have experts: {sizes}",
        f"  other weights {gib(model['dense_bytes'])}, KV cache {model['kv_bytes_per_token']:,} B a token",
        *(f"  assumed: {note}" for note in model["assumptions"]),
        *(
            f"  {item['what']}: {item['file_bytes']:,} B in the files, {item['config_bytes']:,} B by config.json"
            for item in model["differences"]
        ),
        f"On {machine['label']} ({machine['device']})",
    ]
    if "plan" in found:
        lines += _show_plan(found["plan"])
    if "speed" in found:
        lines.append(f"  {found['speed']['sentence']}")
    if "stops" in found:
        lines += ["Stops", *(_show_stop(stop) for stop in found["stops"])]
    return "\n".join(lines)


def _show_plan(plan: dict[str, Any]) -> list[str]:
    lines = [_show_stop(plan)]
    for name, pool in plan["pools"].items():
        if pool["planned_bytes"]:
            limit = "" if pool["budget_bytes"] is None else f" of {gib(pool['budget_bytes'])}"
            lines.append(f"  {name:9}{gib(pool['planned_bytes']):>12}{limit}")
    return lines


def _show_stop(stop: dict[str, Any]) -> str:
    tiers = ", ".join(f"{stop[f'{tier.value}_layers']} {tier.value}" for tier in Tier if stop[f"{tier.value}_layers"])
    slots = f", {stop['expert_slots']} expert slots" if stop["expert_slots"] else ""
    return f"  {stop['context_tokens']:>9,} tokens: {tiers}{slots}"


def _each(sizes: list[int]) -> str:
    least, most = min(sizes, default=0), max(sizes, default=0)
    return f"{gib(least)} each" if least == most else f"{gib(least)} to {gib(most)} each"
