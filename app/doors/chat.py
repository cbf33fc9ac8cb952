"""`python -m app chat`: the whole way without a window: plan, start, wait, ask, stop; and what every layer got."""

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.core.session import EngineStage, SessionState
from app.doors.common import (
    EXIT_OK,
    Subparsers,
    add_engine,
    add_json,
    add_machine,
    add_profile,
    add_simulated_gpu,
    engine_argv_of,
    print_json,
    profile_of,
)
from app.doors.headless import HeadlessEngine, is_ready
from app.doors.plan import add_wishes, plan_of
from app.supervision.ledger import RunLedger
from app.supervision.scan import Scanner, refuse_start
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.residency import ResidencyReport
from engine.contract.units import gib


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("chat", help="one question and its answer", description=__doc__ or "")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="model folder")
    parser.add_argument("--prompt", required=True, metavar="TEXT", help="the question; - reads it from standard input")
    parser.add_argument("--system", metavar="TEXT", help="system prompt")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="longest answer; default: what the context holds")
    parser.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="0 (default) always takes the likeliest token"
    )
    parser.add_argument("--despite-orphans", action="store_true", help="start although a left-over engine holds memory")
    add_wishes(parser)
    add_simulated_gpu(parser)
    add_machine(parser)
    add_engine(parser)
    add_profile(parser)
    add_json(parser)


@dataclass(slots=True)
class _Answer:
    """What came back, piece by piece."""

    text: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, int | None] = field(default_factory=dict)
    timings: dict[str, float | None] = field(default_factory=dict)


def run(options: argparse.Namespace) -> int:
    """Answer one question with an engine of its own.

    Raises:
        SplitpinError: the plan, the start, the load or the request was refused; the engine is gone by then.
    """
    plan = plan_of(options)
    runs = RunLedger(profile_of(options).runs_dir)
    if not options.despite_orphans:
        refuse_start(Scanner(runs).scan())
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    started = time.monotonic()
    with HeadlessEngine(plan, runs, engine_argv_of(options)) as engine:
        ready = engine.wait_for(is_ready, (lambda state: None) if options.json else _Progress().show)
        load_s = time.monotonic() - started
        answer = _ask(engine, _request(options, prompt), echo=not options.json)
    residency = ready.residency
    assert residency is not None, "a ready engine has reported"
    answer.timings = {"load_s": load_s, **answer.timings}
    if options.json:
        print_json(_document(answer, plan, residency, ready))
    else:
        print(_summary(answer, plan, residency), file=sys.stderr)
    return EXIT_OK


def _request(options: argparse.Namespace, prompt: str) -> dict[str, Any]:
    system = [{"role": "system", "content": options.system}] if options.system is not None else []
    body: dict[str, Any] = {
        "messages": [*system, {"role": "user", "content": prompt}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": options.temperature,
    }
    return body if options.max_tokens is None else {**body, "max_tokens": options.max_tokens}


def _ask(engine: HeadlessEngine, body: dict[str, Any], *, echo: bool) -> _Answer:
    answer = _Answer()
    for chunk in engine.ask(body):
        answer.text.append(chunk.text)
        if echo:
            print(chunk.text, end="", flush=True)
        if chunk.finish_reason is not None:
            answer.finish_reason = chunk.finish_reason
        if (stats := chunk.stats) is not None:
            answer.timings = {
                "ttft_s": stats.ttft_s,
                "prefill_tok_s": stats.prefill_tok_s,
                "decode_tok_s": stats.decode_tok_s,
            }
            if stats.prompt_tokens is not None and stats.answer_tokens is not None:
                answer.usage = {
                    "prompt_tokens": stats.prompt_tokens,
                    "completion_tokens": stats.answer_tokens,
                    "total_tokens": stats.prompt_tokens + stats.answer_tokens,
                }
    if echo:
        print()
    return answer


def _document(answer: _Answer, plan: MemoryPlan, residency: ResidencyReport, ready: SessionState) -> dict[str, Any]:
    return {
        "answer": "".join(answer.text),
        "finish_reason": answer.finish_reason,
        "usage": answer.usage,
        "timings": answer.timings,
        "plan": {
            "device": plan.device,
            "context_tokens": plan.context_tokens,
            "prefill_chunk": plan.prefill_chunk,
            "expert_slots": plan.expert_slots,
            "layers": {tier.value: plan.layers_in(tier) for tier in Tier},
            "pools": {pool.value: plan.pool_bytes(pool) for pool in Pool},
        },
        "residency": residency.model_dump(mode="json"),
        "run_id": ready.run_id,
    }


def _summary(answer: _Answer, plan: MemoryPlan, residency: ResidencyReport) -> str:
    """For people, below the answer."""
    rate, ttft = answer.timings.get("decode_tok_s"), answer.timings.get("ttft_s")
    parts = [f"{answer.usage.get('completion_tokens', '?')} tokens"]
    if rate is not None:
        parts.append(f"{rate:.1f} tok/s")
    if ttft is not None:
        parts.append(f"first token {ttft:.1f} s")
    if answer.finish_reason == "length":
        parts.append("length limit")
    settled = ", ".join(f"{residency.settled_count(tier)} {tier}" for tier in Tier if residency.settled_count(tier))
    memory = " · ".join(
        f"{pool} {gib(plan.pool_bytes(pool))}" for pool in (Pool.VRAM, Pool.RAM) if plan.pool_bytes(pool)
    )
    lines = [" · ".join(parts), f"{residency.device}: layers {settled} · {memory}", f"self-test: {residency.self_test}"]
    for layer in residency.fallen:
        lines.append(f"layer {layer.layer}: asked {layer.asked}, got {layer.settled}: {layer.cause}")
    return "\n".join(lines)


class _Progress:
    """One line on standard error for each stage, and one for each tenth of the bytes."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None

    def show(self, state: SessionState) -> None:
        loading = state.loading
        tenth = 10 * loading.bytes_done // max(1, loading.bytes_total) if loading else 0
        if self._last == (state.stage, tenth) or state.stage is EngineStage.READY:
            return
        self._last = (state.stage, tenth)
        amount = f" {gib(loading.bytes_done)} of {gib(loading.bytes_total)}" if loading else ""
        print(f"{state.stage}{amount}", file=sys.stderr)
