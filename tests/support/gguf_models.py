"""Tiny GGUF files of every architecture, and the same weights as plain safetensors for the stock model.

Written as llama.cpp's conversion scripts write them, with the names of the gguf package and formulas that share nothing
with the engine's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
import torch
from torch import Tensor

from engine.contract.checkpoint import read_shape
from engine.model.dense import model_class
from tests.support.gguf_metadata import ARCHITECTURES, metadata
from tests.support.gguf_rows import random_gguf_rows
from tests.support.tiny_families import tiny_config
from tests.support.tiny_gguf import CHAT_TEMPLATE, tokens
from tests.support.tiny_models import TinyModel

_QUANTISED = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4")  # what the gguf package can write
_KEPT = ("ffn_gate_inp.weight", "conv1d.weight", "mlp.gate.weight", "mlp.router.weight")  # routers stay in fp32
_ALIASES = {"mlp.router": "block_sparse_moe.gate", "block_sparse_moe.router": "block_sparse_moe.router.layer",
            "self_attn.sinks": "self_attn.sinks", "mlp.e_score_correction_bias": "block_sparse_moe.e_score_correction",
            "mlp.gate.e_score_correction_bias": "mlp.gate.e_score_correction",
            "mlp.gate.moe_statics.e_score_correction_bias": "mlp.moe_statics.e_score_correction",
            "linear_attn.dt_bias": "linear_attn.dt_proj"}  # fmt: skip


@dataclass(frozen=True)
class GgufPair:
    """The GGUF file as the engine sees it, and the plain checkpoint as transformers does."""

    gguf: TinyModel
    plain: TinyModel


def gguf_model(
    folder: Path,
    arch: str,
    *,
    gate: str = "F32",
    up: str | None = None,
    down: str | None = None,
    last_layer: str | None = None,
    dense: str = "F32",
    parts: int = 1,
    wide: bool = False,
    experts: Literal["stacked", "apart", "fused"] = "stacked",
    tensors: Mapping[str, np.ndarray] | None = None,
    metadata_too: Mapping[str, Any] | None = None,
    **more: Any,
) -> GgufPair:
    """Write both.

    Args:
        arch: as in ARCHITECTURES.
        gate, up, down: GGUF types of the experts' matrices; up and down None: as gate, and as up.
        last_layer: type of all experts of the last layer, where it is another one.
        dense: type of the matrices that every token uses.
        parts: files the model is split into.
        wide: rows of 256 numbers, as K types need them.
        experts: those of a layer in one tensor, one by one, or gate and up together.
        tensors: further tensors.
        metadata_too: metadata instead of what the model says.
        more: changes to the configuration.
    """
    size = 256 if wide else 32
    known = ARCHITECTURES[arch]
    sizes: dict[str, Any] = {"vocab_size": len(tokens()), "hidden_size": size, "bos_token_id": 1, "eos_token_id": 2}
    sizes |= dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), size)
    sizes |= {"intermediate_size": size if known.inner_is_plain else 2 * size, "shared_intermediate_size": size}
    config = tiny_config(known.family, **known.config, **{**sizes, **more})
    torch.manual_seed(1)
    model = model_class(config)._from_config(config, dtype=torch.float32)
    _make_lively(model, size)
    layers = [name for name, module in model.named_modules() if hasattr(module, "is_transposed")]
    written: dict[str, tuple[np.ndarray, str]] = {}
    for seed, path in enumerate(layers):
        types = (gate, up or gate, down or up or gate)
        if last_layer is not None and path == layers[-1]:
            types = (last_layer,) * 3
        block = f"blk.{path.split('.')[2]}"
        written |= {f"{block}.{name}": found for name, found in _experts(model.get_submodule(path), types, seed)}
    _round_dense(model, dense)
    for name, value in _dense(model, arch, config):
        kind = dense if value.ndim > 1 and not name.endswith(_KEPT) else "F32"
        if kind not in ("F32", "F16", "BF16") and value.shape[-1] % gguf.GGML_QUANT_SIZES[_type(kind)][0]:
            kind = "F16"
        written[name] = _pack(np.ascontiguousarray(value), kind)
    plain = folder / "plain"
    model.save_pretrained(plain)
    written |= {name: (value, "F32") for name, value in (tensors or {}).items()}
    if experts == "apart":
        written = _apart(written)
    elif experts == "fused":
        written = _fused(written)
    pairs = {**metadata(arch, config), **(metadata_too or {})}
    _write(folder / "gguf", ARCHITECTURES[arch].name, pairs, written, parts)
    return GgufPair(TinyModel(folder / "gguf", read_shape(folder / "gguf")), TinyModel(plain, read_shape(plain)))


def _make_lively(model: Any, size: int) -> None:
    """Random weights that make logits differ; recurrent layers stay gentle, or their rounding errors would grow."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("A_log", "dt_bias")):
                continue
            gentle = any(part in name for part in ("linear_attn", "conv1d"))
            matrix = (0.05 if gentle else 0.2) * (32 / size) ** 0.5
            parameter.normal_(0, matrix if parameter.dim() > 1 else 0.5)


