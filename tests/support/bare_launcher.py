"""A launcher and nothing else: starts an engine with a plan, tells when it is ready, and waits to be killed.

    python -m tests.support.bare_launcher RUNS_DIR PLAN.json [ENGINE WORDS ...]

Without engine words it is the real engine. One JSON line goes to standard output: pid, create_time, api_base.
"""

import json
import sys
import threading
from pathlib import Path

from app.supervision.engine_child import EngineChild
from app.supervision.ledger import RunLedger
from engine.contract.errors import Problem
from engine.contract.events import Event, Listening, Ready
from engine.contract.plan import MemoryPlan


def main() -> None:
    runs, plan_file, *engine_argv = sys.argv[1:]
    ready = threading.Event()
    listening: list[Listening] = []

    def hear(event: Event) -> None:
        if isinstance(event, Listening):
            listening.append(event)
        if isinstance(event, Ready):
            ready.set()

    def end(problem: Problem | None) -> None:
        print(problem, file=sys.stderr, flush=True)

    child = EngineChild.start(
        MemoryPlan.model_validate_json(Path(plan_file).read_bytes()),
        run_ledger=RunLedger(Path(runs)),
        on_event=hear,
        on_log=lambda line: print(line, file=sys.stderr, flush=True),
        on_end=end,
        engine_argv=engine_argv or None,
    )
    ready.wait()
    base = f"http://127.0.0.1:{listening[0].port}/v1"
    print(json.dumps({**child.identity.model_dump(), "api_base": base}), flush=True)
    child.wait()


if __name__ == "__main__":
    main()
