"""Numbers in words."""

import pytest

from app.ui import wording
from engine.contract.plan import Tier
from engine.contract.units import GIB, KIB, MIB


def test_tokens_have_thousands_separators_and_a_singular() -> None:
    assert wording.tokens(33_792) == "33,792 tokens"
    assert wording.tokens(1) == "1 token"


def test_tiers_without_layers_are_not_counted() -> None:
    per_tier = {Tier.VRAM: 8, Tier.PINNED: 50, Tier.LOCKED: 4, Tier.PAGEABLE: 0}
    assert wording.counts(per_tier) == "8 VRAM, 50 pinned, 4 locked"


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [
        (int(30.8 * GIB), int(31.8 * GIB), "30.8 of 31.8 GiB"),
        (0, int(31.8 * GIB), "0.0 of 31.8 GiB"),
        (40 * MIB, 2 * GIB, "40.0 MiB of 2.0 GiB"),
        (40 * MIB, 80 * MIB, "40.0 of 80.0 MiB"),
        (3 * KIB, 80 * MIB, "3 KiB of 80.0 MiB"),
    ],
)
def test_a_unit_is_said_twice_only_where_the_two_differ(part: int, whole: int, said: str) -> None:
    assert wording.gib_of(part, whole) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.84, "0.8 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1 min 0 s"), (112, "1 min 52 s"), (7500, "2 h 5 min")],
)
def test_durations_get_coarser_as_they_get_longer(seconds: float, said: str) -> None:
    assert wording.duration(seconds) == said


def test_what_is_still_to_come_has_no_decimals_and_is_never_nothing() -> None:
    assert wording.rough_duration(0.1) == "1 s"
    assert wording.rough_duration(5.4) == "5 s"


def test_a_long_name_loses_its_middle() -> None:
    short = wording.shortened("x" * 70 + "-Instruct", 48)
    assert len(short) <= 48
    assert short.endswith("-Instruct")
    assert "…" in short
    assert wording.shortened("short", 48) == "short"
