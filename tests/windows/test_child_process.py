"""Children on Windows end with everything they started, and when we end, however we end."""

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from engine.contract.processes import ProcessIdentity
from engine.system.protocols import ChildProcess, EndResult, LaunchRefusedError
from engine.system.select import child_launcher, end_process, process_reader

pytestmark = [
    pytest.mark.windows,
    pytest.mark.skipif(os.name != "nt", reason="needs Windows or the Windows interpreter under Wine"),
]

END_S = 10.0  # generous: Wine's server is slow under load; the promise is kept by the job, not by a timer
FAMILY = """
import subprocess, sys
nap = "import time; time.sleep(600)"
mid = f"import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', {nap!r}]); print(c.pid, flush=True)"
mid += "; c.wait()"
child = subprocess.Popen([sys.executable, "-c", mid], stdout=subprocess.PIPE, text=True)
grandchild = int(child.stdout.readline())
print(child.pid, grandchild, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def family() -> Iterator[tuple[ChildProcess, list[psutil.Process]]]:
    child = child_launcher().start([sys.executable, "-c", FAMILY])
    others = [psutil.Process(int(word)) for word in child.stdout.readline().split()]
    yield child, others
    child.close()


def all_gone(processes: list[psutil.Process]) -> bool:
    return psutil.wait_procs(processes, timeout=END_S)[1] == []


def test_pipes_exit_code_and_identity() -> None:
    child = child_launcher().start([sys.executable, "-c", "import sys; sys.stdout.write(input()); sys.exit(7)"])
    assert child.create_time == pytest.approx(psutil.Process(child.pid).create_time(), abs=0.01)
    assert child.identity in child.tree()
    child.stdin.write(b"to and fro\n")
    child.stdin.flush()
    assert child.stdout.read() == b"to and fro"
    assert child.wait(END_S) == 7
    assert child.poll() == 7
    assert child.tree() == ()
    child.close()


def test_wait_says_none_while_the_child_lives() -> None:
    child = child_launcher().start([sys.executable, "-c", "input()"])
    assert child.wait(0.01) is None
    assert child.poll() is None
    child.terminate()
    assert child.wait(END_S) == 1
    child.close()


def test_a_missing_program_is_a_typed_refusal() -> None:
    with pytest.raises(LaunchRefusedError) as refused:
        child_launcher().start([r"C:\nowhere\engine.exe"])
    assert r"C:\nowhere\engine.exe could not be started" in refused.value.sentence
    assert refused.value.numbers["code"] == 2


def test_the_tree_is_what_the_job_holds(family: tuple[ChildProcess, list[psutil.Process]]) -> None:
    child, others = family
    assert {identity.pid for identity in child.tree()} >= {child.pid, *(other.pid for other in others)}


def test_kill_tree_ends_child_and_grandchild(family: tuple[ChildProcess, list[psutil.Process]]) -> None:
    child, others = family
    child.kill_tree()
    assert child.poll() == 1
    assert all_gone(others)
    child.kill_tree()


def test_kill_tree_finds_the_grandchild_of_a_dead_child(family: tuple[ChildProcess, list[psutil.Process]]) -> None:
    child, others = family
    middle, grandchild = others
    middle.kill()
    assert all_gone([middle])
    assert grandchild.pid in {identity.pid for identity in child.tree()}
    child.kill_tree()
    assert all_gone([grandchild])


def test_the_whole_tree_ends_when_the_launcher_is_killed() -> None:
    launcher = (
        "import sys, time; from engine.system.select import child_launcher;"
        f"child = child_launcher().start([sys.executable, '-c', {FAMILY!r}]);"
        "print(child.pid, child.stdout.readline().decode(), flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    tree = [psutil.Process(int(word)) for word in parent.stdout.readline().split()]
    assert len(tree) == 3
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert all_gone(tree)


def test_the_guard_ends_the_child_of_a_killed_parent() -> None:
    guarded = (
        "import os, sys, time; from engine.system.parent_guard import follow;"
        "follow(int(sys.argv[1]), float(sys.argv[2])); print(os.getpid(), flush=True); time.sleep(600)"
    )
    launcher = (
        "import psutil, subprocess, sys, time; me = psutil.Process();"
        f"subprocess.Popen([sys.executable, '-c', {guarded!r}, str(me.pid), str(me.create_time())]); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    engine = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    assert all_gone([engine])
    parent.stdout.close()


def test_the_guard_ends_a_child_that_came_too_late() -> None:
    gone = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    created = psutil.Process(gone.pid).create_time()
    gone.communicate(b"\n")
    code = f"from engine.system.parent_guard import follow; follow({gone.pid}, {created}); print('still here')"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_end_process_ends_exactly_the_process_that_was_meant() -> None:
    victim = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    created = psutil.Process(victim.pid).create_time()
    assert end_process(ProcessIdentity(pid=victim.pid, create_time=created - 60)) is EndResult.NOT_THE_SAME
    assert victim.poll() is None
    assert end_process(ProcessIdentity(pid=victim.pid, create_time=created)) is EndResult.ENDED
    assert victim.wait() == 1
    assert end_process(ProcessIdentity(pid=victim.pid, create_time=created)) is EndResult.GONE
    assert victim.stdin is not None
    victim.stdin.close()


def test_the_process_table_holds_this_process_and_no_invented_gpu_memory() -> None:
    table = process_reader().read([], [])
    [me] = [row for row in table.processes if row.pid == os.getpid()]
    assert me.create_time == pytest.approx(psutil.Process().create_time(), abs=0.01)
    assert me.rss_bytes
    assert me.cmdline
    assert all(row.gpu_bytes is None or row.gpu_bytes >= 0 for row in table.processes)
