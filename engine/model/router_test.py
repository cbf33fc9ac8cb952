"""After loading: does the router choose the experts that the files say? One layer against itself in float32 on the CPU.

The block around the experts is run up to them, on the device and as a copy in float32 whose router has its weights read
from the files once more. Rounding makes the two choose differently where two experts are nearly alike, so most choices
must agree, and the weights of those that do. Where they do not, the copy is asked again with rounding of its own: there
are routers whose rows are nearly or exactly the same (merged models), and of those no more can be asked.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from engine.contract.errors import SplitpinError
from engine.contract.shape import ExpertShape
from engine.experts.kernels import ExpertMath
from engine.model.experts_function import ExpertsModule, ModuleMath
from engine.model.probe import SEED, check_finite

TOKENS = 16
LEAST_AGREEMENT = 0.75  # of all choices
_LEAST_STEADY = 0.5  # of the choices that the copy makes again with rounding; below, a choice says nothing
_ROUNDED_TRIES = 4
# Of the largest weight. Where one choice differs, weights that are shared out among the chosen move a little too.
TOLERANCE = {torch.float32: 1e-2, torch.float16: 5e-2, torch.bfloat16: 0.1}
_MOST_TRIES = 3  # layers; some routers ask for more than hidden states
_MOST_LEVELS = 2
_ROUTER_NAMES = ("router", "gate")
_ROUTER_SIZES = 4  # a part of the block with more numbers than so many routers is no router
# What a block says that wants more than hidden states; then it is another layer's turn, or the router is not compared.
_FAULTS = (torch.OutOfMemoryError, torch.AcceleratorError)  # these are no such words
_WANTS_MORE = (TypeError, ValueError, AttributeError, LookupError, RuntimeError, NotImplementedError)

ReadDense = Callable[[str], Tensor | None]


class RouterTestError(SplitpinError):
    """The router chooses other experts than the checkpoint says."""

    kind = "self_test"


@dataclass(frozen=True, slots=True)
class _Choice:
    """What a router said: experts [T, A] and weights [T, A], float32 on the CPU, as one matrix [T, E]."""

    chosen: Tensor
    weights: Tensor


class _CapturedError(Exception):
    """Raised where the experts would be computed: what comes after them is not needed."""


class _Capture:
    """In the place of a layer's experts."""

    def __init__(self, n_experts: int) -> None:
        self._n_experts = n_experts
        self.choice: _Choice | None = None

    def forward(self, hidden: Tensor, ids: Tensor, scores: Tensor, math: ExpertMath) -> Tensor:
        """Note the choice; never returns."""
        self.note(ids, scores)
        raise _CapturedError

    def note(self, ids: Tensor, scores: Tensor) -> None:
        """Keep experts and weights, [T, A] each."""
        ids, scores = ids.cpu().long().view(ids.shape[0], -1), scores.float().cpu().view(ids.shape[0], -1)
        width = max(self._n_experts, int(ids.max()) + 1)  # masked choices are beyond the last expert
        chosen = torch.zeros(ids.shape[0], width, dtype=torch.bool).scatter_(1, ids, True)[:, : self._n_experts]
        weights = torch.zeros(ids.shape[0], width).scatter_(1, ids, scores)[:, : self._n_experts]
        self.choice = _Choice(chosen, weights)


class _Nothing(nn.Module):
    """In the place of a part of the block that is no router."""

    @override
    def forward(self, hidden: Tensor, *others: Any, **more: Any) -> Tensor:
        return torch.zeros_like(hidden)


def router_test(
    model: Any,
    modules: list[ExpertsModule],
    read_dense: ReadDense,
    *,
    device: torch.device,
    dtype: torch.dtype,
    shape: ExpertShape,
) -> str | None:
    """Compare the router of the first layer that can be; "router layer 3 1.2e-07", or None where none can.

    Args:
        modules: experts modules, by layer.
        read_dense: a weight of the model by its name, from the files; None: it is not stored as it is used.

    Raises:
        RouterTestError: the choices or their weights differ.
        ModelFileError: the files hold what is no number.
    """
    for found, path in _blocks(modules):
        block: Any = model.get_submodule(path)
        random = torch.Generator().manual_seed(SEED + found.layer)
        hidden = torch.randn(1, TOKENS, shape.width, generator=random).to(dtype)
        got = _ask(block, found.module, hidden.to(device), shape.n_experts)
        if got is None:
            continue
        twin, experts = _twin(block, found, path, shape)
        for name, parameter in twin.named_parameters():
            stored = read_dense(f"{path}.{name}")
            if stored is not None and stored.shape == parameter.shape:
                parameter.data = stored.float()
        want = _ask(twin, experts, hidden.float(), shape.n_experts)
        if want is None:
            continue
        if not got.weights.isfinite().all():  # otherwise it is the copy that misses something
            check_finite(want.weights, "The router", found.layer)
        least: float | None = LEAST_AGREEMENT
        if not _agreement(got, want) >= LEAST_AGREEMENT:
            least = _least_agreement(twin, experts, hidden, want, shape.n_experts)
        return f"router layer {found.layer} {_compared(found.layer, got, want, TOLERANCE[dtype], least):.1e}"
    return None


