"""Figures of this machine are measured with the engine's own kernel and copies."""

import json

import pytest
import torch

from engine.contract.formats import WeightFormat
from engine.contract.rates import MeasuredRates
from engine.contract.units import MIB
from engine.experts import measure_rates, rates


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small buffers and few repetitions: these tests are about what is measured, not how fast it is."""
    monkeypatch.setattr(rates, "ENOUGH_S", 0.01)
    monkeypatch.setattr(rates, "COPY_BYTES", 2 * MIB)
    monkeypatch.setattr(rates, "PROMPT_TOKENS", 16)


def test_a_cpu_has_figures_for_both_kinds_of_weights_and_none_of_a_gpu() -> None:
    found = rates.measure("cpu", None, 48 * MIB)
    assert set(found.cpu) == {WeightFormat.BF16, WeightFormat.FP32}
    assert found.device == "CPU"
    assert not found.simulated
    assert found.gpu == {}
    assert found.pinned_copy_bytes_s is None
    assert found.threads == torch.get_num_threads()


def test_a_simulated_gpu_is_told_as_such() -> None:
    found = rates.measure("simulated", None, 48 * MIB)
    assert found.simulated
    assert found.device == "simulated GPU"
    assert found.pinned_copy_bytes_s is not None
    assert set(found.gpu) == {WeightFormat.BF16}


def test_rates_are_bytes_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.5, 2.0])
    monkeypatch.setattr(rates, "median_s", lambda run: run() or next(times))
    found = rates.kernel_rates(torch.float32, torch.device("cpu"), 0, lambda: None)
    expert = 3 * rates.WIDTH * rates.INNER
    assert found.bytes_s == 3 * expert * 4 / 0.5  # three experts at least, fp32
    assert found.flops_s == 2 * 16 * 3 * expert / 2.0


def test_weights_are_not_used_twice_before_all_were_used() -> None:
    bank = rates._Bank(torch.bfloat16, torch.device("cpu"), 0, width=8, inner=8, least=24)
    seen = [bank.next_experts() for _ in range(3)]
    assert sorted(expert for chosen in seen for expert in chosen) == list(range(24))
    assert bank.next_experts() == seen[0]


def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert measure_rates.main(["--bank-mib", "16"]) == 0
    assert MeasuredRates.model_validate_json(capsys.readouterr().out).device == "CPU"


def test_without_a_gpu_the_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("this PC has a CUDA GPU")
    assert measure_rates.main(["--device", "cuda", "--bank-mib", "16"]) == 2
    assert json.loads(capsys.readouterr().out)["problem"]["kind"] == "gpu"