def _type(name: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[name]


def _round_dense(model: Any, kind: str) -> None:
    """Let the stock model have what packed rows stand for; changed orders of columns are not looked after."""
    block = gguf.GGML_QUANT_SIZES[_type(kind)][0]
    for name, value in model.state_dict().items():
        is_dense = value.dim() == 2 and ".experts." not in name and not name.endswith(_KEPT)
        if is_dense and value.shape[1] % block == 0:
            value.copy_(torch.from_numpy(gguf.quants.dequantize(_pack(value.numpy(), kind)[0], _type(kind))))


def _pack(values: np.ndarray, kind: str) -> tuple[np.ndarray, str]:
    return gguf.quants.quantize(values.astype(np.float32), _type(kind)), kind


def _stored(values: Tensor, kind: str, seed: int) -> tuple[Tensor, tuple[np.ndarray, str]]:
    """What a matrix [E, rows, columns] becomes once it is stored so, and its bytes."""
    if kind in _QUANTISED:
        packed = gguf.quants.quantize(values.numpy(), _type(kind))
    else:  # nothing in Python writes these: random blocks, about as large as the weights they replace
        count, rows, columns = values.shape
        packed = random_gguf_rows(np.random.default_rng(seed), kind, count * rows, columns, spread=1.0)
        spread = float(values.std() / gguf.quants.dequantize(packed, _type(kind)).std())
        packed = random_gguf_rows(np.random.default_rng(seed), kind, count * rows, columns, spread=spread)
        packed = packed.reshape(count, rows, -1)
    read = gguf.quants.dequantize(packed, _type(kind)).astype(np.float32)
    return torch.from_numpy(read).view(values.shape), (packed, kind)


def _experts(module: Any, types: tuple[str, str, str], seed: int) -> Iterator[tuple[str, tuple[np.ndarray, str]]]:
    """Store the experts of a layer, and let the module have what comes out of it."""
    both, down = module.gate_up_proj.data, module.down_proj.data
    if module.is_transposed:
        both, down = both.transpose(1, 2), down.transpose(1, 2)
    inner = both.shape[1] // 2
    gate, up = (both[:, :inner], both[:, inner:]) if module.is_concatenated else (both[:, 0::2], both[:, 1::2])
    found = {}
    for number, (name, value, kind) in enumerate(zip(("gate", "up", "down"), (gate, up, down), types, strict=True)):
        read, packed = _stored(value.contiguous(), kind, 10 * seed + number)
        value.copy_(read)
        if kind == "NVFP4":  # with a scale for each matrix, as files made from modelopt have it
            scales = np.random.default_rng(seed + number).uniform(0.01, 0.02, len(value)).astype(np.float32)
            found[f"ffn_{name}_exps.scale"] = (scales, "F32")
            found[f"ffn_{name}_exps.input_scale"] = (np.ones_like(scales), "F32")
            value.mul_(torch.from_numpy(scales)[:, None, None])
        found[f"ffn_{name}_exps.weight"] = packed
    if module.has_bias:
        bias, inner_bias = module.down_proj_bias.data, module.gate_up_proj_bias.data
        found["ffn_gate_exps.bias"] = (inner_bias[:, 0::2].contiguous().numpy(), "F32")
        found["ffn_up_exps.bias"] = (inner_bias[:, 1::2].contiguous().numpy(), "F32")
        found["ffn_down_exps.bias"] = (bias.numpy(), "F32")
    yield from found.items()


def _apart(tensors: Mapping[str, tuple[np.ndarray, str]]) -> dict[str, tuple[np.ndarray, str]]:
    """Experts one by one, as files of 2023 have them."""
    found: dict[str, tuple[np.ndarray, str]] = {}
    for name, (value, kind) in tensors.items():
        if "_exps." in name:
            found |= {name.replace("_exps.", f".{number}."): (one, kind) for number, one in enumerate(value)}
        else:
            found[name] = (value, kind)
    return found


def _fused(tensors: Mapping[str, tuple[np.ndarray, str]]) -> dict[str, tuple[np.ndarray, str]]:
    """Gate and up in one tensor."""
    found = dict(tensors)
    for name in tensors:
        if name.endswith("ffn_gate_exps.weight"):
            (gate, kind), (up, _) = found.pop(name), found.pop(name.replace("gate", "up"))
            found[name.replace("gate", "gate_up")] = (np.concatenate([gate, up], axis=1), kind)
    return found


def _dense(model: Any, arch: str, config: Any) -> Iterator[tuple[str, np.ndarray]]:
    """All other weights under GGUF's names, changed as llama.cpp changes them."""
    names = gguf.get_tensor_name_map(_arch(arch), config.num_hidden_layers)
    for name, value in model.state_dict().items():
        if ".experts." in name:
            continue
        layer = name.split(".")[2] if name.startswith("model.layers.") else ""
        for ending, changed in _changed(arch, config, name, value.clone()):
            base, dot, suffix = ending.rpartition(".")
            if suffix not in ("weight", "bias"):
                base, dot, suffix = ending, ".", "weight"
            for own, usual in _ALIASES.items():
                if ending.removesuffix(".weight").endswith(own):
                    base = ending.removesuffix(".weight").removesuffix(own) + usual
                    suffix = "bias" if "bias" in own else "weight"
            if base.startswith("blk."):
                found: str | None = base
            else:
                found = names.get_name(base) or names.get_name(ending)
            assert found is not None, (arch, name, base)
            full = found if found.endswith("ssm_a") else f"{found}{dot}{suffix}"
            yield full.replace("blk.N", f"blk.{layer}"), changed.numpy()


def _arch(arch: str) -> gguf.MODEL_ARCH:
    return next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == ARCHITECTURES[arch].name)


