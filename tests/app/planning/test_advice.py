"""What is said when layers did not get the tier they were planned for."""

from app.planning.advice import advice
from engine.contract.plan import Tier
from engine.contract.residency import LayerResidency, ResidencyReport
from tests.support.machines import gib_bytes

_LAYER = gib_bytes(1.9)


def _report(*layers: tuple[Tier, Tier, str | None]) -> ResidencyReport:
    return ResidencyReport(
        device="card",
        simulated=False,
        layers=tuple(
            LayerResidency(layer=index, asked=asked, settled=settled, bytes=_LAYER, cause=cause)
            for index, (asked, settled, cause) in enumerate(layers)
        ),
        ledger_asked=(),
        ledger_settled=(),
        self_test="",
    )


P, L, G = Tier.PINNED, Tier.LOCKED, Tier.PAGEABLE


def test_nothing_is_said_when_all_went_as_planned() -> None:
    assert advice(_report((P, P, None), (L, L, None), (G, G, None))) == ()


def test_layers_that_were_not_pinned_lower_the_quota() -> None:
    report = _report((P, P, None), (P, P, None), *[(P, L, "1.9 GiB could not be pinned: no (code 2).")] * 3)
    (found,) = advice(report)
    assert found.kind == "pin"
    assert found.title == "The engine is running, but it pinned 3 layers fewer than you asked for"
    assert found.body.startswith("Layers 2 to 4 are locked instead and computed on the CPU. The quota is now 3.8 GiB.")
    assert "could not be pinned: no (code 2)" in found.body
    assert found.fix == "Use 3.8 GiB from now on"
    assert found.pin_cap_bytes == 2 * _LAYER
    assert found.layers == (2, 3, 4)


def test_layers_that_were_not_locked_are_pageable_now() -> None:
    (found,) = advice(_report((L, L, None), (L, G, "the limit is 8.0 MiB.")))
    assert found.kind == "lock"
    assert found.title == "The operating system did not lock 1 layer"
    assert found.body == "Layer 1 is pageable now and may be slow. the limit is 8.0 MiB."
    assert found.pin_cap_bytes is None


def test_a_layer_that_fell_two_tiers_is_said_in_both() -> None:
    pin, lock = advice(_report((P, L, "a"), (P, G, "b"), (L, L, None), (L, G, "c")))
    assert pin.layers == (0, 1)
    assert "Layer 0 is locked and Layer 1 is pageable instead" in pin.body
    assert lock.layers == (1, 3)
    assert "Layers 1 and 3 are pageable now" in lock.body
