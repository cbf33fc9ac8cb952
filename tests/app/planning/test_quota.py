"""T02: how much may be pinned, and where the number is from."""

import pytest

from app.planning.budgets import budgets
from app.planning.quota import pin_quota
from app.planning.wishes import Wishes
from engine.contract.facts import Reading, Source
from engine.contract.plan import SimulatedGpu
from engine.contract.units import GIB, MIB, gib
from tests.support.machines import gib_bytes, gpu, machine, measured

NONE = Wishes()


def test_t02a_windows_is_capped_at_half_of_ram_and_says_that_nothing_was_measured() -> None:
    quota = pin_quota(machine(gib_bytes(63)), NONE)
    assert quota.ceiling_bytes == gib_bytes(31.5)
    assert quota.bytes == round(gib_bytes(63) * 0.4)
    assert quota.source is Source.ASSUMED
    assert not quota.proven
    assert "not measured" in quota.reason


@pytest.mark.parametrize("field", ["pin_measured", "pin_probed"])
def test_t02b_wsl2_is_capped_and_a_measurement_wins_over_any_percentage(field: str) -> None:
    guest = machine(gib_bytes(62.8), os="wsl2")
    assert pin_quota(guest, NONE).bytes == round(gib_bytes(62.8) * 0.4)
    assert not pin_quota(guest, NONE).proven
    assert pin_quota(guest, NONE).must_measure
    quota = pin_quota(guest.model_copy(update={field: measured(gib_bytes(0.75))}), NONE)
    assert quota.bytes is not None
    assert gib_bytes(0.67) <= quota.bytes <= gib_bytes(0.75)
    assert quota.proven
    assert not quota.must_measure


def test_t02c_linux_without_a_lock_limit_has_no_quota() -> None:
    quota = pin_quota(machine(gib_bytes(503), os="linux", memlock_unlimited=True), NONE)
    assert quota.bytes is None
    assert pin_quota(machine(gib_bytes(503), os="linux"), NONE).bytes is None


def test_t02d_linux_respects_a_lock_limit_and_names_it() -> None:
    quota = pin_quota(machine(gib_bytes(503), os="linux", memlock_limit=gib_bytes(62.875)), NONE)
    assert quota.bytes == gib_bytes(62.875)
    assert quota.reason == "memlock"


@pytest.mark.parametrize(("ram", "limit"), [(64, 8 * MIB), (16, 64 * 1024), (503, 2 * GIB)])
def test_t02d_a_default_far_below_ram_is_not_taken_for_a_pin_quota_and_is_told(ram: int, limit: int) -> None:
    quota = pin_quota(machine(gib_bytes(ram), os="linux", memlock_limit=limit), NONE)
    assert quota.bytes is None
    assert quota.source is Source.ASSUMED
    assert "memlock" in quota.reason
    assert gib(limit) in quota.reason


def test_t02_a_container_is_bounded_by_its_share_of_ram_not_by_a_quota() -> None:
    facts = machine(gib_bytes(8), os="linux", memlock_unlimited=True)
    assert pin_quota(facts, NONE).bytes is None
    assert budgets(facts, NONE).ram.bytes == gib_bytes(7)


def test_t02e_the_users_own_limit_wins_and_is_shown_as_such() -> None:
    facts = machine(gib_bytes(63)).model_copy(update={"pin_measured": measured(gib_bytes(31.5))})
    quota = pin_quota(facts, Wishes(pin_cap_bytes=gib_bytes(20)))
    assert quota.bytes == gib_bytes(20)
    assert quota.source is Source.USER
    assert quota.proven


def test_a_reading_leaves_what_is_used_and_a_margin() -> None:
    card = gpu(gib_bytes(24), shared_limit=gib_bytes(31.5), shared_used=gib_bytes(8))
    quota = pin_quota(machine(gib_bytes(63), card), NONE)
    assert quota.bytes == gib_bytes(31.5) - gib_bytes(8) - round(gib_bytes(31.5) * 0.1)
    assert quota.source is Source.READ
    assert sum(term.bytes for term in quota.terms) == quota.bytes


def test_a_reading_above_the_rule_is_kept_to_the_rule_and_the_difference_is_a_term() -> None:
    card = gpu(gib_bytes(24), shared_limit=gib_bytes(31.5), shared_used=gib_bytes(0.5))
    quota = pin_quota(machine(gib_bytes(63), card), NONE)
    assert quota.bytes == round(gib_bytes(63) * 0.4)
    assert quota.source is Source.READ
    assert not quota.proven
    assert sum(term.bytes for term in quota.terms) == quota.bytes
    assert quota.terms[-1].what == "kept to 40% of RAM until measured"


