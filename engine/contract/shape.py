"""What a model is, as far as memory is concerned.

Letters: L layers, E experts a layer, A active experts a token, K KV heads, D head size, M model width, F expert width.
"""

import math
from collections import Counter
from functools import cached_property
from typing import Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from engine.contract.formats import ExpertStorage, WeightFormat, alike, usual_storage
from engine.contract.record import Record

KvType = Literal["bf16", "fp32", "fp8"]  # of keys and values in the cache


class PooledShape(Record):
    """Entries that stand for `step` tokens each; one is added whenever so many tokens are complete."""

    step: int = Field(gt=1, description="tokens of one entry")
    dim: int = Field(gt=0, description="values of one entry")
    index: bool = Field(default=False, description="entries are chosen by these; attention does not read them")


class KvShape(Record):
    """What one attention layer stores per token: K and V of `n_kv_heads` heads, and a key for choosing tokens.

    Latent attention keeps one head: `key_dim` values of the latent and `value_dim` of the rotated key, from which keys
    and values of all heads are computed anew in every step.
    """

    n_kv_heads: int = Field(gt=0)
    key_dim: int = Field(ge=0, description="0: this layer keeps an index only and reads the latents of an earlier one")
    value_dim: int = Field(ge=0)
    keys_are_values: bool = Field(default=False, description="keys are read as values too; value_dim is 0")
    window: int | None = Field(default=None, gt=0, description="sliding window in tokens; None: full attention")
    n_heads: int | None = Field(default=None, gt=0, description="query heads; None: as many as KV heads")
    chunked: bool = Field(default=False, description="the window is a part of fixed borders, not the newest tokens")
    writes_scores: bool = Field(default=False, description="attention has no fused kernel: all scores are written out")
    scores_in_fp32: bool = Field(default=False, description="and every copy of them is in fp32")
    index_dim: int = Field(default=0, ge=0, description="values of the key by which tokens are chosen; 0: none")
    index_heads: int = Field(default=0, ge=0, description="heads that score every token before the choice")
    index_blocks: bool = Field(default=False, description="blocks of tokens are chosen, not single ones")
    bias_extent: int = Field(default=0, ge=0, description="distances that have a bias of their own; 0: none")
    index_positions: int = Field(default=0, ge=0, description="positions a token keeps for the indices of all layers")
    expanded_values: int = Field(default=0, ge=0, description="values a token becomes while latents are expanded")
    fp8: bool = Field(default=False, description="stored in fp8, with one scale in bf16 a token and head")
    pooled: tuple[PooledShape, ...] = Field(default=(), description="what is kept of all tokens, beside the window")

    @property
    def values_per_token(self) -> int:
        """K · (Dk + Dv), and the key of an index."""
        return self.n_kv_heads * (self.key_dim + self.value_dim) + self.index_dim


class StateTensor(Record):
    """A tensor of fixed size that one layer keeps for a sequence, however long it is."""

    kind: Literal["convolution", "recurrent", "pending"] = Field(description="pending: of tokens not pooled yet")
    sizes: tuple[int, ...] = Field(description="for one sequence")
    dtype: Literal["model", "fp32", "int64"] = Field(description="model: the type of keys and values")

    @property
    def values(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.sizes)


class StateShape(Record):
    """What a layer with linear attention, Mamba or a short convolution keeps; in the order of transformers' cache."""

    tensors: tuple[StateTensor, ...]
    resumes: bool = Field(default=True, description="several tokens at once go on from the state; False: only one")
    work_values: int = Field(default=0, ge=0, description="fp32 values a new token takes while the layer computes")
    work_block: int = Field(default=1, gt=0, description="new tokens are filled up to a multiple of this")


class ExpertShape(Record):
    """The routed experts of one MoE layer; all layers of a model are alike."""

    n_experts: int = Field(gt=0)
    top_k: int = Field(gt=0)
    width: int = Field(gt=0, description="M, width of the model")
    inner: int = Field(gt=0, description="F, width inside one expert")
    has_gate: bool = True
    has_bias: bool = False

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.top_k > self.n_experts:
            raise ValueError(f"{self.top_k} active experts a token of {self.n_experts}")
        return self


class LayerShape(Record):
    """One decoder layer."""

    index: int = Field(ge=0)
    kv: KvShape | None = None
    more_kv: tuple[KvShape, ...] = Field(default=(), description="of further attentions in the same layer, in order")
    state: StateShape | None = None
    moe: bool = False
    passes: int = Field(default=1, gt=0, description="how often a token goes through; each keeps its own")


class Difference(Record):
    """Where the weight files hold other bytes than config.json lets one expect. The files are right."""

    what: str
    config_bytes: int = Field(ge=0)
    file_bytes: int = Field(ge=0)


