"""Rules that more than one family uses: which layers slide, which have experts, how wide the shared expert is.

Each rule repeats what the `__post_init__` and the decoder layers of transformers 5.24 do with the same keys.
"""

from collections.abc import Callable

from engine.contract.errors import CannotEstimateError
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts

WindowRule = Callable[[ConfigFacts, int], tuple[int | None, ...]]  # facts, layers -> window of each layer
MoeRule = Callable[[ConfigFacts, int], tuple[bool, ...]]  # facts, layers -> whether each layer has routed experts
SizeRule = Callable[[ConfigFacts], int]

FULL, SLIDING = "full_attention", "sliding_attention"

_OTHER_ATTENTION = {
    "chunked_attention": "attention in chunks",
    "linear_attention": "linear attention layers",
    "mamba": "Mamba layers",
    "conv": "convolution layers",
}


def _checked_kind(kind: str) -> bool:
    """True for a sliding layer, False for a full one."""
    if kind in (FULL, "attention"):
        return False
    if kind == SLIDING:
        return True
    raise CannotEstimateError(
        f"This model has {_OTHER_ATTENTION.get(kind, kind)}; how much memory they keep per token is not known yet.",
        "Choose a model with ordinary attention.",
        attention=kind,
    )


def no_windows(facts: ConfigFacts, layers: int) -> tuple[int | None, ...]:
    """Full attention everywhere; a `layer_types` that says otherwise is refused."""
    kinds = facts.names("layer_types", layers)
    if kinds is not None and any(_checked_kind(kind) for kind in kinds):
        raise CannotEstimateError(
            f"layer_types names sliding layers, which {facts.model_type} models do not have.",
            CONFIG_FIX,
            fact="layer_types",
        )
    return (None,) * layers


def one_window(facts: ConfigFacts, layers: int) -> tuple[int | None, ...]:
    """All layers slide if `sliding_window` is a number (mixtral, phimoe)."""
    return (facts.optional("sliding_window"),) * layers


def window_if_used(facts: ConfigFacts, layers: int) -> tuple[int | None, ...]:
    """All layers slide if `use_sliding_window` says so (qwen3_moe)."""
    if not facts.flag(("use_sliding_window", False)):
        return (None,) * layers
    return (facts.assumed("sliding_window", 4096, least=1),) * layers


def layer_windows(default_window: int, slides: Callable[[ConfigFacts, int, int], bool]) -> WindowRule:
    """`layer_types`, or where it is missing `slides(facts, layer, layers)`; the window from `sliding_window`."""

    def rule(facts: ConfigFacts, layers: int) -> tuple[int | None, ...]:
        kinds = facts.names("layer_types", layers)
        if kinds is None:
            sliding = [slides(facts, layer, layers) for layer in range(layers)]
        else:
            sliding = [_checked_kind(kind) for kind in kinds]
        if not any(sliding):
            return (None,) * layers
        window = _window(facts, default_window)
        return tuple(window if slide else None for slide in sliding)

    return rule


def _window(facts: ConfigFacts, default_window: int) -> int | None:
    """An explicit null means that the sliding layers have no window."""
    if facts.has("sliding_window") and facts.given("sliding_window") is None:
        return None
    return facts.assumed("sliding_window", default_window, least=1)


def pattern(key: str, default: int) -> Callable[[ConfigFacts, int, int], bool]:
    """Every `key`-th layer is full, the others slide."""

    def slides(facts: ConfigFacts, layer: int, layers: int) -> bool:
        return (layer + 1) % facts.quiet(key, default, least=1) != 0

    return slides


def every_layer(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
    """All layers have routed experts."""
    return (True,) * layers


def after_dense(key: str, default: int) -> MoeRule:
    """The first `key` layers are dense (first_k_dense_replace, num_dense_layers)."""

    def rule(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
        dense = facts.quiet(key, default)
        return tuple(layer >= dense for layer in range(layers))

    return rule


def mlp_kinds(default_dense: SizeRule) -> MoeRule:
    """`mlp_layer_types`, or where it is missing the first `default_dense` layers are dense."""

    def rule(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
        kinds = facts.names("mlp_layer_types", layers)
        if kinds is None:
            dense = default_dense(facts)
            return tuple(layer >= dense for layer in range(layers))
        return tuple(kind == "sparse" for kind in kinds)

    return rule


def sparse_step(dense_by_default: tuple[int, ...] = ()) -> MoeRule:
    """Every `decoder_sparse_step`-th layer except `mlp_only_layers` (the Qwen families)."""

    def rule(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
        step = facts.quiet("decoder_sparse_step", 1, least=1)
        given = facts.numbers("mlp_only_layers")
        dense = dense_by_default if given is None else given
        return tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(layers))

    return rule


def interval(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
    """`moe_layer_start_index` to `moe_layer_end_index`, every `moe_layer_interval`-th (ernie4_5_moe)."""
    start = facts.quiet("moe_layer_start_index", 1)
    end = facts.optional("moe_layer_end_index", least=-1)
    last = layers - 1 if end is None or end == -1 else end
    step = facts.quiet("moe_layer_interval", 1, least=1)
    return tuple((layer + 1) % step == 0 and start <= layer <= last for layer in range(layers))


def shared_experts(inner_key: str, default_count: int) -> SizeRule:
    """Width of the shared expert: `n_shared_experts` times the width of one routed expert."""

    def rule(facts: ConfigFacts) -> int:
        return facts.quiet("n_shared_experts", default_count) * facts.required(inner_key)

    return rule


def required_size(key: str) -> SizeRule:
    """The number under `key`, which must be there."""
    return lambda facts: facts.required(key)


def size_of(key: str, default: int) -> SizeRule:
    """The number under `key`."""
    return lambda facts: facts.assumed(key, default)


def quiet_size_of(key: str, default: int) -> SizeRule:
    """The number under `key`, whose absence is normal."""
    return lambda facts: facts.quiet(key, default)


def no_size(facts: ConfigFacts) -> int:
    """A part the family does not have."""
    return 0
