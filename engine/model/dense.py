"""Builds transformers' model without its experts and loads every other weight from the files, with progress."""

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from engine.banks.bank import PLAIN_DTYPES
from engine.banks.devices import Device
from engine.checkpoint.loader import TensorReader
from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.checkpoint_names import COMPUTED, expert_name
from engine.contract.checkpoint_packed import PackedTensor, SortedTensors
from engine.contract.errors import ModelFileError, NotEnoughVramError, UnsupportedModelError, in_words
from engine.contract.formats import WeightFormat
from engine.contract.ledger import WEIGHTS
from engine.experts.dequant.code import Pieces, code_of, unreadable
from engine.experts.dequant.matrix import dequantise
from engine.model.experts_function import IMPLEMENTATION, register, without_experts
from engine.model.hub import transformers
from engine.model.inkling_text import loading_name, runs_text_alone
from engine.model.packed_map import read_bytes, read_entry
from engine.model.text_inside import inside_whole


class LazyTensor:
    """A tensor on disk as transformers' loader wants it: indexing with `...` reads it."""

    def __init__(self, entry: TensorEntry, reader: TensorReader) -> None:
        self._entry = entry
        self._reader = reader

    def __getitem__(self, index: object) -> Tensor:
        return read_entry(self._entry, self._reader)


class PackedWeight:
    """A packed matrix on disk, unpacked when it is read."""

    def __init__(
        self, tensor: PackedTensor, reader: TensorReader, dtype: torch.dtype, quantised: Mapping[str, Any], bits: int
    ) -> None:
        self._tensor = tensor
        self._reader = reader
        self._dtype = dtype
        self._quantised = quantised
        self._bits = bits

    def __getitem__(self, index: object) -> Tensor:
        tensor = self._tensor
        *many, rows, columns = (1, 1, *tensor.sizes(self._bits))
        code = code_of(tensor, rows, columns, matrices=math.prod(many), quantised=self._quantised)
        if math.prod(many) > 1:
            raise unreadable(tensor)
        parts = (tensor.weight, tensor.scale, tensor.zero, tensor.order)
        weight, scale, zero, order = (None if part is None else read_bytes(part, self._reader) for part in parts)
        assert weight is not None
        whole = None if tensor.whole is None else read_entry(tensor.whole, self._reader).float().reshape(())
        out = torch.empty(rows, columns, dtype=self._dtype)
        dequantise(code, Pieces(weight, scale, zero, order, whole), out)
        self._reader.meter.add(out.nbytes - tensor.nbytes)  # progress counts what weights take in memory
        return out.view(tensor.sizes(self._bits))


def model_class(config: Any) -> type[Any]:
    """The class that transformers uses for text generation with this configuration.

    Raises:
        UnsupportedModelError: there is none.
    """
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText):
        try:
            found: Any = auto._model_mapping[type(config)]
        except KeyError:
            continue
        return cast(type[Any], found[0] if isinstance(found, list | tuple) else found)
    raise UnsupportedModelError(
        f"Models of type {config.model_type} cannot be run.", "Choose another model.", model_type=config.model_type
    )


def read_config(folder: Path) -> Any:
    """The configuration of the model that is run: of a folder, or of its text part where transformers runs that alone.

    Code in the folder is never run, and neither is what transformers has for packed weights: the engine unpacks them.

    Raises:
        UnsupportedModelError: transformers does not know the model type.
    """
    try:
        config = _config_of(folder)
    except Exception as cause:  # whatever a strange value makes transformers stumble over
        raise UnsupportedModelError(
            f"{folder.name} cannot be run: {in_words(cause)}.", "Choose another model folder."
        ) from cause
    config = inside_whole(config)
    for part in (config, *(getattr(config, name, None) for name in config.sub_configs)):
        if part is not None and hasattr(part, "quantization_config"):
            del part.quantization_config
    text_part = config.sub_configs.get("text_config")
    if runs_text_alone(config) or (text_part is not None and model_class(config).config_class is text_part):
        return config.get_text_config()
    return config


