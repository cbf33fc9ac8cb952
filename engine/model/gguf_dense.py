"""Dense weights of a GGUF file as transformers' modules want them: unpacked, renamed, llama.cpp's changes undone.

What llama.cpp's conversion scripts do, and what is undone here: queries and keys of llama and granite in the order of
its own rotation (`LlamaModel.permute`); norms with the one they are applied with added, convolutions without their
middle size, decay as -exp(A_log) (`Qwen3NextModel.modify_tensors`); value heads in turns instead of by key head
(`_LinearAttentionVReorderBase`); latents split into keys and values (`DeepseekV2Model.modify_tensors`).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from engine.checkpoint.loader import TensorReader
from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.errors import ModelFileError
from engine.contract.gguf_names import transformers_name
from engine.contract.gguf_weights import GgufWeights
from engine.experts.dequant.code import Kind, MatrixCode, Pieces
from engine.experts.dequant.gguf import GGUF_TYPES
from engine.experts.dequant.matrix import dequantise
from engine.model.packed_map import read_entry

_STRIP_BYTES = 8 << 20  # read and unpacked at once
_PLAIN = frozenset({"F32", "F16", "BF16"})

Values = Mapping[str, Tensor]  # by the name of the GGUF tensor without its layer
Undo = Callable[[Values, Any], Tensor]  # values and transformers' configuration to a parameter


class GgufWeight:
    """One parameter as transformers' loader wants it: indexing with `...` reads and unpacks it."""

    def __init__(
        self,
        sources: Mapping[str, tuple[TensorEntry, TensorEntry | None]],
        undo: Undo,
        config: Any,
        reader: TensorReader,
        dtype: torch.dtype,
    ) -> None:
        """`sources` are tensors with the scale of the whole matrix, where there is one."""
        self._sources = sources
        self._undo = undo
        self._config = config
        self._reader = reader
        self._dtype = dtype

    def __getitem__(self, index: object) -> Tensor:
        values = {
            name: read_values(entry, self._reader, self._dtype, scale) for name, (entry, scale) in self._sources.items()
        }
        try:
            return self._undo(values, self._config)
        except (RuntimeError, KeyError) as cause:  # sizes the metadata does not explain, or a part is missing
            names = " and ".join(entry.name for entry, _ in self._sources.values())
            raise ModelFileError(
                f"{names:.200} cannot be what the metadata of the GGUF file describes.", "Download the model again."
            ) from cause


def gguf_weights(
    arch: str,
    weights: GgufWeights,
    config: Any,
    reader: TensorReader,
    dtype: torch.dtype,
    kept_fp32: tuple[str, ...],
) -> dict[str, GgufWeight]:
    """All dense parameters by transformers' names, none of them read yet.

    Args:
        dtype: of matrices in memory; single rows of numbers are handed over in fp32.
        kept_fp32: parts of the names of parameters that transformers keeps in fp32.
    """
    sources: dict[str, dict[str, tuple[TensorEntry, TensorEntry | None]]] = {}
    for entry in weights.dense:
        target = transformers_name(arch, entry.name)
        if target is None:
            raise ModelFileError(f"What tensor {entry.name:.80} is for is not known.", "Choose another GGUF file.")
        sources.setdefault(target, {})[_without_layer(entry.name)] = (entry, weights.scales.get(entry.name))
    found_weights = {}
    for target, found in sources.items():
        single = all(len(entry.shape) < 2 for entry, _ in found.values())
        kept = single or any(part in target for part in kept_fp32)
        found_weights[target] = GgufWeight(found, _undo(arch, target), config, reader, torch.float32 if kept else dtype)
    return found_weights


