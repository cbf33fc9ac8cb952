"""A new split for a loaded model, all or nothing: layers change their tiers, KV cache and slots their sizes.

Weights are not read again. What was computed of a sequence is forgotten: the cache is another one afterwards. If any
step is refused, every step before it is undone and the model computes as before.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from torch import Tensor

from engine.banks.measure import residency_report
from engine.banks.move import TierChange
from engine.contract.errors import SplitpinError, forget_locals, in_words
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.plan_change import RESTART, MovePeak, check_change, check_peak, move_peak, ring_of
from engine.contract.residency import ResidencyReport
from engine.experts.ring import TransferRing
from engine.model.experts_function import ModuleMath
from engine.model.parts import RESERVES, Parts
from engine.model.probe import Probe, allowed, difference
from engine.system.protocols import RefusedError

OnProgress = Callable[[int, int], None]  # bytes done, bytes in all

_AFTER = " After the change of the split: "
_log = logging.getLogger(__name__)


class MovedWrongError(SplitpinError):
    """A layer computes something else where it was moved to."""

    kind = "self_test"


class RingRefusedError(RefusedError):
    """The pinned side of another transfer ring was refused."""

    kind = "pin_refused"
    verb = "pinned for the transfer ring"
    fix_words = RESTART


class ChangeNotUndoneError(SplitpinError):
    """A change failed and could not be undone: the engine cannot go on."""

    kind = "plan_change"


class PlanChange:
    """One change of a loaded model. `run` once; nobody may compute meanwhile."""

    def __init__(self, parts: Parts, new: MemoryPlan) -> None:
        """`new`: a plan that passed `check_change`."""
        self._parts = parts
        self._old = parts.plan
        self._new = new
        self._tiers = parts.arena.change(dict(zip(new.model.moe_layers, new.tiers, strict=True)))
        self._resizes_slots = self._slots(new) != self._slots(self._old)
        self._renews_ring = ring_of(new) != ring_of(self._old)
        self._old_ring: TransferRing | None = None
        self._attach_all = False

    @property
    def moved(self) -> dict[int, Tier]:
        """Layers that change their memory, and the tier they go to."""
        return self._tiers.moved

    @property
    def peak(self) -> MovePeak:
        """What the change takes beside what is held."""
        return move_peak(self._old, self._new, self._tiers.assignments)

    def run(self, held: Mapping[Pool, int], on_progress: OnProgress | None = None) -> float:
        """Make the change; `held` is what each pool holds now.

        Returns:
            The largest difference between a moved layer before and after, relative to its largest output.

        Raises:
            NotEnoughMemoryError, RefusedError: a pool is too small or the system refused; all is as it was before.
            MovedWrongError: a moved layer computes something else; all is as it was before.
            ChangeNotUndoneError: something failed and could not be undone.
        """
        try:
            check_peak(self._new, held, self.peak)
            self._tell(on_progress)
            before = {layer: self._probe(layer) for layer in self._touched()}
        except BaseException:
            self._tiers.forget()
            raise
        undo = ExitStack()
        try:
            undo.callback(self._attach, tuple(self._parts.layers))
            self._go(self._tiers, undo)
            self._attach(self._touched())
            worst = self._compare(before)
        except BaseException as error:
            forget_locals(error)
            self._undo(undo, error)
            raise
        undo.pop_all()  # nothing of it is to happen any more
        self._tiers.commit()
        if self._old_ring is not None:
            self._old_ring.close()
        return worst

    def _tell(self, on_progress: OnProgress | None) -> None:
        """From now on, how many bytes of all are done."""
        if on_progress is None:
            return
        done, total = 0, self._tiers.work_bytes
        on_progress(done, total)

        def more(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            on_progress(done, total)

        self._tiers.on_bytes = more

    def _go(self, tiers: TierChange, undo: ExitStack) -> None:
        tiers.acquire_host(undo)
        tiers.move_within(undo)
        tiers.leave_device(undo)
        self._shrink(undo)
        self._grow(undo)
        tiers.enter_device(undo)
        unpacked = self._parts.unpacks_on_host
        tiers.place(undo)
        undo.callback(setattr, self._parts, "plan", self._old)
        self._parts.plan = self._new
        if self._parts.unpacks_on_host != unpacked:
            self._attach_all = True
            undo.callback(self._parts.renew_scratch, self._parts.renew_scratch())

    def _shrink(self, undo: ExitStack) -> None:
        """Give back what has another size in the new plan."""
        parts, old, new = self._parts, self._old, self._new
        if old.context_tokens != new.context_tokens:
            undo.callback(parts.open_cache, old.context_tokens)
            parts.close_cache()
        if self._resizes_slots:
            undo.callback(parts.open_slots, old.expert_slots)
            parts.close_slots()
        before, after = parts.reserves(old), parts.reserves(new)
        for what in RESERVES:
            if before[what] > after[what]:
                self._reserve(what, after[what] - before[what])
                undo.callback(self._reserve, what, before[what] - after[what])

    def _grow(self, undo: ExitStack) -> None:
        parts, old, new = self._parts, self._old, self._new
        before, after = parts.reserves(old), parts.reserves(new)
        for what in RESERVES:
            if after[what] > before[what]:
                self._reserve(what, after[what] - before[what])
                undo.callback(self._reserve, what, before[what] - after[what])
        if old.context_tokens != new.context_tokens:
            parts.open_cache(new.context_tokens)
            undo.callback(parts.close_cache)
        if self._resizes_slots:
            parts.open_slots(new.expert_slots)
            undo.callback(parts.close_slots)
        if self._renews_ring:
            self._open_ring(undo)

    def _open_ring(self, undo: ExitStack) -> None:
        """Beside the old one, whose pinned side might not be had back."""
        parts = self._parts
        self._old_ring, parts.ring = parts.ring, None
        undo.callback(setattr, parts, "ring", self._old_ring)
        undo.callback(parts.close_ring)
        parts.open_ring(self._new)
        if (refusal := parts.ring_refusal) is not None:
            raise RingRefusedError(asked_bytes=refusal.asked_bytes, code=refusal.code, words=refusal.words)

    def _reserve(self, what: str, nbytes: int) -> None:
        device = self._parts.device
        if nbytes > 0:
            device.reserve(nbytes, what)
        else:
            device.release(-nbytes, what)

    def _undo(self, undo: ExitStack, error: BaseException) -> None:
        try:
            undo.close()
        except BaseException as fault:
            _log.exception("a change of the split could not be undone")
            first = in_words(error) if isinstance(error, Exception) else type(error).__name__
            raise ChangeNotUndoneError(
                f"The split could not be changed ({first}), and the old one could not be restored.",
                "Start the engine again.",
            ) from fault

    # -- layers ---------------------------------------------------------------------------------------------------

    def _touched(self) -> tuple[int, ...]:
        """Layers that compute from another place afterwards: moved, or through slots or a ring that are exchanged."""
        if self._attach_all or self._renews_ring:
            return tuple(self._parts.layers)
        through_slots = [
            item.layer
            for item in self._parts.arena.placements
            if item.settled is Tier.PINNED and item.layer not in self.moved and self._resizes_slots
        ]
        return (*self.moved, *through_slots)

    def _attach(self, layers: tuple[int, ...]) -> None:
        """Make layers compute from where their banks are now; what the slots hold of moved ones is forgotten."""
        parts = self._parts
        at = {item.layer: item.settled for item in parts.arena.placements}
        for layer in layers:
            parts.attach(parts.arena.banks[layer], at[layer])
        parts.forget_slots(self.moved)

    def _probe(self, layer: int) -> Tensor:
        parts = self._parts
        probe = Probe.of(layer, self._new.model.experts, parts.dtype)
        return probe.run(parts.layers[layer], ModuleMath(parts.modules[layer].module), parts.device.torch_device)

    def _compare(self, before: dict[int, Tensor]) -> float:
        worst = 0.0
        for layer, want in before.items():
            off = difference(self._probe(layer), want)
            limit = allowed(self._parts.layers[layer].bank.layout.dtype, self._parts.dtype)
            if not off <= limit:  # a NaN fails too
                raise MovedWrongError(
                    f"Layer {layer} computes something else where it was moved to: the outputs differ by {off:.2g} of "
                    f"their size, {limit:.2g} is allowed.",
                    "Start the engine again; if it happens again, test the memory of this PC.",
                    layer=layer,
                    difference=off,
                )
            worst = max(worst, off)
        return worst

    def _slots(self, plan: MemoryPlan) -> int:
        return plan.expert_slots if self._parts.device.has_vram else 0


def change_plan(
    parts: Parts, plan: MemoryPlan, before: ResidencyReport, on_progress: OnProgress | None = None
) -> ResidencyReport:
    """Check a plan, take it, and say what every layer has then.

    Raises:
        PlanMismatchError: the plan is not for this model and device.
        NotEnoughMemoryError, RefusedError, MovedWrongError, ChangeNotUndoneError: as `PlanChange.run`.
    """
    check_change(parts.plan, plan)
    change = PlanChange(parts, plan)
    held = {pool: sum(line.bytes for line in before.ledger_settled if line.pool is pool) for pool in Pool}
    worst = change.run(held, on_progress)
    words = before.self_test.partition(_AFTER)[0]
    if change.moved:
        count = len(change.moved)
        moved = f"{count} moved layer{'' if count == 1 else 's'}"
        words += f"{_AFTER}{moved} the same as before; largest difference: {worst:.1e}."
    return residency_report(
        plan,
        device=parts.device.name,
        device_bytes=parts.device.allocated,
        host_bytes=parts.host_bytes,
        placements=parts.arena.placements,
        self_test=words,
        kernels=parts.kernels,
        ring_cause=parts.ring_cause,
    )
