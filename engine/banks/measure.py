"""What was really allocated, in the lines of the plan's ledger."""

from collections.abc import Iterable, Mapping

from engine.banks.place import Placement
from engine.contract.ledger import HOST_RUNTIME, in_pools
from engine.contract.plan import LedgerLine, MemoryPlan, Pool, Tier
from engine.contract.residency import LayerResidency, ResidencyReport


def settled_ledger(
    plan: MemoryPlan, device_bytes: Mapping[str, int], host_bytes: Mapping[str, int], placements: Iterable[Placement]
) -> tuple[LedgerLine, ...]:
    """The ledger as `engine.contract.estimate.ledger` writes it, from measured bytes.

    `device_bytes` is what the device allocated or reserved, by purpose; on a CPU it counts against RAM and commit.
    `host_bytes` is what else lies in host memory.
    """
    held = dict.fromkeys(Tier, 0)
    for placement in placements:
        held[placement.settled] += placement.nbytes
    runtime = sum(line.bytes for line in plan.ledger if line.pool is Pool.COMMIT and line.what == HOST_RUNTIME)
    host = [(HOST_RUNTIME, runtime), *host_bytes.items()]
    order = [line.what for line in plan.ledger]
    device = sorted(device_bytes.items(), key=lambda line: order.index(line[0]) if line[0] in order else len(order))
    return in_pools(device, host, held, on_gpu=plan.device != "cpu")


def residency_report(
    plan: MemoryPlan,
    *,
    device: str,
    device_bytes: Mapping[str, int],
    host_bytes: Mapping[str, int],
    placements: tuple[Placement, ...],
    self_test: str,
    kernels: Mapping[str, str] | None = None,
    ring_cause: str | None = None,
) -> ResidencyReport:
    """Asked and settled, layer by layer and line by line."""
    return ResidencyReport(
        device=device,
        simulated=plan.device == "simulated",
        layers=tuple(
            LayerResidency(
                layer=placement.layer,
                asked=placement.asked,
                settled=placement.settled,
                bytes=placement.nbytes,
                cause=placement.cause,
            )
            for placement in placements
        ),
        ledger_asked=plan.ledger,
        ledger_settled=settled_ledger(plan, device_bytes, host_bytes, placements),
        self_test=self_test,
        kernels=dict(kernels or {}),
        ring_cause=ring_cause,
    )
