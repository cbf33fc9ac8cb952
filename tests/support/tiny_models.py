"""Tiny random Mixture-of-Experts checkpoints on disk, and plans for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from engine.contract.estimate import Costs, Split, bank_bytes, expert_record, ledger
from engine.contract.formats import WeightFormat
from engine.contract.plan import MemoryPlan, Pool, SimulatedGpu, Tier
from engine.contract.shape import ExpertShape, KvShape, LayerShape, ModelShape

VOCAB = 96
HIDDEN = 32
LAYERS = 4
WORDS = ("hello", "world", "the", "capital", "of", "france", "is", "paris", "a", "model", "with", "experts")


@dataclass(frozen=True)
class TinyModel:
    """A checkpoint folder and its shape, written by hand."""

    folder: Path
    shape: ModelShape


def _common(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        **more,
    }


def mixtral(folder: Path, dtype: torch.dtype = torch.float32, **more: Any) -> TinyModel:
    """Mixtral shape: every layer has experts; `sliding_window=8` makes every layer a sliding one."""
    config = transformers.MixtralConfig(
        **_common(intermediate_size=24, num_local_experts=8, num_experts_per_tok=2, **more)
    )
    window = more.get("sliding_window")
    return _save(config, folder, dtype, ExpertShape(n_experts=8, top_k=2, width=HIDDEN, inner=24), [window] * LAYERS)


def qwen3_moe(folder: Path, dtype: torch.dtype = torch.float32) -> TinyModel:
    """Qwen3-MoE shape: layer 0 is dense, the others have experts."""
    config = transformers.Qwen3MoeConfig(
        **_common(
            intermediate_size=48,
            moe_intermediate_size=16,
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=True,
            mlp_only_layers=[0],
        )
    )
    experts = ExpertShape(n_experts=8, top_k=3, width=HIDDEN, inner=16)
    return _save(config, folder, dtype, experts, [None] * LAYERS, dense_layers=(0,))


def gpt_oss(folder: Path, dtype: torch.dtype = torch.float32) -> TinyModel:
    """gpt-oss shape: fused and transposed experts with biases, sliding and full layers in turn."""
    config = transformers.GptOssConfig(
        **_common(intermediate_size=24, num_local_experts=8, num_experts_per_tok=2, sliding_window=8)
    )
    experts = ExpertShape(n_experts=8, top_k=2, width=HIDDEN, inner=24, has_bias=True)
    windows = [8 if kind == "sliding_attention" else None for kind in config.layer_types or ()]
    return _save(config, folder, dtype, experts, windows)


MAKERS = {"mixtral": mixtral, "qwen3_moe": qwen3_moe, "gpt_oss": gpt_oss}


def _save(
    config: Any,
    folder: Path,
    dtype: torch.dtype,
    experts: ExpertShape,
    windows: Sequence[int | None],
    dense_layers: tuple[int, ...] = (),
) -> TinyModel:
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():  # livelier than the default, so that logits differ and biases matter
            parameter.normal_(0, 0.2 if parameter.dim() > 1 else 0.5)
    model.save_pretrained(folder, max_shard_size="40KB")
    tiny_tokenizer().save_pretrained(folder)
    weight_format = WeightFormat.FP32 if dtype is torch.float32 else WeightFormat.BF16
    moe = [index for index in range(LAYERS) if index not in dense_layers]
    total = sum(parameter.numel() for parameter in model.parameters()) * dtype.itemsize
    record = expert_record(experts, weight_format)
    routed = len(moe) * experts.n_experts * sum(part.bytes for part in record.parts)
    shape = ModelShape(
        name=folder.name,
        family=config.model_type,
        hidden_size=HIDDEN,
        vocab_size=VOCAB,
        max_context_tokens=512,
        layers=tuple(
            LayerShape(
                index=index,
                kv=KvShape(
                    n_heads=4,
                    n_kv_heads=2,
                    key_dim=8,
                    value_dim=8,
                    window=windows[index],
                    writes_scores=config.model_type == "gpt_oss",
                ),
                moe=index in moe,
            )
            for index in range(LAYERS)
        ),
        experts=experts,
        expert_format=weight_format,
        dense_format=weight_format,
        dense_bytes=total - routed,
        source="headers",
    )
    return TinyModel(folder, shape)


def tiny_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Words to ids; word n of WORDS is token n + 4."""
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    vocab = {word: number for number, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    return transformers.PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def plan_for(
    tiny: TinyModel,
    tiers: str,
    *,
    context_tokens: int = 64,
    prefill_chunk: int = 16,
    expert_slots: int = 3,
    simulated: SimulatedGpu | None = None,
    ring_experts: int = 0,
) -> MemoryPlan:
    """A plan from letters, one per MoE layer: v(ram), p(inned), l(ocked), g (pageable).

    With v or p in it the device is a simulated GPU, roomy unless `simulated` says otherwise. A ring has a pinned side
    where there are layers that need one.
    """
    names = {"v": Tier.VRAM, "p": Tier.PINNED, "l": Tier.LOCKED, "g": Tier.PAGEABLE}
    chosen = tuple(names[letter] for letter in tiers)
    on_gpu = simulated is not None or {Tier.VRAM, Tier.PINNED} & set(chosen) != set()
    slots = expert_slots if on_gpu else 0
    staged = ring_experts > 0 and not {Tier.LOCKED, Tier.PAGEABLE}.isdisjoint(chosen)
    split = Split(
        context_tokens=context_tokens, prefill_chunk=prefill_chunk, expert_slots=slots, tiers=chosen, on_gpu=on_gpu,
        ring_experts=ring_experts, ring_staged=staged,
    )  # fmt: skip
    if on_gpu and simulated is None:
        simulated = SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30)
    return MemoryPlan(
        model_dir=str(tiny.folder),
        model=tiny.shape,
        device="simulated" if on_gpu else "cpu",
        simulated=simulated,
        context_tokens=context_tokens,
        prefill_chunk=prefill_chunk,
        expert_slots=slots,
        ring_experts=ring_experts,
        ring_staged=staged,
        tiers=chosen,
        ledger=ledger(tiny.shape, split, Costs(context_bytes=1000 if on_gpu else 0, host_runtime_bytes=2000)),
        budgets=dict.fromkeys(Pool),
    )


def layer_bytes(tiny: TinyModel) -> int:
    """Bytes of one bank."""
    return bank_bytes(tiny.shape.experts, tiny.shape.expert_format)
