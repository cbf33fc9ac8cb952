"""A model folder whose weight file has headers and zeros only: enough to be planned, too little to be run."""

import json
from pathlib import Path

LAYERS, HIDDEN, INNER, EXPERTS, VOCAB = 6, 64, 96, 4, 100
_HEADS, _KV_HEADS, _HEAD_DIM = 4, 2, 16


def hollow_mixtral(folder: Path) -> Path:
    """Six MoE layers in bf16, 144 KiB a layer, context up to 8,192 tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"],
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "head_dim": _HEAD_DIM,
        "num_local_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "vocab_size": VOCAB,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
        "sliding_window": None,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    _write_zeros(folder / "model.safetensors", _tensors())
    return folder


def _tensors() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB, HIDDEN),
    }
    for layer in range(LAYERS):
        place = f"model.layers.{layer}"
        found[f"{place}.self_attn.q_proj.weight"] = (_HEADS * _HEAD_DIM, HIDDEN)
        found[f"{place}.self_attn.k_proj.weight"] = (_KV_HEADS * _HEAD_DIM, HIDDEN)
        found[f"{place}.self_attn.v_proj.weight"] = (_KV_HEADS * _HEAD_DIM, HIDDEN)
        found[f"{place}.self_attn.o_proj.weight"] = (HIDDEN, _HEADS * _HEAD_DIM)
        found[f"{place}.input_layernorm.weight"] = (HIDDEN,)
        found[f"{place}.post_attention_layernorm.weight"] = (HIDDEN,)
        found[f"{place}.block_sparse_moe.gate.weight"] = (EXPERTS, HIDDEN)
        for expert in range(EXPERTS):
            bank = f"{place}.block_sparse_moe.experts.{expert}"
            found[f"{bank}.w1.weight"] = (INNER, HIDDEN)
            found[f"{bank}.w2.weight"] = (HIDDEN, INNER)
            found[f"{bank}.w3.weight"] = (INNER, HIDDEN)
    return found


def _write_zeros(file: Path, tensors: dict[str, tuple[int, ...]]) -> None:
    """A safetensors file: length of the header, header, then the bytes; here a hole."""
    header: dict[str, object] = {}
    offset = 0
    for name, sizes in tensors.items():
        nbytes = 2
        for size in sizes:
            nbytes *= size
        header[name] = {"dtype": "BF16", "shape": list(sizes), "data_offsets": [offset, offset + nbytes]}
        offset += nbytes
    text = json.dumps(header).encode()
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        out.truncate(8 + len(text) + offset)
