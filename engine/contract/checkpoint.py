"""From a model folder to its `ModelShape`. Standard library only; reads config.json and the headers of weight files.

Weight files are right, config.json is what one may expect: where the two disagree about bytes without contradicting
each other, the shape lists both numbers as a difference.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from engine.contract.checkpoint_dense import (
    VALUE_BYTES,
    dense_bytes_of_files,
    plain_format_of_files,
    without_tied_head,
)
from engine.contract.checkpoint_experts import FILES_FIX, main_format, shortest, stored_experts
from engine.contract.checkpoint_folder import CONFIG_NAME, model_name, resolve_model_folder
from engine.contract.checkpoint_formats import expert_storage_of_config, packed_bits_of_config, plain_format_of_config
from engine.contract.checkpoint_headers import TensorEntry, TensorTable, has_weights, read_headers
from engine.contract.checkpoint_json import read_config_file
from engine.contract.checkpoint_names import COMPUTED, expert_name, is_not_loaded, layer_of
from engine.contract.errors import CannotEstimateError, ModelFileError
from engine.contract.estimate import bank_bytes
from engine.contract.families import TextConfig, anatomy_of
from engine.contract.families_anatomy import Anatomy
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.formats import ExpertStorage, WeightFormat, alike
from engine.contract.gguf_config import gguf_config
from engine.contract.gguf_files import gguf_files, gguf_models
from engine.contract.gguf_headers import GgufModel, read_gguf
from engine.contract.gguf_run_config import why_gguf_not_run
from engine.contract.gguf_weights import layer_storage, sort_tensors
from engine.contract.record import first_fault
from engine.contract.shape import Difference, ModelShape

__all__ = [
    "TensorEntry",
    "TensorTable",
    "gguf_of",
    "holds_several_models",
    "read_config",
    "read_headers",
    "read_shape",
    "resolve_model_folder",
    "shape_of_gguf",
]

_HEADS = ("lm_head.weight", "unembed.weight")


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a resolved folder.

    Raises:
        ModelFolderError: it cannot be read or is not a JSON object.
    """
    return read_config_file(folder / CONFIG_NAME)


def read_shape(folder: Path, table: TensorTable | None = None) -> ModelShape:
    """Everything the byte arithmetic needs to know of a model folder, or of a GGUF file.

    Weight bytes come from the headers of the weight files, which are checked against config.json; a folder with
    config.json alone works too and is marked `source="config"`. `table` is what `read_headers` says, where somebody has
    read it already.

    Raises:
        ModelFolderError: no config.json, or it cannot be read.
        UnsupportedModelError: not a Mixture-of-Experts model, or a type the engine cannot run.
        CannotEstimateError: a fact is missing, or the model keeps something else than keys and values.
        ModelFileError: a weight file is missing, incomplete, or contradicts config.json.
    """
    resolved = resolve_model_folder(folder)
    if files := gguf_of(resolved):
        return shape_of_gguf(read_gguf(files))
    text, facts, anatomy = _anatomy(read_config(resolved))
    plain = plain_format_of_config(text)
    name = model_name(folder, resolved)
    if has_weights(resolved):
        table = read_headers(resolved) if table is None else table
        return _from_headers(name, text, facts, anatomy, plain, table)
    if plain is None:
        facts.assumptions.append("config.json names no weight type; bf16 taken")
    return _from_config(name, text, facts, anatomy, plain or WeightFormat.BF16)


def gguf_of(place: Path) -> tuple[Path, ...]:
    """The GGUF files that a resolved place is read from; none: config.json and safetensors files.

    Raises:
        ModelFolderError, ModelFileError: as `gguf_files`.
    """
    return () if _is_safetensors(place) else gguf_files(place)


def holds_several_models(folder: Path) -> bool:
    """Whether a folder holds several GGUF models, so that a file has to be chosen."""
    try:
        return not _is_safetensors(folder) and len(gguf_models(folder)) > 1
    except OSError:
        return False