def _config_of(folder: Path) -> Any:
    read = functools.partial(
        transformers.AutoConfig.from_pretrained, folder, local_files_only=True, trust_remote_code=False
    )
    try:
        return read()
    except AttributeError:  # a type in words torch has no name for: "torch.bfloat16", "auto"
        return read(dtype=torch.bfloat16)  # only for reading: the model is built in the type of the plan


def load_dense(
    config: Any,
    stored: SortedTensors,
    dense_format: WeightFormat,
    reader: TensorReader,
    device: Device,
    *,
    quantised: Mapping[str, Any],
    bits: int,
) -> Any:
    """Build on the meta device, take the experts out, load the rest and move it to the device.

    On a GPU all dense weights pass through RAM once; nothing else is there yet. Packed weights are unpacked into the
    type of the others; `quantised` is `quantization_config` of config.json, `bits` what it says of packed integers.
    Experts with tensors of their own are not even shown to transformers: it would look at each of 100,000 names.

    Raises:
        ModelFileError: a weight is missing or has another shape.
        NotEnoughVramError: the dense weights do not fit.
        LoadCancelledError: the load was told to stop.
    """
    dtype = PLAIN_DTYPES[dense_format]
    tensors: dict[str, Any] = {
        name: LazyTensor(entry, reader) for name, entry in stored.plain.items() if not _of_one_expert(name)
    }
    tensors |= {
        name: PackedWeight(tensor, reader, dtype, quantised, bits)
        for name, tensor in stored.packed.items()
        if not _of_one_expert(name)
    }
    return build_dense(config, tensors, dtype, device)


def _of_one_expert(name: str) -> bool:
    found = expert_name(name)
    return found is not None and found.expert is not None and found.matrix is not None


def build_dense(config: Any, tensors: Mapping[str, Any], dtype: torch.dtype, device: Device) -> Any:
    """Build on the meta device, take the experts out, load `tensors`, which are read when indexed, and move it all.

    Raises:
        As `load_dense`.
    """
    register()
    stripped = without_experts(model_class(config), loading_name(config))
    try:
        model, info = stripped.from_pretrained(
            None,
            config=config,
            state_dict=dict(tensors),
            dtype=dtype,
            experts_implementation=IMPLEMENTATION,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            local_files_only=True,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as cause:  # a value that no other check has found
        raise UnsupportedModelError(
            f"The model of config.json cannot be built: {in_words(cause)}.", "Download config.json again."
        ) from cause
    if missing := sorted(name for name in info["missing_keys"] if not name.endswith(COMPUTED)):
        raise ModelFileError(
            f"The weight {missing[0]} is missing; {len(missing)} are.",
            "Download the model again.",
            missing=len(missing),
        )
    if mismatched := sorted(info["mismatched_keys"]):
        name, actual, wanted = mismatched[0]
        raise ModelFileError(
            f"The weight {name} is {list(actual)}; the model needs {list(wanted)}.", "Download the model again."
        )
    model.requires_grad_(False)
    device.reserve(dense_bytes(model), WEIGHTS)
    try:
        model.to(device.torch_device)
    except torch.cuda.OutOfMemoryError as cause:
        free, _ = torch.cuda.mem_get_info(device.torch_device)
        raise NotEnoughVramError(
            needed_bytes=dense_bytes(model),
            available_bytes=free,
            fix="Choose a smaller model, or close programs that use the GPU.",
            what="The part of the model that every token uses",
        ) from cause
    return model


def dense_bytes(model: nn.Module) -> int:
    """Bytes of all weights the model holds now; tied weights count once, parts of one stored tensor each."""
    places = {(tensor.untyped_storage().data_ptr(), tensor.storage_offset()): tensor for tensor in _weights(model)}
    return sum(tensor.nbytes for tensor in places.values())


def _weights(model: nn.Module) -> list[Tensor]:
    return [tensor for tensor in model.state_dict().values() if tensor.nbytes]
