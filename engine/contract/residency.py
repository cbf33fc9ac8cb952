"""What every layer really got, as opposed to what was planned."""

from pydantic import Field

from engine.contract.plan import LedgerLine, Pool, Tier
from engine.contract.record import Record


class LayerResidency(Record):
    """One MoE layer: the tier asked for, the tier it settled in, and why they differ."""

    layer: int = Field(ge=0, description="index of the decoder layer")
    asked: Tier
    settled: Tier
    bytes: int = Field(ge=0)
    cause: str | None = Field(default=None, description="the refusal in words, with its numbers")


class SlotUse(Record):
    """How often experts of one pinned layer were wanted, and were in a slot."""

    layer: int = Field(ge=0)
    hits: int = Field(ge=0, description="by single tokens, found in a slot")
    misses: int = Field(ge=0, description="by single tokens, copied into a slot first")
    prompt_hits: int = Field(ge=0, description="by chunks of a prompt, found in a slot")
    prompt_copies: int = Field(ge=0, description="by chunks of a prompt, copied to the GPU first")


def used_since(before: tuple[SlotUse, ...], now: tuple[SlotUse, ...]) -> tuple[SlotUse, ...]:
    """What was added between two counts; layers without any use are left out."""
    earlier = {one.layer: one for one in before}
    added = []
    for one in now:
        was = earlier.get(one.layer)
        numbers = one.model_dump(exclude={"layer"})
        if was is not None:
            numbers = {name: count - getattr(was, name) for name, count in numbers.items()}
        if any(numbers.values()):
            added.append(SlotUse(layer=one.layer, **numbers))
    return tuple(added)


class ResidencyReport(Record):
    """Asked and settled, layer by layer and line by line. Filled in by the engine after loading."""

    device: str = Field(description="name of the GPU, 'simulated GPU' or 'CPU'")
    simulated: bool
    layers: tuple[LayerResidency, ...]
    ledger_asked: tuple[LedgerLine, ...]
    ledger_settled: tuple[LedgerLine, ...]
    self_test: str = Field(description="result of the comparison after loading, in words")
    ring_cause: str | None = Field(
        default=None, description="why locked layers compute prompts on the CPU: the refusal of the ring's pinned side"
    )
    kernels: dict[str, str] = Field(
        default_factory=dict,
        description="what computes experts of each format: 'torch', 'native avx2' or 'avx512', or the slow 'reference'",
    )

    def settled_count(self, tier: Tier) -> int:
        """How many layers are in a tier now."""
        return sum(layer.settled == tier for layer in self.layers)

    @property
    def pinned_bytes(self) -> int:
        """Everything that was pinned: layers, and what the engine pins beside them, as its own ledger says."""
        layers = sum(layer.bytes for layer in self.layers if layer.settled is Tier.PINNED)
        lines = (line for line in self.ledger_settled if line.pool is Pool.PINNED and line.what != "pinned layers")
        return layers + sum(line.bytes for line in lines)

    @property
    def fallen(self) -> tuple[LayerResidency, ...]:
        """Layers that did not get the tier they were planned for."""
        return tuple(layer for layer in self.layers if layer.asked != layer.settled)
