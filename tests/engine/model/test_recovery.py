"""A request that fails in the middle leaves a model that answers the next one as if nothing had been."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from typing_extensions import override

from engine.banks.devices import Mark
from engine.banks.simulated_device import SimulatedDevice
from engine.contract.errors import NotEnoughVramError
from engine.contract.plan import SimulatedGpu
from engine.model.build import Drivers
from engine.serve.recovery import recover
from tests.engine.model.conftest import Load, Tiny
from tests.support.host_memory import CountingAllocator, RecordingLocker
from tests.support.reference import greedy, random_prompt
from tests.support.tiny_models import plan_for

ROOMY = SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30)
PROMPT = random_prompt(30)
ERRORS: list[Callable[[], Exception]] = [
    lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    lambda: NotEnoughVramError(needed_bytes=2, available_bytes=1, fix="Close programs."),
    lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 17179869184 bytes."),
    MemoryError,
]


class FailingDevice(SimulatedDevice):
    """Fails one copy, after writing half of it."""

    error: Exception | None = None
    copies_left = 0

    @override
    def copy_in(self, target: Tensor, source: Tensor, after: Mark | None) -> Mark | None:
        self.copies_left -= 1
        if self.error is not None and self.copies_left < 0:
            error, self.error = self.error, None
            target[: len(target) // 2] = 0
            raise error
        return super().copy_in(target, source, after)


@pytest.mark.parametrize(
    ("error", "copies", "ring"),
    [
        (ERRORS[0], 0, 0),
        (ERRORS[1], 3, 0),
        (ERRORS[2], 11, 0),
        (ERRORS[3], 0, 4),
        (ERRORS[0], 3, 4),
        (ERRORS[1], 11, 4),
    ],
)
def test_the_answer_after_a_failed_copy_is_the_same(
    error: Callable[[], Exception], copies: int, ring: int, tiny: Tiny, load: Load
) -> None:
    device = FailingDevice(ROOMY)
    plan = plan_for(tiny("mixtral"), "ppvl", ring_experts=ring, simulated=ROOMY)
    model = load(plan, drivers=Drivers(device, CountingAllocator(), RecordingLocker()))
    want = greedy(model, PROMPT, 5)
    model.reset()
    device.error, device.copies_left = error(), copies
    raised = device.error
    with pytest.raises(type(raised)) as why:
        greedy(model, random_prompt(40, seed=3), 10)
    recover(model, why.value)
    assert model.check_integrity() == ()
    assert model.cached_tokens == 0
    assert greedy(model, PROMPT, 5) == want


def test_a_step_that_runs_out_of_memory_in_the_middle_of_the_layers_leaves_nothing_behind(
    tiny: Tiny, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(plan_for(tiny("mixtral"), "llll"))
    want = greedy(model, PROMPT, 5)
    model.reset()
    layer = model._parts.layers[2]
    with monkeypatch.context() as patched, pytest.raises(MemoryError) as why:
        patched.setattr(type(layer), "forward", _fail_at(layer, type(layer).forward))
        greedy(model, PROMPT, 5)
    assert model.check_integrity() != (), "some layers have seen more than others"
    recover(model, why.value)
    assert model.check_integrity() == ()
    assert greedy(model, PROMPT, 5) == want


def _fail_at(layer: object, whole: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def forward(self: object, *args: object, **kwargs: object) -> Tensor:
        if self is layer:
            raise MemoryError
        return whole(self, *args, **kwargs)

    return forward
