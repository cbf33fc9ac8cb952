"""From a model folder to its `ModelShape`. Standard library only; reads config.json and the headers of weight files."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.contract.checkpoint_formats import (
    expert_format_of_config,
    expert_format_of_headers,
    is_expert_tensor,
    layer_of,
    plain_format_of_config,
)
from engine.contract.checkpoint_headers import TensorEntry, TensorTable, has_weights, read_headers
from engine.contract.errors import ModelFileError, ModelFolderError
from engine.contract.families import TextConfig, anatomy_of
from engine.contract.families_anatomy import Anatomy
from engine.contract.families_facts import ConfigFacts
from engine.contract.formats import WeightFormat
from engine.contract.shape import ExpertShape, ModelShape

__all__ = ["TensorEntry", "TensorTable", "read_config", "read_headers", "read_shape", "resolve_model_folder"]

_VALUE_BYTES = {WeightFormat.FP32: 4, WeightFormat.BF16: 2, WeightFormat.FP16: 2}
_FLOATS = frozenset({"F64", "F32", "BF16", "F16"})
_HUB_FOLDER = re.compile(r"models--(.+)")
_NOT_LOADED = re.compile(r"^(talker|code2wav)\.|(^|\.)(mtp|mtp_layers)\.|rotary_emb\.inv_freq$")


def resolve_model_folder(folder: Path) -> Path:
    """The folder that holds config.json: `folder` itself, or the snapshot inside a download cache folder.

    Raises:
        ModelFolderError: no such folder, no config.json in it, or several snapshots and no word which one is meant.
    """
    if not folder.is_dir():
        raise ModelFolderError(f"There is no folder {folder}.", "Choose a folder that exists.", folder=str(folder))
    if (folder / "config.json").is_file():
        return folder
    snapshots = folder / "snapshots"
    if not snapshots.is_dir():
        raise ModelFolderError(
            f"There is no config.json in {folder}.",
            "Choose the folder that holds config.json and the weight files.",
            folder=str(folder),
        )
    main = folder / "refs" / "main"
    if main.is_file() and (named := snapshots / main.read_text("utf-8").strip()).is_dir():
        return _with_config(named)
    there = sorted(path for path in snapshots.iterdir() if path.is_dir())
    if len(there) != 1:
        raise ModelFolderError(
            f"{folder.name} holds {len(there)} snapshots and does not say which one to use.",
            f"Choose one of them: {', '.join(path.name for path in there)}." if there else "Download the model again.",
            folder=str(folder),
            snapshots=len(there),
        )
    return _with_config(there[0])


def _with_config(snapshot: Path) -> Path:
    if not (snapshot / "config.json").is_file():
        raise ModelFolderError(
            f"There is no config.json in {snapshot}.", "Download the model again.", folder=str(snapshot)
        )
    return snapshot


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a resolved folder.

    Raises:
        ModelFolderError: it cannot be read or is not a JSON object.
    """
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text("utf-8"))
    except OSError as cause:
        raise ModelFolderError(f"{file} cannot be read: {cause.strerror}.", "Check the folder.") from cause
    except (ValueError, RecursionError) as cause:
        raise ModelFolderError(f"{file} is not valid JSON: {cause}.", "Download config.json again.") from cause
    if not isinstance(config, dict):
        raise ModelFolderError(f"{file} does not describe a model.", "Download config.json again.")
    return config


def read_shape(folder: Path) -> ModelShape:
    """Everything the byte arithmetic needs to know of a model folder.

    Weight bytes come from the headers of the weight files, which are checked against config.json; a folder with
    config.json alone works too and is marked `source="config"`.

    Raises:
        ModelFolderError: no config.json, or it cannot be read.
        UnsupportedModelError: not a Mixture-of-Experts model, or a type the engine cannot run.
        CannotEstimateError: a fact is missing, or the model keeps something else than keys and values.
        ModelFileError: a weight file is missing, incomplete, or contradicts config.json.
    """
    resolved = resolve_model_folder(folder)
    text, facts, anatomy = anatomy_of(read_config(resolved))
    plain = plain_format_of_config(text)
    if plain is None:
        facts.assumptions.append("config.json names no weight type; bf16 taken")
        plain = WeightFormat.BF16
    if has_weights(resolved):
        return _from_headers(_name(folder, resolved), text, facts, anatomy, plain, read_headers(resolved))
    expert_format = expert_format_of_config(text, plain)
    if expert_format not in _VALUE_BYTES:
        facts.assumptions.append("all weights outside of the routed experts are counted in bf16")
        plain = WeightFormat.BF16
    if text.outer:
        facts.assumptions.append("parts for pictures and sound are not counted")
    dense_bytes = anatomy.dense.plain * _VALUE_BYTES[plain] + anatomy.dense.fp32 * 4
    return _shape(_name(folder, resolved), text, facts, anatomy, (expert_format, plain, dense_bytes), "config")


