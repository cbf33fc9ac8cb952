"""Damaged and hostile model folders, drawn from a seed: configurations, safetensors files with index, GGUF files.

Each starts from a folder that is read without complaint and changes a little of it, so that the damage gets past the
first check.
"""

import copy
import json
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.support import model_configs
from tests.support.weight_files import gguf_header, tensor

Config = dict[str, Any]

_MODELS = Path(__file__).parents[1] / "reference" / "models.json"
CONFIGS: tuple[Config, ...] = tuple(row["config"] for row in json.loads(_MODELS.read_text("utf-8")))
_E, _M, _F = 4, 64, 32
_TINY: Config = model_configs.QWEN3_30B | {
    "num_hidden_layers": 2, "hidden_size": _M, "moe_intermediate_size": _F, "num_experts": _E, "num_experts_per_tok": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
    "torch_dtype": "bfloat16",
}  # fmt: skip
_GGUF = {
    "general.architecture": "qwen3moe", "general.alignment": 32, "qwen3moe.block_count": 2,
    "qwen3moe.context_length": 512, "qwen3moe.embedding_length": _M, "qwen3moe.feed_forward_length": 64,
    "qwen3moe.attention.head_count": 4, "qwen3moe.attention.head_count_kv": [2, 2],
    "qwen3moe.attention.key_length": 16, "qwen3moe.attention.value_length": 16, "qwen3moe.expert_count": _E,
    "qwen3moe.expert_used_count": 2, "qwen3moe.expert_feed_forward_length": _F,
    "tokenizer.ggml.tokens": ["a", "b", "c"], "tokenizer.chat_template": "{{ messages }}",
}  # fmt: skip


def _deep(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"text_config": value}
    return value


_STRANGE: tuple[Callable[[Random], Any], ...] = (
    lambda random: None,
    lambda random: random.choice([True, False]),
    lambda random: random.choice([0, -1, 1, 2, 3, 7, 48, 10**30, -(10**30), 1 << 31, 1 << 63, (1 << 64) - 1]),
    lambda random: random.randrange(-4, 5000),
    lambda random: random.choice([0.0, -0.5, 2.5, 48.0, 1e308, float("nan"), float("inf"), -float("inf")]),
    lambda random: random.choice(["", "48", "-1", "NaN", "x" * 100_000, "\ud800", "../../../etc", "\0", "ü", "none"]),
    lambda random: [],
    lambda random: {},
    lambda random: (
        [random.choice([None, True, -1, 10**30, "sparse", "full_attention", {}, []])] * random.randrange(100)
    ),
    lambda random: {
        random.choice(["0", "text_config", "model_type", "weights"]): random.choice([None, 1, "x", [], {}])
    },
    lambda random: _deep(random.choice([3, 30, 65, 300])),
    lambda random: random.choice(["mixtral", "gemma4_text", "gpt_oss", "deepseek_v3", "qwen3_5_moe", "jamba", "llama"]),
    lambda random: random.choice(["sliding_attention", "linear_attention", "mamba", "fp8", "gptq", "NVFP4", "float16"]),
)
_KEYS = (
    "model_type", "text_config", "language_config", "llm_config", "thinker_config", "quantization_config", "dtype",
    "torch_dtype", "architectures", "layer_types", "mlp_layer_types", "mlp_only_layers", "decoder_sparse_step",
    "num_hidden_layers", "n_layer", "num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok",
    "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "moe_intermediate_size",
    "intermediate_size", "vocab_size", "max_position_embeddings", "sliding_window", "tie_word_embeddings",
    "per_layer_config", "first_k_dense_replace", "n_shared_experts", "kv_lora_rank", "qk_rope_head_dim",
    "use_sliding_window", "enable_moe_block", "weight_block_size", "quant_method", "quant_algo", "config_groups",
    "bits", "group_size", "attention_bias", "num_kv_shared_layers", "sliding_window_pattern", "full_attention_interval",
    "layers_block_type", "hybrid_override_pattern", "moe_layer_freq", "expert_layer_period", "attn_layer_indices",
    "rope_parameters", "rope_scaling", "state_size", "mamba_d_state", "linear_num_value_heads", "conv_L_cache",
)  # fmt: skip


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key inside a document."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            found.append((holder, key))
            waiting.append(holder[key])
    return found


def mutated(document: Any, random: Random) -> Any:
    """One to four changes of a JSON document."""
    changed = copy.deepcopy(document)
    for _ in range(random.randrange(1, 5)):
        places = _places(changed)
        if not places:
            break
        holder, key = random.choice(places)
        match random.randrange(4):
            case 0 | 1:
                holder[key] = random.choice(_STRANGE)(random)
            case 2:
                del holder[key]
            case _ if isinstance(holder, dict):
                holder[random.choice(_KEYS)] = random.choice(_STRANGE)(random)
    return changed