def _is_safetensors(place: Path) -> bool:
    return place.is_dir() and has_weights(place) and (place / CONFIG_NAME).is_file()


def _anatomy(config: Mapping[str, Any]) -> tuple[TextConfig, ConfigFacts, Anatomy]:
    """`anatomy_of`, where sizes that are possible one by one but not together are refused too."""
    try:
        return anatomy_of(config)
    except ValidationError as cause:
        fault = first_fault(cause)
        raise CannotEstimateError(
            f"The configuration describes an impossible model: {fault.told:.200}.", CONFIG_FIX, fact=fault.field
        ) from cause


def _from_config(name: str, text: TextConfig, facts: ConfigFacts, anatomy: Anatomy, plain: WeightFormat) -> ModelShape:
    storage = alike(expert_storage_of_config(text, plain, facts.assumptions))
    dense_format = plain
    if storage.up.format not in VALUE_BYTES:
        facts.assumptions.append("all weights outside of the routed experts are counted in bf16")
        dense_format = WeightFormat.BF16
    if text.outer:
        facts.assumptions.append("parts for pictures and sound are not counted")
    return _shape(
        name,
        text,
        facts,
        anatomy,
        expert_format=storage.up.format,
        dense_format=dense_format,
        dense_bytes=_dense_bytes(anatomy, dense_format),
        source="config",
        storages=shortest((storage,)),
    )


def _dense_bytes(anatomy: Anatomy, dense_format: WeightFormat) -> int:
    return anatomy.dense.plain * VALUE_BYTES[dense_format] + anatomy.dense.fp32 * 4


def _shape(
    name: str,
    text: TextConfig,
    facts: ConfigFacts,
    anatomy: Anatomy,
    *,
    expert_format: WeightFormat,
    dense_format: WeightFormat,
    dense_bytes: int,
    source: Literal["headers", "config"],
    storages: tuple[ExpertStorage, ...],
    container: Literal["safetensors", "gguf"] = "safetensors",
    differences: tuple[Difference, ...] = (),
) -> ModelShape:
    return ModelShape(
        name=name,
        family=text.model_type,
        hidden_size=anatomy.hidden_size,
        streams=anatomy.streams,
        vocab_size=anatomy.vocab_size,
        max_context_tokens=anatomy.max_context_tokens,
        layers=anatomy.layers,
        experts=anatomy.experts,
        expert_format=expert_format,
        dense_format=dense_format,
        dense_bytes=dense_bytes,
        source=source,
        assumptions=tuple(facts.assumptions),
        container=container,
        storages=storages,
        differences=differences,
    )


def _from_headers(
    name: str, text: TextConfig, facts: ConfigFacts, anatomy: Anatomy, plain: WeightFormat | None, table: TensorTable
) -> ModelShape:
    experts: dict[int, list[TensorEntry]] = {}
    dense: list[TensorEntry] = []
    for entry in table.values():
        layer = layer_of(entry.name)
        if (
            text.leaves_out(entry.name)
            or is_not_loaded(entry.name)
            or (layer is not None and layer >= len(anatomy.layers))
        ):
            continue  # layers for guessing ahead or for speech, and tables that are computed anew
        if (expert := expert_name(entry.name)) is not None:
            if expert.expert is not None and 0 <= expert.expert - anatomy.experts.n_experts < anatomy.idle_experts:
                continue  # nothing uses their weights
            experts.setdefault(-1 if layer is None else layer, []).append(entry)
        else:
            dense.append(entry)
    _check_layers(anatomy, experts)
    if anatomy.tied:
        dense = without_tied_head(dense)
    if plain is None:
        plain = plain_format_of_files(dense) or WeightFormat.BF16
        facts.assumptions.append(f"config.json names no weight type; {plain.value} taken, as most weights are stored")
    found = stored_experts(anatomy.experts, experts)
    facts.assumptions += found.assumptions
    storages = shortest(found.storages)
    dense_bytes = dense_bytes_of_files(dense, plain, anatomy.fp32_names, packed_bits_of_config(text))
    if any(entry.name.endswith(_HEADS) and entry.values == anatomy.vocab_size * anatomy.hidden_size for entry in dense):
        dense_bytes -= anatomy.head_padding * VALUE_BYTES[plain]
    if not any(entry.name.endswith(COMPUTED) for entry in dense):
        dense_bytes += anatomy.computed_bytes
    return _shape(
        name,
        text,
        facts,
        anatomy,
        expert_format=main_format(found.storages),
        dense_format=plain,
        dense_bytes=dense_bytes + found.beside_bytes,
        source="headers",
        storages=storages,
        differences=_differences(text, anatomy, plain, found.storages, dense_bytes + found.beside_bytes),
    ).model_copy(update={"blocked": _why_not_run(anatomy, experts, found.storages)})


