"""Verdicts on recorded process tables: what is left over, what is not, and why."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.orphans.classify import classify
from app.orphans.verdicts import Orphan, Verdicts
from engine.contract.processes import ProcessIdentity, ProcessRow, ProcessTable, RunEntry
from engine.contract.units import GIB

TABLES = Path(__file__).parents[2] / "processes"

# table: the orphans as (pids, confidence); an empty list means that nothing may be offered
RIGHT: dict[str, list[tuple[tuple[int, ...], str]]] = {
    "T13": [((4188,), "ours")],
    "T14": [],
    "T15-pid-reused": [((8100,), "ours")],
    "T15-parent-is-our-engine": [],
    "T15-parent-unreadable": [((8100,), "uncertain")],
    "linux-engine-on-systemd": [((9000,), "ours")],
    "linux-engine-on-unknown-subreaper": [((9000,), "ours")],
    "linux-engine-running": [],
    "linux-jupyter-with-workers": [],
    "linux-python-service": [],
    "linux-spawn-child-on-init": [((9100,), "possible")],
    "linux-zombie-parent": [((9310,), "possible")],
    "windows-comfyui-after-its-console": [((2600,), "possible")],
    "windows-command-line-unreadable": [((4188,), "uncertain")],
    "windows-counters-missing": [((4188,), "ours")],
    "windows-dead-intermediate": [((3100, 3300), "ours")],
    "windows-dead-intermediate-of-a-running-engine": [],
    "windows-folder-in-other-letters": [((4188,), "ours")],
    "windows-foreign-spawn-child": [((2500,), "possible")],
    "windows-foreign-spawn-child-living-parent": [],
    "windows-foreign-spawn-child-small": [],
    "windows-frozen-spawn-child": [((2700,), "possible")],
    "windows-half-dead": [],
    "windows-identity-unreadable": [],
    "windows-launcher-without-parent": [],
    "windows-neighbouring-folder": [],
    "windows-other-users-engine": [],
    "windows-recorded-pid-reused": [],
    "windows-recorded-pid-reused-by-python": [],
    "windows-redirector-left-over": [((3100, 3104), "ours")],
    "windows-redirector-no-ledger": [((3100, 3104), "ours")],
    "windows-redirector-running": [],
    "windows-service": [],
    "windows-two-launchers": [((3990,), "ours")],
    "windows-workers-of-a-dead-engine": [((3200, 3204, 3300), "ours")],
}


def _read(name: str) -> ProcessTable:
    return ProcessTable.model_validate_json((TABLES / f"{name}.json").read_bytes())


def _verdicts(name: str) -> Verdicts:
    return classify(_read(name))


def _only(name: str) -> Orphan:
    (orphan,) = _verdicts(name).orphans
    return orphan


def test_every_recorded_table_has_a_right_answer() -> None:
    assert {file.stem for file in TABLES.glob("*.json")} == set(RIGHT)


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_the_verdict_on_a_recorded_table_is_right(name: str) -> None:
    found = [(orphan.pids, orphan.confidence) for orphan in _verdicts(name).orphans]
    assert found == RIGHT[name]


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_only_proven_orphans_are_preselected_and_all_can_be_ended_by_identity(name: str) -> None:
    table = _read(name)
    for orphan in classify(table).orphans:
        assert orphan.preselected == (orphan.confidence == "ours")
        assert tuple(identity.pid for identity in orphan.identities) == orphan.pids
        starts = {row.pid: row.create_time for row in table.processes}
        assert all(starts[identity.pid] == identity.create_time for identity in orphan.identities)
        assert orphan.reason.endswith(".") and "\n" not in orphan.reason


def test_t13_the_invisible_child_is_shown_with_bytes_age_and_reason() -> None:
    orphan = _only("T13")
    assert "parent ended" in orphan.reason
    assert "4120" in orphan.reason
    assert orphan.rss_bytes == 30_100_000_000
    assert orphan.gpu_bytes == int(14.3 * GIB)
    assert orphan.age_s == 88 * 60  # 09:02 to 10:30
    assert orphan.preselected


def test_t14_look_alikes_with_living_parents_are_not_offered_but_named() -> None:
    verdicts = _verdicts("T14")
    assert verdicts.orphans == ()
    others = {other.pid: other for other in verdicts.others}
    assert others[6020].name == "llama-server.exe"
    assert others[6020].gpu_bytes == 12 * GIB
    assert "running Splitpin" in others[7010].reason
    assert "PID 5000" in others[5010].reason


def test_t15_a_parent_younger_than_its_child_is_no_parent() -> None:
    assert "chrome.exe" in _only("T15-pid-reused").reason


def test_t15_an_unreadable_start_time_of_the_parent_is_said_and_not_preselected() -> None:
    orphan = _only("T15-parent-unreadable")
    assert "uncertain" in orphan.reason
    assert not orphan.preselected


def test_unknown_sizes_stay_unknown() -> None:
    orphan = _only("windows-counters-missing")
    assert orphan.rss_bytes is None
    assert orphan.gpu_bytes is None


def test_a_tree_counts_all_its_memory() -> None:
    orphan = _only("windows-redirector-left-over")
    assert orphan.gpu_bytes == 7 * GIB
    assert orphan.rss_bytes is not None and orphan.rss_bytes > 11 * GIB
    assert orphan.run_id == "r3"


def test_the_command_line_is_kept_for_the_question_before_ending() -> None:
    orphan = _only("windows-comfyui-after-its-console")
    assert orphan.command_line == "python.exe main.py"


SPAWN = ("python.exe", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(parent_pid=1, pipe_handle=2)")
ENGINE = ("python.exe", "-m", "engine", "serve", "plan.json", "--run-id", "r", "--parent-pid", "8")

pids = st.integers(min_value=2, max_value=12)
times = st.none() | st.integers(min_value=100, max_value=110).map(float)
rows = st.builds(
    ProcessRow,
    pid=pids,
    ppid=st.none() | pids,
    create_time=times,
    exe=st.sampled_from([None, "C:\\Splitpin\\python.exe", "C:\\Python\\python.exe", "/usr/bin/python3", "C:\\a.exe"]),
    cmdline=st.sampled_from([None, SPAWN, ENGINE, ("python.exe", "x.py"), ("python.exe", "-m", "app")]),
    user=st.sampled_from([None, "me", "other"]),
    status=st.sampled_from([None, "running", "zombie"]),
    rss_bytes=st.sampled_from([None, 0, 5 * GIB]),
    gpu_bytes=st.sampled_from([None, 0, 5 * GIB]),
)
identities = st.builds(ProcessIdentity, pid=pids, create_time=st.integers(100, 110).map(float))
entries = st.builds(
    RunEntry,
    run_id=st.sampled_from(["r", "s"]),
    engine=identities,
    supervisor=st.none() | identities,
    children=st.lists(identities, max_size=2).map(tuple),
)
tables = st.builds(
    ProcessTable,
    now=st.just(200.0),
    user=st.sampled_from([None, "me"]),
    engine_dirs=st.just(("C:\\Splitpin",)),
    ledger=st.lists(entries, max_size=2).map(tuple),
    processes=st.lists(rows, max_size=9, unique_by=lambda row: row.pid).map(tuple),
)


@given(tables)
def test_nothing_is_offered_that_has_a_living_parent_outside_its_tree(table: ProcessTable) -> None:
    living = {row.pid: row for row in table.processes if row.status != "zombie"}
    for orphan in classify(table).orphans:
        for pid in orphan.pids:
            row = living[pid]
            parent = living.get(row.ppid) if row.ppid is not None else None
            if parent is None or parent.pid in orphan.pids or parent.create_time is None or row.create_time is None:
                continue
            if row.exe is not None and row.exe.startswith("/"):
                continue  # on Linux the ppid of an orphan names whoever adopted it
            assert parent.create_time > row.create_time


@given(tables)
def test_other_users_the_ended_the_unreadable_and_launchers_are_never_offered(table: ProcessTable) -> None:
    by_pid = {row.pid: row for row in table.processes}
    seen: list[int] = []
    for orphan in classify(table).orphans:
        for pid in orphan.pids:
            row = by_pid[pid]
            assert row.create_time is not None
            assert row.status != "zombie"
            assert table.user is None or row.user in (None, table.user)
            assert row.cmdline != ("python.exe", "-m", "app")
        seen += orphan.pids
    assert len(seen) == len(set(seen)), "a process belongs to one orphan"


def test_programs_are_summed_by_name_without_what_is_left_over() -> None:
    def row(pid: int, exe: str, rss: int, private: int | None = None, gpu: int | None = None) -> ProcessRow:
        return ProcessRow(
            pid=pid, ppid=1, create_time=50.0, exe=exe, rss_bytes=rss, private_bytes=private, gpu_bytes=gpu
        )

    engine = ("python", "-m", "engine", "serve", "plan.json", "--run-id", "20260101-000000-abcdef")
    left_over = ProcessRow(pid=9, ppid=77, create_time=60.0, exe="/usr/bin/python", cmdline=engine, rss_bytes=9 * GIB)
    rows = (
        ProcessRow(pid=1, ppid=0, create_time=1.0, exe="/sbin/init", rss_bytes=1),
        row(2, r"C:\browser\browser.exe", 3 * GIB, 2 * GIB),
        row(3, r"C:\browser\browser.exe", 3 * GIB, 5 * GIB),
        row(4, r"C:\game.exe", 4 * GIB, gpu=2 * GIB),
        ProcessRow(pid=5, rss_bytes=50 * GIB),
        left_over,
    )
    found = classify(ProcessTable(now=100.0, processes=rows))
    assert [orphan.pids for orphan in found.orphans] == [(9,)]
    assert [(use.name, use.rss_bytes, use.gpu_bytes) for use in found.programs] == [
        ("game.exe", 4 * GIB, 2 * GIB),
        ("browser.exe", 5 * GIB, 0),
        ("init", 1, 0),
    ], "what processes share counts once at most where their own memory is known; a page file is no RAM"
