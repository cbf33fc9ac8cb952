"""One model on one machine under the user's wishes: everything about limits that does not depend on the split."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.planning.bank_sums import BankSums
from app.planning.budgets import Budgets, budgets
from app.planning.wishes import Wishes
from engine.contract.errors import UsageError
from engine.contract.estimate import (
    KV_PAGE_TOKENS,
    ContextBytes,
    banks,
    kv_cache_bytes,
    most_ring_experts,
    most_tokens,
    prefix_bytes,
    slot_bytes,
    state_bytes,
    unpacked_kv_bytes,
)
from engine.contract.estimate_work import unpacked_bytes
from engine.contract.facts import HardwareFacts
from engine.contract.kv_types import kept_in
from engine.contract.load_peak import cpu_load_peak, gpu_load_peak
from engine.contract.plan import Pool, Tier
from engine.contract.shape import ModelShape
from engine.contract.units import round_up

_RING_OF_VRAM, _RING_OF_QUOTA = 32, 16  # at most such a part of them goes to the transfer ring
LEAST_CONTEXT_TOKENS = 4096  # shorter contexts are not offered unless the model's own maximum is shorter


@dataclass(slots=True)
class Room:
    """Bytes and limits; `counts` decides with them."""

    shape: ModelShape
    facts: HardwareFacts
    wishes: Wishes
    budgets: Budgets = field(init=False)
    sums: BankSums = field(init=False)
    slot: int = field(init=False)
    floor_slots: int = field(init=False)
    ring: int = field(init=False)
    layers: int = field(init=False)
    context: ContextBytes = field(init=False)

    def __post_init__(self) -> None:
        """Raises UsageError if a forced layer has no experts or needs a GPU that is not there, or for a KV type."""
        self.shape = kept_in(self.shape, self.wishes.kv_dtype)
        experts, forced = self.shape.experts, self.wishes.forced
        self.budgets = budgets(self.facts, self.wishes, self.shape.vocab_size)
        self.sums = BankSums(self.shape.moe_layers, banks(self.shape), forced)
        self.slot = slot_bytes(self.shape)
        self.floor_slots = min(2 * experts.top_k, experts.n_experts)  # one token's experts, and the next one's coming
        self.ring = self._ring_experts() if self.on_gpu else 0
        self.layers = len(self.shape.moe_layers)
        self.context = ContextBytes(self.shape, self.wishes.prefill_chunk)
        if strange := sorted(set(forced) - set(self.shape.moe_layers)):
            raise UsageError(f"Layer {strange[0]} has no routed experts.", "Force only layers of the strip.")
        counted = self.sums.forced_count
        if not self.on_gpu and (counted[Tier.VRAM] or counted[Tier.PINNED]):
            raise UsageError("A layer is forced to VRAM or pinned; there is no GPU.", "Clear the forced layers.")

    @property
    def on_gpu(self) -> bool:
        return self.budgets.device != "cpu"

    @property
    def least_vram(self) -> int:
        """Fewest layers in VRAM: those that are forced there."""
        return self.sums.forced_count[Tier.VRAM]

    @property
    def most_vram(self) -> int:
        """Most layers in VRAM: all that are not forced elsewhere."""
        return self.sums.forced_count[Tier.VRAM] + self.sums.free

    @property
    def least_tokens(self) -> int:
        """The shortest context that is offered."""
        return min(LEAST_CONTEXT_TOKENS, self.shape.max_context_tokens)

    @property
    def usual_tokens(self) -> int:
        """What is taken without a wish where no layer has to leave VRAM for it."""
        return min(2 * LEAST_CONTEXT_TOKENS, self.shape.max_context_tokens)

    def _ring_experts(self) -> int:
        """Experts of the transfer ring: two at least, and no more than the machine has a small part of itself for."""
        size, quota = max(self.slot, 1), self.budgets.quota.bytes
        most = min(most_ring_experts(self.shape), (self.budgets.vram.bytes or 0) // _RING_OF_VRAM // size)
        if quota is not None and quota >= 2 * size:
            most = min(most, quota // _RING_OF_QUOTA // size)
        return max(most - most % 2, 2)

    @property
    def ring_bytes(self) -> int:
        """One side of the transfer ring."""
        return self.ring * self.slot

    @property
    def quota_layers(self) -> int | None:
        """Layers that fit into the pin quota; None: only RAM limits."""
        return self._fitting(self.budgets.quota.bytes)

    def _fitting(self, quota: int | None) -> int | None:
        sums = self.sums
        if quota is None:
            return None
        return max(0, sums.forced_count[Tier.PINNED] + sums.most_inner(quota - sums.forced[Tier.PINNED]))

    def _quota_pins(self, free: int) -> int | None:
        """Layers to pin of `free` ones: all, or as many as leave room for the ring that the others need."""
        quota, whole = self.budgets.quota.bytes, self.quota_layers
        if quota is None or whole is None or whole >= free or quota < self.ring_bytes:
            return whole
        beside = self._fitting(quota - self.ring_bytes) or 0
        return max(beside, min(whole, self.sums.forced_count[Tier.PINNED]))

    def stages(self, pinned_bytes: int) -> bool:
        """Whether the quota has room for the ring's pinned side beside so many bytes of layers."""
        quota = self.budgets.quota.bytes
        return quota is None or pinned_bytes + self.ring_bytes <= quota

    @property
    def ram_layers(self) -> int | None:
        """Layers that fit into RAM and commit beside the engine itself, one more while loading included."""
        limits = self._host_limits()
        if not limits:
            return None
        sums, held = self.sums, (Tier.PINNED, Tier.LOCKED)
        rest = min(limits) - self._own_host(self.shape.max_context_tokens) - sums.largest
        count = sums.most_inner(rest - sum(sums.forced[tier] for tier in held))
        return max(0, count + sum(sums.forced_count[tier] for tier in held)) if count >= 0 else 0

    def _host_limits(self) -> list[int]:
        return [limit for limit in (self.budgets.ram.bytes, self.budgets.commit.bytes) if limit is not None]

    def _own_host(self, tokens: int) -> int:
        """Host memory of the engine itself: its process, and snapshots of windows and states.

        Beside a GPU also the pinned side of the ring and room to unpack experts, whether they are used or not.
        """
        own = self.budgets.costs.host_runtime_bytes + prefix_bytes(self.shape, tokens)
        return own + self.ring_bytes + unpacked_bytes(self.shape) if self.on_gpu else own

    def rounded(self, tokens: int) -> int:
        """A context as it is allocated: whole pages, at most what the model can."""
        return min(round_up(tokens, KV_PAGE_TOKENS), self.shape.max_context_tokens)

    def longest_tokens(self) -> int:
        """The longest context that can be asked for, whatever it does to the layers; one page at least."""
        if self.on_gpu:
            wish = self.wishes.vram_layers
            return self.tokens_for(self.least_vram if wish is None else wish)
        ram = self.sums.forced[Tier.LOCKED] if self.wishes.allow_pageable else self.sums.total
        ram -= 0 if self.wishes.allow_pageable else self.sums.forced[Tier.PAGEABLE]
        pools = ((Pool.RAM, self.budgets.ram.bytes, ram), (Pool.COMMIT, self.budgets.commit.bytes, self.sums.total))

        def fits(tokens: int) -> bool:
            return all(
                limit is None or self.needed(pool, tokens, held, held, any_vram=False) <= limit
                for pool, limit, held in pools
            )

        return max(most_tokens(fits, self.shape.max_context_tokens), self.rounded(KV_PAGE_TOKENS))

    def tokens_for(self, vram_layers: int) -> int:
        """The longest context that leaves room for so many layers in VRAM; 0 if none."""
        return self.context.most_tokens(self._vram_whole() - self.vram_need(vram_layers))

    def _vram_whole(self) -> int:
        """VRAM for context, layers and slots."""
        return (self.budgets.vram.bytes or 0) - self.shape.dense_bytes - self.budgets.costs.context_bytes

    def vram_left(self, tokens: int) -> int:
        """VRAM for layers and slots beside a context."""
        return self._vram_whole() - self.context.at(tokens)

    def in_vram(self, vram: int) -> int:
        """Bytes of so many layers in VRAM, the forced ones among them."""
        outer = min(max(vram - self.sums.forced_count[Tier.VRAM], 0), self.sums.free)
        return self.sums.forced[Tier.VRAM] + self.sums.outer(outer)

    def vram_need(self, vram: int) -> int:
        """Bytes of so many layers in VRAM, of the ring for the others, and of the fewest slots if they are pinned.

        Ring and slots together never need more than a layer that leaves VRAM gives back; see `ring_fits`.
        """
        beside = 0 if vram >= self.layers else self.ring + (self.floor_slots if self.pins(vram) else 0)
        return self.in_vram(vram) + min(beside, self.shape.experts.n_experts) * self.slot

    def ring_fits(self, experts: int, *, pinned: bool) -> bool:
        """Whether the ring has room among so many experts in VRAM, beside the fewest slots if layers are pinned."""
        return self.on_gpu and experts >= self.ring + (self.floor_slots if pinned else 0)

    def pins(self, vram: int) -> int:
        """Pinned layers when so many are in VRAM: the quota, or the user's number if it is lower."""
        if not self.on_gpu:
            return 0
        sums = self.sums
        free = self.layers - vram - sums.forced_count[Tier.LOCKED] - sums.forced_count[Tier.PAGEABLE]
        wish = self.wishes.pinned_layers
        quota = self._quota_pins(free) if wish is None else self.quota_layers
        return max(min([free, *(limit for limit in (quota, wish) if limit is not None)]), 0)

    def needed(self, pool: Pool, tokens: int, resident: int, committed: int, *, any_vram: bool) -> int:
        """RAM or commit that a split needs, loading or running, whichever is more."""
        held = resident if pool is Pool.RAM else committed
        running = self._own_host(tokens) + held
        if not self.on_gpu:
            running += self.shape.dense_bytes + self.context.at(tokens)
        return max(running, self.load_peak(tokens, resident, committed, any_vram=any_vram)[pool])

    def load_peak(self, tokens: int, resident: int, committed: int, *, any_vram: bool) -> Mapping[Pool, int]:
        """The most RAM and commit while loading."""
        runtime, bank = self._own_host(tokens), self.sums.largest
        if self.on_gpu:
            return gpu_load_peak(
                self.shape,
                runtime_bytes=runtime,
                resident_banks=resident,
                committed_banks=committed,
                vram_bank=bank if any_vram else 0,
                bank=bank,
            )
        return cpu_load_peak(
            self.shape,
            runtime_bytes=runtime,
            kv_bytes=kv_cache_bytes(self.shape, tokens)
            + unpacked_kv_bytes(self.shape, tokens)
            + state_bytes(self.shape),
            resident_banks=resident,
            committed_banks=committed,
            bank=bank,
        )