def _shape(
    name: str,
    text: TextConfig,
    facts: ConfigFacts,
    anatomy: Anatomy,
    weights: tuple[WeightFormat, WeightFormat, int],
    source: Any,
) -> ModelShape:
    expert_format, dense_format, dense_bytes = weights
    return ModelShape(
        name=name,
        family=text.model_type,
        hidden_size=anatomy.hidden_size,
        vocab_size=anatomy.vocab_size,
        max_context_tokens=anatomy.max_context_tokens,
        layers=anatomy.layers,
        experts=anatomy.experts,
        expert_format=expert_format,
        dense_format=dense_format,
        dense_bytes=dense_bytes,
        source=source,
        assumptions=tuple(facts.assumptions),
    )


def _from_headers(
    name: str, text: TextConfig, facts: ConfigFacts, anatomy: Anatomy, plain: WeightFormat, table: TensorTable
) -> ModelShape:
    experts: dict[int, list[TensorEntry]] = {}
    dense: list[TensorEntry] = []
    for entry in table.values():
        layer = layer_of(entry.name)
        if _NOT_LOADED.search(entry.name) or (layer is not None and layer >= len(anatomy.layers)):
            continue  # layers for guessing ahead or for speech, and tables that are computed anew
        if is_expert_tensor(entry.name):
            experts.setdefault(-1 if layer is None else layer, []).append(entry)
        elif not (anatomy.tied and entry.name.endswith("lm_head.weight")):
            dense.append(entry)
    expert_format = expert_format_of_headers([entry for entries in experts.values() for entry in entries])
    _check_experts(anatomy, experts, expert_format)
    dense_bytes = sum(_loaded_bytes(entry, plain, anatomy.fp32_names) for entry in dense)
    return _shape(name, text, facts, anatomy, (expert_format, plain, dense_bytes), "headers")


def _loaded_bytes(entry: TensorEntry, plain: WeightFormat, fp32_names: tuple[str, ...]) -> int:
    """Bytes of a dense tensor in memory: floats take the model's own type or fp32, packed ones stay as they are."""
    if entry.dtype not in _FLOATS:
        return entry.nbytes
    return entry.values * (4 if any(part in entry.name for part in fp32_names) else _VALUE_BYTES[plain])


def _check_experts(anatomy: Anatomy, found: Mapping[int, list[TensorEntry]], weight_format: WeightFormat) -> None:
    """Compare the routed experts of the files with config.json.

    Raises:
        ModelFileError: other layers have experts than config.json says, or a layer has more or fewer bytes.
    """
    expected = [layer.index for layer in anatomy.layers if layer.moe]
    fix = "Download config.json and the weight files again; they do not belong together."
    if sorted(found) != expected:
        odd = sorted(set(found) ^ set(expected))
        raise ModelFileError(
            f"config.json describes routed experts in {len(expected)} layers; the weight files hold them in"
            f" {len(found)} (first difference: layer {odd[0]}).",
            fix,
            layers_in_config=len(expected),
            layers_in_files=len(found),
        )
    if weight_format not in _VALUE_BYTES:
        return  # scales come in several layouts; the loader checks them
    declared = _expert_values(anatomy.experts) * _VALUE_BYTES[weight_format]
    for layer, entries in found.items():
        held = sum(entry.nbytes for entry in entries)
        if held != declared:
            raise ModelFileError(
                f"The routed experts of layer {layer} take {held:,} B in the weight files;"
                f" config.json describes {declared:,} B.",
                fix,
                layer=layer,
                declared_bytes=declared,
                actual_bytes=held,
            )


def _expert_values(experts: ExpertShape) -> int:
    """Weights and biases of one layer's experts, without any padding."""
    up = experts.inner * (2 if experts.has_gate else 1)
    biases = up + experts.width if experts.has_bias else 0
    return experts.n_experts * (up * experts.width + experts.width * experts.inner + biases)


def _name(asked: Path, resolved: Path) -> str:
    """The folder's name for people; of a download cache folder the model's own name."""
    for part in (asked.resolve(), *asked.resolve().parents):
        if cached := _HUB_FOLDER.fullmatch(part.name):
            return cached[1].split("--")[-1]
    return resolved.resolve().name