def _why_not_run(
    anatomy: Anatomy, experts: Mapping[int, list[TensorEntry]], storages: tuple[ExpertStorage, ...]
) -> str | None:
    """Packed matrices cannot be taken apart where the rows of gate and up come in turn (published Inkling files)."""
    in_turn = any(".w13_weight" in entry.name for entries in experts.values() for entry in entries[:8])
    if in_turn and not all(storage.plain_format(anatomy.experts.has_bias) for storage in storages):
        return "its packed experts have rows of gate and up in turn, which the engine does not take apart yet"
    return None


def _differences(
    text: TextConfig, anatomy: Anatomy, plain: WeightFormat, storages: tuple[ExpertStorage, ...], dense_bytes: int
) -> tuple[Difference, ...]:
    """What config.json alone would have made of it, where that differs."""
    try:
        expected = alike(expert_storage_of_config(text, plain, []))
    except CannotEstimateError:
        return ()  # config.json leaves the bytes open: there is nothing to compare with
    dense_format = plain if expected.up.format in VALUE_BYTES else WeightFormat.BF16
    sums = {
        "routed experts": (
            len(storages) * bank_bytes(anatomy.experts, expected),
            sum(bank_bytes(anatomy.experts, storage) for storage in storages),
        ),
        "other weights": (_dense_bytes(anatomy, dense_format), dense_bytes),
    }
    return tuple(
        Difference(what=what, config_bytes=by_config, file_bytes=in_files)
        for what, (by_config, in_files) in sums.items()
        if by_config != in_files
    )


def _check_layers(anatomy: Anatomy, found: Mapping[int, object]) -> None:
    """Compare the layers that have routed experts in the files with those of the configuration.

    Raises:
        ModelFileError: they are not the same.
    """
    expected = [layer.index for layer in anatomy.layers if layer.moe]
    if sorted(found) == expected:
        return
    odd = min(set(found) ^ set(expected))
    where = f"first difference: layer {odd}" if odd >= 0 else "some tensors do not say their layer"
    raise ModelFileError(
        f"config.json describes routed experts in {len(expected)} layers; the weight files hold them in"
        f" {len(found)} ({where}).",
        FILES_FIX,
        layers_in_config=len(expected),
        layers_in_files=len(found),
    )


def shape_of_gguf(model: GgufModel) -> ModelShape:
    """The same of GGUF files whose headers are read; errors as `read_shape`."""
    config, arch = gguf_config(model), str(model.metadata["general.architecture"])
    text, facts, anatomy = _anatomy(config)
    found = sort_tensors(model, len(anatomy.layers))
    _check_layers(anatomy, found.experts)
    storages = tuple(layer_storage(anatomy.experts, layer, found.experts[layer]) for layer in sorted(found.experts))
    return _shape(
        model.name,
        text,
        facts,
        anatomy,
        expert_format=main_format(storages),
        dense_format=found.dense_format,
        dense_bytes=found.dense_bytes(arch, anatomy.fp32_names) + found.beside_bytes,
        source="headers",
        storages=shortest(storages),
        container="gguf",
    ).model_copy(update={"blocked": why_gguf_not_run(model, [entry.name for entry in found.dense], config)})
