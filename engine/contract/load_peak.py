"""The most host memory a load holds at one moment; it may be more than the loaded engine needs.

Follows engine/model/build.py: dense weights first, which pass through RAM once on their way to a GPU; then KV cache;
then one bank after another, first those for VRAM. A tensor that has to be converted is in RAM beside its target.
"""

from collections import Counter
from collections.abc import Mapping

from engine.contract.errors import NotEnoughCommitError, NotEnoughRamError
from engine.contract.estimate import expert_record
from engine.contract.ledger import HOST_RUNTIME
from engine.contract.plan import MemoryPlan, Pool
from engine.contract.shape import ModelShape


def largest_dense_tensor_bytes(shape: ModelShape) -> int:
    """The embedding: vocabulary times model width."""
    return shape.vocab_size * shape.hidden_size * shape.value_bytes


def gpu_load_peak(
    shape: ModelShape, *, runtime_bytes: int, resident_banks: int, committed_banks: int, vram_bank: int, bank: int
) -> Mapping[Pool, int]:
    """Peaks of RAM and commit where a GPU holds dense weights and KV cache.

    Args:
        resident_banks: bytes of all pinned and locked banks.
        committed_banks: these and the pageable ones.
        vram_bank: bytes of the largest bank that goes to VRAM; it is filled in RAM. 0: there is none.
        bank: bytes of the largest bank: what a tensor takes that is read beside the bank it goes to.
    """
    dense = shape.dense_bytes + largest_dense_tensor_bytes(shape)
    return {
        Pool.RAM: runtime_bytes + max(dense, max(resident_banks, vram_bank) + bank),
        Pool.COMMIT: runtime_bytes + max(dense, max(committed_banks, vram_bank) + bank),
    }


def cpu_load_peak(
    shape: ModelShape, *, runtime_bytes: int, kv_bytes: int, resident_banks: int, committed_banks: int, bank: int
) -> Mapping[Pool, int]:
    """The same without a GPU: dense weights and KV cache, states included, stay in RAM. Workspace is not used yet."""
    fixed = runtime_bytes + shape.dense_bytes
    tensor = largest_dense_tensor_bytes(shape)
    return {
        Pool.RAM: fixed + max(tensor, kv_bytes + resident_banks + bank),
        Pool.COMMIT: fixed + max(tensor, kv_bytes + committed_banks + bank),
    }


def weight_bytes(shape: ModelShape) -> int:
    """Bytes of all weights without the gaps between parts of a record: what the progress of a load counts up to."""
    counts = Counter(shape.layer_storages)
    records = {storage: expert_record(shape.experts, storage) for storage in counts}
    routed = sum(count * sum(part.bytes for part in records[storage].parts) for storage, count in counts.items())
    return shape.dense_bytes + routed * shape.experts.n_experts


def bytes_to_load(plan: MemoryPlan, pool: Pool) -> int:
    """RAM or commit that a load takes at most beside the engine process, which runs already.

    A simulated GPU is made of the same memory.
    """
    runtime = sum(line.bytes for line in plan.ledger if line.pool is pool and line.what == HOST_RUNTIME)
    simulated = plan.pool_bytes(Pool.VRAM) if plan.simulated is not None else 0
    return max(plan.pool_bytes(pool), plan.load_peak.get(pool, 0)) - runtime + simulated


def check_headroom(plan: MemoryPlan, ram_left: int, commit_left: int | None) -> None:
    """Compare with what is free now, before anything is read or allocated: the plan may be older than that.

    Where the system promises no more than it has (Windows), commit decides: RAM of other programs can be paged out.
    Without such a limit (Linux) RAM does, as the system would end a program in the middle of the load.

    Raises:
        NotEnoughCommitError, NotEnoughRamError: the load would not come to its end.
    """
    pool, left = (Pool.RAM, ram_left) if commit_left is None else (Pool.COMMIT, commit_left)
    needed = bytes_to_load(plan, pool)
    if needed > left:
        error = NotEnoughRamError if pool is Pool.RAM else NotEnoughCommitError
        raise error(
            what="Loading this model",
            needed_bytes=needed,
            available_bytes=left,
            fix="Close other programs, or plan the start again with what is free now.",
        )
