"""Ending a left-over tree: by identity, newcomers included, and said only when the memory is back."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from app.orphans.sweep import EndReport, end_orphan
from app.orphans.verdicts import Orphan
from engine.contract.processes import ProcessIdentity, ProcessRow, ProcessTable
from engine.contract.units import GIB, MIB
from engine.system.protocols import EndResult, MemoryUse


@dataclass
class World:
    """Processes and memory on a clock that only moves when somebody waits."""

    rows: dict[int, ProcessRow] = field(default_factory=dict)
    vram: Iterator[int] | None = None
    ram: int = 40 * GIB
    now: float = 0.0
    waits: list[float] = field(default_factory=list)
    asked: list[ProcessIdentity] = field(default_factory=list)
    answers: dict[int, EndResult] = field(default_factory=dict)
    on_end: Callable[[int], None] = lambda pid: None
    last_vram: int | None = None

    def end(self, identity: ProcessIdentity, wait_s: float) -> EndResult:
        self.asked.append(identity)
        answer = self.answers.get(identity.pid, EndResult.ENDED)
        if answer is EndResult.ENDED:
            self.rows.pop(identity.pid, None)
            self.on_end(identity.pid)
        return answer

    def table(self) -> ProcessTable:
        return ProcessTable(now=1000.0, processes=tuple(self.rows.values()))

    def memory(self) -> MemoryUse:
        if self.vram is not None:
            self.last_vram = next(self.vram, self.last_vram)
        return MemoryUse(ram_used=self.ram, vram_used=self.last_vram)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def run(self, orphan: Orphan) -> EndReport:
        return end_orphan(
            orphan,
            end=self.end,
            read_table=self.table,
            read_memory=self.memory,
            clock=lambda: self.now,
            sleep=self.sleep,
        )


def _row(pid: int, ppid: int, start: float) -> ProcessRow:
    return ProcessRow(pid=pid, ppid=ppid, create_time=start)


def _orphan(*members: tuple[int, float], gpu: int | None = None) -> Orphan:
    return Orphan(
        pids=tuple(pid for pid, _ in members),
        identities=tuple(ProcessIdentity(pid=pid, create_time=start) for pid, start in members),
        name="python.exe",
        command_line=None,
        reason="Its parent ended.",
        confidence="ours",
        preselected=True,
        rss_bytes=GIB,
        gpu_bytes=gpu,
        age_s=10,
    )


def _gib(*values: float) -> Iterator[int]:
    return iter([round(value * GIB) for value in values])


def test_t13_the_memory_that_came_back_is_said_with_its_time() -> None:
    world = World(rows={4188: _row(4188, 4120, 10)}, vram=_gib(17.1, 17.1, 9.0, 3.0, 3.0))
    report = world.run(_orphan((4188, 10), gpu=round(14.3 * GIB)))
    assert report.success
    assert report.ended == (4188,)
    assert report.vram_back_bytes == round(17.1 * GIB) - 3 * GIB
    assert report.sentence == "Ended. 14.1 GiB of VRAM came back in 0.8 s."
    assert set(world.waits) == {0.25}
    assert world.asked == [ProcessIdentity(pid=4188, create_time=10)]


def test_memory_that_does_not_come_back_is_told_after_a_minute() -> None:
    world = World(rows={4188: _row(4188, 4120, 10)}, vram=_gib(17.1))
    report = world.run(_orphan((4188, 10), gpu=round(14.2 * GIB)))
    assert not report.settled and not report.success
    assert report.elapsed_s == pytest.approx(60, abs=0.5)
    assert report.sentence.startswith("The process is gone, but 14.2 GiB of VRAM are still in use.")


def test_without_a_gpu_the_ram_that_came_back_is_said() -> None:
    world = World(rows={5: _row(5, 4, 10)})
    world.on_end = lambda pid: setattr(world, "ram", 39 * GIB)
    assert world.run(_orphan((5, 10))).sentence == "Ended. 1.0 GiB of RAM came back in 0.2 s."


def test_children_that_appeared_since_the_scan_are_ended_too() -> None:
    world = World(rows={5: _row(5, 4, 10), 6: _row(6, 5, 11), 7: _row(7, 6, 12)})
    report = world.run(_orphan((5, 10)))
    assert set(report.ended) == {5, 6, 7}


def test_a_child_born_while_its_parent_is_being_ended_is_found_by_the_second_scan() -> None:
    world = World(rows={5: _row(5, 4, 10)})

    def last_gasp(pid: int) -> None:
        if pid == 5:
            world.rows[9] = _row(9, 5, 13)

    world.on_end = last_gasp
    assert set(world.run(_orphan((5, 10))).ended) == {5, 9}


def test_children_of_a_stranger_who_got_the_pid_are_left_alone() -> None:
    world = World(rows={5: _row(5, 4, 50), 6: _row(6, 5, 51)}, answers={5: EndResult.NOT_THE_SAME})
    report = world.run(_orphan((5, 10)))
    assert [identity.pid for identity in world.asked] == [5]
    assert report.ended == ()
    assert report.kept == {5: "this PID belongs to another process now"}
    assert 6 in world.rows


def test_a_refusal_is_told_apart_from_a_process_that_is_gone() -> None:
    denied = World(answers={5: EndResult.DENIED}).run(_orphan((5, 10)))
    assert denied.sentence == "PID 5 was not ended: access was denied. Nothing was ended."
    gone = World(answers={5: EndResult.GONE}).run(_orphan((5, 10)))
    assert gone.success
    assert gone.sentence == "The process was gone already."


def test_a_process_that_a_driver_holds_is_reported_without_waiting_for_its_memory() -> None:
    world = World(answers={5: EndResult.LINGERS}, vram=_gib(10))
    report = world.run(_orphan((5, 10), gpu=9 * GIB))
    assert "a driver still holds it" in report.sentence
    assert report.elapsed_s < 1


def test_noise_of_other_programs_does_not_keep_the_report_waiting() -> None:
    world = World(rows={5: _row(5, 4, 10)})

    def noisy() -> MemoryUse:
        world.ram += MIB
        return MemoryUse(ram_used=world.ram)

    world.memory = noisy  # type: ignore[method-assign]
    assert world.run(_orphan((5, 10))).elapsed_s < 1


def test_a_program_that_quits_does_not_wait_for_the_memory() -> None:
    world = World(rows={5: _row(5, 4, 10)}, vram=_gib(10))
    report = end_orphan(
        _orphan((5, 10), gpu=9 * GIB),
        end=world.end,
        read_table=world.table,
        read_memory=world.memory,
        clock=lambda: world.now,
        sleep=world.sleep,
        give_up=lambda: world.now >= 1,
    )
    assert report.ended == (5,)
    assert not report.settled
    assert report.elapsed_s == 1