def read_values(
    entry: TensorEntry, reader: TensorReader, dtype: torch.dtype, scale: TensorEntry | None = None
) -> Tensor:
    """A tensor of any GGUF type, unpacked strip by strip: at no time is it in memory as it is stored.

    Raises:
        ModelFileError: a type the engine does not know, or the file could not be read.
    """
    sizes = tuple(reversed(entry.shape)) or (1,)
    rows, columns = math.prod(sizes[:-1]), sizes[-1]
    if entry.dtype not in _PLAIN | GGUF_TYPES:
        raise ModelFileError(
            f"Tensor {entry.name} in {entry.file.name} is of type {entry.dtype}; that cannot be read.",
            "Choose another GGUF file.",
            file=entry.file.name,
        )
    out = torch.empty(rows, columns, dtype=dtype)
    row_bytes = entry.nbytes // rows if rows else 0
    step = max(_STRIP_BYTES // max(row_bytes, 1), 1)
    whole = None if scale is None else read_entry(scale, reader).float().reshape(())
    kind: Kind = "plain" if entry.dtype in _PLAIN else "gguf"
    for first in range(0, rows, step):
        last = min(first + step, rows)
        raw = torch.empty((last - first) * row_bytes, dtype=torch.uint8)
        reader.read_into(entry, raw.numpy().data, start=first * row_bytes)
        code = MatrixCode(kind, last - first, columns, entry.dtype)
        dequantise(code, Pieces(raw, whole=whole), out[first:last])
    reader.meter.add(out.nbytes - entry.nbytes)  # progress counts what weights take in memory
    return out.view(sizes)


def _without_layer(name: str) -> str:
    return name.split(".", 2)[2] if name.startswith("blk.") else name


def _undo(arch: str, target: str) -> Undo:
    for ending, undo in _UNDO.get(arch, ()):
        if target.endswith(ending):
            return undo
    return _same


def _only(values: Values) -> Tensor:
    (value,) = values.values()
    return value


def _same(values: Values, config: Any) -> Tensor:
    return _only(values)


def _one_row(values: Values, config: Any) -> Tensor:
    return _only(values).reshape(1, -1)


def _halves_together(heads_key: str) -> Undo:
    """Rows of a head from pairs in turns, as llama.cpp rotates them, to both halves one after the other."""

    def undo(values: Values, config: Any) -> Tensor:
        value = _only(values)
        pairs = value.reshape(getattr(config, heads_key), -1, 2, *value.shape[1:])
        return pairs.transpose(1, 2).reshape(value.shape)

    return undo


def _less_one(values: Values, config: Any) -> Tensor:
    return _only(values) - 1


def _below_each_other(values: Values, config: Any) -> Tensor:
    return torch.cat([values["ffn_gate_shexp.weight"], values["ffn_up_shexp.weight"]])


def _latents(values: Values, config: Any) -> Tensor:
    """Keys [H, rank, size] and values [H, size, rank] of each head one below the other: [H · sizes, rank]."""
    if "attn_kv_b.weight" in values:
        return values["attn_kv_b.weight"]
    heads, rank = config.num_attention_heads, config.kv_lora_rank
    keys = values["attn_k_b.weight"].reshape(heads, rank, -1).transpose(1, 2)
    return torch.cat([keys, values["attn_v_b.weight"].reshape(heads, -1, rank)], dim=1).reshape(-1, rank)


def _decay(values: Values, config: Any) -> Tensor:
    return torch.log(-_only(values).reshape(-1))


def _convolution(values: Values, config: Any) -> Tensor:
    return _only(values)[:, None, :]


def _by_key_head(values: Values, config: Any) -> Tensor:
    """Queries, keys and values, and z of all heads to the four of each key head together: `in_proj_qkvz`."""
    if "ssm_in.weight" in values:
        return values["ssm_in.weight"]
    heads, width = config.linear_num_key_heads, config.hidden_size
    keys = heads * config.linear_key_head_dim
    joined = values["attn_qkv.weight"]
    parts = (joined[:keys], joined[keys : 2 * keys], joined[2 * keys :], values["attn_gate.weight"])
    return torch.cat([part.reshape(heads, -1, width) for part in parts], dim=1).reshape(-1, width)


def _value_heads(value: Tensor, config: Any, size: int, first: int = 0) -> Tensor:
    """Rows from `first` on, `size` for each value head: from heads in turns to those of a key head together."""
    heads = config.linear_num_key_heads
    tail = value[first:]
    turns = tail.reshape(-1, heads, size, *tail.shape[1:])  # turn, key head
    return torch.cat([value[:first], turns.transpose(0, 1).reshape(tail.shape)])


def _grouped(undo: Undo, *, sized: bool, after_keys: bool = False) -> Undo:
    """`undo`, then value heads by key head; `sized`: a head has several rows; `after_keys`: they follow q and k."""

    def both(values: Values, config: Any) -> Tensor:
        size = config.linear_value_head_dim if sized else 1
        first = 2 * config.linear_num_key_heads * config.linear_key_head_dim if after_keys else 0
        return _value_heads(undo(values, config), config, size, first)

    return both


def _grouped_inputs(values: Values, config: Any) -> Tensor:
    return _value_heads(_only(values).T, config, config.linear_value_head_dim).T.contiguous()


def _flat(values: Values, config: Any) -> Tensor:
    return _only(values).reshape(-1)


_ROTATED: tuple[tuple[str, Undo], ...] = (
    ("q_proj.weight", _halves_together("num_attention_heads")),
    ("k_proj.weight", _halves_together("num_key_value_heads")),
)
_DELTA: tuple[tuple[str, Undo], ...] = (
    ("linear_attn.norm.weight", _same),
    ("norm.weight", _less_one),
    ("shared_expert_gate.weight", _one_row),
)
_UNDO: dict[str, tuple[tuple[str, Undo], ...]] = {
    "deepseek2": (("kv_b_proj.weight", _latents),),
    "ernie4_5-moe": (("e_score_correction_bias", _one_row),),
    "granitemoe": (*_ROTATED, ("shared_mlp.input_linear.weight", _below_each_other)),
    "llama": _ROTATED,
    "qwen2moe": (("shared_expert_gate.weight", _one_row),),
    "qwen35moe": (
        *_DELTA,
        ("A_log", _grouped(_decay, sized=False)),
        ("dt_bias", _grouped(_flat, sized=False)),
        ("conv1d.weight", _grouped(_convolution, sized=True, after_keys=True)),
        ("in_proj_qkv.weight", _grouped(_same, sized=True, after_keys=True)),
        ("in_proj_z.weight", _grouped(_same, sized=True)),
        ("in_proj_a.weight", _grouped(_same, sized=False)),
        ("in_proj_b.weight", _grouped(_same, sized=False)),
        ("linear_attn.out_proj.weight", _grouped_inputs),
    ),
    "qwen3next": (
        *_DELTA,
        ("A_log", _decay),
        ("dt_bias", _flat),
        ("conv1d.weight", _convolution),
        ("in_proj_qkvz.weight", _by_key_head),
    ),
}
