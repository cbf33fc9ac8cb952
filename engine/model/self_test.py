"""After loading: does each tier compute what the files say? One layer per tier against a plain reference.

Where layers are stored differently, one of each kind in each tier; every way a layer has to be computed, for a prompt
and for a single token; and the router that chooses among the experts.
"""

from collections.abc import Iterator
from math import isnan
from typing import Any

import torch
from torch import Tensor

from engine.banks.place import Placement
from engine.checkpoint.loader import TensorReader
from engine.contract.errors import SplitpinError
from engine.contract.formats import ExpertStorage
from engine.contract.plan import Tier
from engine.contract.shape import ExpertShape
from engine.experts.kernels import ExpertWeights
from engine.experts.layer import ExpertLayer
from engine.model.expert_map import ExpertMap
from engine.model.experts_function import ModuleMath
from engine.model.probe import Probe, allowed, check_finite, difference
from engine.model.router_test import router_test


class SelfTestError(SplitpinError):
    """A tier computes something else than the checkpoint says."""

    kind = "self_test"


def self_test(
    model: Any,
    layers: dict[int, ExpertLayer],
    placements: tuple[Placement, ...],
    experts: ExpertMap,
    reader: TensorReader,
    *,
    device: torch.device,
    dtype: torch.dtype,
    shape: ExpertShape,
) -> str:
    """Compare the router and one layer of every settled tier; the answer in words for the residency report.

    Raises:
        SelfTestError: a difference above what is allowed.
        RouterTestError: the router chooses otherwise than the checkpoint says.
        ModelFileError: the files hold what is no number.
    """
    words: list[str] = []
    modules = [experts.layers[layer].found for layer in sorted(layers)]
    router = router_test(
        model,
        modules,
        lambda name: experts.read_dense(name, reader),
        device=device,
        dtype=dtype,
        shape=shape,
    )
    for tier, layer in _chosen(layers, placements):
        math = ModuleMath(experts.layers[layer].found.module)
        off = _difference(layers[layer], experts, reader, math, device=device, dtype=dtype, shape=shape)
        limit = allowed(layers[layer].bank.layout.dtype, dtype)
        if not off <= limit:  # a NaN fails too
            raise SelfTestError(
                f"Layer {layer} ({tier.value}) computes something else than the checkpoint says: "
                f"the outputs differ by {off:.2g} of their size, {limit:.2g} is allowed.",
                "Start the engine again; if it happens again, test the memory of this PC.",
                layer=layer,
                tier=tier.value,
                difference=off,
            )
        words.append(f"{tier.value} layer {layer} {off:.1e}")
    if not words:
        return "No expert layers."
    words.insert(0, router or "router not compared, it needs more than hidden states")
    return f"Same as the checkpoint; largest difference: {', '.join(words)}.{_slow(layers)}"


def _chosen(layers: dict[int, ExpertLayer], placements: tuple[Placement, ...]) -> list[tuple[Tier, int]]:
    """The first layer of every kind of storage in every tier."""
    first: dict[tuple[Tier, ExpertStorage], int] = {}
    for item in placements:
        first.setdefault((item.settled, layers[item.layer].bank.layout.storage), item.layer)
    order = list(Tier)
    return sorted(((tier, layer) for (tier, _), layer in first.items()), key=lambda one: (order.index(one[0]), one[1]))


def _slow(layers: dict[int, ExpertLayer]) -> str:
    """Says which formats have no kernel of their own yet."""
    slow = [layer.bank.layout.storage for layer in layers.values() if layer.kernel.name == "reference"]
    formats = sorted({form.value for storage in slow for form in storage.formats})
    if not formats:
        return ""
    return f" Experts stored as {' and '.join(formats)} are computed by the reference, which is slow."


def _difference(
    layer: ExpertLayer,
    experts: ExpertMap,
    reader: TensorReader,
    math: ModuleMath,
    *,
    device: torch.device,
    dtype: torch.dtype,
    shape: ExpertShape,
) -> float:
    """The largest difference, whichever way and however many tokens."""
    probe = Probe.of(layer.bank.layer, shape, dtype)
    ids, want = probe.ids, torch.zeros(probe.hidden.shape)
    with torch.inference_mode():
        for expert, record in _records(experts, layer.bank.layer, sorted(set(ids.flatten().tolist())), reader):
            one = layer.kernel.exact(record, expert)
            for token, rank in (ids == expert).nonzero().tolist():
                want[token] += _reference(probe.hidden[token : token + 1], one, math) * probe.scores[token, rank]
    check_finite(want, "The experts", layer.bank.layer)
    found = [
        difference(rows.run(layer, math, device, way), want[: rows.hidden.shape[0]])
        for way in layer.ways
        for rows in (probe, probe.first)
    ]
    return max(found, key=lambda off: float("inf") if isnan(off) else off)


def _records(experts: ExpertMap, layer: int, wanted: list[int], reader: TensorReader) -> Iterator[tuple[int, Tensor]]:
    """One record in memory at a time; all of them where the whole layer has to be converted for each."""
    if experts.layers[layer].conversions:
        yield from experts.read_records(layer, wanted, reader).items()
        return
    for expert in wanted:
        yield expert, experts.read_records(layer, [expert], reader)[expert]


def _reference(hidden: Tensor, one: ExpertWeights, math: ModuleMath) -> Tensor:
    """One token [1, M] and one expert to [M], in float32: slow, and easy to check by eye."""
    up, down = one.up, one.down
    middle = hidden.float() @ (up if math.transposed else up.T)
    middle = math.activate(middle if one.up_bias is None else middle + one.up_bias)
    out = middle @ (down if math.transposed else down.T)
    return math.finish(out if one.down_bias is None else out + one.down_bias)[0].float()
