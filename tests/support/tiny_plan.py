"""A consistent plan of a tiny model, for tests that need some plan and not a particular one."""

from engine.contract.estimate import Costs, Split, ledger
from engine.contract.formats import WeightFormat
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.shape import ExpertShape, KvShape, LayerShape, ModelShape


def tiny_shape(n_layers: int = 3) -> ModelShape:
    """A model of a few hundred KiB."""
    kv = KvShape(n_kv_heads=2, key_dim=16, value_dim=16)
    return ModelShape(
        name="tiny",
        family="mixtral",
        hidden_size=64,
        vocab_size=100,
        max_context_tokens=2048,
        layers=tuple(LayerShape(index=index, kv=kv, moe=True) for index in range(n_layers)),
        experts=ExpertShape(n_experts=4, top_k=2, width=64, inner=96),
        expert_format=WeightFormat.BF16,
        dense_format=WeightFormat.BF16,
        dense_bytes=200_000,
        source="config",
    )


def tiny_plan(model_dir: str = "/models/tiny", *, context_tokens: int = 512, n_layers: int = 3) -> MemoryPlan:
    """All layers locked, on the CPU."""
    shape = tiny_shape(n_layers)
    tiers = (Tier.LOCKED,) * n_layers
    split = Split(context_tokens=context_tokens, prefill_chunk=64, expert_slots=0, tiers=tiers, on_gpu=False)
    return MemoryPlan(
        model_dir=model_dir,
        model=shape,
        device="cpu",
        context_tokens=context_tokens,
        prefill_chunk=64,
        expert_slots=0,
        tiers=tiers,
        ledger=ledger(shape, split, Costs()),
        budgets=dict.fromkeys(Pool),
    )
