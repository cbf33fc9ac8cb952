"""Loads in which something is refused or breaks: never a crash, a hang or a wrong report, and the next try works."""

from pathlib import Path

import pytest

from tests.engine.model.conftest import Tiny
from tests.support.refusal_scenarios import KINDS, Scenarios

ROUNDS = 2


@pytest.mark.parametrize("kind", list(KINDS))
def test_whatever_is_refused_the_report_is_true_or_nothing_stays_and_a_retry_succeeds(
    kind: str, tiny: Tiny, tmp_path: Path
) -> None:
    scenarios = Scenarios(tiny, tmp_path, seed=11)
    for _ in range(ROUNDS):
        scenarios.run(kind, in_process=False)
    assert scenarios.tally.loaded[kind] + scenarios.tally.refused[kind] == ROUNDS


@pytest.mark.slow
def test_a_process_of_its_own_loads_what_another_could_not(tiny: Tiny, tmp_path: Path) -> None:
    scenarios = Scenarios(tiny, tmp_path, seed=5)
    scenarios.run("pin and lock refused", in_process=True)
    assert scenarios.tally.retries_in_processes == 1
