"""What the machine lets a launch take of each pool, with every term of the sum."""

from dataclasses import dataclass
from typing import Literal

from app.planning.quota import PinQuota, pin_quota
from app.planning.terms import UNLIMITED, Budget, Term, summed
from app.planning.wishes import Wishes
from engine.contract.estimate import Costs
from engine.contract.facts import HardwareFacts, Reading
from engine.contract.plan import Pool
from engine.contract.units import GIB, MIB

Device = Literal["cuda", "cpu", "simulated"]

# Measured on Linux, torch 2.13 for CPUs, weights, banks and KV cache taken off. The demo model (49,152 words): 392 MiB
# resident, 105 of them library files; 430 after prompts of 5,000 tokens (compiled code, see engine/threads.py). A
# tokenizer of 250,000 words takes 210 MiB more. tests/bench/big_simulated.py compares the sum with a running engine.
HOST_RUNTIME_BYTES = 400 * MIB
TOKENIZER_WORD_BYTES = 1100
CUDA_RUNTIME_BYTES = 1536 * MIB  # assumed: the CUDA build maps its libraries and keeps its own host buffers
CUDA_CONTEXT_BYTES = 512 * MIB  # assumed where the driver's share was not measured

_VRAM_RESERVE, _VRAM_RESERVE_SHARE = 512 * MIB, 32  # the larger of 512 MiB and a 32nd
_RAM_RESERVE, _RAM_RESERVE_SHARE = 4 * GIB, 10  # the larger of 4 GiB and a tenth ...
_SMALL_RAM_SHARE = 8  # ... but never more than an eighth, so that machines below 32 GiB keep room for a model
_COMMIT_RESERVE, _COMMIT_RESERVE_SHARE = 4 * GIB, 16


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits of all pools, and the costs that do not depend on the model."""

    device: Device
    vram: Budget
    ram: Budget
    commit: Budget
    locked: Budget
    quota: PinQuota
    costs: Costs

    def by_pool(self) -> dict[Pool, int | None]:
        """As a plan carries them."""
        return {
            Pool.VRAM: self.vram.bytes,
            Pool.PINNED: 0 if self.device == "cpu" else self.quota.bytes,
            Pool.LOCKED: self.locked.bytes,
            Pool.PAGEABLE: None,
            Pool.RAM: self.ram.bytes,
            Pool.COMMIT: self.commit.bytes,
        }


def choose_device(facts: HardwareFacts, wishes: Wishes) -> Device:
    """A simulated GPU if asked for, else a CUDA GPU if there is one, else the CPU."""
    if wishes.simulated_gpu is not None:
        return "simulated"
    return "cpu" if facts.cuda_gpu is None else "cuda"


def budgets(facts: HardwareFacts, wishes: Wishes, vocab_size: int = 0) -> Budgets:
    """Limits by what was read and by the user's reserves; a simulated GPU has neither reserve nor driver.

    `vocab_size` is that of the model where its costs count: a tokenizer is the only part of the engine that varies.
    """
    device = choose_device(facts, wishes)
    return Budgets(
        device=device,
        vram=_vram(facts, wishes),
        ram=_ram(facts, wishes),
        commit=_commit(facts),
        locked=_locked(facts, wishes),
        quota=pin_quota(facts, wishes),
        costs=_costs(facts, device, vocab_size),
    )


def _costs(facts: HardwareFacts, device: Device, vocab_size: int) -> Costs:
    if device != "cuda" or facts.cuda_gpu is None:
        return Costs(host_runtime_bytes=HOST_RUNTIME_BYTES + vocab_size * TOKENIZER_WORD_BYTES)
    context = facts.cuda_gpu.context_bytes.value
    return Costs(
        context_bytes=CUDA_CONTEXT_BYTES if context is None else context, host_runtime_bytes=CUDA_RUNTIME_BYTES
    )


def _vram(facts: HardwareFacts, wishes: Wishes) -> Budget:
    if wishes.simulated_gpu is not None:
        return summed(Term("simulated GPU", wishes.simulated_gpu.vram_bytes))
    gpu = facts.cuda_gpu
    if gpu is None or gpu.vram_total.value is None:
        return Budget(0, (Term("no usable CUDA GPU", 0),))
    total = gpu.vram_total.value
    reserve = wishes.vram_reserve_bytes
    if reserve is None:
        reserve = max(_VRAM_RESERVE, total // _VRAM_RESERVE_SHARE)
    return summed(
        Term("GPU memory", total),
        Term("used by other programs", -_known(gpu.vram_used)),
        Term("reserve", -reserve),
    )


def _ram(facts: HardwareFacts, wishes: Wishes) -> Budget:
    total = facts.ram_total.value
    if total is None:
        return UNLIMITED
    used = total - facts.ram_available.value if facts.ram_available.value is not None else 0
    simulated = wishes.simulated_gpu.vram_bytes if wishes.simulated_gpu else 0
    return summed(
        Term("RAM", total),
        Term("used by other programs", -used),
        Term("reserve", -_ram_reserve(total, wishes)),
        Term("memory of the simulated GPU", -simulated),
    )


def _ram_reserve(total: int, wishes: Wishes) -> int:
    if wishes.ram_reserve_bytes is not None:
        return wishes.ram_reserve_bytes
    return max(min(_RAM_RESERVE, total // _SMALL_RAM_SHARE), total // _RAM_RESERVE_SHARE)


def _commit(facts: HardwareFacts) -> Budget:
    limit = facts.commit_limit.value
    if limit is None:
        return UNLIMITED
    return summed(
        Term("commit limit", limit),
        Term("promised to all programs", -_known(facts.commit_used)),
        Term("reserve", -min(_COMMIT_RESERVE, limit // _COMMIT_RESERVE_SHARE)),
    )


def _locked(facts: HardwareFacts, wishes: Wishes) -> Budget:
    """Limits only where pageable layers are allowed: otherwise locking is tried, and a refusal is reported.

    The hard limit counts: the engine raises its soft limit to it before it locks (engine/system/posix_host.py).
    """
    limit = facts.memlock_limit.value
    if facts.os == "windows" or limit is None or facts.memlock_unlimited or not wishes.allow_pageable:
        return UNLIMITED
    return Budget(limit, (Term("limit for locked memory (memlock)", limit),))


def _known(reading: Reading) -> int:
    return 0 if reading.value is None else reading.value
