"""Figures of this machine are measured with the engine's own kernel and copies."""

import json
from collections.abc import Callable

import pytest
import torch
from pydantic import ValidationError

from engine.contract.formats import WeightFormat
from engine.contract.rates import KERNELS, AttentionRates, KernelRates, MeasuredRates
from engine.contract.units import MIB
from engine.experts import attention_rates as sizes
from engine.experts import measure_rates, rates
from engine.experts.attention_rates import attention_rates
from engine.experts.sample_bank import GatedMath, SampleBank


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
    assert found.attention is not None and found.gpu_attention is None
    assert found.prompt_call_s is not None and found.gpu_prompt_call_s is None
    assert found.threads == torch.get_num_threads()


def test_a_simulated_gpu_is_told_as_such() -> None:
    found = rates.measure("simulated", None, 48 * MIB)
    assert found.simulated
    assert found.device == "simulated GPU"
    assert found.pinned_copy_bytes_s is not None
    assert found.copy_call_s is not None and found.gpu_attention is not None and found.gpu_prompt_call_s is not None
    assert set(found.gpu) == {WeightFormat.BF16, WeightFormat.FP32}


@pytest.mark.parametrize("weight_format", list(WeightFormat))
def test_there_is_a_sample_of_every_format_the_engine_runs_and_it_computes_numbers(weight_format: WeightFormat) -> None:
    bank = SampleBank(weight_format, torch.device("cpu"), 0, width=256, inner=256, active=3)
    hidden = torch.full((4, 256), 0.01, dtype=bank.dtype)
    for expert in bank.stream([0, 1, 2]):
        out = expert.compute(hidden, GatedMath()).float()
        assert out.shape == (4, 256)
        assert bool(out.isfinite().all()) and bool((out != 0).all())


def test_formats_that_were_asked_for_are_measured_and_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert measure_rates.main(["--bank-mib", "8", "--formats", "nvfp4,bf16,nvfp4"]) == 0
    found = MeasuredRates.model_validate_json(capsys.readouterr().out)
    assert set(found.cpu) == {WeightFormat.NVFP4, WeightFormat.BF16}
    with pytest.raises(SystemExit):
        measure_rates.main(["--formats", "q4_m"])
    assert "'q4_m' is no format the engine runs" in capsys.readouterr().err


def test_formats_of_an_earlier_measurement_are_kept_as_long_as_the_kernels_are_the_same() -> None:
    def of(*formats: WeightFormat, device: str = "CPU", kernels: int = KERNELS) -> MeasuredRates:
        cpu = {form: KernelRates(bytes_s=1e9, flops_s=1e11) for form in formats}
        return MeasuredRates(
            device=device, threads=2, cpu=cpu, attention=AttentionRates(token_flops_s=1e9, prompt_flops_s=1e10),
            call_s=1e-5, prompt_call_s=1e-4, memcpy_bytes_s=1e9, elapsed_s=1, kernels=kernels,
        )  # fmt: skip

    fresh, both = of(WeightFormat.BF16), {WeightFormat.BF16, WeightFormat.NVFP4}
    assert set(fresh.with_earlier(of(WeightFormat.NVFP4)).cpu) == both
    assert fresh.with_earlier(None) == fresh
    assert fresh.with_earlier(of(WeightFormat.NVFP4, device="another card")) == fresh
    assert fresh.with_earlier(of(WeightFormat.NVFP4, kernels=KERNELS - 1)) == fresh


def test_rates_are_bytes_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.5, 2.0])
    monkeypatch.setattr(rates, "median_s", lambda run: run() or next(times))
    found = rates.kernel_rates(WeightFormat.FP32, torch.device("cpu"), 0, lambda: None)
    expert = 3 * rates.WIDTH * rates.INNER
    assert found.rows == 16
    assert found.bytes_s == 3 * expert * 4 / 0.5  # three experts at least, fp32
    assert found.flops_s == 2 * 16 * 3 * expert / 2.0


def test_weights_are_not_used_twice_before_all_were_used() -> None:
    bank = SampleBank(WeightFormat.BF16, torch.device("cpu"), 0, width=8, inner=8, active=8, least=24)
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


def test_attention_is_operations_over_time() -> None:
    times = iter([0.5, 2.0])

    def took(run: Callable[[], object]) -> float:
        run()
        return next(times)

    found = attention_rates(torch.device("cpu"), lambda: None, took)
    one = 2 * sizes.SEEN_TOKENS * sizes.HEADS * 2 * sizes.HEAD_SIZE
    assert found.token_flops_s == sizes.LAYERS * one / 0.5
    assert found.prompt_flops_s == sizes.PROMPT_TOKENS * one / 2.0


def test_current_figures_are_whole() -> None:
    kernel = {WeightFormat.BF16: KernelRates(bytes_s=1e9, flops_s=1e11)}
    known = {"device": "CPU", "threads": 2, "cpu": kernel, "call_s": 1e-5, "memcpy_bytes_s": 1e9, "elapsed_s": 1}
    with pytest.raises(ValidationError, match="figures of the CPU are missing"):
        MeasuredRates.model_validate(known)
    earlier = MeasuredRates.model_validate({**known, "kernels": 1})
    assert not earlier.current, "figures of an earlier version can be read, and do not count"
    with pytest.raises(ValidationError, match="all figures of a GPU, or none"):
        MeasuredRates.model_validate({**known, "kernels": 1, "gpu": kernel})
