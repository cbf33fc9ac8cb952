"""Loading: what is reported, what is refused, and that a failed or stopped load leaves nothing behind."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.banks.cpu_device import CpuDevice
from engine.banks.simulated_device import SimulatedDevice
from engine.checkpoint.meter import LoadCancelledError
from engine.contract.checkpoint import read_shape
from engine.contract.errors import (
    ModelFileError,
    ModelFolderError,
    NotEnoughVramError,
    PlanMismatchError,
    UnsupportedModelError,
)
from engine.contract.events import Event, LayerSettled, Loading
from engine.contract.formats import WeightFormat
from engine.contract.plan import MemoryPlan, Pool, SimulatedGpu, Tier
from engine.model.build import Drivers, load_model
from tests.engine.model.conftest import Load, Tiny
from tests.support.host_memory import CountingAllocator, RecordingLocker
from tests.support.reference import prefill, random_prompt, stock_logits
from tests.support.tiny_models import MAKERS, TinyModel, layer_bytes, plan_for

ROOMY = SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30)


class Bench:
    """Simulated drivers that can be looked at afterwards."""

    def __init__(self, limits: SimulatedGpu = ROOMY) -> None:
        self.device = SimulatedDevice(limits)
        self.memory = CountingAllocator()
        self.locker = RecordingLocker()
        self.drivers = Drivers(self.device, self.memory, self.locker)

    def assert_nothing_left(self) -> None:
        """No block, no lock, no pin, no device bytes."""
        assert self.memory.live == 0
        assert self.locker.locked == {}
        assert self.device.pinning.layers == 0
        assert self.device.allocated == {}


@pytest.fixture
def copy_of(tiny: Tiny, tmp_path: Path) -> Callable[[str], TinyModel]:
    """A checkpoint whose files may be damaged."""

    def copy(family: str) -> TinyModel:
        checkpoint = tiny(family)
        return TinyModel(shutil.copytree(checkpoint.folder, tmp_path / family), checkpoint.shape)

    return copy


def _load(plan: MemoryPlan, bench: Bench | None = None) -> Any:
    drivers = bench.drivers if bench else None
    return load_model(plan, report=lambda _: None, cancelled=lambda: False, drivers=drivers)


def _change_tensor(folder: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
    """Rewrite one tensor of a checkpoint; None removes it."""
    index_file = folder / "model.safetensors.index.json"
    index = json.loads(index_file.read_text("utf-8"))
    file = folder / index["weight_map"][name]
    tensors = load_file(file)
    changed = change(tensors.pop(name))
    if changed is not None:
        tensors[name] = changed
    else:
        del index["weight_map"][name]
        index_file.write_text(json.dumps(index), "utf-8")
    save_file(tensors, file, metadata={"format": "pt"})


def _read_again(checkpoint: TinyModel) -> TinyModel:
    """As it would be planned now."""
    return TinyModel(checkpoint.folder, read_shape(checkpoint.folder))


@pytest.mark.parametrize("family", list(MAKERS))
def test_the_shape_written_by_hand_is_the_one_read_from_the_folder(family: str, tiny: Tiny) -> None:
    checkpoint = tiny(family)
    read = read_shape(checkpoint.folder)
    assert read.model_copy(update={"name": checkpoint.shape.name, "assumptions": ()}) == checkpoint.shape


def test_events_tell_every_layer_and_count_up_to_all_bytes(tiny: Tiny, load: Load) -> None:
    events: list[Event] = []
    checkpoint = tiny("mixtral")
    load(plan_for(checkpoint, "glpv"), events=events)
    loading = [event for event in events if isinstance(event, Loading)]
    settled = [event for event in events if isinstance(event, LayerSettled)]
    stages = list(dict.fromkeys(event.stage for event in loading))
    assert stages == ["starting", "dense", "cache", "experts", "checking"]
    done = [event.bytes_done for event in loading]
    assert done == sorted(done)
    total = loading[-1].bytes_total
    assert done[-1] == total
    assert total == sum(file.stat().st_size for file in checkpoint.folder.glob("*.safetensors")) - _headers(checkpoint)
    assert loading[-1].layers_done == loading[-1].layers_total == 4
    assert [(event.layer, event.settled) for event in settled] == [
        (3, Tier.VRAM), (2, Tier.PINNED), (1, Tier.LOCKED), (0, Tier.PAGEABLE)
    ]  # fmt: skip


def _headers(checkpoint: TinyModel) -> int:
    size = 0
    for file in checkpoint.folder.glob("*.safetensors"):
        with file.open("rb") as stream:
            size += 8 + int.from_bytes(stream.read(8), "little")
    return size


@pytest.mark.parametrize("tiers", ["vplg", "llll", "pppp"])
def test_what_settled_is_what_was_asked_line_by_line(tiers: str, tiny: Tiny, load: Load) -> None:
    plan = plan_for(tiny("mixtral"), tiers)
    report = load(plan).residency()
    assert report.ledger_settled == report.ledger_asked == plan.ledger
    assert report.fallen == ()
    assert [layer.settled for layer in report.layers] == list(plan.tiers)
    assert report.simulated is (tiers != "llll")
    assert report.device == ("CPU" if tiers == "llll" else "simulated GPU")


def test_a_refusal_shows_in_the_settled_ledger(tiny: Tiny, load: Load) -> None:
    checkpoint = tiny("mixtral")
    limits = ROOMY.model_copy(update={"pin_bytes": layer_bytes(checkpoint)})
    report = load(plan_for(checkpoint, "pppp", simulated=limits)).residency()
    settled = {(line.pool, line.what): line.bytes for line in report.ledger_settled}
    assert settled[Pool.PINNED, "pinned layers"] == layer_bytes(checkpoint)
    assert settled[Pool.LOCKED, "locked layers"] == 3 * layer_bytes(checkpoint)


def test_closing_gives_everything_back(tiny: Tiny) -> None:
    bench = Bench()
    model = _load(plan_for(tiny("mixtral"), "vplg"), bench)
    prefill(model, random_prompt(20))
    assert (bench.memory.live, len(bench.locker.locked), bench.device.pinning.layers) == (3, 1, 1)
    model.close()
    model.close()
    bench.assert_nothing_left()


@pytest.mark.parametrize("at_stage", ["starting", "dense", "cache", "experts", "checking"])
def test_a_load_that_is_stopped_leaves_nothing(at_stage: str, tiny: Tiny) -> None:
    bench = Bench()
    reached: list[str] = []
    with pytest.raises(LoadCancelledError):
        load_model(
            plan_for(tiny("mixtral"), "vplg"),
            report=lambda event: reached.append(event.stage) if isinstance(event, Loading) else None,
            cancelled=lambda: at_stage in reached,
            drivers=bench.drivers,
        )
    assert reached[-1] == at_stage
    bench.assert_nothing_left()


def test_a_load_stopped_between_layers_leaves_nothing(tiny: Tiny) -> None:
    bench = Bench()
    settled: list[Event] = []
    with pytest.raises(LoadCancelledError):
        load_model(
            plan_for(tiny("mixtral"), "vplg"),
            report=lambda event: settled.append(event) if isinstance(event, LayerSettled) else None,
            cancelled=lambda: len(settled) == 3,
            drivers=bench.drivers,
        )
    assert len(settled) == 3
    bench.assert_nothing_left()


def test_t19_a_truncated_shard_is_refused_before_anything_is_allocated(copy_of: Callable[[str], TinyModel]) -> None:
    checkpoint = copy_of("mixtral")
    file = sorted(checkpoint.folder.glob("*.safetensors"))[1]
    whole = file.read_bytes()
    file.write_bytes(whole[:-1000])
    bench = Bench()
    with pytest.raises(ModelFileError, match="1,000 B short") as why:
        _load(plan_for(checkpoint, "vplg"), bench)
    assert file.name in why.value.sentence
    assert (why.value.numbers["declared_bytes"], why.value.numbers["actual_bytes"]) == (len(whole), len(whole) - 1000)
    assert bench.memory.blocks == []


def test_a_missing_shard_is_named(copy_of: Callable[[str], TinyModel]) -> None:
    checkpoint = copy_of("mixtral")
    file = sorted(checkpoint.folder.glob("*.safetensors"))[2]
    file.unlink()
    with pytest.raises(ModelFileError, match=file.name):
        _load(plan_for(checkpoint, "llll"))


def test_a_missing_expert_is_named(copy_of: Callable[[str], TinyModel]) -> None:
    checkpoint = copy_of("qwen3_moe")
    _change_tensor(checkpoint.folder, "model.layers.2.mlp.experts.5.up_proj.weight", lambda _: None)
    bench = Bench()
    with pytest.raises(ModelFileError, match=r"Layer 2 has 7 tensors .* expert 5 has none"):
        _load(plan_for(checkpoint, "vpl"), bench)
    bench.assert_nothing_left()


def test_a_missing_dense_weight_is_named(copy_of: Callable[[str], TinyModel]) -> None:
    checkpoint = copy_of("qwen3_moe")
    _change_tensor(checkpoint.folder, "model.layers.1.self_attn.q_proj.weight", lambda _: None)
    with pytest.raises(ModelFileError, match=r"layers\.1\.self_attn\.q_proj\.weight is missing"):
        _load(plan_for(_read_again(checkpoint), "vpl"))


def test_a_dense_weight_of_another_shape_is_named(copy_of: Callable[[str], TinyModel]) -> None:
    checkpoint = copy_of("qwen3_moe")
    _change_tensor(checkpoint.folder, "model.norm.weight", lambda tensor: tensor[:-1].clone())
    with pytest.raises(ModelFileError, match=r"model\.norm\.weight is \[31\]; the model needs \[32\]"):
        _load(plan_for(_read_again(checkpoint), "vpl"))


@pytest.mark.usefixtures("any_plan")
def test_experts_of_another_size_than_planned_are_refused(tiny: Tiny) -> None:
    checkpoint = tiny("mixtral")
    experts = checkpoint.shape.experts.model_copy(update={"inner": 32})
    changed = TinyModel(checkpoint.folder, checkpoint.shape.model_copy(update={"experts": experts}))
    bench = Bench()
    with pytest.raises(PlanMismatchError, match="the plan counts"):
        _load(plan_for(changed, "vplg"), bench)
    bench.assert_nothing_left()


@pytest.mark.usefixtures("any_plan")
def test_experts_in_other_layers_than_planned_are_refused(tiny: Tiny) -> None:
    checkpoint = tiny("qwen3_moe")
    layers = tuple(layer.model_copy(update={"moe": layer.index < 3}) for layer in checkpoint.shape.layers)
    changed = TinyModel(checkpoint.folder, checkpoint.shape.model_copy(update={"layers": layers}))
    with pytest.raises(PlanMismatchError, match=r"layers \[1, 2, 3\]; the plan counts \[0, 1, 2\]"):
        _load(plan_for(changed, "lll"))


@pytest.mark.parametrize("missing_bytes", [1, 5000, 40000])
def test_a_gpu_that_is_too_small_refuses_the_load_and_keeps_nothing(missing_bytes: int, tiny: Tiny) -> None:
    checkpoint = tiny("mixtral")
    exact = plan_for(checkpoint, "vvpp").pool_bytes(Pool.VRAM)
    bench = Bench(ROOMY.model_copy(update={"vram_bytes": exact - missing_bytes}))
    with pytest.raises(NotEnoughVramError):
        _load(plan_for(checkpoint, "vvpp"), bench)
    bench.assert_nothing_left()


def test_a_gpu_of_exactly_the_planned_bytes_is_enough(tiny: Tiny, load: Load) -> None:
    checkpoint = tiny("mixtral")
    exact = plan_for(checkpoint, "vvpp").pool_bytes(Pool.VRAM)
    load(plan_for(checkpoint, "vvpp", simulated=ROOMY.model_copy(update={"vram_bytes": exact})))


@pytest.mark.usefixtures("any_plan")
def test_experts_stored_in_another_number_type_are_converted(tiny: Tiny, load: Load) -> None:
    """The files hold float32, the plan computes in bf16: the same as casting the stock model."""
    for family in ("mixtral", "gpt_oss"):
        checkpoint = tiny(family)
        formats = {"expert_format": WeightFormat.BF16, "dense_format": WeightFormat.BF16}
        cast = TinyModel(checkpoint.folder, checkpoint.shape.model_copy(update=formats))
        got = prefill(load(plan_for(cast, "vplg")), random_prompt(10))
        want = stock_logits(checkpoint, random_prompt(10), torch.bfloat16)[-1]
        assert (got - want).abs().max() < 0.05 * want.abs().max()


def test_a_folder_without_a_tokenizer_is_refused_before_the_weights_are_read(
    copy_of: Callable[[str], TinyModel],
) -> None:
    checkpoint = copy_of("mixtral")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (checkpoint.folder / name).unlink()
    bench = Bench()
    with pytest.raises(ModelFolderError, match="no usable tokenizer"):
        _load(plan_for(checkpoint, "vplg"), bench)
    assert bench.memory.blocks == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer.json", "[]"),
        ("tokenizer.json", '{"version": "1.0"}'),
        ("tokenizer.json", "[" * 100_000),
        ("tokenizer_config.json", "[1]"),
        ("tokenizer_config.json", '{"eos_token": {"a": 5}}'),
        ("generation_config.json", "[" * 100_000),
    ],
    ids=lambda text: text[:20],
)
def test_damaged_text_settings_are_an_error_of_the_folder(
    name: str, text: str, copy_of: Callable[[str], TinyModel]
) -> None:
    checkpoint = copy_of("mixtral")
    (checkpoint.folder / name).write_text(text, "utf-8")
    bench = Bench()
    with pytest.raises(ModelFolderError):
        _load(plan_for(checkpoint, "llll"), bench)
    assert bench.memory.blocks == []


@pytest.mark.parametrize("change", [{"hidden_act": "nope"}, {"rms_norm_eps": None}, {"eos_token_id": "x"}], ids=str)
def test_a_value_that_no_model_can_be_built_from_is_refused(
    change: dict[str, object], copy_of: Callable[[str], TinyModel]
) -> None:
    checkpoint = copy_of("mixtral")
    config = json.loads((checkpoint.folder / "config.json").read_text("utf-8"))
    (checkpoint.folder / "config.json").write_text(json.dumps(config | change), "utf-8")
    with pytest.raises(UnsupportedModelError):
        _load(plan_for(checkpoint, "llll"))


def test_a_model_type_that_transformers_does_not_know_is_refused(copy_of: Callable[[str], TinyModel]) -> None:
    checkpoint = copy_of("mixtral")
    config = json.loads((checkpoint.folder / "config.json").read_text("utf-8"))
    (checkpoint.folder / "config.json").write_text(json.dumps({**config, "model_type": "quux"}), "utf-8")
    with pytest.raises(UnsupportedModelError, match="quux"):
        _load(plan_for(checkpoint, "llll"))


def test_without_a_gpu_dense_weights_and_cache_count_against_ram(tiny: Tiny, load: Load) -> None:
    plan = plan_for(tiny("qwen3_moe"), "lgl")
    device = CpuDevice()
    load(plan, drivers=Drivers(device, CountingAllocator(), RecordingLocker()))
    assert device.allocated["weights"] == plan.model.dense_bytes
    assert "expert slots" not in device.allocated
