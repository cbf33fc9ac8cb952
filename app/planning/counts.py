"""How many layers each tier gets for a context: KV first, then whole layers in VRAM, then slots, pins, and locks.

Integers only, so that the slider can ask for every stop at once. `planner` turns a result into a plan, a `Shortage`
into an error with a fix.
"""

from dataclasses import dataclass, field

from app.planning.budgets import Budgets, budgets
from app.planning.terms import layers
from app.planning.wishes import Wishes
from engine.contract.errors import UsageError
from engine.contract.estimate import KV_PAGE_TOKENS, ContextBytes, bank_bytes, expert_record
from engine.contract.facts import HardwareFacts
from engine.contract.plan import Pool, Tier
from engine.contract.shape import ModelShape
from engine.contract.units import round_up

LEAST_CONTEXT_TOKENS = 4096  # shorter contexts are not offered unless the model's own maximum is shorter


@dataclass(frozen=True, slots=True)
class Counts:
    """The decision in numbers."""

    context_tokens: int
    vram_layers: int
    pinned_layers: int
    locked_layers: int
    pageable_layers: int
    expert_slots: int

    def by_tier(self) -> dict[Tier, int]:
        return {
            Tier.VRAM: self.vram_layers,
            Tier.PINNED: self.pinned_layers,
            Tier.LOCKED: self.locked_layers,
            Tier.PAGEABLE: self.pageable_layers,
        }


class Shortage(Exception):  # noqa: N818 - never leaves this package: the planner turns it into an error with a fix
    """A pool is too small for a wish."""

    def __init__(self, pool: Pool, needed_bytes: int, available_bytes: int, what: str = "This split") -> None:
        super().__init__(f"{what}: {pool} needs {needed_bytes} B, has {available_bytes} B")
        self.pool = pool
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes
        self.what = what


