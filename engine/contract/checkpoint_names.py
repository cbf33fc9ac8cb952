"""What the name of a tensor says: the layer, and for routed experts the expert, the matrix and the purpose.

Forms in use: `experts.7.up_proj.weight` with w1 (gate), w3 (up), w2 (down) in older families; all experts in one
tensor as `experts.gate_up_proj` or `experts.gate_up_proj_blocks`; inkling's `experts.w13_weight`, w2_weight; aria's
`experts.fc1.weight`; granite's `block_sparse_moe.input_linear.weight` and jetmoe's `mlp.input_linear.weight`; dbrx's
`experts.mlp.w1`, v1 (up), w2; Step's `moe.gate_proj.weight`. Suffixes of quantised weights: GPTQ and AWQ (qweight,
qzeros, scales, g_idx), modelopt (weight_scale, weight_scale_2, input_scale), compressed-tensors (weight_packed,
weight_scale, weight_global_scale, weight_zero_point, weight_g_idx, weight_shape), gpt-oss (_blocks, _scales).
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Matrix = Literal["gate", "up", "gate_up", "down"]
Purpose = Literal["weight", "scale", "whole scale", "zero", "order", "bias", "not kept"]

_FUSED = re.compile(r"(?:mlp\.)?((?:gate_up|gate|up|down)_proj|w13(?=_)|w2(?=_)|w[123]\b|v1\b|fc[12]\b)(.*)")
_BESIDE = re.compile(r"\.(?:(?:block_sparse_moe|mlp)\.(input|output)_linear|moe\.(gate|up|down)_proj)\b(.*)$")
# layers of the language model, not those of parts for pictures and sound
_LAYER = re.compile(
    r"^(?:(?:thinker\.|model\.|language_model\.|text_model\.|backbone\.|llm\.)*layers|transformer\.blocks)\.(\d{1,9})\."
)
# numbers of Qwen 4's hash of word groups, which transformers computes where files do not hold them
COMPUTED = (".layer_multipliers", ".ngram_heads_vocab_sizes", ".ngram_heads_offsets")
_NOT_LOADED = re.compile(r"(^|\.)(mtp|mtp_layers)\.|rotary_emb\.inv_freq$")

_MATRICES: dict[str, Matrix] = {
    "gate_proj": "gate", "w1": "gate", "gate": "gate", "up_proj": "up", "w3": "up", "v1": "up", "up": "up",
    "w13": "gate_up", "gate_up_proj": "gate_up", "fc1": "gate_up", "input": "gate_up", "down_proj": "down",
    "w2": "down", "fc2": "down", "output": "down", "down": "down",
}  # fmt: skip
_PURPOSES: dict[str, Purpose] = {
    "": "weight", "weight": "weight", "weight_packed": "weight", "qweight": "weight", "blocks": "weight",
    "scale": "scale", "scales": "scale", "weight_scale": "scale", "weight_scale_inv": "scale", "scale_inv": "scale",
    "weight_scale_2": "whole scale", "scale_2": "whole scale", "weight_global_scale": "whole scale",
    "qzeros": "zero", "weight_zero_point": "zero", "g_idx": "order", "weight_g_idx": "order", "bias": "bias",
    "input_scale": "not kept", "input_global_scale": "not kept", "activation_scale": "not kept",
    "weight_shape": "not kept", "act_scale": "not kept", "input_zero_point": "not kept",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExpertName:
    """A tensor of the routed experts. `expert` None: it holds all experts of the layer."""

    expert: int | None
    matrix: Matrix | None  # None: a name that is not known
    purpose: Purpose | None  # None: a suffix that is not known


def expert_name(name: str) -> ExpertName | None:
    """Take a tensor's name apart; None where it belongs to no routed expert (shared expert, router, norms)."""
    _, found, tail = name.rpartition(".experts.")
    if found:
        return _behind_experts(tail)
    beside = _BESIDE.search(name) if "_linear" in name or ".moe." in name else None
    return None if beside is None else ExpertName(None, _MATRICES[beside[1] or beside[2]], _purpose(beside[3]))


_What = tuple[Matrix | None, Purpose | None]


@lru_cache(maxsize=1 << 14)  # each layer has the same ones: a handful of endings for each expert
def _behind_experts(tail: str) -> ExpertName | None:
    first, _, rest = tail.partition(".")
    if first.isdecimal():
        return ExpertName(int(first) if len(first) < 10 else None, *_of_one(rest))
    what = _of_all(tail)
    return None if what is None else ExpertName(None, *what)


@lru_cache(maxsize=4096)
def _of_one(rest: str) -> _What:
    own, _, suffix = rest.partition(".")
    return _MATRICES.get(own), _purpose(suffix)


@lru_cache(maxsize=4096)
def _of_all(tail: str) -> _What | None:
    found = _FUSED.match(tail)
    return None if found is None else (_MATRICES[found[1]], _purpose(found[2]))


def _purpose(suffix: str) -> Purpose | None:
    return _PURPOSES.get(suffix.lstrip("._"))


def tensor_parts(name: str) -> tuple[str, Purpose | None]:
    """A tensor's name without the ending that tells its purpose, and that purpose; None: the name has no such ending.

    "layers.0.q_proj.weight_scale" is the scale of "layers.0.q_proj".
    """
    _, found, tail = name.rpartition(".experts.")
    if found and not tail.partition(".")[0].isdecimal() and (match := _FUSED.match(tail)):
        return name[: len(name) - len(match[2])], _purpose(match[2])
    base, _, last = name.rpartition(".")
    purpose = _PURPOSES.get(last)
    return (name, None) if purpose is None or not base else (base, purpose)


def layer_of(name: str) -> int | None:
    """The decoder layer of the language model that a tensor's name gives, if any."""
    match = _LAYER.search(name)
    return int(match[1]) if match else None


def is_not_loaded(name: str) -> bool:
    """Whether a tensor is left out: parts that only guess ahead or speak, and tables that are computed anew."""
    return name.startswith(("talker.", "code2wav.")) or (
        ("mtp" in name or "inv_freq" in name) and _NOT_LOADED.search(name) is not None
    )
