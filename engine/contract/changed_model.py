"""Whether a model folder is still what a plan was made for.

Days may lie between the two. A plan holds as long as everything that its bytes follow from is the same; names and words
may differ, and weights may have other values.
"""

from collections.abc import Callable

from engine.contract.errors import Number, PlanMismatchError, UsageError
from engine.contract.kv_types import kept_in
from engine.contract.shape import ModelShape

_WORDS_ONLY = {"name": "", "assumptions": (), "differences": (), "source": "headers"}
_MOST_TOLD = 3
_FACTS: tuple[tuple[str, str, Callable[[ModelShape], Number]], ...] = (
    ("container", "weight files", lambda shape: shape.container),
    ("family", "model type", lambda shape: shape.family),
    ("layers", "layers", lambda shape: len(shape.layers)),
    ("moe_layers", "layers of experts", lambda shape: len(shape.moe_layers)),
    ("experts", "experts a layer", lambda shape: shape.experts.n_experts),
    ("experts_per_token", "experts a token", lambda shape: shape.experts.top_k),
    ("hidden_size", "width", lambda shape: shape.hidden_size),
    ("expert_inner", "width inside an expert", lambda shape: shape.experts.inner),
    ("vocab_size", "tokens of the vocabulary", lambda shape: shape.vocab_size),
    ("max_context_tokens", "longest context", lambda shape: shape.max_context_tokens),
    ("stored_as", "format of the experts", lambda shape: shape.stored_as),
    ("dense_bytes", "bytes of the weights that every token uses", lambda shape: shape.dense_bytes),
    ("blocked", "what speaks against running it", lambda shape: shape.blocked or "nothing"),
)


class ModelChangedError(PlanMismatchError):
    """The model folder is not what the plan was made for. Planning again is the way out."""

    kind = "model_changed"


def check_unchanged(planned: ModelShape, found: ModelShape) -> None:
    """Compare what a plan counts with what its folder says now.

    Raises:
        ModelChangedError: they are not the same; tells what differs, with both values.
    """
    try:
        now = kept_in(found, "fp8" if planned.kv_dtype == "fp8" else None)
    except UsageError:
        now = found  # what is there now cannot have its keys and values in fp8
    if now.model_copy(update=_WORDS_ONLY) == planned.model_copy(update=_WORDS_ONLY):
        return
    told = [(name, words, of(planned), of(now)) for name, words, of in _FACTS if of(planned) != of(now)]
    what = [f"{words} {_said(old)} in the plan, {_said(new)} now" for _, words, old, new in told[:_MOST_TOLD]]
    numbers: dict[str, Number] = {}
    for name, _, old, new in told:
        numbers |= {f"planned_{name}": old, f"found_{name}": new}
    raise ModelChangedError(
        f"The model folder of {planned.name:.80} has changed since it was planned:"
        f" {'; '.join(what) or _finer(planned, now)}.",
        "Plan again.",
        short_bytes=None,
        **numbers,
    )


def _said(value: Number) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _finer(planned: ModelShape, now: ModelShape) -> str:
    """What differs where all of the well-known numbers are the same."""
    pairs = zip(planned.layers, now.layers, strict=True)
    odd = next((old.index for old, new in pairs if old != new), None)
    return "how its experts are stored" if odd is None else f"what layer {odd} is or keeps of a sequence"
