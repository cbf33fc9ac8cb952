"""A tiny Inkling checkpoint as it is published: names of its own, interleaved gates, parts for pictures and sound."""

import json
import re
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.contract.checkpoint import read_shape
from tests.support.tiny_families import tiny_family
from tests.support.tiny_models import TinyModel

_NAMES = (
    (r"embed_tokens\.embed_norm", "embed_norm"), (r"embed_tokens", "embed"), (r"lm_head", "model.unembed"),
    (r"self_attn\.", "attn."), (r"\.q_proj", ".wq_du"), (r"\.k_proj", ".wk_dv"), (r"\.v_proj", ".wv_dv"),
    (r"\.r_proj", ".wr_du"), (r"\.o_proj", ".wo_ud"), (r"sconv\.conv1d", "sconv"),
    (r"post_attention_layernorm", "mlp_norm"), (r"input_layernorm", "attn_norm"),
    (r"gate\.e_score_correction_bias", "gate.bias"), (r"mlp\.down_proj\.weight", "mlp.w2_md.weight"),
    (r"experts\.down_proj", "experts.w2_weight"), (r"^model\.", "model.llm."),
)  # fmt: skip


def published_inkling(folder: Path) -> tuple[TinyModel, TinyModel]:
    """The text model as transformers saves it, and the same inside a whole model as it is published."""
    plain = tiny_family("inkling_text", folder / "text")
    whole = folder / "whole"
    whole.mkdir()
    tensors = {
        _published(name): tensor for name, tensor in _joined(load_file(plain.folder / "model.safetensors")).items()
    }
    tensors |= {"model.visual.norm.weight": torch.ones(3), "model.audio.final_norm.weight": torch.ones(3)}
    save_file(tensors, whole / "model.safetensors", metadata={"format": "pt"})
    text = json.loads((plain.folder / "config.json").read_text("utf-8"))
    config = {"model_type": "inkling_mm_model", "text_config": text, "vision_config": {}, "audio_config": {}}
    (whole / "config.json").write_text(json.dumps(config), "utf-8")
    for file in plain.folder.glob("tokenizer*"):
        (whole / file.name).write_bytes(file.read_bytes())
    return plain, TinyModel(whole, read_shape(whole))


def _published(name: str) -> str:
    for pattern, replacement in _NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def _joined(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gate and up of a block as one tensor, their rows in turn."""
    found = dict(tensors)
    for name in tensors:
        block, _, last = name.rpartition("experts.gate_up_proj")
        if block and not last:
            gate, up = found.pop(name).chunk(2, dim=1)
            found[f"{block}experts.w13_weight"] = _in_turn(gate, up, 1)
        elif name.endswith("mlp.gate_proj.weight"):
            stem = name.removesuffix("gate_proj.weight")
            found[f"{stem}w13_dn.weight"] = _in_turn(found.pop(name), found.pop(f"{stem}up_proj.weight"), 0)
        elif name.endswith("shared_experts.gate_proj"):
            stem = name.removesuffix("gate_proj")
            found[f"{stem}shared_w13_weight"] = _in_turn(found.pop(name), found.pop(f"{stem}up_proj"), 1)
            found[f"{stem}shared_w2_weight"] = found.pop(f"{stem}down_proj")
    return found


def _in_turn(gate: Tensor, up: Tensor, axis: int) -> Tensor:
    return torch.stack([gate, up], dim=axis + 1).flatten(axis, axis + 1).contiguous()
