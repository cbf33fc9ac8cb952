"""Tiny checkpoints with packed experts, and the same weights as plain float32 for the stock model."""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.contract.checkpoint import read_shape
from engine.model.dense import model_class
from tests.support.packed_weights import FP4, Packer
from tests.support.tiny_families import draw_tables, tiny_config
from tests.support.tiny_models import VOCAB, TinyModel, tiny_tokenizer

HIDDEN, INNER, EXPERTS, LAYERS = 256, 192, 4, 2
_EXPERT = re.compile(r"\.experts\.\d+\.")
_STACKED = re.compile(r"\.moe\.(gate|up|down)_proj\.weight$")  # one matrix of all experts
_DENSE = re.compile(
    r"\.self_attn\.[qkvo]_proj\.weight$|\.attn\.(wq_[ab]|wkv|wo_[ab]|indexer\.wq_b)\.weight$"
    r"|\.shared_experts\.w[123]\.weight$"
)
_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0, "num_experts_per_tok": 2,
}  # fmt: skip


@dataclass(frozen=True)
class PackedModel:
    """The packed checkpoint as the engine sees it, and the plain one as transformers does."""

    packed: TinyModel
    plain: TinyModel


def _config(family: str) -> Any:
    match family:
        case "mixtral":
            return transformers.MixtralConfig(**_COMMON, intermediate_size=INNER, num_local_experts=EXPERTS)
        case "qwen3_moe":
            return transformers.Qwen3MoeConfig(
                **_COMMON, moe_intermediate_size=INNER, intermediate_size=64, num_experts=EXPERTS
            )
        case "gpt_oss":
            return transformers.GptOssConfig(
                **_COMMON, intermediate_size=INNER, num_local_experts=EXPERTS, sliding_window=8
            )
        case "longcat_flash":
            return tiny_config(
                family, hidden_size=HIDDEN, num_layers=LAYERS, n_routed_experts=EXPERTS, num_local_experts=EXPERTS,
                zero_expert_num=2, moe_topk=2, num_experts_per_tok=2, expert_ffn_hidden_size=INNER,
                moe_intermediate_size=INNER,
            )  # fmt: skip
        case "deepseek_v4":
            return tiny_config(
                family, hidden_size=HIDDEN, num_hidden_layers=LAYERS, n_routed_experts=EXPERTS,
                num_local_experts=EXPERTS, moe_intermediate_size=INNER, intermediate_size=INNER, head_dim=24,
                mlp_layer_types=["hash_moe", "moe"],
                layer_types=["compressed_sparse_attention", "heavily_compressed_attention"],
            )  # fmt: skip
        case "step3p7":
            return tiny_config(
                family, hidden_size=HIDDEN, num_hidden_layers=LAYERS, n_routed_experts=EXPERTS, num_experts_per_tok=2,
                num_local_experts=EXPERTS, moe_num_experts=EXPERTS, moe_intermediate_size=INNER,
                layer_types=["full_attention", "sliding_attention"],
                mlp_layer_types=["sparse"] * LAYERS,
            )  # fmt: skip
    raise ValueError(family)


def packed_model(
    folder: Path,
    family: str,
    quantised: Mapping[str, Any] | None,
    experts: Packer | None,
    *,
    down: Packer | None = None,
    dense: Packer | None = None,
    plain_from_layer: int = LAYERS,
    dtype: torch.dtype = torch.float32,
) -> PackedModel:
    """Write both folders.

    Args:
        experts: packs every expert's matrices; None: gpt-oss as published, all experts in one MXFP4 tensor.
        down: packs the down projections, where they are packed differently.
        dense: packs the matrices of attention; None: they stay as they are.
        plain_from_layer: experts of this layer and later ones stay as they are.
    """
    torch.manual_seed(11)
    config = _config(family)
    model = model_class(config)._from_config(config, dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.1 if parameter.dim() > 1 else 0.5)
        draw_tables(model, config)
    plain = folder / "plain"
    model.save_pretrained(plain)
    tiny_tokenizer().save_pretrained(plain)
    tensors = load_file(plain / "model.safetensors")
    random = torch.Generator().manual_seed(5)
    stored: dict[str, Tensor] = {}
    for name, tensor in sorted(tensors.items()):
        layer = re.search(r"layers\.(\d+)\.", name)
        packer = experts if _EXPERT.search(name) and layer and int(layer[1]) < plain_from_layer else None
        if packer is not None and down is not None and re.search(r"\.(w2|down_proj)\.", name):
            packer = down
        if dense is not None and _DENSE.search(name):
            packer = dense
        if experts is not None and _STACKED.search(name):
            together = [experts(random, *one.shape) for one in tensor]
            for ending in together[0][0]:
                stored[f"{name.removesuffix('weight')}{ending}"] = torch.stack([parts[ending] for parts, _ in together])
            tensors[name] = torch.stack([values for _, values in together]).to(dtype)
        elif packer is not None:
            parts, values = packer(random, tensor.shape[0], tensor.shape[1])
            stored |= {f"{name.removesuffix('weight')}{ending}": part for ending, part in parts.items()}
            tensors[name] = values.to(dtype)
        elif experts is None and quantised and re.search(r"experts\.(gate_up|down)_proj$", name):
            parts, tensors[name] = _gpt_oss(random, tensor)
            stored |= {f"{name}_{ending}": part for ending, part in parts.items()}
        else:
            stored[name] = tensor
    save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
    packed = folder / "packed"
    shutil.copytree(plain, packed)
    save_file({name: part.contiguous() for name, part in stored.items()}, packed / "model.safetensors")
    if quantised:
        config = json.loads((plain / "config.json").read_text("utf-8"))
        (packed / "config.json").write_text(json.dumps({**config, "quantization_config": dict(quantised)}), "utf-8")
    return PackedModel(TinyModel(packed, read_shape(packed)), TinyModel(plain, read_shape(plain)))


def _gpt_oss(random: torch.Generator, like: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """[E, columns, rows] as the model has it; blocks [E, rows, groups, 16] and scales [E, rows, groups] on disk."""
    n_experts, columns, rows = like.shape
    codes = torch.randint(16, (n_experts, rows, columns), generator=random)
    exponents = torch.randint(120, 124, (n_experts, rows, columns // 32), generator=random)
    blocks = (codes[..., 0::2] | (codes[..., 1::2] << 4)).to(torch.uint8).view(n_experts, rows, columns // 32, 16)
    values = torch.tensor(FP4)[codes] * torch.pow(2.0, exponents - 127).repeat_interleave(32, 2)
    return {"blocks": blocks, "scales": exponents.to(torch.uint8)}, values.transpose(1, 2).contiguous()