@dataclass(slots=True)
class Room:
    """One model on one machine under the user's wishes; everything that does not depend on the context, once."""

    shape: ModelShape
    facts: HardwareFacts
    wishes: Wishes
    budgets: Budgets = field(init=False)
    bank: int = field(init=False)
    slot: int = field(init=False)
    floor_slots: int = field(init=False)
    layers: int = field(init=False)
    context: ContextBytes = field(init=False)
    _forced: dict[Tier, int] = field(init=False)

    def __post_init__(self) -> None:
        """Raises UsageError if a forced layer is not a layer with experts, or needs a GPU that is not there."""
        experts, weight_format = self.shape.experts, self.shape.expert_format
        self.budgets = budgets(self.facts, self.wishes)
        self.bank = bank_bytes(experts, weight_format)
        self.slot = expert_record(experts, weight_format).bytes
        self.floor_slots = min(2 * experts.top_k, experts.n_experts)  # one token's experts, and the next one's coming
        self.layers = len(self.shape.moe_layers)
        self.context = ContextBytes(self.shape, self.wishes.prefill_chunk)
        forced = self.wishes.forced
        self._forced = {tier: list(forced.values()).count(tier) for tier in Tier}
        if strange := sorted(set(forced) - set(self.shape.moe_layers)):
            raise UsageError(f"Layer {strange[0]} has no routed experts.", "Force only layers of the strip.")
        if not self.on_gpu and (self._forced[Tier.VRAM] or self._forced[Tier.PINNED]):
            raise UsageError("A layer is forced to VRAM or pinned; there is no GPU.", "Clear the forced layers.")

    @property
    def on_gpu(self) -> bool:
        return self.budgets.device != "cpu"

    @property
    def least_vram(self) -> int:
        """Fewest layers in VRAM: those that are forced there."""
        return self._forced[Tier.VRAM]

    @property
    def most_vram(self) -> int:
        """Most layers in VRAM: all that are not forced elsewhere."""
        return self.layers - self._forced[Tier.PINNED] - self._forced[Tier.LOCKED] - self._forced[Tier.PAGEABLE]

    @property
    def least_tokens(self) -> int:
        """The shortest context that is offered."""
        return min(LEAST_CONTEXT_TOKENS, self.shape.max_context_tokens)

    @property
    def quota_layers(self) -> int | None:
        """Layers that fit into the pin quota; None: only RAM limits."""
        quota = self.budgets.quota.bytes
        return None if quota is None else quota // self.bank

    @property
    def ram_layers(self) -> int | None:
        """Layers that fit into RAM and commit beside the engine itself (and, without a GPU, beside nothing else)."""
        limits = [limit for limit in (self.budgets.ram.bytes, self.budgets.commit.bytes) if limit is not None]
        return max(0, min(limits) - self.budgets.costs.host_runtime_bytes) // self.bank if limits else None

    def rounded(self, tokens: int) -> int:
        """A context as it is allocated: whole pages, at most what the model can."""
        return min(round_up(tokens, KV_PAGE_TOKENS), self.shape.max_context_tokens)

    def default_tokens(self) -> int:
        """Without a wish: on a GPU the longest context that keeps most layers in VRAM; without one a usual length.

        Raises:
            Shortage: not even one page of tokens fits.
        """
        if not self.on_gpu:
            return min(2 * LEAST_CONTEXT_TOKENS, self._cpu_tokens())
        wish = self.wishes.vram_layers
        for vram in range(self.most_vram, self.least_vram - 1, -1) if wish is None else (wish,):
            if self.tokens_for(vram) >= self.least_tokens:
                return self.tokens_for(vram)
        few = self.tokens_for(self.least_vram if wish is None else wish)
        if few < 1:
            self.counts(self.rounded(KV_PAGE_TOKENS))  # says what is short
        return max(few, self.rounded(KV_PAGE_TOKENS))

    def _cpu_tokens(self) -> int:
        """The longest context that RAM and commit allow beside all layers; one page at least, to be refused later."""
        limits = [limit for limit in (self.budgets.ram.bytes, self.budgets.commit.bytes) if limit is not None]
        if not limits:
            return self.shape.max_context_tokens
        kept = 0 if self.wishes.allow_pageable else self.layers * self.bank
        rest = min(limits) - kept - self.shape.dense_bytes - self.budgets.costs.host_runtime_bytes
        return max(self.context.most_tokens(rest), self.rounded(KV_PAGE_TOKENS))

    def longest_tokens(self) -> int:
        """The longest context that can be asked for, whatever it does to the layers."""
        if not self.on_gpu:
            return self._cpu_tokens()
        wish = self.wishes.vram_layers
        return self.tokens_for(self.least_vram if wish is None else wish)

    def tokens_for(self, vram_layers: int) -> int:
        """The longest context that leaves room for so many layers in VRAM; 0 if none."""
        return self.context.most_tokens(self._vram_left(0) - self._vram_need(vram_layers))

    def counts(self, tokens: int) -> Counts:
        """The split for an allocated context.

        Raises:
            Shortage: a pool is too small.
            UsageError: wishes that contradict each other.
        """
        vram = self._vram_layers(tokens) if self.on_gpu else self._no_vram_layers()
        pinned = self._checked_pins(vram)
        pageable = self._forced[Tier.PAGEABLE]
        locked = self.layers - vram - pinned - pageable
        excess = min(self._over_lock_limit(locked), locked - self._forced[Tier.LOCKED])
        locked, pageable = locked - excess, pageable + excess
        excess = self._over_ram(tokens, pinned, locked)
        from_locked = min(excess, locked - self._forced[Tier.LOCKED])
        pinned, locked, pageable = pinned - (excess - from_locked), locked - from_locked, pageable + excess
        self._check_commit(tokens, self.layers - vram)
        slots = 0
        if pinned:
            left = self._vram_left(self.context.at(tokens)) - vram * self.bank
            slots = min(left // self.slot, pinned * self.shape.experts.n_experts)
        return Counts(tokens, vram, pinned, locked, pageable, slots)

    def _vram_left(self, context_bytes: int) -> int:
        """VRAM for layers and slots."""
        whole = self.budgets.vram.bytes or 0
        return whole - self.shape.dense_bytes - self.budgets.costs.context_bytes - context_bytes

    def _vram_need(self, vram: int) -> int:
        """Bytes of so many layers in VRAM, and of the fewest slots if layers outside can be pinned."""
        return vram * self.bank + (self.floor_slots * self.slot if self._pins(vram) else 0)

    def _vram_layers(self, tokens: int) -> int:
        """As many whole layers as VRAM holds beside the context, or the user's number if it fits."""
        left = self._vram_left(self.context.at(tokens))
        least, most = self.least_vram, self.most_vram
        wish = self.wishes.vram_layers
        if wish is not None and not least <= wish <= most:
            raise UsageError(
                f"{layers(wish)} in VRAM asked for; {least} to {most} are possible.",
                f"Choose {min(max(wish, least), most)}.",
            )
        least = least if wish is None else wish
        if left < self._vram_need(least):
            whole = self.budgets.vram.bytes or 0
            what = f"A context of {tokens:,} tokens" + (f" with {layers(least)} in VRAM" if least else "")
            raise Shortage(Pool.VRAM, whole - left + self._vram_need(least), whole, what)
        if wish is not None:
            return wish
        vram = min(most, left // self.bank)
        while self._vram_need(vram) > left:
            vram -= 1
        return vram

    def _no_vram_layers(self) -> int:
        if self.wishes.vram_layers:
            raise Shortage(
                Pool.VRAM, self.wishes.vram_layers * self.bank, 0, f"{layers(self.wishes.vram_layers)} in VRAM"
            )
        return 0

    def _pins(self, vram: int) -> int:
        """Pinned layers when so many are in VRAM: the quota, or the user's number if it is lower."""
        if not self.on_gpu:
            return 0
        free = self.layers - vram - self._forced[Tier.LOCKED] - self._forced[Tier.PAGEABLE]
        most = [free, *(limit for limit in (self.quota_layers, self.wishes.pinned_layers) if limit is not None)]
        return max(min(most), 0)

    def _checked_pins(self, vram: int) -> int:
        """`_pins`; a wish for more than the quota is refused, one for more than there are layers takes them all."""
        pinned, quota = self._pins(vram), self.budgets.quota.bytes
        asked = max(self.wishes.pinned_layers or 0, self._forced[Tier.PINNED]) if self.on_gpu else 0
        if quota is not None and asked * self.bank > quota:
            raise Shortage(Pool.PINNED, asked * self.bank, quota, f"Pinning {layers(asked)}")
        if self._forced[Tier.PINNED] > pinned:
            raise UsageError(
                f"{layers(self._forced[Tier.PINNED])} forced to be pinned; the limit is {pinned}.",
                "Raise the number of pinned layers, or clear the forced layers.",
            )
        return pinned

    def _over_lock_limit(self, locked: int) -> int:
        limit = self.budgets.locked.bytes
        return 0 if limit is None else max(locked - limit // self.bank, 0)

    def _on_host(self, tokens: int) -> int:
        """What sits in RAM beside the banks: the engine, and without a GPU everything else too."""
        runtime = self.budgets.costs.host_runtime_bytes
        return runtime if self.on_gpu else runtime + self.shape.dense_bytes + self.context.at(tokens)

    def _over_ram(self, tokens: int, pinned: int, locked: int) -> int:
        """Layers that RAM cannot hold and that may be pageable instead.

        Raises:
            Shortage: they may not, or that would not help.
        """
        limit = self.budgets.ram.bytes
        needed = self._on_host(tokens) + (pinned + locked) * self.bank
        if limit is None or needed <= limit:
            return 0
        excess = -(-(needed - limit) // self.bank)
        movable = pinned + locked - self._forced[Tier.PINNED] - self._forced[Tier.LOCKED]
        if not self.wishes.allow_pageable or excess > movable:
            raise Shortage(Pool.RAM, needed, limit)
        return excess

    def _check_commit(self, tokens: int, host: int) -> None:
        limit = self.budgets.commit.bytes
        needed = self._on_host(tokens) + host * self.bank
        if limit is not None and needed > limit:
            raise Shortage(Pool.COMMIT, needed, limit)
