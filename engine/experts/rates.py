"""Measures the engine's own kernel, attention and copies on buffers larger than any cache, laid out like banks.

So weights come from memory, as they do in a real run. Letters: T tokens, A active experts a token, M width of the
model, F width of an expert.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Literal

import torch

from engine.banks.bank import PLAIN_DTYPES
from engine.banks.devices import Device
from engine.contract.formats import WeightFormat
from engine.contract.ledger import EXPERT_SLOTS
from engine.contract.plan import SimulatedGpu
from engine.contract.rates import KernelRates, MeasuredRates
from engine.contract.units import MIB
from engine.experts.attention_rates import attention_rates
from engine.experts.kernels import routed_forward
from engine.experts.sample_bank import GatedMath, SampleBank
from engine.system.protocols import HostBlock
from engine.system.select import host_allocator

DeviceKind = Literal["cpu", "cuda", "simulated"]

WIDTH, INNER = 2048, 1024  # M and F of a usual expert: 12 MiB in bf16
ACTIVE = 8
PROMPT_TOKENS = 256
GPU_PROMPT_TOKENS = 2048  # rows in which a GPU, too, takes longer to compute than to read the weights
COPY_BYTES = 128 * MIB
ENOUGH_S = 0.5  # of repetitions for one figure
_MOST_S = 3.0  # no further repetition then
_REPEATS = 3  # at least
_SMALL = 16
_SMALL_COPIES = 64
_PACKED_BANK_BYTES = 192 * MIB  # larger than caches, and few enough experts for a prompt to give each some rows
FORMATS = (WeightFormat.BF16, WeightFormat.FP32)  # what is measured where nobody asks for more


def measure(
    kind: DeviceKind, gpu_uuid: str | None, bank_bytes: int, formats: Sequence[WeightFormat] = FORMATS
) -> MeasuredRates:
    """All figures of one machine; `bank_bytes` of weights are used, 3 experts at least, in each of the formats.

    Raises:
        NoGpuError: a GPU was asked for and cannot be used.
        NotEnoughMemoryError: the buffers do not fit the GPU.
    """
    began_s = time.monotonic()
    cpu = torch.device("cpu")
    gpu: dict[str, object] = {} if kind == "cpu" else _gpu(_device(kind, gpu_uuid), bank_bytes, formats)
    with torch.inference_mode():
        source = torch.ones(COPY_BYTES, dtype=torch.uint8)
        target = torch.empty_like(source)
        figures: dict[str, object] = {
            "device": "CPU",
            "threads": torch.get_num_threads(),
            "cpu": {form: kernel_rates(form, cpu, bank_bytes, _nothing) for form in formats},
            "attention": attention_rates(cpu, _nothing, median_s),
            "call_s": call_s(cpu, _nothing),
            "prompt_call_s": prompt_call_s(cpu, _nothing),
            "memcpy_bytes_s": COPY_BYTES / median_s(lambda: target.copy_(source)),
        }
    return MeasuredRates.model_validate({**figures, **gpu, "elapsed_s": time.monotonic() - began_s})


def kernel_rates(
    weight_format: WeightFormat, device: torch.device, bank_bytes: int, synchronize: Callable[[], None]
) -> KernelRates:
    """Decoding: A experts of one token, others each time. Prefill: all experts for many tokens, T · A / E rows each.

    Bytes are those that are stored; of packed weights the time to unpack them counts.
    """
    nbytes = bank_bytes if weight_format in PLAIN_DTYPES else min(bank_bytes, _PACKED_BANK_BYTES)
    bank = SampleBank(weight_format, device, nbytes, width=WIDTH, inner=INNER, active=ACTIVE)
    hidden = torch.full((1, WIDTH), 0.01, dtype=bank.dtype, device=device)
    tokens = GPU_PROMPT_TOKENS if device.type == "cuda" else PROMPT_TOKENS
    prompt = torch.full((tokens, WIDTH), 0.01, dtype=bank.dtype, device=device)
    one = torch.ones(1, bank.active, device=device)
    many = torch.ones(tokens, bank.active, device=device)
    everyone = torch.arange(tokens * bank.active, device=device) % bank.n_experts

    def decode() -> None:
        ids = torch.tensor([bank.next_experts()], device=device)
        routed_forward(hidden, ids, one, bank.n_experts, bank, GatedMath())
        synchronize()

    def prefill() -> None:
        routed_forward(prompt, everyone.view(tokens, -1), many, bank.n_experts, bank, GatedMath())
        synchronize()

    operations = 2 * tokens * bank.active * 3 * WIDTH * INNER
    return KernelRates(
        bytes_s=bank.active * bank.expert_bytes / median_s(decode),
        flops_s=operations / median_s(prefill),
        rows=tokens * bank.active / bank.n_experts,
    )


def call_s(device: torch.device, synchronize: Callable[[], None]) -> float:
    """Seconds of one expert so small that only the calls of its operations take time."""
    bank = SampleBank(WeightFormat.BF16, device, 0, width=_SMALL, inner=_SMALL, active=ACTIVE, least=2 * ACTIVE)
    hidden = torch.ones(1, _SMALL, dtype=torch.bfloat16, device=device)
    scores = torch.ones(1, bank.active, device=device)

    def run() -> None:
        for _ in range(_SMALL):
            ids = torch.tensor([bank.next_experts()], device=device)
            routed_forward(hidden, ids, scores, bank.n_experts, bank, GatedMath())
        synchronize()

    return median_s(run) / (_SMALL * bank.active)


def prompt_call_s(device: torch.device, synchronize: Callable[[], None]) -> float:
    """The same of a prompt, where each expert gets another number of rows every time.

    The libraries under torch prepare code for each number that they have not seen lately, which takes longer than the
    calls themselves: 0.7 ms of 0.9 on a busy CPU.
    """
    bank = SampleBank(WeightFormat.BF16, device, 0, width=_SMALL, inner=_SMALL, active=ACTIVE, least=4 * ACTIVE)
    hidden = torch.ones(PROMPT_TOKENS, _SMALL, dtype=torch.bfloat16, device=device)
    scores = torch.ones(PROMPT_TOKENS, bank.active, device=device)
    random = torch.Generator().manual_seed(1)

    def run() -> None:
        ids = torch.rand(PROMPT_TOKENS, bank.n_experts, generator=random).topk(bank.active).indices
        routed_forward(hidden, ids.to(device), scores, bank.n_experts, bank, GatedMath())
        synchronize()

    return median_s(run) / bank.n_experts


def median_s(run: Callable[[], object]) -> float:
    """Median time of a call; the first one, which still warms caches up, does not count."""
    run()
    times: list[float] = []
    while (len(times) < _REPEATS or sum(times) < ENOUGH_S) and sum(times) < _MOST_S:
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _device(kind: DeviceKind, gpu_uuid: str | None) -> Device:
    if kind == "simulated":
        from engine.banks.simulated_device import SimulatedDevice

        return SimulatedDevice(SimulatedGpu(vram_bytes=2 * COPY_BYTES, pin_bytes=2 * COPY_BYTES))
    from engine.banks.cuda_device import CudaDevice

    return CudaDevice(gpu_uuid)


def _gpu(device: Device, bank_bytes: int, formats: Sequence[WeightFormat]) -> dict[str, object]:
    """Figures of a GPU, real or simulated."""
    place = device.torch_device
    with torch.inference_mode():
        kernels = {form: kernel_rates(form, place, bank_bytes, device.synchronize) for form in formats}
        attention = attention_rates(place, device.synchronize, median_s)
        small, small_prompt = call_s(place, device.synchronize), prompt_call_s(place, device.synchronize)
        block = host_allocator().allocate(COPY_BYTES)
        block.populate()
        pageable, pinned, copy_call_s = _copy_rates(device, block)
        block.free()
    device.close()
    return {
        "device": device.name,
        "simulated": device.simulated,
        "gpu": kernels,
        "gpu_attention": attention,
        "gpu_call_s": small,
        "gpu_prompt_call_s": small_prompt,
        "pinned_copy_bytes_s": pinned,
        "copy_call_s": copy_call_s,
        "pageable_copy_bytes_s": pageable,
    }


def _copy_rates(device: Device, block: HostBlock) -> tuple[float, float, float]:
    """Bytes a second from ordinary and from pinned memory, and seconds of a copy of one byte, as slots are filled."""
    source = torch.frombuffer(block.buffer, dtype=torch.uint8)
    target = device.allocate(block.nbytes, EXPERT_SLOTS)

    def copy(nbytes: int = block.nbytes, times: int = 1) -> None:
        for _ in range(times):
            device.copy_in(target[:nbytes], source[:nbytes], device.mark())
        device.synchronize()

    pageable = block.nbytes / median_s(copy)
    device.pin(block.address, block.nbytes)
    pinned = block.nbytes / median_s(copy)
    call_s = median_s(lambda: copy(1, _SMALL_COPIES)) / _SMALL_COPIES
    device.unpin(block.address)
    return pageable, pinned, call_s


def _nothing() -> None:
    """There is nothing to wait for on a CPU."""