class ModelShape(Record):
    """Everything the byte arithmetic needs to know of a model folder."""

    name: str
    family: str = Field(description="`model_type` of the configuration that holds the text model")
    hidden_size: int = Field(gt=0)
    streams: int = Field(default=1, gt=0, description="residual streams, each as wide as the model")
    vocab_size: int = Field(gt=0)
    max_context_tokens: int = Field(gt=0)
    layers: tuple[LayerShape, ...]
    experts: ExpertShape
    expert_format: WeightFormat
    dense_format: WeightFormat
    dense_bytes: int = Field(ge=0, description="all weights that every token uses")
    source: Literal["headers", "config"] = Field(description="where the weight bytes come from")
    assumptions: tuple[str, ...] = ()
    container: Literal["safetensors", "gguf"] = "safetensors"
    blocked: str | None = Field(default=None, description="why these files can be counted and not run; None: they can")
    storages: tuple[ExpertStorage, ...] = Field(
        default=(),
        description="how experts are stored; none: the usual layout of expert_format; one: all layers alike; else one"
        " per MoE layer",
    )
    differences: tuple[Difference, ...] = ()

    @model_validator(mode="after")
    def _storages_fit(self) -> Self:
        if len(self.storages) not in (0, 1, len(self.moe_layers)):
            raise ValueError(f"{len(self.storages)} storages for {len(self.moe_layers)} MoE layers")
        return self

    @override
    def __copy__(self) -> Self:
        """For `model_copy`: what is derived from the layers is derived anew."""
        copied = super().__copy__()
        for name in ("moe_layers", "cached_layers", "kv_layers"):
            copied.__dict__.pop(name, None)
        return copied

    @property
    def different_storages(self) -> tuple[ExpertStorage, ...]:
        """How experts are stored, each way at least once; also for a shape without MoE layers."""
        return self.storages or (alike(usual_storage(self.expert_format)),)

    @property
    def layer_storages(self) -> tuple[ExpertStorage, ...]:
        """How the experts of each MoE layer are stored, in the order of `moe_layers`."""
        known = self.different_storages
        return known * len(self.moe_layers) if len(known) == 1 else known

    @property
    def stored_as(self) -> str:
        """The formats of the experts for people, the most common first: "q4_k and q6_k"."""
        counts = Counter(form for storage in self.layer_storages for form in storage.formats)
        return " and ".join(form.value for form, _ in counts.most_common()) or self.expert_format.value

    @property
    def not_runnable(self) -> str | None:
        """Why the engine cannot run these weight files, in words; None: it can."""
        if not all(storage.computable for storage in self.different_storages):
            return f"the engine cannot run experts stored as {self.stored_as} yet"
        return self.blocked

    @property
    def value_bytes(self) -> int:
        """Bytes of one value the model computes with: 2, or 4 where the dense part is stored in fp32."""
        return 4 if self.dense_format is WeightFormat.FP32 else 2

    @property
    def different_states(self) -> frozenset[StateShape]:
        """The states that layers keep, each once."""
        return frozenset(layer.state for layer in self.layers if layer.state is not None)

    @property
    def kv_dtype(self) -> KvType:
        """What keys and values are kept in."""
        if any(kv.fp8 for kv in self.kv_layers):
            return "fp8"
        return "fp32" if self.dense_format is WeightFormat.FP32 else "bf16"

    @cached_property
    def moe_layers(self) -> tuple[int, ...]:
        """Indices of the layers with routed experts, ascending; tier lists follow this order."""
        return tuple(layer.index for layer in self.layers if layer.moe)

    @property
    def resumes_in_chunks(self) -> bool:
        """Whether a long prompt can be computed chunk after chunk."""
        return all(layer.state is None or layer.state.resumes for layer in self.layers)

    @cached_property
    def cached_layers(self) -> tuple[LayerShape, ...]:
        """What transformers' cache has a layer each for: all layers, and one more for each further attention.

        Behind them come the further passes of layers that a token goes through more than once.
        """
        if not any(layer.more_kv or layer.passes > 1 for layer in self.layers):
            return self.layers
        parts = ((layer, *(LayerShape(index=layer.index, kv=kv) for kv in layer.more_kv)) for layer in self.layers)
        once = [part for together in parts for part in together]
        most = max((layer.passes for layer in self.layers), default=1)
        return (*once, *(layer for number in range(1, most) for layer in self.layers if layer.passes > number))

    @cached_property
    def kv_layers(self) -> tuple[KvShape, ...]:
        """KV shapes of all attentions that keep keys and values."""
        return tuple(layer.kv for layer in self.cached_layers if layer.kv is not None)
