"""An engine without torch: the same argv, stdout events and HTTP API as `python -m engine`, with a scripted answer.

    python -m tests.support.fake_engine [SCRIPT.jsonl] [options] serve plan.json --run-id X --parent-pid N ...

It loads what the plan says in milliseconds, and can be told to fall short, to crash, to fail or to ignore Stop.
A SCRIPT replaces the load: each line is an event to emit as it is, or one of `{"listen": true}`, `{"delay_ms": 50}`,
`{"stderr": "text"}`, `{"exit": 3}`; where it does not end the process, the engine then serves as if it were ready.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from engine.contract.changed_model import check_unchanged
from engine.contract.checkpoint import read_shape
from engine.contract.errors import NotEnoughRamError, NotEnoughVramError, SplitpinError
from engine.contract.estimate import bank_bytes, expert_record
from engine.contract.events import (
    EVENTS,
    WIRE_VERSION,
    Event,
    Failed,
    Hello,
    LayerSettled,
    Listening,
    Loading,
    PlanChanged,
    PlanChanging,
    Ready,
    Stopped,
)
from engine.contract.plan import MemoryPlan, Tier
from engine.contract.plan_change import PlanWish, changed_plan
from engine.contract.residency import LayerResidency, ResidencyReport
from engine.contract.units import MIB
from engine.contract.wire import decode_command, encode
from engine.serve.openai import ChatRequest
from engine.serve.problems import PortTakenError
from engine.system.select import host_allocator, page_locker
from tests.support.fake_engine_http import FakeServer, handler_of

ABRUPT_EXIT = 134  # what an abort looks like to a shell


class FakeEngine:
    """State shared by the loading thread and the HTTP handlers."""

    def __init__(self, options: argparse.Namespace, plan: MemoryPlan) -> None:
        self.options = options
        self.plan = plan
        self.events = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        self.writing = threading.Lock()
        self.generating = threading.Lock()
        self.stopping = threading.Event()
        self.residency: ResidencyReport | None = None
        self.loading: Loading | None = None
        self.counter = 0
        self.server: ThreadingHTTPServer | None = None

    def emit(self, event: Event) -> None:
        with self.writing:
            self.events.write(encode(event))

    def listen(self) -> None:
        port = self.options.port if self.options.port_instead is None else self.options.port_instead
        try:
            server = FakeServer(("127.0.0.1", port), handler_of(self))
        except OSError as refusal:
            raise PortTakenError(port=port, words="another program listens there") from refusal
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.server = server
        self.emit(Listening(host="127.0.0.1", port=server.server_port))

    def load(self) -> None:
        """Emit what a real load emits, layer by layer."""
        plan, options = self.plan, self.options
        bank = bank_bytes(plan.model.experts, plan.model.expert_format)
        layers, started = plan.model.moe_layers, time.monotonic()
        weights = plan.model.experts.n_experts * expert_record(plan.model.experts, plan.model.expert_format).bytes
        total = plan.model.dense_bytes + len(layers) * weights
        settled: list[LayerResidency] = []

        def progress(stage: Literal["starting", "dense", "experts", "checking"], done: int) -> None:
            self.loading = Loading(
                stage=stage,
                layers_done=len(settled),
                layers_total=len(layers),
                bytes_done=done,
                bytes_total=total,
                elapsed_s=time.monotonic() - started,
            )
            self.emit(self.loading)

        progress("starting", 0)
        if options.read_folder:
            check_unchanged(plan.model, read_shape(Path(plan.model_dir)))
        progress("dense", plan.model.dense_bytes)
        pinned = 0
        for place, (layer, asked) in enumerate(zip(layers, plan.tiers, strict=True)):
            if self.stopping.wait(options.layer_delay_ms / 1000):
                return
            if options.crash_at_layer is not None and place == options.crash_at_layer:
                print(options.last_words, file=sys.stderr, flush=True)
                os._exit(options.crash_code)
            if options.fail_at_layer is not None and place == options.fail_at_layer:
                raise NotEnoughRamError(
                    needed_bytes=total, available_bytes=total // 2, fix="Choose a smaller model.", what="This model"
                )
            got, cause = asked, None
            if asked is Tier.PINNED:
                if options.fail_pins_from is not None and pinned >= options.fail_pins_from:
                    got, cause = Tier.LOCKED, f"The driver refused to pin layer {layer} after {pinned} layers."
                else:
                    pinned += 1
            settled.append(LayerResidency(layer=layer, asked=asked, settled=got, bytes=bank, cause=cause))
            self.emit(LayerSettled(layer=layer, asked=asked, settled=got, cause=cause))
            progress("experts", plan.model.dense_bytes + len(settled) * weights)
        progress("checking", total)
        self.ready(settled)

    def ready(self, settled: list[LayerResidency]) -> None:
        names = {"cpu": "CPU", "simulated": "simulated GPU", "cuda": "Fake GPU"}
        self.residency = ResidencyReport(
            device=names[self.plan.device],
            simulated=self.plan.device == "simulated",
            layers=tuple(settled),
            ledger_asked=self.plan.ledger,
            ledger_settled=self.plan.ledger,
            self_test="scripted: no weights were compared",
        )
        self.emit(Ready(residency=self.residency))

    def play(self, script: Path) -> None:
        """Emit the lines of a script instead of loading; a `ready` line makes the API answer."""
        for line in script.read_text("utf-8").splitlines():
            step: dict[str, Any] = json.loads(line) if line.strip() else {}
            if "event" in step:
                event = EVENTS.validate_python(step)
                self.emit(event)
                if isinstance(event, Ready):
                    self.residency = event.residency
            if step.get("listen"):
                self.listen()
            if "delay_ms" in step and self.stopping.wait(step["delay_ms"] / 1000):
                return
            if "stderr" in step:
                print(step["stderr"], file=sys.stderr, flush=True)
            if "exit" in step:
                os._exit(step["exit"])

    def change_plan(self, wanted: MemoryPlan | PlanWish) -> PlanChanged:
        """Take another split once nobody is being answered, or refuse it for want of VRAM."""
        with self.generating:
            self.emit(PlanChanging(bytes_done=0, bytes_total=0))
            if self.stopping.wait(self.options.plan_delay_ms / 1000) or self.options.refuse_plan:
                raise NotEnoughVramError(needed_bytes=2 * MIB, available_bytes=MIB, fix="Start the engine again.")
            assert self.residency is not None
            plan = wanted if isinstance(wanted, MemoryPlan) else changed_plan(self.plan, wanted)
            at = dict(zip(plan.model.moe_layers, plan.tiers, strict=True))
            layers = tuple(
                layer if layer.asked is at[layer.layer] else _moved(layer, at[layer.layer])
                for layer in self.residency.layers
            )
            ledgers = {"ledger_asked": plan.ledger, "ledger_settled": plan.ledger}
            self.plan, self.residency = plan, self.residency.model_copy(update={"layers": layers, **ledgers})
            changed = PlanChanged(plan=plan, residency=self.residency, took_s=0.01)
            self.emit(changed)
            return changed

    def health(self) -> dict[str, Any]:
        state = "stopping" if self.stopping.is_set() else "loading" if self.residency is None else "ready"
        loading = self.loading
        return {
            "status": state,
            "stage": loading.stage if loading is not None and state == "loading" else None,
            "bytes_done": loading.bytes_done if loading else 0,
            "bytes_total": loading.bytes_total if loading else 0,
            "model": self.plan.model.name,
        }

    def reply_to(self, request: ChatRequest) -> list[str]:
        """The scripted words; without a script, the question back."""
        asked = request.messages[-1].text(len(request.messages) - 1)
        words = (self.options.reply or f"You said: {asked}").split(" ")
        return [word if place == 0 else f" {word}" for place, word in enumerate(words)]


def _moved(layer: LayerResidency, tier: Tier) -> LayerResidency:
    return layer.model_copy(update={"asked": tier, "settled": tier, "cause": None})


def _watch_stdin(engine: FakeEngine) -> None:
    for line in sys.stdin.buffer:
        decode_command(line)
        if not engine.options.ignore_stop:
            engine.stopping.set()
    if engine.options.parent_pid is not None:
        engine.stopping.set()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fake_engine", description=__doc__)
    parser.add_argument("words", nargs="+", metavar="[SCRIPT.jsonl] serve plan.json")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--port-instead", type=int, help="try this port, as if it had been taken just now")
    parser.add_argument("--lock-mib", type=int, default=0, help="lock this much memory while it lives")
    parser.add_argument("--run-id", default="")
    parser.add_argument("--parent-pid", type=int)
    parser.add_argument("--parent-create-time", type=float)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--reply", help="answer to every question; default: the question itself")
    parser.add_argument("--token-delay-ms", type=int, default=5)
    parser.add_argument("--layer-delay-ms", type=int, default=20)
    parser.add_argument("--fail-pins-from", type=int, metavar="K", help="pinned layers fall to locked after K of them")
    parser.add_argument("--crash-at-layer", type=int, metavar="K", help="die without a word before the K-th layer")
    parser.add_argument("--crash-code", type=int, default=ABRUPT_EXIT)
    parser.add_argument("--last-words", default="fatal: scripted crash while loading", help="of the log before it dies")
    parser.add_argument("--read-folder", action="store_true", help="look whether the model is still as planned")
    parser.add_argument("--fail-at-layer", type=int, metavar="K", help="a typed Failed event before the K-th layer")
    parser.add_argument("--wire", type=int, default=WIRE_VERSION, help="protocol version to claim")
    parser.add_argument("--plan-delay-ms", type=int, default=0, help="what another split takes")
    parser.add_argument("--refuse-plan", action="store_true", help="refuse another split")
    parser.add_argument("--ignore-stop", action="store_true", help="neither Stop nor SIGTERM ends it")
    return parser


def main() -> None:
    options = _parser().parse_intermixed_args()
    words: list[str] = options.words
    script = None if words[0] == "serve" else Path(words[0])
    plan = MemoryPlan.model_validate_json(Path(words[-1]).read_text("utf-8"))
    engine = FakeEngine(options, plan)
    engine.emit(Hello(wire=options.wire, engine_version="fake", pid=os.getpid(), run_id=options.run_id))
    stop = signal.SIG_IGN if options.ignore_stop else lambda *_: engine.stopping.set()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    threading.Thread(target=_watch_stdin, args=(engine,), daemon=True).start()
    if options.lock_mib:
        block = host_allocator().allocate(options.lock_mib * MIB)
        page_locker().lock(block.address, block.nbytes)
    try:
        if script is None:
            engine.listen()
            engine.load()
        else:
            engine.play(script)
    except SplitpinError as error:
        engine.emit(Failed(problem=error.problem))
        os._exit(2)
    while not engine.stopping.wait(0.1):
        pass
    with engine.generating:  # the answer being written ends as cancelled before the last line
        engine.emit(Stopped())
    os._exit(0)


if __name__ == "__main__":
    main()
