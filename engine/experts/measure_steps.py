"""What a step costs on this machine, measured after loading with a layer of the model itself: engine/contract/steps.py
decides by it.

A fraction of a second for each way of storing experts. One expert of 1 row and one of `ROWS` rows give the two figures
of a processor; copies are timed through the ring that prompts will use.
"""

import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from engine.banks.bank import ExpertBank
from engine.banks.devices import Device
from engine.contract.shape import ExpertShape
from engine.contract.steps import ExpertRates, StepRates
from engine.experts.kernels import ExpertMath
from engine.experts.layer import ExpertLayer, Way
from engine.experts.ring import TransferRing

ROWS = 64
_REPEATS = 5
_SMALL_COPIES = 16
_LEAST_S = 1e-9  # a clock that stood still says nothing


def measure_steps(
    layer: ExpertLayer, math: ExpertMath, ring: TransferRing, device: Device, dtype: torch.dtype, shape: ExpertShape
) -> StepRates:
    """Rates for layers that are stored as this one, which has a way to the CPU and one to the GPU.

    Args:
        dtype: of hidden states.
        ring: with a pinned side; nobody else may use it meanwhile.
    """
    host = next(way for way in layer.ways if way.on_host)
    gpu = next(way for way in layer.ways if not way.on_host)
    bank = layer.bank
    with torch.inference_mode():
        big_s, small_s, stage_s, nbytes = ring.time_copies(bank, _median_s, _SMALL_COPIES)
        held = ring.stream(bank, [0], staged=True)
        on_device = Way(gpu.device, gpu.kernel, _Held(next(held)), on_host=False)
        rates = StepRates(
            host=_expert_rates(layer, host, math, device, dtype, shape),
            device=_expert_rates(layer, on_device, math, device, dtype, shape),
            copy_bytes_s=nbytes / max(big_s - small_s, _LEAST_S),
            copy_s=small_s,
            stage_bytes_s=nbytes / stage_s,
        )
        held.close()
    return rates


class _Held:
    """Every expert is the one that is on the device already."""

    def __init__(self, record: Tensor) -> None:
        self._record = record

    def stream(self, bank: ExpertBank, experts: list[int], tokens: int) -> Iterator[Tensor]:
        return iter([self._record] * len(experts))

    def missing(self, bank: ExpertBank, experts: list[int]) -> int:
        return 0


def _expert_rates(
    layer: ExpertLayer, way: Way, math: ExpertMath, device: Device, dtype: torch.dtype, shape: ExpertShape
) -> ExpertRates:
    home = device.torch_device
    active, n_experts = shape.top_k, shape.n_experts
    one, many = (torch.zeros(rows, shape.width, dtype=dtype, device=home) for rows in (1, ROWS))
    scores = torch.ones(1, active, device=home)
    crowd_ids, crowd_scores = torch.zeros(ROWS, 1, dtype=torch.long, device=home), torch.ones(ROWS, 1, device=home)
    turn = 0

    def token() -> None:
        nonlocal turn  # other experts each time: those of the last time may still be in a cache
        ids = [[(turn + step) % n_experts for step in range(active)]]
        turn += active
        layer.forward(one, torch.tensor(ids, device=home), scores, math, way)
        device.synchronize()

    def crowd() -> None:
        layer.forward(many, crowd_ids, crowd_scores, math, way)
        device.synchronize()

    alone_s = _median_s(token) / active
    row_s = max((_median_s(crowd) - alone_s) / (ROWS - 1), _LEAST_S)
    return ExpertRates(expert_s=max(alone_s - row_s, _LEAST_S), row_s=row_s)


def _median_s(run: Callable[[], object]) -> float:
    """Of some calls; the first one, which still allocates and compiles, does not count."""
    times: list[float] = []
    for _ in range(_REPEATS + 1):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return max(statistics.median(times[1:]), _LEAST_S)
