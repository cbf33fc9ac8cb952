"""From a plan to a loaded model: dense weights, KV cache, banks layer by layer into their tiers, self-test."""

import gc
import inspect
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from engine.banks.arena import BankArena
from engine.banks.bank import BankLayout
from engine.banks.cpu_device import CpuDevice
from engine.banks.devices import Device
from engine.banks.measure import residency_report
from engine.banks.place import Placement
from engine.banks.simulated_device import SimulatedDevice, SimulatedLocker
from engine.checkpoint.loader import TensorReader
from engine.checkpoint.meter import Meter
from engine.checkpoint.weight_files import OpenFile, open_weights
from engine.contract.errors import UnsupportedModelError, forget_locals
from engine.contract.events import Event, LayerSettled, Loading, Stage
from engine.contract.ledger import WEIGHTS
from engine.contract.load_peak import check_headroom, weight_bytes
from engine.contract.plan import MemoryPlan, Tier
from engine.model.expert_map import ExpertMap
from engine.model.filling import filled_banks
from engine.model.kv_cache import check_layers
from engine.model.loaded import LoadedModel
from engine.model.model_files import open_model
from engine.model.parts import Parts
from engine.model.self_test import self_test
from engine.system import select
from engine.system.protocols import HostAllocator, PageLocker

_log = logging.getLogger(__name__)
_FILL_ORDER = (Tier.VRAM, Tier.PINNED, Tier.LOCKED, Tier.PAGEABLE)


class Drivers:
    """What a plan runs on: a device, the host memory's allocator and locker, and the disk."""

    def __init__(
        self,
        device: Device,
        allocator: HostAllocator,
        locker: PageLocker,
        open_file: OpenFile = open_weights,
        memory_left: Callable[[], tuple[int, int | None]] = select.host_memory_left,
    ) -> None:
        self.device = device
        self.allocator = allocator
        self.locker = locker
        self.open_file = open_file
        self.memory_left = memory_left


def drivers_for(plan: MemoryPlan) -> Drivers:
    """The drivers a plan asks for.

    Raises:
        NoGpuError: a GPU that is not there.
    """
    locker = select.page_locker()
    device: Device
    if plan.simulated is not None:
        device = SimulatedDevice(plan.simulated)
        if plan.simulated.refuse_lock_after_layers is not None:
            locker = SimulatedLocker(locker, plan.simulated.refuse_lock_after_layers)
    elif plan.device == "cuda":
        from engine.banks.cuda_device import CudaDevice

        device = CudaDevice(plan.gpu_uuid)
    else:
        device = CpuDevice()
    return Drivers(device, select.host_allocator(), locker)


class _Progress:
    """Turns loaded bytes into `Loading` events."""

    def __init__(self, report: Callable[[Event], None], layers_total: int, bytes_total: int) -> None:
        self._report = report
        self._began_s = time.monotonic()
        self._layers_total = layers_total
        self._bytes_total = bytes_total
        self.stage: Stage = "starting"
        self.layers_done = 0

    def tell(self, done_bytes: int) -> None:
        self._report(
            Loading(
                stage=self.stage,
                layers_done=self.layers_done,
                layers_total=self._layers_total,
                bytes_done=min(done_bytes, self._bytes_total),
                bytes_total=self._bytes_total,
                elapsed_s=time.monotonic() - self._began_s,
            )
        )


def load_model(
    plan: MemoryPlan,
    *,
    report: Callable[[Event], None],
    cancelled: Callable[[], bool],
    drivers: Drivers | None = None,
) -> LoadedModel:
    """Load the model of a plan, exactly as planned; `drivers` None: those the plan asks for.

    Host memory peaks at the dense weights (without a GPU they stay), all banks outside VRAM, and one bank more.

    Raises:
        UnsupportedModelError: weights stored in a way that can only be planned for.
        ModelFileError: a weight file is missing or damaged; found before anything is allocated.
        ModelChangedError: the folder is not what the plan was made for; found before anything is allocated.
        PlanMismatchError: other bytes than planned.
        NotEnoughMemoryError, AllocationRefusedError: a pool is too small; nothing stays allocated.
        SelfTestError: a tier computes wrong results.
        LoadCancelledError: `cancelled` said so; nothing stays allocated.
    """
    if (reason := plan.model.not_runnable) is not None:
        raise UnsupportedModelError(
            f"{plan.model.name} cannot be started: {reason}.",
            "Choose a copy of this model as a folder with config.json and safetensors files, in bf16 or packed.",
            stored_as=plan.model.stored_as,
        )
    undo = ExitStack()
    undo.callback(select.give_back_heap)
    try:
        return _Load(plan, drivers or drivers_for(plan), report, cancelled, undo).run()
    except BaseException as error:
        forget_locals(error)
        try:
            undo.close()
        except Exception:  # noqa: BLE001 - what went wrong first is what matters
            _log.exception("not everything of the load could be given back")
        raise