def test_a_probe_counts_less_a_tenth() -> None:
    quota = pin_quota(machine(gib_bytes(192)).model_copy(update={"pin_probed": measured(gib_bytes(94))}), NONE)
    assert quota.bytes == gib_bytes(94) - -(-gib_bytes(94) // 10)
    assert quota.source is Source.MEASURED
    assert [term.bytes for term in quota.terms] == [gib_bytes(94), quota.bytes - gib_bytes(94)]


def _learned(amount: float) -> Reading:
    return Reading(value=gib_bytes(amount), source=Source.LEARNED)


def test_a_refused_sum_wins_over_every_expectation() -> None:
    facts = machine(gib_bytes(64)).model_copy(
        update={"pin_probed": measured(gib_bytes(28)), "pin_granted": _learned(3), "pin_refused": _learned(4)}
    )
    quota = pin_quota(facts, NONE)
    assert (quota.bytes, quota.source) == (gib_bytes(3), Source.LEARNED)
    assert "4.0 GiB was refused" in quota.reason


def test_a_refusal_above_the_expectation_changes_nothing() -> None:
    facts = machine(gib_bytes(64)).model_copy(update={"pin_granted": _learned(20), "pin_refused": _learned(30)})
    quota = pin_quota(facts, NONE)
    assert quota.source is Source.ASSUMED
    assert quota.bytes == round(gib_bytes(64) * 0.4)


def test_what_an_earlier_run_was_granted_raises_the_quota() -> None:
    quota = pin_quota(machine(gib_bytes(64)).model_copy(update={"pin_granted": _learned(30)}), NONE)
    assert (quota.bytes, quota.source) == (gib_bytes(30), Source.LEARNED)


def test_what_was_tried_before_is_had_again_only_as_far_as_others_leave_it() -> None:
    card = gpu(gib_bytes(24), shared_limit=gib_bytes(31.5), shared_used=gib_bytes(20))
    facts = machine(gib_bytes(63), card).model_copy(update={"pin_probed": measured(gib_bytes(30))})
    quota = pin_quota(facts, NONE)
    assert quota.bytes == gib_bytes(31.5) - gib_bytes(20)
    assert sum(term.bytes for term in quota.terms) == quota.bytes
    assert quota.terms[-1].what == "held by other programs now"
    assert quota.held_bytes == gib_bytes(20)


def test_on_linux_only_a_refusal_makes_a_quota() -> None:
    facts = machine(gib_bytes(64), os="linux")
    assert pin_quota(facts.model_copy(update={"pin_granted": _learned(30)}), NONE).bytes is None
    refused = facts.model_copy(update={"pin_granted": _learned(30), "pin_refused": _learned(31)})
    assert pin_quota(refused, NONE).bytes == gib_bytes(30)


def test_the_margin_is_two_gib_at_least_and_the_quota_never_negative() -> None:
    small = gpu(gib_bytes(8), shared_limit=gib_bytes(8), shared_used=gib_bytes(1))
    assert pin_quota(machine(gib_bytes(16), small), NONE).bytes == gib_bytes(5)
    full = gpu(gib_bytes(8), shared_limit=gib_bytes(8), shared_used=gib_bytes(7))
    assert pin_quota(machine(gib_bytes(16), full), NONE).bytes == 0


def test_a_rule_never_exceeds_the_ceiling_that_was_read() -> None:
    card = gpu(gib_bytes(24), shared_limit=gib_bytes(16))
    quota = pin_quota(machine(gib_bytes(63), card), NONE)
    assert quota.bytes == gib_bytes(14)
    assert quota.source is Source.ASSUMED


def test_unknown_ram_pins_nothing() -> None:
    facts = machine(1).model_copy(update={"ram_total": Reading(), "ram_available": Reading()})
    assert pin_quota(facts, NONE).bytes == 0


def test_a_simulated_gpu_has_the_quota_it_was_given() -> None:
    simulated = SimulatedGpu(vram_bytes=gib_bytes(1), pin_bytes=gib_bytes(0.5))
    quota = pin_quota(machine(gib_bytes(63)), Wishes(simulated_gpu=simulated))
    assert (quota.bytes, quota.source) == (gib_bytes(0.5), Source.SIMULATED)
    capped = pin_quota(machine(gib_bytes(63)), Wishes(simulated_gpu=simulated, pin_cap_bytes=gib_bytes(2)))
    assert capped.bytes == gib_bytes(0.5)
