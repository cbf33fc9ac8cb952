"""A load that memory has become too short for is refused before anything is read."""

import pytest

from engine.banks.simulated_device import SimulatedDevice
from engine.contract.errors import NotEnoughCommitError, NotEnoughMemoryError, NotEnoughRamError
from engine.contract.load_peak import bytes_to_load
from engine.contract.plan import Pool, SimulatedGpu
from engine.model.build import Drivers
from tests.engine.model.conftest import Load, Tiny
from tests.support.disks import Disk
from tests.support.host_memory import CountingAllocator, RecordingLocker
from tests.support.tiny_models import layer_bytes, plan_for

ROOMY = SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30)


def _drivers(ram_left: int, commit_left: int | None, disk: Disk) -> tuple[Drivers, CountingAllocator]:
    memory = CountingAllocator()
    left = (ram_left, commit_left)
    return Drivers(SimulatedDevice(ROOMY), memory, RecordingLocker(), disk.open, lambda: left), memory


@pytest.mark.parametrize(
    ("ram_left", "commit_left", "error"), [(0, None, NotEnoughRamError), (1 << 40, 0, NotEnoughCommitError)]
)
def test_what_is_not_free_any_more_is_named_with_its_numbers_before_a_byte_is_read(
    ram_left: int, commit_left: int | None, error: type[NotEnoughMemoryError], tiny: Tiny, load: Load
) -> None:
    plan, disk = plan_for(tiny("mixtral"), "vplg"), Disk(lambda target: None)
    drivers, memory = _drivers(ram_left, commit_left, disk)
    with pytest.raises(error, match="Loading this model needs") as why:
        load(plan, drivers=drivers)
    assert why.value.numbers["needed_bytes"] == bytes_to_load(plan, Pool.RAM if commit_left is None else Pool.COMMIT)
    assert (disk.opened, memory.blocks) == (0, [])


def test_exactly_enough_is_enough(tiny: Tiny, load: Load) -> None:
    plan, disk = plan_for(tiny("mixtral"), "llll"), Disk(lambda target: None)
    needed = bytes_to_load(plan, Pool.COMMIT)
    load(plan, drivers=_drivers(0, needed, disk)[0])
    assert disk.reads > 0


def test_pageable_layers_count_as_commit_and_not_as_ram(tiny: Tiny) -> None:
    model = tiny("mixtral")
    locked, pageable = plan_for(model, "llll"), plan_for(model, "gggg")
    assert bytes_to_load(locked, Pool.COMMIT) == bytes_to_load(pageable, Pool.COMMIT)
    assert bytes_to_load(locked, Pool.RAM) - bytes_to_load(pageable, Pool.RAM) == 4 * layer_bytes(model)
