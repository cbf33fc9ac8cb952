"""From a configuration to the parts of a decoder: KV shapes, experts, and how many dense weights there are.

Letters as in shape.py, and H query heads, V vocabulary, S width of the shared expert.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from engine.contract.errors import CannotEstimateError, UnsupportedModelError
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts, Flag
from engine.contract.families_rules import MoeRule, SizeRule, WindowRule, every_layer, no_size, no_windows
from engine.contract.shape import ExpertShape, KvShape, LayerShape, StateShape

_HEAD_SIZE_FIX = "Choose a folder whose config.json says head_dim."


@dataclass(frozen=True, slots=True)
class DenseCount:
    """Numbers of dense weights: those stored in the model's own format, and those kept in fp32 whatever it is."""

    plain: int = 0
    fp32: int = 0

    def __add__(self, other: "DenseCount") -> "DenseCount":
        return DenseCount(self.plain + other.plain, self.fp32 + other.fp32)


@dataclass(frozen=True, slots=True)
class Mixer:
    """What mixes the tokens in one layer: attention, or what stands in its place."""

    kv: KvShape | None = None
    state: StateShape | None = None
    more_kv: tuple[KvShape, ...] = ()
    passes: int = 1  # how often a token goes through the layer
    weights: DenseCount = DenseCount()


@dataclass(frozen=True, slots=True)
class Anatomy:
    """What the modelling code builds from one configuration."""

    layers: tuple[LayerShape, ...]
    experts: ExpertShape
    hidden_size: int
    vocab_size: int
    max_context_tokens: int
    embedding: DenseCount  # input embedding, output head unless tied, final norm, what exists once
    body: DenseCount  # all layers
    fp32_names: tuple[str, ...] = ()  # weights whose name contains one of these are kept in fp32
    tied: bool = False
    streams: int = 1  # residual streams of M values
    head_padding: int = 0  # values of the output head that files hold and that are not loaded
    computed_bytes: int = 0  # of numbers that files need not hold
    idle_experts: int = 0  # numbers behind the last expert, whose weights are not loaded where there are any

    @property
    def dense(self) -> DenseCount:
        """All weights that every token uses."""
        return self.embedding + self.body


AnatomyRule = Callable[[ConfigFacts, bool], Anatomy]  # facts, tied embeddings
MixerRule = Callable[[ConfigFacts, "Family"], tuple[Mixer, ...]]