def damaged(raw: bytes, random: Random) -> bytes:
    """A few bytes changed, removed, doubled or added."""
    found = bytearray(raw)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(found) + 1)
        match random.randrange(5):
            case 0 if at < len(found):
                found[at] = random.randrange(256)
            case 1:
                del found[at : at + random.choice([1, 1, 8, 100])]
            case 2:
                found[at:at] = found[at : at + random.choice([1, 8, 60])]
            case 3:
                found[at:at] = random.choice([b'"', b"{", b"[[[[", b"\xff", b"\0", b",", b"9" * 5000, b"\xed\xa0\x80"])
            case _ if at + 8 <= len(found):
                found[at : at + 8] = struct.pack("<Q", random.choice([0, 1, 1 << 31, 1 << 40, 1 << 63, (1 << 64) - 1]))
    return bytes(found)


def hostile_config(folder: Path, random: Random) -> None:
    """A folder with nothing but a changed config.json."""
    text = json.dumps(mutated(random.choice(CONFIGS), random)).encode()
    (folder / "config.json").write_bytes(damaged(text, random) if random.random() < 0.2 else text)


def _safetensors_header(random: Random) -> Config:
    kinds = random.choice([("BF16",), ("F8_E4M3", "F32"), ("U8", "F8_E4M3", "F32")])
    header: Config = {"__metadata__": {"format": "pt"}}
    offset = 0
    names = [
        (f"model.layers.{layer}.mlp.experts.{expert}.{name}_proj", rows, columns)
        for layer in range(2)
        for expert in range(_E)
        for name, rows, columns in (("gate", _F, _M), ("up", _F, _M), ("down", _M, _F))
    ]
    for name, rows, columns in names:
        parts = {"weight": tensor(kinds[0], rows, columns if len(kinds) < 3 else columns // 2)}
        if len(kinds) == 2:
            parts["weight_scale_inv"] = tensor(kinds[1], 1, 1)
        if len(kinds) == 3:
            parts["weight_scale"] = tensor(kinds[1], rows, columns // 16)
            parts["weight_scale_2"] = tensor(kinds[2])
        for suffix, (dtype, shape, size) in parts.items():
            header[f"{name}.{suffix}"] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}
            offset += size
    header["model.norm.weight"] = {"dtype": "BF16", "shape": [_M], "data_offsets": [offset, offset + 2 * _M]}
    return header


def hostile_safetensors(folder: Path, random: Random) -> None:
    """A folder with a changed weight file, and in half of the cases a changed index."""
    (folder / "config.json").write_text(json.dumps(_TINY), "utf-8")
    header = _safetensors_header(random)
    length = max(item["data_offsets"][1] for name, item in header.items() if name != "__metadata__")
    index = {"metadata": {}, "weight_map": dict.fromkeys(list(header)[1:], "one.safetensors")}
    what = random.randrange(4)
    if what == 0:
        names = [
            "../one.safetensors",
            "..",
            "C:\\x",
            "one.safetensors\0",
            "gone.safetensors",
            "/etc/passwd",
            "config.json",
        ]
        index["weight_map"][random.choice(list(index["weight_map"]))] = random.choice(names)
        (folder / "model.safetensors.index.json").write_bytes(json.dumps(index).encode())
    elif what == 1:
        text = json.dumps(mutated(index, random)).encode()
        (folder / "model.safetensors.index.json").write_bytes(damaged(text, random) if random.random() < 0.3 else text)
    raw = json.dumps(mutated(header, random) if random.random() < 0.6 else header).encode()
    if random.random() < 0.3:
        raw = damaged(raw, random)
    declared = random.choice([len(raw)] * 8 + [0, 1, len(raw) + 1, 1 << 32, (1 << 64) - 1])
    data = bytes(max(0, length + random.choice([0] * 8 + [-1, 1, -1000, 4096])))
    (folder / "one.safetensors").write_bytes(struct.pack("<Q", declared) + raw + data)


def hostile_gguf(folder: Path, random: Random) -> None:
    """A folder with a changed GGUF file."""
    metadata = dict(_GGUF)
    if random.random() < 0.6:
        for _ in range(random.randrange(1, 4)):
            key = random.choice(list(metadata))
            if random.random() < 0.3:
                del metadata[key]
            else:
                metadata[key] = random.choice(
                    [0, -1, 1, 7, 1 << 40, (1 << 64) - 1, 2.5, True, "x", "y" * 5000, [1, 2], [], ["a"], [[1], [2]]]
                )
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {"token_embd.weight": ("F32", (_M, 100))}
    for layer in range(2):
        kinds = ["Q8_0", "Q4_0", "F16", "BF16", "MXFP4"]
        tensors |= {
            f"blk.{layer}.ffn_gate_exps.weight": (random.choice(kinds), (_M, _F, _E)),
            f"blk.{layer}.ffn_up_exps.weight": (random.choice(kinds), (_M, _F, _E)),
            f"blk.{layer}.ffn_down_exps.weight": (random.choice(kinds), (_F, _M, _E)),
        }
    if random.random() < 0.3:
        del tensors[random.choice(list(tensors))]
    head, length = gguf_header(metadata, tensors)
    length += random.choice([0] * 8 + [-1, 1, -1000, 4096])
    raw = damaged(head, random) if random.random() < 0.6 else head
    (folder / "m.gguf").write_bytes(raw + bytes(max(0, length - len(head))))


HOSTILE = {"config": hostile_config, "safetensors": hostile_safetensors, "gguf": hostile_gguf}
