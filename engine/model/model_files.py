"""What a plan's model is read from: a folder with config.json and safetensors files, or GGUF files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from typing_extensions import override

from engine.banks.bank import PLAIN_DTYPES, BankLayout
from engine.banks.devices import Device
from engine.checkpoint.loader import TensorReader
from engine.contract.changed_model import check_unchanged
from engine.contract.checkpoint import (
    TensorTable,
    gguf_of,
    read_headers,
    read_shape,
    resolve_model_folder,
    shape_of_gguf,
)
from engine.contract.checkpoint import read_config as read_settings
from engine.contract.checkpoint_formats import packed_bits_of_config
from engine.contract.checkpoint_packed import sort_packed
from engine.contract.errors import UnsupportedModelError, in_words
from engine.contract.families import text_config
from engine.contract.formats import WeightFormat
from engine.contract.gguf_headers import GgufModel, read_gguf
from engine.contract.gguf_run_config import gguf_run_config
from engine.contract.gguf_weights import sort_tensors
from engine.contract.plan import MemoryPlan
from engine.model.dense import build_dense, load_dense, model_class, read_config
from engine.model.expert_map import ExpertMap
from engine.model.gguf_dense import gguf_weights
from engine.model.gguf_experts import GgufExpertMap
from engine.model.gguf_text import read_gguf_text
from engine.model.hub import transformers
from engine.model.text_settings import TextSettings, read_text_settings


class ModelFiles(Protocol):
    """The files of one model; headers are read when it is made, weights when they are asked for."""

    @property
    def config(self) -> Any:
        """transformers' configuration of the model that is run."""
        ...

    def text(self) -> TextSettings:
        """Tokenizer, sampling and stop tokens.

        Raises:
            ModelFolderError: there is no usable tokenizer.
        """
        ...

    def load_dense(self, dense_format: WeightFormat, reader: TensorReader, device: Device) -> Any:
        """Build the model without its experts; errors as engine.model.dense.load_dense."""
        ...

    def expert_map(self, model: Any, layouts: Mapping[int, BankLayout]) -> ExpertMap:
        """Where the experts of a built model lie; errors as `ExpertMap`."""
        ...


def open_model(plan: MemoryPlan) -> ModelFiles:
    """The files of a plan's model, which are still those that were planned.

    Headers are read once, for the comparison and for the load; to compare takes half of the time it takes to read
    them (0.4 s for 180,000 tensors).

    Raises:
        ModelFolderError, ModelFileError: a file is missing or damaged.
        ModelChangedError: the folder says something else now than it did for the plan.
        CannotEstimateError: it has become a model that cannot be planned.
        UnsupportedModelError: transformers does not know the model type.
    """
    place = resolve_model_folder(Path(plan.model_dir))
    if files := gguf_of(place):
        model = read_gguf(files)
        check_unchanged(plan.model, shape_of_gguf(model))
        return _GgufFiles(files, model)
    table = read_headers(place)
    check_unchanged(plan.model, read_shape(place, table))
    return _SafetensorsFolder(place, table)


class _SafetensorsFolder(ModelFiles):
    def __init__(self, folder: Path, table: TensorTable) -> None:
        self._folder = folder
        self._table = table
        self._stored = sort_packed(table.values())
        self._settings = text_config(read_settings(folder))
        self._quantised = self._settings.anywhere("quantization_config") or {}
        self._config = read_config(folder)

    @property
    @override
    def config(self) -> Any:
        return self._config

    @override
    def text(self) -> TextSettings:
        return read_text_settings(self._folder, self._config)

    @override
    def load_dense(self, dense_format: WeightFormat, reader: TensorReader, device: Device) -> Any:
        bits = packed_bits_of_config(self._settings)
        return load_dense(
            self._config, self._stored, dense_format, reader, device, quantised=self._quantised, bits=bits
        )

    @override
    def expert_map(self, model: Any, layouts: Mapping[int, BankLayout]) -> ExpertMap:
        return ExpertMap(model, self._table, self._stored, layouts, self._quantised)


class _GgufFiles(ModelFiles):
    def __init__(self, files: tuple[Path, ...], model: GgufModel) -> None:
        self._files = files
        self._arch = str(model.metadata.get("general.architecture"))
        self._config = _config_of(gguf_run_config(model), model.name)
        self._weights = sort_tensors(model, self._config.num_hidden_layers)

    @property
    @override
    def config(self) -> Any:
        return self._config

    @override
    def text(self) -> TextSettings:
        return read_gguf_text(self._files[0])

    @override
    def load_dense(self, dense_format: WeightFormat, reader: TensorReader, device: Device) -> Any:
        dtype = PLAIN_DTYPES[dense_format]
        kept = tuple(model_class(self._config)._keep_in_fp32_modules_strict or ())
        tensors = gguf_weights(self._arch, self._weights, self._config, reader, dtype, kept)
        return build_dense(self._config, tensors, dtype, device)

    @override
    def expert_map(self, model: Any, layouts: Mapping[int, BankLayout]) -> ExpertMap:
        return GgufExpertMap(model, self._weights, layouts)


def _config_of(values: Mapping[str, Any], name: str) -> Any:
    """transformers' configuration; values its class has no name for are left out.

    Raises:
        UnsupportedModelError: transformers does not know the model type, or refuses a value.
    """
    try:
        kind = transformers.CONFIG_MAPPING[values["model_type"]]
        known = {*kind().to_dict(), *kind.attribute_map, "partial_rotary_factor"} - {"model_type"}
        return kind(**{key: value for key, value in values.items() if key in known and key != "architectures"})
    except Exception as cause:  # whatever a strange value makes transformers stumble over
        raise UnsupportedModelError(f"{name:.80} cannot be run: {in_words(cause)}.", "Choose another file.") from cause