class _Load:
    """One load. Whatever it allocates, it first promises to `undo`."""

    def __init__(
        self,
        plan: MemoryPlan,
        drivers: Drivers,
        report: Callable[[Event], None],
        cancelled: Callable[[], bool],
        undo: ExitStack,
    ) -> None:
        self._plan = plan
        self._device = drivers.device
        self._open_file = drivers.open_file
        self._memory_left = drivers.memory_left
        self._report = report
        self._undo = undo
        known = {storage: BankLayout(plan.model.experts, storage) for storage in plan.model.different_storages}
        storages = dict(zip(plan.model.moe_layers, plan.model.layer_storages, strict=True))
        self._layouts = {layer: known[storage] for layer, storage in storages.items()}
        first = next(iter(known.values()))
        self._arena = BankArena(first, drivers.allocator, drivers.device, drivers.locker)
        self._parts = Parts(plan, drivers.device, self._arena)
        self._progress = _Progress(report, len(plan.tiers), weight_bytes(plan.model))
        self._cancelled = cancelled
        self._meter = Meter(self._progress.tell, cancelled)

    def run(self) -> LoadedModel:
        plan = self._plan
        self._stage("starting")
        files = open_model(plan)
        check_layers(files.config, plan.model)
        text = files.text()
        check_headroom(plan, *self._memory_left())
        with TensorReader(self._meter, self._open_file) as reader:
            self._undo.callback(self._device.close)
            self._undo.callback(gc.collect)  # before the device closes: the modules refer to each other
            self._parts.reserve(plan)
            self._stage("dense")
            model = files.load_dense(plan.model.dense_format, reader, self._device)
            self._stage("cache")
            self._undo.callback(self._parts.close_cache)
            self._parts.open_cache(plan.context_tokens, files.config)
            experts = files.expert_map(model, self._layouts)
            self._fill(experts, reader)
            self._note_dense()
            self._parts.measure()
        self._stage("checking")
        words = self._self_test(model, experts)
        select.give_back_heap()
        residency = residency_report(
            plan,
            device=self._device.name,
            device_bytes=self._device.allocated,
            host_bytes=self._parts.host_bytes,
            placements=self._arena.placements,
            self_test=words,
            kernels=self._parts.kernels,
            ring_cause=self._parts.ring_cause,
        )
        release = ExitStack()
        loaded = LoadedModel(
            plan,
            model=model,
            parts=self._parts,
            cache_argument=_cache_argument(model),
            text=text,
            residency=residency,
            release=release.close,
        )
        release.push(self._undo.pop_all())
        return loaded

    def _stage(self, stage: Stage) -> None:
        self._meter.check()
        self._progress.stage = stage
        self._meter.tell()

    def _note_dense(self) -> None:
        actual, planned = self._device.allocated[WEIGHTS], self._plan.model.dense_bytes
        if actual != planned:
            _log.warning("dense weights take %d B, the plan counts %d B", actual, planned)

    def _fill(self, experts: ExpertMap, reader: TensorReader) -> None:
        """Fill and settle the banks: VRAM first, then pins, as a pin quota shrinks with the VRAM in use."""
        plan, parts = self._plan, self._parts
        self._undo.callback(parts.close_slots)
        parts.open_slots(plan.expert_slots)
        self._undo.callback(parts.close_ring)
        parts.open_ring(plan)
        self._undo.callback(self._arena.close)
        self._undo.callback(parts.detach)
        tiers = dict(zip(plan.model.moe_layers, plan.tiers, strict=True))
        self._stage("experts")
        self._device.heed(self._meter.check)
        order = sorted(tiers, key=lambda number: (_FILL_ORDER.index(tiers[number]), number))
        for bank in filled_banks(order, self._arena, self._layouts, experts, reader):
            layer = bank.layer
            packed = experts.read_packed(layer, reader)
            if packed is not None and packed.whole_bytes:
                self._device.reserve(packed.whole_bytes, WEIGHTS)
            placement = self._arena.settle(bank, tiers[layer])
            parts.add_layer(experts.layers[layer].found, bank, packed, placement.settled)
            self._progress.layers_done += 1
            self._meter.tell()
            self._report(_settled(placement))
            for moved in self._arena.give_back():
                parts.attach(self._arena.banks[moved.layer], moved.settled)
                self._report(_settled(moved))
        self._device.heed(lambda: None)
        self._warn_of_pageable()

    def _warn_of_pageable(self) -> None:
        fallen = [
            item.layer
            for item in self._arena.placements
            if item.settled is Tier.PAGEABLE and item.asked is not item.settled
        ]
        if fallen:
            _log.warning("layers %s are pageable: the system may write them to disk", fallen)

    def _self_test(self, model: Any, experts: ExpertMap) -> str:
        with TensorReader(Meter(lambda _: None, self._cancelled), self._open_file) as reader:
            return self_test(
                model,
                self._parts.layers,
                self._arena.placements,
                experts,
                reader,
                device=self._device.torch_device,
                dtype=self._parts.dtype,
                shape=self._plan.model.experts,
            )


def _settled(placement: Placement) -> LayerSettled:
    return LayerSettled(layer=placement.layer, asked=placement.asked, settled=placement.settled, cause=placement.cause)


def _cache_argument(model: Any) -> str:
    """transformers renames `past_key_values` to `cache`; models are renamed one after another."""
    names = inspect.signature(type(model).forward).parameters
    return "cache" if "cache" in names else "past_key_values"
