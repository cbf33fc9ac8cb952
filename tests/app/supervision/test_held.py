"""Left-over processes as the planner sees them."""

from app.orphans.verdicts import Confidence, Orphan, ProgramUse, Verdicts
from app.planning.held import Held
from app.planning.others import Program
from app.supervision.held import held_by, programs_of
from engine.contract.units import GIB


def _orphan(pid: int, confidence: Confidence, rss: int | None, gpu: int | None) -> Orphan:
    return Orphan(
        pids=(pid, pid + 1), identities=(), name="python.exe", command_line=None, reason="parent ended",
        confidence=confidence, preselected=False, rss_bytes=rss, gpu_bytes=gpu, age_s=1,
    )  # fmt: skip


def test_only_what_is_provably_ours_is_offered_and_unknown_bytes_count_nothing() -> None:
    verdicts = Verdicts(
        orphans=(
            _orphan(10, "ours", 30 * GIB, 14 * GIB),
            _orphan(20, "possible", GIB, GIB),
            _orphan(30, "uncertain", GIB, GIB),
            _orphan(40, "ours", None, None),
        )
    )
    assert held_by(verdicts) == (
        Held(pid=10, name="python.exe", ram_bytes=30 * GIB, vram_bytes=14 * GIB),
        Held(pid=40, name="python.exe"),
    )


def test_what_a_left_over_engine_has_pinned_comes_back_with_its_end() -> None:
    pins = _orphan(10, "ours", 30 * GIB, None).model_copy(update={"gpu_shared_bytes": 28 * GIB})
    [held] = held_by(Verdicts(orphans=(pins,)))
    assert held.pinned_bytes == 28 * GIB
    assert held.words == "python.exe (PID 10), which holds 30.0 GiB of RAM and 28.0 GiB of pinned memory"


def test_other_programs_are_told_with_what_they_hold() -> None:
    use = ProgramUse(name="game.exe", rss_bytes=5 * GIB, gpu_bytes=GIB)
    assert programs_of(Verdicts(programs=(use,))) == (Program("game.exe", 5 * GIB, GIB),)