def _blocks(modules: list[ExpertsModule]) -> Iterator[tuple[ExpertsModule, str]]:
    """Experts and the path of what is around them, or around that: where the router is, too."""
    for found in modules[:_MOST_TRIES]:
        path = found.path
        for _ in range(_MOST_LEVELS):
            path = path.rpartition(".")[0]
            if path:
                yield found, path


def _ask(block: Any, experts: nn.Module, hidden: Tensor, n_experts: int) -> _Choice | None:
    """What the router of a block chooses; None: it wants more than hidden states."""
    capture = _Capture(n_experts)
    before = experts.__dict__.get("splitpin")
    experts.__dict__["splitpin"] = (capture, ModuleMath(experts))
    try:
        with torch.inference_mode():
            block(hidden)
    except _CapturedError:
        return capture.choice
    except _FAULTS:
        raise
    except _WANTS_MORE:
        return _ask_alone(block, hidden, capture)
    finally:
        if before is None:
            experts.__dict__.pop("splitpin", None)
        else:
            experts.__dict__["splitpin"] = before
    return None


def _ask_alone(block: Any, hidden: Tensor, capture: _Capture) -> _Choice | None:
    """The same of a router that stands beside the experts: its answer holds experts and weights, [T, A] each."""
    router = next((child for name, child in block.named_children() if name in _ROUTER_NAMES), None)
    if router is None:
        return None
    try:
        with torch.inference_mode():
            answer = router(hidden.view(-1, hidden.shape[-1]))
    except _FAULTS:
        raise
    except _WANTS_MORE:
        return None
    parts = [part for part in answer if isinstance(part, Tensor)] if isinstance(answer, tuple) else []
    ids = next((part for part in parts if not part.is_floating_point()), None)
    scores = [part for part in parts if ids is not None and part is not ids and part.shape == ids.shape]
    if ids is None or not scores:
        return None
    capture.note(ids, scores[0])
    return capture.choice


def _twin(block: Any, found: ExpertsModule, path: str, shape: ExpertShape) -> tuple[nn.Module, nn.Module]:
    """A copy of the block in float32 on the CPU without whatever is too large for a router, and its experts module."""
    most = _ROUTER_SIZES * shape.n_experts * shape.width
    memo: dict[int, Any] = {
        id(child): _Nothing()
        for child in block.children()
        if sum(part.numel() for part in child.parameters()) > most and found.module not in set(child.modules())
    }
    layer = found.module.__dict__.pop("splitpin", None)
    try:
        twin: nn.Module = copy.deepcopy(block, memo)
    finally:
        if layer is not None:
            found.module.__dict__["splitpin"] = layer
    name = found.path.removeprefix(f"{path}.")
    return twin.to("cpu", torch.float32), twin.get_submodule(name)


def _least_agreement(
    twin: nn.Module, experts: nn.Module, hidden: Tensor, want: _Choice, n_experts: int
) -> float | None:
    """How many choices must agree of a router that rounding makes choose otherwise; None: none need to.

    Every number is moved by as much as rounding may, all of them by chance: among equal ones a GPU takes others first.
    """
    random = torch.Generator().manual_seed(SEED)
    place = next(name for name, module in twin.named_modules() if module is experts)
    found: list[float] = []
    for _ in range(_ROUNDED_TRIES):
        rounded = copy.deepcopy(twin)
        for parameter in rounded.parameters():
            largest = float(parameter.abs().max()) if parameter.numel() else 0.0
            off = torch.rand(parameter.shape, generator=random).mul_(2).sub_(1)
            parameter.data += off * (torch.finfo(hidden.dtype).eps * (largest or 1.0))
        choice = _ask(rounded.to(hidden.dtype), rounded.get_submodule(place), hidden.cpu(), n_experts)
        found.append(1.0 if choice is None else _agreement(choice, want))
    steady = sum(found) / len(found)
    return LEAST_AGREEMENT * steady if steady >= _LEAST_STEADY else None


def _agreement(got: _Choice, want: _Choice) -> float:
    """Which part of the choices is the same."""
    return float((got.chosen & want.chosen).sum() / want.chosen.sum().clamp(min=1))


def _compared(layer: int, got: _Choice, want: _Choice, tolerance: float, least: float | None) -> float:
    """The largest difference of weights, relative to the largest; `least`: what part of the choices must agree.

    Raises:
        RouterTestError: fewer do, or weights differ by more than `tolerance`.
    """
    agreement = _agreement(got, want)
    if least is None:  # whatever was chosen: the weights are shared out alike
        apart = got.weights.sort(dim=1).values - want.weights.sort(dim=1).values
    else:
        apart = (got.weights - want.weights) * (got.chosen & want.chosen)
    off = apart.abs().max() / want.weights.abs().max().clamp(min=1e-20)
    if not agreement >= (least or 0.0) or not float(off) <= tolerance:  # a NaN fails too
        raise RouterTestError(
            f"The router of layer {layer} chooses otherwise than the checkpoint says: {agreement:.0%} of the experts "
            f"are the same, their weights differ by {float(off):.2g} of the largest.",
            "Start the engine again; if it happens again, test the memory of this PC.",
            layer=layer,
            agreement=agreement,
            difference=float(off),
        )
    return float(off)