@dataclass(frozen=True, slots=True)
class Family:
    """Where one model type departs from the plain decoder with routed experts. Defaults are the most usual case.

    `vocab_size`, `max_context` and `top_k` are the defaults of the configuration class in transformers 5.24; a `top_k`
    of 0 says that it has none.
    """

    vocab_size: int
    max_context: int
    top_k: int
    # attention
    mixers: MixerRule | None = None  # None: ordinary attention in every layer
    head_size: Literal["key or quotient", "key", "quotient"] = "key or quotient"
    value_key: str | None = None  # values have a head size of their own under this key
    all_heads_if_missing: bool = False  # no num_key_value_heads means one KV head per query head
    heads_per_layer: str | None = None  # key of a list with the query heads of each layer
    sliding_kv_factor: int = 1  # sliding layers have this many times the KV heads
    windows: WindowRule = no_windows
    chunked: bool = False  # windows are parts with fixed borders
    qkv_bias: Flag | bool = ("attention_bias", False)
    out_bias: Flag | bool = ("attention_bias", False)
    qk_norm: Literal["none", "head", "width"] = "none"  # norms of queries and keys: per head, or over all heads
    qk_norm_flag: Flag | bool = True
    sinks: Literal["none", "all", "sliding", "all fp32"] = "none"  # one learned sink per query head
    scores_in_fp32: bool = False  # of attention that writes them out
    out_gate: Callable[[ConfigFacts, int, int], int] | None = None  # facts, H, D -> weights per model width, + biases
    out_gate_bias: bool = False
    # layers
    norms: int = 2  # vectors of M in one layer
    norm_bias: bool = False
    moe: MoeRule = every_layer
    mlp: SizeRule = no_size  # width of the feed-forward block of dense layers
    mlp_bias: Flag | bool = False
    inner_key: str = "moe_intermediate_size"
    width_keys: tuple[str, ...] = ("hidden_size",)  # width of the experts: the first key that is given
    gated: bool = True
    expert_bias: bool = False
    shared: SizeRule = no_size
    shared_gate: bool = False  # the shared expert has a gate of M weights
    router: bool = True  # False: `mixers` count a router of another kind
    router_bias: bool = False
    router_fp32: bool = False
    correction: Literal["none", "plain", "fp32"] = "none"  # one routing bias per expert
    more: Callable[[ConfigFacts, ExpertShape, bool], DenseCount] | None = None  # per layer: facts, experts, moe
    once: SizeRule = no_size  # weights beside embeddings, layers, last norm and head
    head_bias: Flag | bool = False
    fp32_names: tuple[str, ...] = ()

    def __call__(self, facts: ConfigFacts, tied: bool) -> Anatomy:
        """Read one configuration.

        Raises:
            CannotEstimateError: a fact is missing or of an unknown kind.
            UnsupportedModelError: the model has no routed experts.
        """
        mixers = self.mixers(facts, self) if self.mixers else self.attention(facts)
        moe = self.moe(facts, len(mixers))
        experts = self.expert_shape(facts)
        require_experts(facts, any(moe))
        width = facts.required("hidden_size")
        layers = tuple(
            LayerShape(
                index=index, kv=mixer.kv, more_kv=mixer.more_kv, state=mixer.state, moe=is_moe, passes=mixer.passes
            )
            for index, (mixer, is_moe) in enumerate(zip(mixers, moe, strict=True))
        )
        body = DenseCount()
        for mixer, layer in zip(mixers, layers, strict=True):
            body += mixer.weights + self._feed_forward(facts, experts, layer.moe, width)
            body += DenseCount(self.norms * width * (2 if self.norm_bias else 1))
            if self.more:
                body += self.more(facts, experts, layer.moe)
        vocab = facts.assumed("vocab_size", self.vocab_size, least=1)
        head = 0 if tied else vocab * width
        bias = vocab if facts.flag(self.head_bias) else 0
        return Anatomy(
            layers=layers,
            experts=experts,
            hidden_size=width,
            vocab_size=vocab,
            max_context_tokens=facts.assumed("max_position_embeddings", self.max_context, least=1),
            embedding=DenseCount(vocab * width + head + bias + width * (2 if self.norm_bias else 1) + self.once(facts)),
            body=body,
            fp32_names=self.fp32_names,
            tied=tied,
        )

    def attention(self, facts: ConfigFacts) -> tuple[Mixer, ...]:
        """Ordinary attention in every layer.

        Raises:
            CannotEstimateError: a fact is missing, or the head size cannot be derived.
        """
        width = facts.required("hidden_size")
        return tuple(Mixer(kv=kv, weights=self._attention(facts, kv, width)) for kv in self.kv_shapes(facts))

    def kv_shapes(self, facts: ConfigFacts) -> tuple[KvShape, ...]:
        """What each layer caches.

        Raises:
            CannotEstimateError: a fact is missing, or the head size cannot be derived.
        """
        if facts.has("per_layer_config"):
            raise CannotEstimateError(
                "config.json gives single layers their own sizes; this is not known for this family.",
                "Choose another model.",
                fact="per_layer_config",
            )
        layers = facts.required("num_hidden_layers")
        heads = facts.required("num_attention_heads")
        kv_heads = self._kv_heads(facts, heads)
        head_size = self._head_size(facts, heads)
        value_size = head_size if self.value_key is None else facts.required(self.value_key)
        per_layer = (heads,) * layers if self.heads_per_layer is None else self._heads_of_layers(facts, heads, layers)
        return tuple(
            KvShape(
                n_kv_heads=kv_heads * (1 if window is None else self.sliding_kv_factor),
                key_dim=head_size,
                value_dim=value_size,
                window=window,
                n_heads=layer_heads,
                chunked=self.chunked and window is not None,
                writes_scores=self.sinks != "none",  # transformers has no fused attention with sinks
                scores_in_fp32=self.scores_in_fp32,
            )
            for window, layer_heads in zip(self.windows(facts, layers), per_layer, strict=True)
        )

    def expert_shape(self, facts: ConfigFacts) -> ExpertShape:
        """The routed experts of one layer."""
        require_experts(facts, facts.optional("num_experts", least=0) != 0)
        return ExpertShape(
            n_experts=facts.required("num_experts"),
            top_k=_top_k(facts, self.top_k),
            width=next((size for key in self.width_keys if (size := facts.optional(key))), 0)
            or facts.required(self.width_keys[-1]),
            inner=facts.required(self.inner_key),
            has_gate=self.gated,
            has_bias=self.expert_bias,
        )

    def _kv_heads(self, facts: ConfigFacts, heads: int) -> int:
        given = facts.optional("num_key_value_heads")
        if given is None and (self.all_heads_if_missing or facts.has("num_key_value_heads")):
            return heads
        return facts.required("num_key_value_heads")

    def _head_size(self, facts: ConfigFacts, heads: int) -> int:
        given = facts.optional("head_dim")
        if given is not None and self.head_size != "quotient":
            return given
        width = facts.required("hidden_size")
        if self.head_size == "key":
            raise CannotEstimateError(
                f"Cannot derive head size: config.json has no head_dim, which {facts.model_type} models need.",
                _HEAD_SIZE_FIX,
                fact="head_dim",
            )
        if width % heads:
            raise CannotEstimateError(
                f"Cannot derive head size: config.json has no head_dim, and hidden_size {width} is not a multiple"
                f" of {heads} heads.",
                _HEAD_SIZE_FIX,
                fact="head_dim",
                hidden_size=width,
                num_attention_heads=heads,
            )
        return width // heads

    def _heads_of_layers(self, facts: ConfigFacts, heads: int, layers: int) -> tuple[int, ...]:
        given = facts.numbers(self.heads_per_layer or "")
        if given is None:
            return (heads,) * layers
        if len(given) != layers:
            raise CannotEstimateError(
                f"{self.heads_per_layer} in config.json names {len(given)} layers; the model has {layers}.",
                CONFIG_FIX,
                fact=self.heads_per_layer,
            )
        return given

    def _attention(self, facts: ConfigFacts, kv: KvShape, width: int) -> DenseCount:
        heads = kv.n_heads or kv.n_kv_heads
        queries, keys, values = heads * kv.key_dim, kv.n_kv_heads * kv.key_dim, kv.n_kv_heads * kv.value_dim
        gathered = heads * kv.value_dim
        plain = width * (queries + keys + values + gathered)
        if facts.flag(self.qkv_bias):
            plain += queries + keys + values
        if facts.flag(self.out_bias):
            plain += width
        if self.qk_norm != "none" and facts.flag(self.qk_norm_flag):
            plain += 2 * kv.key_dim if self.qk_norm == "head" else queries + keys
        if self.out_gate is not None:
            plain += width * self.out_gate(facts, heads, kv.key_dim) + (heads if self.out_gate_bias else 0)
        sinks = heads if self.sinks != "none" and (self.sinks != "sliding" or kv.window is not None) else 0
        fp32 = self.sinks == "all fp32"
        return DenseCount(plain + (0 if fp32 else sinks), sinks if fp32 else 0)

    def _feed_forward(self, facts: ConfigFacts, experts: ExpertShape, moe: bool, width: int) -> DenseCount:
        if not moe:
            return DenseCount(gated_mlp(width, self.mlp(facts), facts.flag(self.mlp_bias)))
        shared = self.shared(facts)
        plain = gated_mlp(width, shared, facts.flag(self.mlp_bias)) if shared else 0
        plain += width if self.shared_gate else 0
        router = experts.n_experts * width if self.router else 0
        correction = experts.n_experts if self.correction != "none" else 0
        fp32 = (router if self.router_fp32 else 0) + (correction if self.correction == "fp32" else 0)
        plain += router + correction - fp32 + (experts.n_experts if self.router_bias else 0)
        return DenseCount(plain, fp32)


def gated_mlp(width: int, inner: int, bias: bool = False) -> int:
    """Weights of one gate, up, down block: 3 · M · F, and 2 · F + M biases."""
    return 3 * width * inner + (2 * inner + width if bias else 0)


def require_experts(facts: ConfigFacts, there: bool) -> None:
    """Refuse models without routed experts.

    Raises:
        UnsupportedModelError: `there` is false.
    """
    if not there:
        raise UnsupportedModelError(
            f"This {facts.model_type} model is not a Mixture-of-Experts model: no layer has routed experts.",
            "Choose a Mixture-of-Experts model.",
            model_type=facts.model_type,
        )


def _top_k(facts: ConfigFacts, default: int) -> int:
    listed = facts.given("num_experts_per_tok")
    if isinstance(listed, list):  # a number per layer: the slots must hold the largest
        return max((number for number in listed if isinstance(number, int) and number > 0), default=default)
    return facts.assumed("num_experts_per_tok", default, least=1) if default else facts.required("num_experts_per_tok")
