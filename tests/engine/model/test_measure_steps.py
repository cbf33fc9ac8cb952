"""What a step costs is measured with a layer of the model, and leaves nothing behind."""

import pytest

from engine.banks.simulated_device import SimulatedDevice
from engine.contract.plan import SimulatedGpu
from engine.contract.steps import StepRates
from engine.experts import measure_steps
from engine.model.build import Drivers
from engine.model.experts_function import ModuleMath
from tests.engine.model.conftest import Load, Tiny
from tests.support.host_memory import CountingAllocator, RecordingLocker
from tests.support.reference import prefill, random_prompt
from tests.support.tiny_models import plan_for

ROOMY = SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30)


class Real(SimulatedDevice):
    """A simulated GPU that passes for one whose times mean something."""

    simulated = False


@pytest.mark.parametrize("tiers", ["llll", "vplg"])
def test_every_figure_is_measured_and_decides_from_then_on(tiers: str, tiny: Tiny, load: Load) -> None:
    plan = plan_for(tiny("mixtral"), tiers, ring_experts=4, simulated=ROOMY)
    device = Real(ROOMY)
    model = load(plan, drivers=Drivers(device, CountingAllocator(), RecordingLocker()))
    (rates,) = model._parts.rates.values()
    assert isinstance(rates, StepRates)
    figures = (rates.copy_bytes_s, rates.copy_s, rates.stage_bytes_s)
    assert min(*figures, rates.host.expert_s, rates.host.row_s, rates.device.expert_s, rates.device.row_s) > 0
    assert model.residency().ledger_settled == plan.ledger
    prefill(model, random_prompt(20))


def test_a_simulated_gpu_and_a_cpu_are_not_measured(tiny: Tiny, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_steps, "measure_steps", None)
    assert load(plan_for(tiny("mixtral"), "vplg", ring_experts=4))._parts.rates == {}
    assert load(plan_for(tiny("mixtral"), "llll"))._parts.rates == {}


def test_two_figures_come_from_one_row_and_many(monkeypatch: pytest.MonkeyPatch, tiny: Tiny, load: Load) -> None:
    expert_s, row_s = 3e-3, 1e-5
    per_call = iter([2 * (expert_s + row_s), expert_s + measure_steps.ROWS * row_s])
    model = load(plan_for(tiny("mixtral"), "vplg", ring_experts=4))
    layer = model._parts.layers[2]
    monkeypatch.setattr(measure_steps, "_median_s", lambda run: run() or next(per_call))
    module = model._parts.modules[2].module
    shape = model._parts.plan.model.experts
    assert shape.top_k == 2
    found = measure_steps._expert_rates(
        layer, layer.ways[0], ModuleMath(module), model._parts.device, model._parts.dtype, shape
    )
    assert found.expert_s == pytest.approx(expert_s)
    assert found.row_s == pytest.approx(row_s)
