"""The self-test after loading notices a tier that computes from wrong bytes."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from typing_extensions import override

from engine.banks.canary import SAMPLE_BYTES
from engine.banks.devices import Mark
from engine.banks.simulated_device import SimulatedDevice
from engine.contract.checkpoint import read_shape
from engine.contract.errors import ModelFileError
from engine.contract.estimate import expert_record
from engine.contract.formats import WeightFormat
from engine.contract.plan import SimulatedGpu
from engine.model.build import Drivers
from engine.model.loaded import LoadedModel
from engine.model.router_test import RouterTestError, router_test
from engine.model.self_test import SelfTestError
from tests.engine.model.conftest import Load, Tiny
from tests.support import packed_weights as pack
from tests.support.host_memory import CountingAllocator, RecordingLocker
from tests.support.packed_models import packed_model
from tests.support.reference import greedy, random_prompt
from tests.support.tiny_families import tiny_family
from tests.support.tiny_models import MAKERS, TinyModel, layer_bytes, plan_for


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


@pytest.mark.parametrize(("part", "words"), [("experts", "The experts of layer 0"), ("gate", "The router of layer 0")])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_files_that_hold_no_numbers_are_blamed_and_not_this_pc(
    part: str, words: str, value: float, tmp_path: Path, load: Load
) -> None:
    checkpoint = MAKERS["mixtral"](tmp_path)
    for file in tmp_path.glob("*.safetensors"):
        tensors = load_file(file)
        for name, tensor in tensors.items():
            if part in name:
                tensor.view(-1)[0] = value
        save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match=f"{words} cannot be computed") as caught:
        load(plan_for(checkpoint, "vplg"))
    assert "download" in caught.value.fix


def test_a_fault_in_one_tier_is_not_hidden_by_another(tiny: Tiny, load: Load) -> None:
    checkpoint = tiny("mixtral")
    device = FaultyDevice(SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30))
    device.from_bytes = layer_bytes(checkpoint)  # whole banks are damaged, single experts are not
    with pytest.raises(SelfTestError, match="vram"):
        load(plan_for(checkpoint, "pvll"), drivers=Drivers(device, CountingAllocator(), RecordingLocker()))


def test_the_router_is_compared_before_the_tiers(tiny: Tiny, load: Load) -> None:
    for family in MAKERS:
        checkpoint = tiny(family)
        words = load(plan_for(checkpoint, "l" * len(checkpoint.shape.moe_layers))).residency().self_test
        first = checkpoint.shape.moe_layers[0]
        assert words.startswith(f"Same as the checkpoint; largest difference: router layer {first} ")


def test_a_router_that_lost_its_weights_fails_the_test(tiny: Tiny, load: Load) -> None:
    model = load(plan_for(tiny("mixtral"), "vplg"))
    with torch.no_grad():
        router = model._model.model.layers[0].mlp.gate.weight
        router.copy_(router.roll(1, 0))
    with pytest.raises(RouterTestError, match=r"router of layer 0 chooses otherwise than the checkpoint says: \d+%"):
        _router_test(model, {"model.layers.0.mlp.gate.weight": router.roll(-1, 0)})


def _with_tensors(folder: Path, changed: Callable[[str, Tensor], Tensor]) -> None:
    for file in folder.glob("*.safetensors"):
        tensors = {name: changed(name, tensor) for name, tensor in load_file(file).items()}
        save_file(tensors, file, metadata={"format": "pt"})


def test_a_router_whose_rows_are_nearly_the_same_may_choose_as_rounding_has_it(tmp_path: Path, load: Load) -> None:
    """Merged models have such routers: in 16 bits another expert is chosen at every turn."""
    checkpoint = tiny_family("mixtral", tmp_path, torch.bfloat16, num_local_experts=32, num_experts=32, hidden_size=256)
    nearly = torch.randn(32, 256, generator=torch.Generator().manual_seed(3)) * 1e-4

    def changed(name: str, tensor: Tensor) -> Tensor:
        return (tensor[:1].float() + nearly).bfloat16() if name.endswith(".gate.weight") else tensor

    _with_tensors(tmp_path, changed)
    assert "router layer 0" in load(plan_for(checkpoint, "vplg")).residency().self_test


def test_among_equal_experts_a_device_may_choose_the_last_ones(tiny: Tiny, load: Load) -> None:
    model = load(plan_for(tiny("mixtral"), "vplg"))
    router = model._model.model.layers[0].mlp.gate.weight
    with torch.no_grad():
        router.copy_(torch.arange(len(router))[:, None] * 1e-5)
    stored = {"model.layers.0.mlp.gate.weight": torch.zeros_like(router)}
    assert _router_test(model, stored) is not None


def test_experts_in_fp32_beside_other_weights_in_bf16_pass(tmp_path: Path, load: Load) -> None:
    made = tiny_family("qwen3_moe", tmp_path, torch.bfloat16)

    def changed(name: str, tensor: Tensor) -> Tensor:
        return tensor.float() if ".experts." in name else tensor

    _with_tensors(tmp_path, changed)
    checkpoint = TinyModel(made.folder, read_shape(made.folder))
    assert checkpoint.shape.expert_format is WeightFormat.FP32
    assert load(plan_for(checkpoint, "vplg")).residency().self_test.startswith("Same as the checkpoint")


def test_a_device_without_memory_is_no_router_that_wants_more(tiny: Tiny, load: Load) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("scripted")

    model = load(plan_for(tiny("mixtral"), "llll"))
    hooks = [layer.mlp.register_forward_pre_hook(full) for layer in model._model.model.layers]
    with pytest.raises(torch.OutOfMemoryError):
        _router_test(model, {})
    for hook in hooks:
        hook.remove()


def test_a_router_whose_weights_are_right_passes(tiny: Tiny, load: Load) -> None:
    model = load(plan_for(tiny("gpt_oss"), "vplg"))
    assert _router_test(model, {}) is not None


def _router_test(model: LoadedModel, stored: dict[str, Tensor]) -> str | None:
    parts = model._parts
    return router_test(
        model._model,
        [parts.modules[layer] for layer in sorted(parts.modules)],
        stored.get,
        device=parts.device.torch_device,
        dtype=parts.dtype,
        shape=parts.plan.model.experts,
    )


def test_the_experts_compute_again_after_the_router_was_asked(tiny: Tiny, load: Load) -> None:
    model = load(plan_for(tiny("mixtral"), "vplg"))
    want = greedy(model, random_prompt(10), 4)
    _router_test(model, {})
    model.reset()
    assert greedy(model, random_prompt(10), 4) == want


def test_of_layers_that_are_stored_differently_each_kind_is_compared(tmp_path: Path, load: Load) -> None:
    made = packed_model(tmp_path, "qwen3_moe", None, pack.mxfp4, plain_from_layer=1)
    words = load(plan_for(made.packed, "ll")).residency().self_test
    assert "locked layer 0" in words and "locked layer 1" in words


@pytest.mark.parametrize("tiers", ["vp", "lg"])
def test_packed_layers_are_compared_in_every_tier(tiers: str, tmp_path: Path, load: Load) -> None:
    made = packed_model(tmp_path, "mixtral", {"quant_method": "compressed-tensors"}, pack.mxfp4)
    words = load(plan_for(made.packed, tiers)).residency().self_test
    names = {"v": "vram", "p": "pinned", "l": "locked", "g": "pageable"}
    assert all(f"{names[letter]} layer {layer}" in words for layer, letter in enumerate(tiers))


class RingLosesBytes(SimulatedDevice):
    """Damages copies of several records at once: what a ring does, and slots and banks of one layer do not."""

    record_bytes = 0

    @override
    def copy_in(self, target: Tensor, source: Tensor, after: Mark | None) -> Mark | None:
        mark = super().copy_in(target, source, after)
        if target.nbytes in (2 * self.record_bytes, 4 * self.record_bytes):
            target.zero_()
        return mark


def test_prompts_and_single_tokens_are_both_compared(tiny: Tiny, load: Load) -> None:
    """Prompts go through the ring and single tokens through the slots; a fault of either fails the load."""
    checkpoint = tiny("mixtral")
    device = RingLosesBytes(SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30))
    device.record_bytes = expert_record(checkpoint.shape.experts, checkpoint.shape.expert_format).bytes
    with pytest.raises(SelfTestError, match="pinned"):
        load(
            plan_for(checkpoint, "pppp", ring_experts=8, expert_slots=2),
            drivers=Drivers(device, CountingAllocator(), RecordingLocker()),
        )
