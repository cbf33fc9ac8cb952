"""In which type keys and values are kept: that of the model's other weights, or fp8 where that was measured."""

from engine.contract.errors import UsageError
from engine.contract.formats import WeightFormat
from engine.contract.shape import KvShape, KvType, LayerShape, ModelShape

_SHARES_KV = frozenset({"gemma4_text"})  # layers without keys of their own read those of an earlier layer


def why_not_fp8(shape: ModelShape) -> str | None:
    """What speaks against fp8, as the end of a sentence; None: it is offered."""
    layers = shape.kv_layers
    if not layers:
        return "no layer of it keeps keys and values"
    if any(kv.expanded_values for kv in layers):
        return "it keeps latents, from one of which keys and values of all heads are computed"
    if any(kv.index_dim for kv in layers):
        return "it chooses tokens by keys that are kept beside the others"
    if any(kv.pooled or kv.keys_are_values for kv in layers):
        return "its entries are keys and values at once"
    if shape.family in _SHARES_KV and any(layer.kv is None for layer in shape.layers):
        return "several of its layers read the same keys and values"
    return None


def kept_in(shape: ModelShape, asked: KvType | None) -> ModelShape:
    """The shape with keys and values in that type; None: the model's own.

    Raises:
        UsageError: the engine cannot keep them so.
    """
    own: KvType = "fp32" if shape.dense_format is WeightFormat.FP32 else "bf16"
    if asked == "fp8":
        if (reason := why_not_fp8(shape)) is not None:
            raise UsageError(
                f"Keys and values of {shape.name} cannot be kept in fp8: {reason}.", f"Choose {own}, or nothing."
            )
    elif asked not in (None, own):
        raise UsageError(
            f"Keys and values of this model are kept in {own}; {asked} was asked for.", f"Choose {own}, or nothing."
        )
    if shape.kv_dtype == (asked or own):
        return shape
    return shape.model_copy(update={"layers": tuple(_with(layer, asked == "fp8") for layer in shape.layers)})


def _with(layer: LayerShape, fp8: bool) -> LayerShape:
    def one(kv: KvShape) -> KvShape:
        return kv.model_copy(update={"fp8": fp8})

    return layer.model_copy(
        update={
            "kv": None if layer.kv is None else one(layer.kv),
            "more_kv": tuple(one(kv) for kv in layer.more_kv),
        }
    )
