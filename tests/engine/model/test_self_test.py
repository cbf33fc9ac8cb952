"""The self-test after loading notices a tier that computes from wrong bytes."""

import pytest
from torch import Tensor
from typing_extensions import override

from engine.banks.canary import SAMPLE_BYTES
from engine.banks.devices import Mark
from engine.banks.simulated_device import SimulatedDevice
from engine.contract.plan import SimulatedGpu
from engine.model.build import Drivers
from engine.model.self_test import SelfTestError
from tests.engine.model.conftest import Load, Tiny
from tests.support.host_memory import CountingAllocator, RecordingLocker
from tests.support.tiny_models import MAKERS, layer_bytes, plan_for


class FaultyDevice(SimulatedDevice):
    """Loses the second half of every copy of at least `from_bytes`."""

    from_bytes = 0

    @override
    def copy_in(self, target: Tensor, source: Tensor, after: Mark | None) -> Mark | None:
        half = len(source) // 2 if len(source) >= self.from_bytes else len(source)
        return super().copy_in(target[:half], source[:half], after)


@pytest.mark.parametrize("family", list(MAKERS))
def test_every_settled_tier_is_compared_and_named(family: str, tiny: Tiny, load: Load) -> None:
    checkpoint = tiny(family)
    tiers = "vplg"[: len(checkpoint.shape.moe_layers)]
    words = load(plan_for(checkpoint, tiers)).residency().self_test
    assert words.startswith("Same as the checkpoint")
    first = checkpoint.shape.moe_layers[0]
    for place, tier in enumerate(["vram", "pinned", "locked", "pageable"][: len(tiers)]):
        assert f"{tier} layer {first + place}" in words


@pytest.mark.parametrize(("tiers", "tier"), [("vlll", "vram"), ("plll", "pinned")])
def test_a_tier_that_lost_bytes_on_the_way_fails_the_load(tiers: str, tier: str, tiny: Tiny, load: Load) -> None:
    device = FaultyDevice(SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30))
    device.from_bytes = SAMPLE_BYTES + 1  # the sample by which a pin is judged is smaller, and arrives
    memory = CountingAllocator()
    with pytest.raises(SelfTestError, match=rf"Layer 0 \({tier}\) computes something else"):
        load(plan_for(tiny("mixtral"), tiers), drivers=Drivers(device, memory, RecordingLocker()))
    assert memory.live == 0


def test_a_fault_in_one_tier_is_not_hidden_by_another(tiny: Tiny, load: Load) -> None:
    checkpoint = tiny("mixtral")
    device = FaultyDevice(SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30))
    device.from_bytes = layer_bytes(checkpoint)  # whole banks are damaged, single experts are not
    with pytest.raises(SelfTestError, match="vram"):
        load(plan_for(checkpoint, "pvll"), drivers=Drivers(device, CountingAllocator(), RecordingLocker()))
