"""A checkpoint of more than 3 GB on a simulated GPU of 1 GiB that may pin 1 GiB: loads, answers, and keeps to its plan.

    python -m tests.bench.big_simulated [--folder DIR]

Writes a random checkpoint in the shape of Qwen3-MoE (removed at the end; --folder keeps it and takes it again), runs
`python -m app chat` on it, and watches the engine through /proc. The simulated GPU is made of RAM, so what the plan
counts as VRAM counts here. Prints each figure; exit code 1 if one is not as it should be. Takes about a minute.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from engine.contract.units import GIB, KIB, gib
from tests.support.big_checkpoint import BigShape, write_checkpoint

SAMPLE_S = 0.02
TOLERANCE = 0.03
ANSWER_TOKENS = 16
PROMPT = " ".join(f"w{number}" for number in range(10, 400))
LIMITS = "vram=1GiB,pin=1GiB"


@dataclass
class Watch:
    """The most that the engine below a process held, by the kernel's account."""

    peak: dict[str, int] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def follow(self, root: psutil.Process) -> None:
        """Sample until told to end."""
        while not self.ended.wait(SAMPLE_S):
            try:
                children = root.children(recursive=True)
            except psutil.NoSuchProcess:
                return
            for child in children:
                for name, size in _status(child.pid).items():
                    self.peak[name] = max(self.peak.get(name, 0), size)


def _status(pid: int) -> dict[str, int]:
    """VmHWM, VmRSS, VmLck ... of a process, in bytes; nothing once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines if line.startswith(("Vm", "Rss")))
    return {name.rstrip(":"): int(size) * KIB for name, size, *_ in fields}


def _chat(model: Path, profile: Path) -> tuple[dict[str, Any], Watch]:
    argv = [sys.executable, "-m", "app", "chat", "--model", str(model), "--prompt", PROMPT, "--json"]
    argv += ["--max-tokens", str(ANSWER_TOKENS), "--simulate-gpu", LIMITS, "--profile-dir", str(profile)]
    process = subprocess.Popen([*argv, "--despite-orphans"], stdout=subprocess.PIPE)
    watch = Watch()
    thread = threading.Thread(target=watch.follow, args=(psutil.Process(process.pid),))
    thread.start()
    try:
        out, _ = process.communicate(timeout=600)
    finally:
        process.kill()
        watch.ended.set()
        thread.join()
    if process.returncode:
        raise SystemExit(f"chat ended with {process.returncode}: {out.decode()}")
    return json.loads(out), watch


def _figures(found: dict[str, Any], watch: Watch, weights: int) -> list[tuple[str, str, bool]]:
    """What was measured, in words, and whether it is right."""
    pools, residency = found["plan"]["pools"], found["residency"]
    planned = pools["ram"] + pools["vram"]
    rss, locked = watch.peak["VmHWM"], watch.peak["VmLck"]
    ask, got = (
        {(line["pool"], line["what"]): line["bytes"] for line in residency[name]}
        for name in ("ledger_asked", "ledger_settled")
    )
    fallen = [layer for layer in residency["layers"] if layer["asked"] != layer["settled"]]
    counts = {tier: sum(layer["settled"] == tier for layer in residency["layers"]) for tier in found["plan"]["layers"]}
    tokens = found["usage"].get("completion_tokens")
    return [
        ("weights on disk", f"{gib(weights)}", weights >= 3_000_000_000),
        ("VRAM planned", f"{gib(pools['vram'])} of 1.0 GiB", pools["vram"] <= GIB),
        ("pinned", f"{gib(pools['pinned'])} of 1.0 GiB", pools["pinned"] <= GIB),
        ("layers", " ".join(f"{count} {tier}" for tier, count in counts.items()), not fallen),
        ("answer", f"{tokens} tokens, {found['timings']['decode_tok_s']:.1f} tok/s", tokens == ANSWER_TOKENS),
        ("load", f"{found['timings']['load_s']:.1f} s", True),
        (
            "peak RSS",
            f"{gib(rss)}, planned {gib(planned)} ({(rss / planned - 1):+.1%})",
            abs(rss - planned) <= TOLERANCE * planned,
        ),
        ("VmLck", f"{gib(locked)}, locked layers {gib(pools['locked'])}", locked >= pools["locked"]),
        ("ledger", f"{len(got)} lines, {sum(ask.get(key) != size for key, size in got.items())} differ", ask == got),
        ("self-test", residency["self_test"], residency["self_test"].startswith("Same as the checkpoint")),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep the checkpoint here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="splitpin-big-") as name:
        folder: Path = options.folder or Path(name) / "model"
        if not folder.exists():
            write_checkpoint(folder, BigShape())
        weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        found, watch = _chat(folder, Path(name) / "profile")
    figures = _figures(found, watch, weights)
    for what, words, right in figures:
        print(f"{what:16} {'ok  ' if right else 'FAIL'} {words}")
    print("peaks", {key: gib(size) for key, size in sorted(watch.peak.items())})
    return 0 if all(right for _, _, right in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
