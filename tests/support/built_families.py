"""What transformers builds and keeps, for the comparison with the family rules; on the meta device, without values."""

import re
import sys
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.models.auto import modeling_auto
from typing_extensions import override

from engine.contract.shape import KvShape, LayerShape, StateShape, StateTensor
from engine.model.experts_adapters import adopt_experts
from engine.model.experts_function import PART_OF_PARAMETER
from tests.support.kept_pools import kept_pending, kept_pools

_LAYER = re.compile(r"(?:layers|blocks)\.(\d+)\.")
_PICTURES = re.compile(r"vis(ion|ual)(?!_moe)|audio|projector|separator|resampler")


def build(config: Any) -> Any:
    """The model that text generation with a configuration takes, its experts adapted."""
    mappings: list[Any] = [
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
        modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    ]
    kind = next(mapping[type(config)] for mapping in mappings if type(config) in mapping)
    if kind.config_class is config.sub_configs.get("text_config"):  # transformers takes the text part alone
        config = config.get_text_config()
    with torch.device("meta"):
        model = kind._from_config(config, dtype=torch.bfloat16)
    adopt_experts(model)
    return model


def expert_modules(model: Any) -> dict[int, Any]:
    """Experts modules by layer."""
    found = {}
    for path, module in model.named_modules():
        if hasattr(module, "has_gate") and hasattr(module, "is_transposed"):
            match = _LAYER.search(path + ".")
            assert match is not None
            found[int(match[1])] = module
    return found


def dense_bytes(model: Any) -> int:
    """Bytes as from_pretrained would load them in bf16, without routed experts and without parts for pictures."""
    experts = {
        id(parameter)
        for module in expert_modules(model).values()
        for name, parameter in module.named_parameters(recurse=False)
        if name in PART_OF_PARAMETER
    }
    strict = model._keep_in_fp32_modules_strict
    names = {name for name in model.state_dict() if not _PICTURES.search(name)}
    seen: set[int] = set()
    total = 0
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    for name, tensor in named:
        if name not in names or id(tensor) in experts or id(tensor) in seen:
            continue
        seen.add(id(tensor))
        fp32 = tensor.dtype is torch.float32 or any(part in name for part in strict)
        total += tensor.numel() * (4 if fp32 else 2) if tensor.is_floating_point() else tensor.nbytes
    return total


def kv_shapes(model: Any, config: Any) -> list[KvShape | None]:
    """What each layer's projections make of a token; None: no ordinary attention."""
    attention = {
        int(match[1]): module
        for path, module in model.named_modules()
        if (match := _LAYER.search(path)) and path.endswith("self_attn") and not re.search(r"vis(ion|ual)|audio", path)
    }
    cached: list[Any] = list(DynamicCache(config=config).layers)
    shapes: list[KvShape | None] = []
    for index in sorted(attention):
        module, layer = attention[index], cached[index]
        if not hasattr(module, "k_proj"):
            shapes.append(None)
            continue
        kv_heads = module.k_proj.out_features // module.head_dim
        values = module.k_proj if module.v_proj is None else module.v_proj
        shapes.append(
            KvShape(
                n_kv_heads=kv_heads,
                key_dim=module.head_dim,
                value_dim=values.out_features // kv_heads,
                window=layer.sliding_window if layer.is_sliding else None,
                n_heads=module.q_proj.out_features // module.head_dim,
                writes_scores=not model._supports_sdpa,
                scores_in_fp32=not model._supports_sdpa and _scores_in_fp32(model),
            )
        )
    return shapes


class _ProductTypes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the types of matrices that are multiplied."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[torch.dtype] = []

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "bmm" in str(func):
            self.seen.append(args[0].dtype)
        return func(*args, **(kwargs or {}))


