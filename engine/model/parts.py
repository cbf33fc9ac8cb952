"""The parts of a loaded model that a new plan may move or resize: expert layers, slots, KV cache.

What holds them asks here every time, so that an exchanged part is the one that is used and, at the end, freed.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from engine.banks.arena import BankArena
from engine.banks.bank import PLAIN_DTYPES, ExpertBank
from engine.banks.devices import Device
from engine.contract.estimate import slot_bytes
from engine.contract.estimate_work import unpacked_bytes
from engine.contract.formats import ExpertStorage
from engine.contract.ledger import DRIVER, PREFIX_SNAPSHOTS, SCRATCH, TRANSFER_RING, WORKSPACE
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.steps import StepRates
from engine.experts.expert_kernel import ExpertKernel, TorchKernel, kernel_for
from engine.experts.layer import ExpertLayer, InPlace, RecordStream, ThroughRing, ThroughSlots, Way
from engine.experts.measure_steps import measure_steps
from engine.experts.one_row import choose_call
from engine.experts.reference_kernel import PackedExperts, Scratch
from engine.experts.ring import TransferRing
from engine.experts.transfer import SlotPool
from engine.model.experts_function import ExpertsModule, ModuleMath
from engine.model.kv_cache import KvCache, cache_for
from engine.system import select
from engine.system.protocols import KernelLibrary, PinRefusedError

_log = logging.getLogger(__name__)
_MATRICES = 16  # of a usual model some 100 MB
RESERVES = (WORKSPACE, DRIVER)  # counted by the plan, allocated by torch and the driver while they work


class Parts:
    """Opened one by one while loading; `close_*` may be called at any time, and twice."""

    def __init__(self, plan: MemoryPlan, device: Device, arena: BankArena) -> None:
        self.plan = plan
        self.device = device
        self.arena = arena
        self.dtype = PLAIN_DTYPES[plan.model.dense_format]
        self.layers: dict[int, ExpertLayer] = {}
        self.modules: dict[int, ExpertsModule] = {}
        self.slots: SlotPool | None = None
        self.ring: TransferRing | None = None
        self.rates: dict[ExpertStorage, StepRates] = {}  # none: not measured
        self.cache: KvCache | None = None
        self._packed: dict[int, PackedExperts | None] = {}
        self._scratch = Scratch()
        self._config: Any = None

    # -- reserves, cache, slots -----------------------------------------------------------------------------------

    def reserve(self, plan: MemoryPlan) -> None:
        """Count what others allocate beside us.

        Raises:
            NotEnoughVramError: it would not fit.
        """
        for what, nbytes in self.reserves(plan).items():
            if nbytes:
                self.device.reserve(nbytes, what)

    def reserves(self, plan: MemoryPlan) -> dict[str, int]:
        """Bytes a plan sets aside for others, by purpose."""
        pool = Pool.RAM if plan.device == "cpu" else Pool.VRAM
        lines = {line.what: line.bytes for line in plan.ledger if line.pool is pool}
        return {what: lines.get(what, 0) for what in RESERVES}

    def open_cache(self, context_tokens: int, config: Any = None) -> KvCache:
        """Allocate an empty KV cache; `config` is the model's, named the first time.

        Raises:
            PlanMismatchError: the bytes are not those of the plan.
            NotEnoughVramError: they do not fit.
        """
        self._config = config or self._config
        before = self.device.allocated
        try:
            self.cache = cache_for(self._config, self.plan.model, context_tokens, self.device, self.dtype)
        except BaseException:
            for what, size in self.device.allocated.items():
                if more := size - before.get(what, 0):
                    self.device.release(more, what)  # the layers that still fitted
            raise
        return self.cache

    def close_cache(self) -> None:
        """Give the cache back."""
        cache, self.cache = self.cache, None
        if cache is not None:
            cache.close()

    def open_slots(self, slots: int) -> None:
        """Allocate the slots, where there are any.

        Raises:
            NotEnoughVramError: they do not fit.
        """
        if slots and self.device.has_vram:
            self.slots = SlotPool(slots, slot_bytes(self.plan.model), self.device)

    def close_slots(self) -> None:
        """Give the slots back."""
        slots, self.slots = self.slots, None
        if slots is not None:
            slots.close()

    def open_ring(self, plan: MemoryPlan) -> None:
        """Allocate the way of prompts to the GPU, where the plan has one; pinned before any layer is.

        Raises:
            NotEnoughVramError, NotEnoughCommitError, AllocationRefusedError: the memory is not there.
        """
        if plan.ring_experts and self.device.has_vram:
            allocator = self.arena.allocator if plan.ring_staged else None
            self.ring = TransferRing(plan.ring_experts, slot_bytes(plan.model), self.device, allocator)

    def close_ring(self) -> None:
        """Give the ring back."""
        ring, self.ring = self.ring, None
        if ring is not None:
            ring.close()

    @property
    def pinned_beside_bytes(self) -> int:
        """Pinned host memory that belongs to no layer."""
        return 0 if self.ring is None else self.ring.staging_bytes

    @property
    def ring_refusal(self) -> PinRefusedError | None:
        """Why the ring has no pinned side."""
        return None if self.ring is None else self.ring.refusal

    @property
    def ring_cause(self) -> str | None:
        """The same in words."""
        return None if self.ring is None else self.ring.cause

    def forget_slots(self, layers: Iterable[int]) -> None:
        """Empty the slots of some layers."""
        gone = set(layers)
        if self.slots is not None:
            for held in self.slots.table.held():
                if held.layer in gone:
                    self.slots.table.forget(held)

    @property
    def host_bytes(self) -> dict[str, int]:
        """What lies in host memory beside the layers, by purpose."""
        held = {
            PREFIX_SNAPSHOTS: 0 if self.cache is None else self.cache.snapshots.nbytes,
            SCRATCH: unpacked_bytes(self.plan.model) if self.unpacks_on_host else 0,
            TRANSFER_RING: self.pinned_beside_bytes,
        }
        return {what: size for what, size in held.items() if size}

    @property
    def unpacks_on_host(self) -> bool:
        """Whether the CPU computes layers beside a GPU, in room of its own where they are packed."""
        tiers = {*self.plan.tiers, *(item.settled for item in self.arena.placements)}
        return self.device.has_vram and bool(tiers & {Tier.LOCKED, Tier.PAGEABLE})

    # -- layers ---------------------------------------------------------------------------------------------------

    def add_layer(self, found: ExpertsModule, bank: ExpertBank, packed: PackedExperts | None, settled: Tier) -> None:
        """Let a module of the model compute from a filled and settled bank."""
        self.modules[bank.layer] = found
        self._packed[bank.layer] = packed
        self.attach(bank, settled)

    def attach(self, bank: ExpertBank, settled: Tier) -> ExpertLayer:
        """Make what computes a layer anew, for the tier its bank is in now."""
        found = self.modules[bank.layer]
        on_gpu, on_host = self._gpu_way(bank, settled), self._host_way(bank, settled)
        staged = settled in (Tier.LOCKED, Tier.PAGEABLE)
        usual, other = (on_host, on_gpu) if staged else (on_gpu, on_host)
        assert usual is not None
        rates = self.rates.get(bank.layout.storage)
        layer = self.layers[bank.layer] = ExpertLayer(bank, usual, other, rates, staged=staged)
        found.attach(layer)
        return layer

    def measure(self) -> None:
        """Measure what steps cost, for each way in which layers outside VRAM are stored, and decide by it.

        Not on a simulated GPU, whose times mean nothing, and not without a pinned side of the ring: then the usual
        places of engine/contract/steps.py hold.
        """
        self._choose_call()
        if self.device.simulated or self.ring is None or not self.ring.stages:
            return
        found: dict[ExpertStorage, StepRates] = {}
        for number, layer in sorted(self.layers.items()):
            storage = layer.bank.layout.storage
            if storage in found or layer.other is None:
                continue
            math = ModuleMath(self.modules[number].module)
            shape = self.plan.model.experts
            found[storage] = measure_steps(layer, math, self.ring, self.device, self.dtype, shape)
            _log.info("%s experts: %s", self.plan.model.stored_as, found[storage])
        self.use_rates(found)

    def _choose_call(self) -> None:
        """Settle by which call the CPU decodes, with matrices of the first layer that it need not unpack."""
        for number, layer in sorted(self.layers.items()):
            kernel, bank = layer.kernel, layer.bank
            if isinstance(kernel, TorchKernel) and layer.device.type == "cpu" and bank.block is not None:
                if not self.modules[number].module.is_transposed:
                    few = range(min(bank.layout.n_experts, _MATRICES))
                    choose_call([kernel.expert(bank.record(expert), expert).up for expert in few])
                return

    def use_rates(self, rates: Mapping[ExpertStorage, StepRates]) -> None:
        """Let measured rates decide from now on where steps are computed; none: as if nothing was measured."""
        self.rates = dict(rates)
        for item in self.arena.placements:
            self.attach(self.arena.banks[item.layer], item.settled)

    def _gpu_way(self, bank: ExpertBank, settled: Tier) -> Way | None:
        records: RecordStream
        rates = self.rates.get(bank.layout.storage)
        if settled is Tier.VRAM:
            records = InPlace()
        elif settled is Tier.PINNED:
            assert self.slots is not None
            records = ThroughSlots(self.slots, self.ring, rates)
        elif self.ring is not None and self.ring.stages:
            records = ThroughRing(self.ring, rates)
        else:
            return None
        return Way(self.device.torch_device, self._kernel(bank, self.device.torch_device), records, on_host=False)

    def _host_way(self, bank: ExpertBank, settled: Tier) -> Way | None:
        """The CPU; of pinned layers only where it needs no room that the plan does not have."""
        plain = not unpacked_bytes(self.plan.model)
        if settled is Tier.VRAM or (settled is Tier.PINNED and not (plain or self.unpacks_on_host)):
            return None
        cpu = torch.device("cpu")
        return Way(cpu, self._kernel(bank, cpu, select.kernel_library()), InPlace(), on_host=True)

    def _kernel(self, bank: ExpertBank, device: torch.device, library: KernelLibrary | None = None) -> ExpertKernel:
        return kernel_for(
            bank.layout,
            self.modules[bank.layer].part_shapes,
            self._packed[bank.layer],
            dtype=self.dtype,
            device=device,
            scratch=self._scratch,
            library=library,
        )

    def renew_scratch(self, scratch: Scratch | None = None) -> Scratch:
        """Unpack elsewhere from now on, None: in room as large as is needed then; the layers must be attached anew.

        Returns:
            The room that was used so far.
        """
        before, self._scratch = self._scratch, scratch or Scratch()
        return before

    def detach(self) -> None:
        """Let all modules go of their banks."""
        for found in self.modules.values():
            found.detach()
        self.layers.clear()

    @property
    def kernels(self) -> dict[str, str]:
        """What computes experts of each format."""
        return {
            form.value: layer.kernel.name
            for _, layer in sorted(self.layers.items())
            for form in layer.bank.layout.storage.formats
        }
