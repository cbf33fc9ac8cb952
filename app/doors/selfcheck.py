"""`python -m app selfcheck`: does this installation find all of its parts, and does its engine start?"""

import argparse
import importlib.metadata
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from app.core.library import is_complete
from app.doors.common import (
    EXIT_OK,
    Subparsers,
    add_engine,
    add_json,
    add_profile,
    engine_argv_of,
    profile_of,
)
from app.doors.headless import HeadlessEngine
from app.doors.output import print_json, say
from app.paths import demo_model_dir, models_dir, program_dir
from app.supervision.ledger import RunLedger
from engine.contract.estimate import Costs, Split, ledger
from engine.contract.formats import WeightFormat
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.shape import ExpertShape, LayerShape, ModelShape

PACKAGES = (
    "splitpin",
    "PySide6-Essentials",
    "torch",
    "transformers",
    "safetensors",
    "tokenizers",
    "pydantic",
    "psutil",
)


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("selfcheck", help="paths, versions, dry engine start", description=__doc__ or "")
    add_engine(parser)
    add_profile(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print where everything is, and start the engine as far as its greeting.

    Raises:
        SplitpinError: the engine does not start, or speaks another protocol.
    """
    profile = profile_of(options)
    paths = {
        "program": str(program_dir()),
        "python": sys.executable,
        "profile": str(profile.folder),
        "settings": str(profile.settings_file),
        "runs": str(profile.runs_dir),
        "logs": str(profile.logs_dir),
        "models": str(models_dir()),
        "demo_model": str(demo_model_dir()),
    }
    versions = {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}
    document: dict[str, Any] = {
        "paths": paths,
        "versions": versions,
        "demo_model": is_complete(demo_model_dir()),
        "engine": _greet(engine_argv_of(options)),
    }
    if options.json:
        print_json(document)
        return EXIT_OK
    for name, path in paths.items():
        say(f"{name:<12} {path}")
    for name, version in versions.items():
        say(f"{name:<20} {version or 'not installed'}")
    say(f"demo model   {'complete' if document['demo_model'] else 'not prepared'}")
    say(f"engine       started, said hello and stopped (PID {document['engine']['pid']})")
    return EXIT_OK


def _greet(engine_argv: list[str] | None) -> dict[str, Any]:
    """Start the engine with a plan for a model that does not exist, and stop it after its first word."""
    with (
        tempfile.TemporaryDirectory(prefix="splitpin-selfcheck-") as folder,
        HeadlessEngine(_dry_plan(folder), RunLedger(Path(folder) / "runs"), engine_argv) as engine,
    ):
        engine.wait_for(lambda state: engine.hello is not None, lambda state: None)
    assert engine.hello is not None, "it was waited for"
    return {"pid": engine.hello.pid, "version": engine.hello.engine_version, "wire": engine.hello.wire}


def _dry_plan(model_dir: str) -> MemoryPlan:
    shape = ModelShape(
        name="selfcheck",
        family="mixtral",
        hidden_size=64,
        vocab_size=64,
        max_context_tokens=256,
        layers=(LayerShape(index=0, moe=True),),
        experts=ExpertShape(n_experts=2, top_k=1, width=64, inner=64),
        expert_format=WeightFormat.BF16,
        dense_format=WeightFormat.BF16,
        dense_bytes=0,
        source="config",
    )
    split = Split(context_tokens=256, prefill_chunk=64, expert_slots=0, tiers=(Tier.LOCKED,), on_gpu=False)
    return MemoryPlan(
        model_dir=model_dir,
        model=shape,
        device="cpu",
        context_tokens=256,
        prefill_chunk=64,
        expert_slots=0,
        tiers=split.tiers,
        ledger=ledger(shape, split, Costs()),
        budgets=dict.fromkeys(Pool),
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