def _scores_in_fp32(model: Any) -> bool:
    """Whether the written-out attention of a model computes bf16 queries and keys to scores in fp32."""
    attend = sys.modules[type(model).__module__].eager_attention_forward
    module = SimpleNamespace(num_key_value_groups=1, sinks=torch.zeros(1, dtype=torch.bfloat16), training=False)
    query, key, value = torch.zeros(3, 1, 1, 2, 4, dtype=torch.bfloat16)
    with _ProductTypes() as types:
        attend(module, query, key, value, None, scaling=1.0)
    return bool(types.seen[0] is torch.float32)


class _NoExperts:
    def forward(self, hidden: Any, index: Any, weights: Any, math: Any) -> Any:
        return torch.zeros_like(hidden)


def _experts_that_do_nothing(module: Any, hidden: Any, index: Any, weights: Any) -> Any:
    return torch.zeros_like(hidden)


def kept(model: Any) -> list[tuple[KvShape | None, StateShape | None]]:
    """What a few tokens leave in the model's own cache; nothing is computed on the meta device."""
    ALL_EXPERTS_FUNCTIONS.register("nothing", _experts_that_do_nothing)
    if model._can_set_experts_implementation():
        model.set_experts_implementation("nothing")
    for module in expert_modules(model).values():
        module.__dict__["splitpin"] = (_NoExperts(), None)
    with torch.inference_mode():
        tokens = torch.zeros(1, 5, dtype=torch.long, device="meta")
        cached: Any = model(input_ids=tokens, use_cache=True, logits_to_keep=1).cache
    layers = [*cached.layers, *[None] * (len(cached) - len(cached.layers))]
    once = any(hasattr(layer, "compressed_kv") for layer in layers)  # keys are values, which sliding layers keep twice
    return [(_kept_kv(layer, once), _kept_state(cached, index, layer)) for index, layer in enumerate(layers)]


def _kept_kv(layer: Any, once: bool) -> KvShape | None:
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    index = getattr(layer, "indexer_keys", getattr(layer, "idx_keys", None))
    if (keys is None or values is None) and index is None:
        return None
    positions = getattr(layer, "indexer_position_ids", None)
    return KvShape(
        n_kv_heads=1 if keys is None else keys.shape[1],
        key_dim=0 if keys is None else keys.shape[3],
        value_dim=0 if once or values is None else values.shape[3],
        keys_are_values=once,
        window=getattr(layer, "sliding_window", None),
        pooled=kept_pools(layer),
        index_dim=0 if index is None else index.shape[-1],
        index_blocks=hasattr(layer, "idx_keys"),
        index_positions=0 if positions is None else positions.shape[0],
    )


def _kept_state(cached: Any, number: int, layer: Any) -> StateShape | None:
    convolutions = [*getattr(layer, "conv_states", {}).values()]
    recurrent = [*getattr(layer, "recurrent_states", {}).values()]
    linear = getattr(cached, "linear_cache", [])
    if number < len(linear) and len(linear[number]):
        recurrent.append(linear[number])
    tensors = [("convolution", state) for state in convolutions] + [("recurrent", state) for state in recurrent]
    dtypes = {torch.bfloat16: "model", torch.float32: "fp32", torch.int64: "int64"}
    found = tuple(
        StateTensor.model_validate({"kind": kind, "sizes": tuple(state.shape[1:]), "dtype": dtypes[state.dtype]})
        for kind, state in tensors
        if state is not None
    )
    found += kept_pending(layer)
    return StateShape(tensors=found) if found else None


def memory_only(layer: LayerShape) -> tuple[KvShape | None, StateShape | None]:
    """Only what is kept, without what is computed from it."""
    dropped = {
        "n_heads": None,
        "writes_scores": False,
        "scores_in_fp32": False,
        "index_heads": 0,
        "expanded_values": 0,
        "chunked": False,
    }
    dropped["bias_extent"] = 0
    kv = layer.kv.model_copy(update=dropped) if layer.kv else None
    return kv, StateShape(tensors=layer.state.tensors) if layer.state else None
