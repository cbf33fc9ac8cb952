"""`python -m app chat`: the whole way without a window: plan, start, wait, ask, stop; and what every layer got."""

import argparse
import sys
import time
from dataclasses import asdict, dataclass, field
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
    facts_of,
    learned_of,
    profile_of,
    read_not_negative,
    read_path,
    read_positive,
)
from app.doors.headless import HeadlessEngine, is_ready
from app.doors.output import print_json, say, tell
from app.doors.plan import add_wishes, plan_of
from app.planning.advice import Advice, advice
from app.planning.speed import SpeedRun, run_of
from app.supervision.ledger import RunLedger
from app.supervision.scan import Scanner, refuse_start
from engine.contract.changed_model import ModelChangedError
from engine.contract.errors import ReportedError, UsageError
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.residency import ResidencyReport
from engine.contract.units import gib


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("chat", help="one question and its answer", description=__doc__ or "")
    parser.add_argument("--model", type=read_path, required=True, metavar="DIR", help="model folder or GGUF file")
    parser.add_argument("--prompt", required=True, metavar="TEXT", help="the question; - reads it from standard input")
    parser.add_argument("--system", metavar="TEXT", help="system prompt")
    parser.add_argument(
        "--max-tokens", type=read_positive, metavar="N", help="longest answer; default: what the context holds"
    )
    parser.add_argument(
        "--temperature",
        type=read_not_negative,
        default=0.0,
        metavar="T",
        help="0 (default) always takes the likeliest token",
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
    body = _request(options)
    facts = facts_of(options)
    plan = plan_of(options, facts)
    if not options.despite_orphans:
        refuse_start(Scanner(RunLedger(profile_of(options).runs_dir)).scan())
    try:
        return _run(options, facts, plan, body)
    except ReportedError as error:
        if error.kind != ModelChangedError.kind:
            raise
        tell(f"{error.sentence} Planning again.")
    return _run(options, facts, plan_of(options, facts), body)


def _run(options: argparse.Namespace, facts: HardwareFacts, plan: MemoryPlan, body: dict[str, Any]) -> int:
    learned = learned_of(options)
    started = time.monotonic()
    with HeadlessEngine(plan, RunLedger(profile_of(options).runs_dir), engine_argv_of(options)) as engine:
        ready = engine.wait_for(is_ready, (lambda state: None) if options.json else _Progress().show)
        load_s = time.monotonic() - started
        assert ready.residency is not None, "a ready engine has reported"
        learned.learn_residency(facts, ready.residency)
        answer = _ask(engine, body, echo=not options.json)
    learned.learn_run(facts, _run_of(plan, answer))
    residency = ready.residency
    answer.timings = {"load_s": load_s, **answer.timings}
    if options.json:
        print_json(_document(answer, plan, residency, ready))
    else:
        tell(_summary(answer, plan, residency))
    return EXIT_OK


def _request(options: argparse.Namespace) -> dict[str, Any]:
    """The body of the request.

    Raises:
        UsageError: a text that is not UTF-8, or a closed standard input.
    """
    system = (
        [] if options.system is None else [{"role": "system", "content": _checked("system prompt", options.system)}]
    )
    prompt = _checked("question", _from_stdin() if options.prompt == "-" else options.prompt)
    body: dict[str, Any] = {
        "messages": [*system, {"role": "user", "content": prompt}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": options.temperature,
    }
    return body if options.max_tokens is None else {**body, "max_tokens": options.max_tokens}


def _from_stdin() -> str:
    if sys.stdin is None:
        raise UsageError("There is no standard input to read the question from.", "Write it behind --prompt.")
    return sys.stdin.read().removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")  # the mark some Windows programs begin with


def _checked(what: str, text: str) -> str:
    """Text that can be sent; Python keeps bytes that are not UTF-8 as halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError as cause:
        raise UsageError(f"The {what} is not UTF-8 text.", "Save or send it as UTF-8.") from cause
    return text


def _ask(engine: HeadlessEngine, body: dict[str, Any], *, echo: bool) -> _Answer:
    answer = _Answer()
    for chunk in engine.ask(body):
        answer.text.append(chunk.text)
        if echo:
            say(chunk.text, end="")
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
        say("")
    return answer


def _run_of(plan: MemoryPlan, answer: _Answer) -> SpeedRun | None:
    """The rates worth remembering, if there are any."""
    return run_of(
        plan,
        prompt_tokens=answer.usage.get("prompt_tokens") or 0,
        answer_tokens=answer.usage.get("completion_tokens") or 0,
        decode_tok_s=answer.timings.get("decode_tok_s"),
        prefill_tok_s=answer.timings.get("prefill_tok_s"),
    )


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
            "ring_experts": plan.ring_experts,
            "ring_staged": plan.ring_staged,
            "layers": {tier.value: plan.layers_in(tier) for tier in Tier},
            "pools": {pool.value: plan.pool_bytes(pool) for pool in Pool},
        },
        "residency": residency.model_dump(mode="json"),
        "advice": [asdict(one) for one in advice(residency)],
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
    lines += [f"{one.title}. {one.fix}{_as_option(one)}." for one in advice(residency)]
    return "\n".join(lines)


def _as_option(one: Advice) -> str:
    return "" if one.pin_cap_bytes is None else f": --pin-cap {one.pin_cap_bytes}"


_SHOWN = (EngineStage.STARTING, EngineStage.LOADING, EngineStage.CHECKING)  # the others show by what follows


class _Progress:
    """One line on standard error for each stage, and one for each tenth of the bytes."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None

    def show(self, state: SessionState) -> None:
        loading = state.loading
        tenth = 10 * loading.bytes_done // max(1, loading.bytes_total) if loading else 0
        if self._last == (state.stage, tenth) or state.stage not in _SHOWN:
            return
        self._last = (state.stage, tenth)
        amount = f" {gib(loading.bytes_done)} of {gib(loading.bytes_total)}" if loading else ""
        tell(f"{state.stage}{amount}")