def _changed(arch: str, config: Any, name: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What llama.cpp makes of one weight: other numbers, or several tensors."""
    if arch in ("llama", "granitemoe", "granitemoeshared") and name.endswith(("q_proj.weight", "k_proj.weight")):
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        value = value.view(heads, 2, -1, value.shape[1]).transpose(1, 2).reshape(value.shape)
    if arch.startswith("qwen3next") or arch == "qwen35moe":
        yield from _delta(arch, config, name, value)
    elif name.endswith("kv_b_proj.weight") and ARCHITECTURES[arch].traits:
        if "both" in ARCHITECTURES[arch].traits:
            yield name, value
        both = value.view(config.num_attention_heads, -1, value.shape[1])
        keys, rest = both[:, : config.qk_nope_head_dim], both[:, config.qk_nope_head_dim :]
        yield "blk.N.attn_k_b.weight", keys.transpose(1, 2).contiguous()
        yield "blk.N.attn_v_b.weight", rest.contiguous()
    elif name.endswith("shared_mlp.input_linear.weight"):
        gate, up = value.chunk(2)
        yield "blk.N.ffn_gate_shexp.weight", gate
        yield "blk.N.ffn_up_shexp.weight", up
    elif arch == "gpt-oss" and name.endswith("post_attention_layernorm.weight"):
        yield "blk.N.post_attention_norm.weight", value
    elif arch == "gpt-oss" and "mlp.router" in name:
        yield f"blk.N.ffn_gate_inp.{name.rpartition('.')[2]}", value
    elif arch == "hunyuan-moe" and "mlp.gate.wg" in name:
        yield "blk.N.ffn_gate_inp.weight", value
    elif name.endswith("e_score_correction_bias") or name.endswith("shared_expert_gate.weight"):
        yield name, value.flatten()
    else:
        yield name, value


def _delta(arch: str, config: Any, name: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    key_size, value_size = config.linear_key_head_dim, config.linear_value_head_dim

    def tiled(rows: Tensor, size: int) -> Tensor:
        parts = rows.reshape(keys, values // keys, size, *rows.shape[1:])
        return parts.transpose(0, 1).reshape(rows.shape)

    if name.endswith("A_log"):
        value = -torch.exp(value)
    elif "conv1d" in name:
        value = value[:, 0]
    elif name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        value = value + 1
    if arch == "qwen35moe":
        both = 2 * keys * key_size
        if name.endswith(("A_log", "dt_bias", "in_proj_a.weight", "in_proj_b.weight")):
            value = tiled(value, 1)
        elif name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
            value = torch.cat([value[:both], tiled(value[both:], value_size)])
        elif name.endswith("in_proj_z.weight"):
            value = tiled(value, value_size)
        elif name.endswith("linear_attn.out_proj.weight"):
            value = tiled(value.T, value_size).T.contiguous()
    if name.endswith("in_proj_qkvz.weight"):
        groups = value.view(keys, -1, value.shape[1])
        share = values // keys * value_size
        q, k, v, z = torch.split(groups, [key_size, key_size, share, share], dim=1)
        joined = torch.cat([part.reshape(-1, value.shape[1]) for part in (q, k, v)])
        yield "blk.N.attn_qkv.weight", joined
        yield "blk.N.attn_gate.weight", z.reshape(-1, value.shape[1])
    elif name.endswith("shared_expert_gate.weight"):
        yield name, value.flatten()
    else:
        yield name, value


def _write(
    folder: Path, name: str, pairs: Mapping[str, Any], tensors: Mapping[str, tuple[np.ndarray, str]], parts: int
) -> None:
    folder.mkdir(parents=True)
    writer = gguf.GGUFWriter(
        folder / "tiny.gguf", name, split_max_tensors=-(-len(tensors) // parts) if parts > 1 else 0
    )
    for key, value in pairs.items():
        full = f"{name}.{key}"
        match value:
            case bool():
                writer.add_bool(full, value)
            case int():
                writer.add_uint32(full, value)
            case float():
                writer.add_float32(full, value)
            case str():
                writer.add_string(full, value)
            case list():
                writer.add_array(full, value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens())
    writer.add_token_types([3, 3, 3, *[1] * (len(tokens()) - 3)])
    writer.add_token_merges(["h e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)
    for tensor, (value, kind) in tensors.items():
        writer.add_tensor(tensor, value, raw_dtype=_type(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
