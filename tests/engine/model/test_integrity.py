"""The books of a loaded model agree, and each way in which they may not is noticed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.banks.simulated_device import SimulatedDevice
from engine.contract.plan import SimulatedGpu, Tier
from engine.experts.slots import ExpertId
from engine.model.build import Drivers, load_model
from engine.model.loaded import LoadedModel
from engine.model.parts import Parts
from tests.engine.model.conftest import Load, Tiny
from tests.support.host_memory import CountingAllocator, RecordingLocker
from tests.support.reference import greedy, random_prompt
from tests.support.tiny_families import tiny_family
from tests.support.tiny_models import MAKERS, plan_for

ROOMY = SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30)


@pytest.mark.parametrize("family", list(MAKERS))
@pytest.mark.parametrize("tiers", ["vplg", "pgpg"])
def test_the_books_agree_before_and_after_answers(family: str, tiers: str, tiny: Tiny, load: Load) -> None:
    checkpoint = tiny(family)
    model = load(plan_for(checkpoint, tiers[: len(checkpoint.shape.moe_layers)]))
    assert model.check_integrity() == ()
    greedy(model, random_prompt(30), 4)
    assert model.check_integrity() == ()
    model.reset()
    greedy(model, random_prompt(5, seed=2), 2)
    assert model.check_integrity() == ()


def test_the_books_agree_with_a_ring_and_layers_that_fell(tiny: Tiny, load: Load) -> None:
    tight = ROOMY.model_copy(update={"refuse_pin_after_layers": 1})
    model = load(plan_for(tiny("mixtral"), "vppl", ring_experts=4, simulated=tight))
    greedy(model, random_prompt(30), 4)
    assert model.check_integrity() == ()


def _unsettle(parts: Parts) -> None:
    parts.arena.banks[0].block = None


def _other_bank(parts: Parts) -> None:
    parts.layers[2].bank = parts.arena.banks[1]


def _release_vram(parts: Parts) -> None:
    parts.device.release(64, "expert layers")


def _unknown_line(parts: Parts) -> None:
    parts.device.reserve(77, "nothing")


def _lose_slot(parts: Parts) -> None:
    assert parts.slots is not None
    parts.slots.table._held.popitem()


def _foreign_slot(parts: Parts) -> None:
    assert parts.slots is not None
    parts.slots.table.acquire(ExpertId(3, 1))


def _unpin(parts: Parts) -> None:
    block = parts.arena.banks[1].block
    assert block is not None
    parts.device.unpin(block.address)
    parts.modules.clear()


def _uncounted(parts: Parts) -> None:
    assert isinstance(parts.device, SimulatedDevice)
    parts.device._account.lines["workspace"] += 5


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_unsettle, r"Layer 0 holds [\d,]+ B of VRAM; [\d,]+ B, locked, are on the books"),
        (_other_bank, "Layer 2 computes from another bank than it has"),
        (_release_vram, r"Expert layers: [\d,]+ B are held, [\d,]+ B are on the books"),
        (_unknown_line, "77 B of nothing are on the books; nobody holds them"),
        (_lose_slot, r"\d slots are taken and \d are free; there are 3"),
        (_foreign_slot, r"Slots hold experts of layers \[3\], which are not pinned"),
        (_unpin, r"0 B are pinned; [\d,]+ B are on the books"),
        (_uncounted, r"B are free; that is not 1,073,741,824 B"),
    ],
)
def test_what_does_not_agree_is_said_with_its_numbers(spoil: Callable[[Parts], None], words: str, tiny: Tiny) -> None:
    device = SimulatedDevice(ROOMY)
    drivers = Drivers(device, CountingAllocator(), RecordingLocker())
    plan = plan_for(tiny("mixtral"), "lpvg", simulated=ROOMY)
    model: LoadedModel = load_model(plan, report=lambda _: None, cancelled=lambda: False, drivers=drivers)
    spoil(model._parts)
    findings = model.check_integrity()
    assert any(re.search(words, finding) for finding in findings), findings


def test_a_layer_of_the_cache_that_has_seen_other_tokens_is_noticed(tiny: Tiny, load: Load) -> None:
    model = load(plan_for(tiny("mixtral"), "llll"))
    greedy(model, random_prompt(10), 2)
    cache: Any = model._parts.cache
    cache.layers[1].seen += 1
    assert model.check_integrity() == ("Layers of the KV cache have seen [12, 13] tokens; 12 are on the books.",)


def test_every_tier_is_in_the_books(tiny: Tiny, load: Load) -> None:
    model = load(plan_for(tiny("mixtral"), "vplg"))
    assert {item.settled for item in model._parts.arena.placements} == set(Tier)
    assert model.check_integrity() == ()


def test_layers_that_read_what_an_earlier_one_keeps_have_no_tokens_of_their_own(tmp_path: Path, load: Load) -> None:
    checkpoint = tiny_family("mistral_large4", tmp_path / "model")
    model = load(plan_for(checkpoint, "l" * len(checkpoint.shape.moe_layers)))
    greedy(model, random_prompt(10), 2)
    assert model.check_integrity() == ()
