"""T02: how much may be pinned, and where the number is from."""

from app.planning.quota import pin_quota
from app.planning.wishes import Wishes
from engine.contract.facts import Reading, Source
from engine.contract.plan import SimulatedGpu
from tests.support.machines import gib_bytes, gpu, machine, measured

NONE = Wishes()


def test_t02a_windows_is_capped_at_half_of_ram_and_says_that_nothing_was_measured() -> None:
    quota = pin_quota(machine(gib_bytes(63)), NONE)
    assert quota.ceiling_bytes == gib_bytes(31.5)
    assert quota.bytes == round(gib_bytes(63) * 0.4)
    assert quota.source is Source.ASSUMED
    assert not quota.proven
    assert "not measured" in quota.reason


def test_t02b_wsl2_is_capped_and_a_measurement_wins_over_any_percentage() -> None:
    guest = machine(gib_bytes(62.8), os="wsl2")
    assert pin_quota(guest, NONE).bytes == round(gib_bytes(62.8) * 0.4)
    assert not pin_quota(guest, NONE).proven
    quota = pin_quota(guest.model_copy(update={"pin_measured": measured(gib_bytes(0.75))}), NONE)
    assert quota.bytes == gib_bytes(0.75)
    assert quota.proven


def test_t02c_linux_without_a_lock_limit_has_no_quota() -> None:
    quota = pin_quota(machine(gib_bytes(503), os="linux", memlock_unlimited=True), NONE)
    assert quota.bytes is None
    assert pin_quota(machine(gib_bytes(503), os="linux"), NONE).bytes is None


def test_t02d_linux_respects_a_lock_limit_and_names_it() -> None:
    quota = pin_quota(machine(gib_bytes(503), os="linux", memlock_limit=gib_bytes(62.875)), NONE)
    assert quota.bytes == gib_bytes(62.875)
    assert quota.reason == "memlock"


def test_t02e_the_users_own_limit_wins_and_is_shown_as_such() -> None:
    facts = machine(gib_bytes(63)).model_copy(update={"pin_measured": measured(gib_bytes(31.5))})
    quota = pin_quota(facts, Wishes(pin_cap_bytes=gib_bytes(20)))
    assert quota.bytes == gib_bytes(20)
    assert quota.source is Source.USER
    assert quota.proven


def test_a_reading_leaves_what_is_used_and_a_margin() -> None:
    card = gpu(gib_bytes(24), shared_limit=gib_bytes(31.5), shared_used=gib_bytes(1))
    quota = pin_quota(machine(gib_bytes(63), card), NONE)
    assert quota.bytes == gib_bytes(31.5) - gib_bytes(1) - round(gib_bytes(31.5) * 0.1)
    assert quota.source is Source.READ
    assert sum(term.bytes for term in quota.terms) == quota.bytes


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
