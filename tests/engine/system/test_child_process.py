"""Children end with everything they started, and when we end, however we end."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from engine.contract.processes import ProcessIdentity
from engine.system.protocols import ChildProcess, EndResult, LaunchRefusedError
from engine.system.select import child_launcher, end_process

if os.name == "nt":
    pytest.skip("uses sessions and signals", allow_module_level=True)

END_S = 2.0  # the promise

# a parent whose child, grandchild and a grandchild in a session of its own sleep; it says who they are
FAMILY = """
import subprocess, sys, time
nap = "import time; time.sleep(600)"
mid = f"import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', {nap!r}]); print(c.pid, flush=True)"
mid += "; c.wait()"
child = subprocess.Popen([sys.executable, "-c", mid], stdout=subprocess.PIPE, text=True)
grandchild = int(child.stdout.readline())
stray = subprocess.Popen([sys.executable, "-c", nap], start_new_session=True)
print(child.pid, grandchild, stray.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def family() -> Iterator[tuple[ChildProcess, list[psutil.Process]]]:
    child = child_launcher().start([sys.executable, "-c", FAMILY])
    others = [psutil.Process(int(word)) for word in child.stdout.readline().split()]
    yield child, others
    child.close()


def until(condition: Callable[[], bool]) -> bool:
    """Wait for a condition, at most as long as the promise allows."""
    deadline = time.monotonic() + END_S
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return holds


def gone(process: psutil.Process) -> bool:
    """A zombie has ended; nobody has asked for its exit code yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def all_gone(processes: list[psutil.Process]) -> bool:
    return until(lambda: all(gone(process) for process in processes))


def test_pipes_exit_code_and_identity() -> None:
    child = child_launcher().start([sys.executable, "-c", "import sys; sys.stdout.write(input()); sys.exit(7)"])
    assert child.create_time == pytest.approx(psutil.Process(child.pid).create_time(), abs=0.02)
    assert child.tree()[0] == child.identity
    child.stdin.write(b"to and fro\n")
    child.stdin.flush()
    assert child.stdout.read() == b"to and fro"
    assert child.wait() == 7
    assert child.poll() == 7
    assert child.tree() == ()
    child.close()


def test_wait_says_none_while_the_child_lives() -> None:
    child = child_launcher().start([sys.executable, "-c", "input()"])
    assert child.wait(0.01) is None
    assert child.poll() is None
    child.terminate()
    assert child.wait(END_S) == -signal.SIGTERM
    child.close()


def test_environment_and_folder_are_handed_on(tmp_path: os.PathLike[str]) -> None:
    from pathlib import Path

    code = "import os; print(os.getcwd(), os.environ['WORD'])"
    child = child_launcher().start([sys.executable, "-c", code], cwd=Path(tmp_path), env={**os.environ, "WORD": "ä"})
    assert child.stdout.read().decode().split() == [str(Path(tmp_path).resolve()), "ä"]
    child.close()


def test_a_missing_program_is_a_typed_refusal() -> None:
    with pytest.raises(LaunchRefusedError) as refused:
        child_launcher().start(["/nonexistent/engine"])
    assert "/nonexistent/engine could not be started" in refused.value.sentence
    assert refused.value.numbers["code"] == 2


def test_the_tree_holds_descendants_of_every_kind(family: tuple[ChildProcess, list[psutil.Process]]) -> None:
    child, others = family
    assert {identity.pid for identity in child.tree()} == {child.pid, *(other.pid for other in others)}


def test_kill_tree_ends_all_of_them(family: tuple[ChildProcess, list[psutil.Process]]) -> None:
    child, others = family
    child.kill_tree()
    assert child.poll() == -signal.SIGKILL
    assert all_gone(others)
    child.kill_tree()


def test_kill_tree_finds_those_whose_parent_has_ended(family: tuple[ChildProcess, list[psutil.Process]]) -> None:
    child, others = family
    middle, grandchild, _ = others
    child.tree()
    middle.kill()
    assert until(lambda: grandchild.ppid() != middle.pid)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert grandchild.pid in {identity.pid for identity in child.tree()}
    child.kill_tree()
    assert all_gone(others)


def test_a_child_started_by_a_short_lived_thread_outlives_the_thread() -> None:
    guarded = (
        "import os, psutil; from engine.system.parent_guard import follow; p = psutil.Process(os.getppid());"
        "follow(p.pid, p.create_time()); print('ready', flush=True); input()"
    )
    started: list[ChildProcess] = []
    launcher = child_launcher()
    thread = threading.Thread(target=lambda: started.append(launcher.start([sys.executable, "-c", guarded])))
    thread.start()
    thread.join()
    [child] = started
    assert child.stdout.readline() == b"ready\n"
    assert child.wait(0.3) is None
    child.close()


@pytest.mark.parametrize("direct", [True, False], ids=["kernel signal", "waiting thread"])
def test_the_guard_ends_the_child_of_a_killed_parent(direct: bool) -> None:
    guarded = (
        "import sys; from engine.system.parent_guard import follow; follow(int(sys.argv[1]), float(sys.argv[2]));"
        "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    )
    launcher = (
        "import psutil, subprocess, sys, time; me = psutil.Process();"
        f"argv = [sys.executable, '-c', {guarded!r}, str(me.pid), str(me.create_time())];"
        "shell = ['sh', '-c', '\"$@\"; exit 0', 'sh', *argv];"
        f"subprocess.Popen(argv if {direct} else shell); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    engine = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    assert all_gone([engine])
    parent.stdout.close()


def test_the_guard_ends_a_child_that_came_too_late() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    created = psutil.Process(gone.pid).create_time()
    gone.wait()
    code = f"from engine.system.parent_guard import follow; follow({gone.pid}, {created}); print('still here')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_the_guard_is_cheap_to_import() -> None:
    code = (
        "import sys; import engine.system.parent_guard, engine.system.posix_parent;"
        "print({'pydantic', 'psutil', 'torch'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_end_process_ends_exactly_the_process_that_was_meant() -> None:
    victim = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    created = psutil.Process(victim.pid).create_time()
    assert end_process(ProcessIdentity(pid=victim.pid, create_time=created - 60)) is EndResult.NOT_THE_SAME
    assert victim.poll() is None
    assert end_process(ProcessIdentity(pid=victim.pid, create_time=created)) is EndResult.ENDED
    assert victim.wait() == -signal.SIGKILL
    assert end_process(ProcessIdentity(pid=victim.pid, create_time=created)) is EndResult.GONE
    assert victim.stdin is not None
    victim.stdin.close()


def test_end_process_says_denied_for_a_process_of_somebody_else() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    victim = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    created = psutil.Process(victim.pid).create_time()
    code = (
        # the imports come before the rights go
        "import os; import engine.system.posix_process; from engine.system.select import end_process;"
        "from engine.contract.processes import ProcessIdentity; os.setgid(65534); os.setuid(65534);"
        f"print(end_process(ProcessIdentity(pid={victim.pid}, create_time={created!r})).name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "DENIED\n", done.stderr
    assert victim.poll() is None
    victim.communicate(b"\n")


def test_a_descendant_that_left_session_and_parent_unseen_ends_with_the_tree() -> None:
    daemon = "import os,time; print(os.getpid(), flush=True); time.sleep(600)"
    middle = f"import subprocess,sys; subprocess.Popen([sys.executable, '-c', {daemon!r}], start_new_session=True)"
    code = f"import subprocess,sys; subprocess.run([sys.executable, '-c', {middle!r}]); sys.stdin.read()"
    child = child_launcher().start([sys.executable, "-c", code])
    stray = psutil.Process(int(child.stdout.readline()))
    assert until(lambda: stray.ppid() != child.pid)
    child.kill_tree()
    assert all_gone([stray])
    child.close()


BREEDS = """
import os, subprocess, sys
while True:  # workers in sessions of their own, as fast as they come, each started by a middleman that ends at once
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "600"])
        os._exit(0)
    os.wait()
    print(flush=True)
"""


def test_what_is_born_while_a_tree_is_being_ended_ends_with_it() -> None:
    child = child_launcher().start([sys.executable, "-c", BREEDS])
    for _ in range(20):
        child.stdout.readline()
    child.kill_tree()
    assert child.tree() == ()
    child.close()


def test_a_program_that_knows_nothing_of_us_ends_with_its_launcher() -> None:
    launcher = (
        "import time; from engine.system.select import child_launcher;"
        "print(child_launcher().start(['sleep', '600']).pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    assert all_gone([child])
    parent.stdout.close()
