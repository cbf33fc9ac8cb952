"""Builds transformers' model without its experts and loads every other weight from the files, with progress."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from engine.banks.devices import Device
from engine.checkpoint.loader import TensorReader
from engine.contract.checkpoint_headers import TensorEntry, TensorTable
from engine.contract.errors import ModelFileError, NotEnoughVramError, UnsupportedModelError
from engine.contract.formats import WeightFormat
from engine.model.expert_map import read_tensor
from engine.model.experts_function import IMPLEMENTATION, register, without_experts
from engine.model.hub import transformers

WEIGHTS = "weights"  # purpose in the device's ledger, as in the contract
DENSE_DTYPES = {WeightFormat.FP32: torch.float32, WeightFormat.BF16: torch.bfloat16, WeightFormat.FP16: torch.float16}


class LazyTensor:
    """A tensor on disk as transformers' loader wants it: indexing with `...` reads it."""

    def __init__(self, entry: TensorEntry, reader: TensorReader) -> None:
        self._entry = entry
        self._reader = reader

    def __getitem__(self, index: object) -> Tensor:
        return read_tensor(self._entry, self._reader)


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

    Code in the folder is never run.

    Raises:
        UnsupportedModelError: transformers does not know the model type.
    """
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as cause:
        raise UnsupportedModelError(
            f"{folder.name} cannot be run: {str(cause).splitlines()[0]}", "Choose another model folder."
        ) from cause
    text_part = config.sub_configs.get("text_config")
    if text_part is not None and model_class(config).config_class is text_part:
        return config.get_text_config()
    return config


def load_dense(
    config: Any, table: TensorTable, dense_format: WeightFormat, reader: TensorReader, device: Device
) -> Any:
    """Build on the meta device, take the experts out, load the rest and move it to the device.

    On a GPU all dense weights pass through RAM once; nothing else is there yet.

    Raises:
        ModelFileError: a weight is missing or has another shape.
        NotEnoughVramError: the dense weights do not fit.
        LoadCancelledError: the load was told to stop.
    """
    register()
    stripped = without_experts(model_class(config))
    tensors: Mapping[str, Any] = {name: LazyTensor(entry, reader) for name, entry in table.items()}
    model, info = stripped.from_pretrained(
        None,
        config=config,
        state_dict=tensors,
        dtype=DENSE_DTYPES[dense_format],
        experts_implementation=IMPLEMENTATION,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        local_files_only=True,
    )
    if missing := sorted(info["missing_keys"]):
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
