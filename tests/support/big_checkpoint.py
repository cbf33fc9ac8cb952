"""Checkpoints of several GB with random weights in the shape of Qwen3-MoE, written shard by shard."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

NOISE_VALUES = 32 << 20
WRITE_VALUES = 8 << 20
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


@dataclass(frozen=True)
class BigShape:
    """Sizes of the checkpoint; the defaults make 3.8 GB, with the matrices of Qwen3-30B-A3B and fewer of them."""

    layers: int = 12
    experts: int = 32
    top_k: int = 8
    width: int = 2048
    inner: int = 768
    vocab: int = 8192
    heads: int = 16
    kv_heads: int = 4
    head_dim: int = 128
    shard_bytes: int = 1 << 30

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes as on the hub, in the order in which they are written."""
        yield "model.embed_tokens.weight", (self.vocab, self.width)
        for layer in range(self.layers):
            at = f"model.layers.{layer}"
            yield f"{at}.input_layernorm.weight", (self.width,)
            for expert in range(self.experts):
                yield f"{at}.mlp.experts.{expert}.down_proj.weight", (self.width, self.inner)
                yield f"{at}.mlp.experts.{expert}.gate_proj.weight", (self.inner, self.width)
                yield f"{at}.mlp.experts.{expert}.up_proj.weight", (self.inner, self.width)
            yield f"{at}.mlp.gate.weight", (self.experts, self.width)
            yield f"{at}.post_attention_layernorm.weight", (self.width,)
            yield f"{at}.self_attn.k_norm.weight", (self.head_dim,)
            yield f"{at}.self_attn.k_proj.weight", (self.kv_heads * self.head_dim, self.width)
            yield f"{at}.self_attn.o_proj.weight", (self.width, self.heads * self.head_dim)
            yield f"{at}.self_attn.q_norm.weight", (self.head_dim,)
            yield f"{at}.self_attn.q_proj.weight", (self.heads * self.head_dim, self.width)
            yield f"{at}.self_attn.v_proj.weight", (self.kv_heads * self.head_dim, self.width)
        yield "model.norm.weight", (self.width,)
        yield "lm_head.weight", (self.vocab, self.width)


def write_checkpoint(folder: Path, shape: BigShape, seed: int = 1) -> int:
    """Write config, tokenizer and shards; returns the bytes of all weights."""
    folder.mkdir(parents=True)
    sizes: dict[str, Any] = dict(
        vocab_size=shape.vocab,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        moe_intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        num_experts=shape.experts,
        num_experts_per_tok=shape.top_k,
        norm_topk_prob=True,
        max_position_embeddings=32768,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        architectures=["Qwen3MoeForCausalLM"],
        dtype="bfloat16",
    )
    transformers.Qwen3MoeConfig(**sizes).save_pretrained(folder)
    _tokenizer(shape.vocab).save_pretrained(folder)
    noise = torch.randn(NOISE_VALUES, generator=torch.Generator().manual_seed(seed)).mul_(0.02).bfloat16()
    shards = list(_shards(shape))
    places: dict[str, str] = {}
    total = 0
    for number, shard in enumerate(shards, start=1):
        file = folder / f"model-{number:05}-of-{len(shards):05}.safetensors"
        total += _write_shard(file, shard, noise, start=number * 7919)
        places |= {name: file.name for name, _ in shard}
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    return total


def _shards(shape: BigShape) -> Iterator[list[tuple[str, tuple[int, ...]]]]:
    shard: list[tuple[str, tuple[int, ...]]] = []
    size = 0
    for name, sizes in shape.tensors():
        nbytes = 2 * torch.Size(sizes).numel()
        if shard and size + nbytes > shape.shard_bytes:
            yield shard
            shard, size = [], 0
        shard.append((name, sizes))
        size += nbytes
    yield shard


def _write_shard(file: Path, shard: list[tuple[str, tuple[int, ...]]], noise: torch.Tensor, start: int) -> int:
    """Header and data; every tensor begins somewhere else in the noise, so that no two are alike."""
    offset, header = 0, {}
    for name, sizes in shard:
        nbytes = 2 * torch.Size(sizes).numel()
        header[name] = {"dtype": "BF16", "shape": list(sizes), "data_offsets": [offset, offset + nbytes]}
        offset += nbytes
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(raw)) + raw)
        for name, sizes in shard:
            left = torch.Size(sizes).numel()
            norm = torch.ones(left, dtype=torch.bfloat16) if "norm" in name else None
            while left:
                values = min(left, WRITE_VALUES)
                start = (start + 1_000_003) % (NOISE_VALUES - WRITE_VALUES)
                part = noise[start : start + values] if norm is None else norm
                stream.write(part.view(torch.int16).numpy().data)
                left -= values
    return offset


def _tokenizer(vocab: int) -> transformers.PreTrainedTokenizerFast:
    """One word for each token: "w4", "w5" and so on."""
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    words = {word: number for number, word in enumerate([*special, *(f"w{number}" for number in range(4, vocab))])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    fast = transformers.PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    fast.chat_template = TEMPLATE
    return fast
