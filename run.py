#!/usr/bin/env python3
"""Sets Splitpin up and opens it. Standard library only, in syntax that an old Python can read far enough to say so.

python run.py                  set up what is missing and open the window
python run.py DOOR ...         the same, then `python -m app DOOR ...` (detect, plan, chat, ...)
python run.py test [...]       the same with the test tools, then pytest with the given arguments
python run.py prepare          the same as for the tests, and nothing more
Everything goes into the folder .venv beside this file. Whatever was finished before an interruption is not done again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parent
VENV = PROJECT / ".venv"
OLDEST_PYTHON = (3, 11)
TORCH_INDEX = "https://download.pytorch.org/whl"
KERNELS_WAIT_S = 24 * 3600  # after a failure, before the window tries to build them again
CUDA_13_DRIVER = 580  # oldest driver that runs CUDA 13; older ones get the build for CUDA 12.6
QT_PACKAGES = (
    "libegl1 libgl1 libxkbcommon-x11-0 libdbus-1-3 libfontconfig1 libglib2.0-0 libgssapi-krb5-2 "
    "libxcb-cursor0 libxcb-icccm4 libxcb-keysyms1 libxcb-shape0"
)
NEEDS_NO_MODEL = {"detect", "plan", "orphans", "selfcheck", "--help", "-h"}


class SetupError(Exception):
    """Something is missing that run.py cannot mend; the text is one sentence and what to do."""


def say(text: str) -> None:
    """One line on standard error: standard output belongs to the command that follows."""
    print(text, file=sys.stderr, flush=True)


class Meter:
    """A progress bar that is redrawn on a terminal, and a line every tenth elsewhere."""

    def __init__(self) -> None:
        self._drawn = False
        self._tenth = -1

    def show(self, percent: int, text: str) -> None:
        """Draw the bar for `percent` of 100."""
        if sys.stderr.isatty():
            filled = "#" * (percent // 4)
            self._draw(f"  [{filled:<25}] {percent:3} %  {text}")
        elif percent // 10 != self._tenth:
            self._tenth = percent // 10
            say(f"  {percent:3} %  {text}")

    def status(self, text: str) -> None:
        """Show what is being done now; off a terminal only what takes long deserves a line."""
        if sys.stderr.isatty():
            self._draw(f"  {text}")
        elif re.search(r"\d\d(\.\d)? [MG]B", text):
            say(f"  {text}")

    def close(self) -> None:
        """Leave the line of the bar."""
        if self._drawn:
            print(file=sys.stderr, flush=True)
            self._drawn = False

    def _draw(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._drawn = True
        print("\r" + text[:width].ljust(width), end="", file=sys.stderr, flush=True)


# --- the virtual environment --------------------------------------------------------------------------------------


def venv_python() -> Path:
    """The interpreter of the project's own environment."""
    return VENV / "Scripts" / "python.exe" if os.name == "nt" else VENV / "bin" / "python"


def child_environment() -> dict[str, str]:
    """Environment of every program started here: finds the project's packages, speaks UTF-8, ignores other Pythons."""
    found = {key: value for key, value in os.environ.items() if key not in ("PYTHONHOME", "PIP_REQUIRE_VIRTUALENV")}
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PROJECT), found.get("PYTHONPATH")]))
    return {**found, "PYTHONUTF8": "1", "PYTHONNOUSERSITE": "1", "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def ensure_venv() -> None:
    """Make .venv, or make it anew if it does not work (interrupted, or its Python is gone)."""
    if _venv_works():
        return
    say(f"Making the environment {VENV} ...")
    command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    made = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if made.returncode or not _venv_works():
        said = (made.stdout + made.stderr).strip().splitlines()
        if any("ensurepip" in line for line in said):
            package = "python{}.{}-venv".format(*sys.version_info[:2])
            raise SetupError(f"Python's venv module is not complete. Install it: sudo apt install {package}")
        raise SetupError(f"The environment {VENV} cannot be made: {said[-1] if said else 'no reason given'}")


def _venv_works() -> bool:
    script = f"import pip, sys; sys.exit(sys.version_info < {OLDEST_PYTHON})"
    try:
        return subprocess.run([str(venv_python()), "-c", script], capture_output=True, check=False).returncode == 0
    except OSError:  # not there, or a link to a Python that is gone
        return False


# --- packages -------------------------------------------------------------------------------------------------------


class TorchBuild(NamedTuple):
    """Which build of torch belongs on this machine; `attempts` are pip arguments, tried in this order."""

    kind: str
    attempts: list[list[str]]


def torch_build(system: str, driver: str | None, version: str) -> TorchBuild:
    """Choose the build.

    The package index has the CPU build for Windows and the CUDA build for Linux; PyTorch's own index has all of them.

    Args:
        system: `platform.system()`.
        driver: version of the NVIDIA driver, "" if it is there but does not say, None without one.
        version: of torch.
    """
    plain = [f"torch=={version}"]
    if driver is None:
        if system != "Linux":
            return TorchBuild("cpu", [plain])
        # A configured index or folder may have it; on an ordinary PC this fails at once.
        return TorchBuild("cpu", [[f"torch=={version}+cpu"], [*plain, "--index-url", f"{TORCH_INDEX}/cpu"]])
    old = driver.split(".")[0].isdigit() and int(driver.split(".")[0]) < CUDA_13_DRIVER
    tag = "cu126" if old else "cu130"
    if system == "Linux" and not old:
        return TorchBuild(tag, [plain])
    return TorchBuild(tag, [[*plain, "--index-url", f"{TORCH_INDEX}/{tag}"]])


def nvidia_driver() -> str | None:
    """Version of the NVIDIA driver, "" if only its library is there, None without a driver that answers."""
    windows = Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32"
    tool = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=str(windows))
    if tool:
        query = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            asked = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        versions = asked.stdout.split()
        return versions[0] if asked.returncode == 0 and versions else None
    return "" if os.name == "nt" and (windows / "nvml.dll").exists() else None


def install(*, with_tests: bool) -> None:
    """Install what pyproject.toml asks for, in the versions of constraints.txt; skipped when nothing changed."""
    import tomllib  # Python 3.11, which is checked by now

    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    constraints = (PROJECT / "constraints.txt").read_text("utf-8")
    runtime: list[str] = project["dependencies"]
    tests: list[str] = project["optional-dependencies"]["dev"]
    pinned = re.search(r"^torch==(\S+)$", constraints, re.MULTILINE)
    if pinned is None:
        raise SetupError("constraints.txt names no version of torch.")
    driver = nvidia_driver()
    build = torch_build(platform.system(), driver, pinned[1])
    stamp = VENV / "splitpin-installed.json"
    installed = _read_stamp(stamp)
    keys = [_key(requirements, constraints, build.kind) for requirements in (runtime, [*runtime, *tests])]
    if keys[int(with_tests)] in installed.get("keys", []):
        return
    say(f"NVIDIA driver {driver or 'found'}." if driver is not None else "No NVIDIA GPU found; torch runs on the CPU.")
    if installed.get("torch", build.kind) != build.kind:
        run_pip(["uninstall", "--yes", "torch"], "Removing torch for the other kind of machine")
    stamp.unlink(missing_ok=True)
    _install_torch(build)
    wanted = [*runtime, *tests] if with_tests else runtime
    run_pip(["install", "-c", str(PROJECT / "constraints.txt"), *wanted], f"Installing {len(wanted)} packages")
    stamp.write_text(json.dumps({"keys": keys[: 1 + with_tests], "torch": build.kind}) + "\n", "utf-8")


def _install_torch(build: TorchBuild) -> None:
    for number, arguments in enumerate(build.attempts, start=1):
        try:
            run_pip(["install", *arguments], f"Installing torch, {build.kind} build")
            return
        except SetupError:
            if number == len(build.attempts):
                raise


def _read_stamp(stamp: Path) -> dict[str, list[str]]:
    try:
        found = json.loads(stamp.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _key(requirements: list[str], constraints: str, torch_kind: str) -> str:
    text = "\n".join([*requirements, constraints, torch_kind, platform.python_version(), platform.machine()])
    return hashlib.sha256(text.encode()).hexdigest()


def run_pip(arguments: list[str], what: str) -> None:
    """Run pip in the environment, showing what it downloads; its whole output goes to .venv/splitpin-pip.log."""
    say(f"{what} ...")
    log = VENV / "splitpin-pip.log"
    meter = Meter()
    last_error = ""
    command = [str(venv_python()), "-m", "pip", *arguments]
    if arguments[0] == "install":
        command += ["--no-input", "--progress-bar", "off", "--no-warn-script-location"]
    with log.open("a", encoding="utf-8") as out, subprocess.Popen(
        command, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        encoding="utf-8", errors="replace",
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            out.write(line)
            step = re.match(
                r"\s*(Collecting|Downloading|Using cached|Installing collected) ?([^\s<>=~!;\[]*)(.*)", line
            )
            if step:
                size = re.search(r"\([\d.]+ [kMG]B\)", step[3])
                meter.status(f"{step[1]} {step[2].rsplit('/', 1)[-1]} {size[0] if size else ''}".rstrip())
            if line.startswith("ERROR:"):
                last_error = line[len("ERROR:") :].strip()
    meter.close()
    if process.returncode:
        raise SetupError(
            f"pip could not finish: {last_error or 'no reason given'} (all of it: {log}). "
            "Check the network connection and run this again; it goes on where it stopped."
        )


# --- what else a start needs ----------------------------------------------------------------------------------------


def check_qt(*, on_screen: bool) -> None:
    """On Linux Qt needs libraries of the system; name the package list if one is missing."""
    if sys.platform != "linux":
        return
    if on_screen and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise SetupError("There is no screen here (neither DISPLAY nor WAYLAND_DISPLAY is set), so no window can open.")
    script = "import ctypes, pathlib, PySide6\nfrom PySide6 import QtWidgets\n"
    if on_screen and not os.environ.get("WAYLAND_DISPLAY"):
        script += "ctypes.CDLL(str(pathlib.Path(PySide6.__file__).parent / 'Qt/plugins/platforms/libqxcb.so'))\n"
    tried = subprocess.run(
        [str(venv_python()), "-c", script], env=child_environment(), capture_output=True, text=True, check=False
    )
    if tried.returncode:
        missing = re.search(r"(lib\S+\.so[.\d]*): cannot open shared object file", tried.stderr)
        what = f"the library {missing[1]}" if missing else (tried.stderr.strip().splitlines() or ["a part of Qt"])[-1]
        raise SetupError(f"Qt needs {what}. Install it: sudo apt install {QT_PACKAGES}")


def prepare_demo_model() -> None:
    """Build the demo model unless it is there, with a progress bar."""
    meter = Meter()
    command = [str(venv_python()), "-m", "assets.demo_model.build"]
    with subprocess.Popen(
        command, cwd=PROJECT, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", errors="replace",
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            step = re.match(r"demo model (\d+) % (.*)", line)
            if step and step[2] != "already there":
                meter.show(int(step[1]), f"demo model: {step[2]}")
        complaint = process.stderr.read().strip().splitlines()
    meter.close()
    if process.returncode:
        raise SetupError(complaint[-1] if complaint else "The demo model could not be prepared.")


def prepare_kernels(*, again: bool) -> None:
    """Compile the C kernels for packed experts unless they are there. Without them torch computes, and is slower.

    Args:
        again: try although it failed within the last day.
    """
    command = [str(venv_python()), "-m", "engine.native.build"]
    if os.environ.get("SPLITPIN_KERNELS", "").strip().lower() == "off":  # nor does the engine load them
        return
    if _run_quietly([*command, "--check"]).returncode == 0:
        return
    failed = VENV / "splitpin-kernels-failed.txt"
    if not again and failed.exists() and time.time() - failed.stat().st_mtime < KERNELS_WAIT_S:
        return
    say("Building fast kernels for packed experts (downloads a compiler of 90 MB, which does not stay) ...")
    built = _run_quietly(command)
    failed.unlink(missing_ok=True)
    if built.returncode:
        reason = (built.stderr.strip().splitlines() or ["no reason given"])[-1]
        failed.write_text(f"{reason}\n", "utf-8")
        say(f"They could not be built: {reason.rstrip('.')}. Packed experts are computed without them, slowly.")


def _run_quietly(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=PROJECT, env=child_environment(), capture_output=True, text=True, encoding="utf-8",
        errors="replace", check=False,
    )  # fmt: skip


# --- commands -------------------------------------------------------------------------------------------------------


def run_tests(arguments: list[str]) -> int:
    """Set up with the test tools and run pytest."""
    prepare()
    say("Running the tests ...")
    return subprocess.call([str(venv_python()), "-m", "pytest", *arguments], cwd=PROJECT, env=child_environment())


def prepare() -> None:
    """Everything the tests need."""
    ensure_venv()
    install(with_tests=True)
    prepare_kernels(again=True)
    check_qt(on_screen=False)
    prepare_demo_model()


def open_app(arguments: list[str]) -> int:
    """Set up and open the window, or another door of the program."""
    window = not arguments or arguments[0].startswith("--")
    ensure_venv()
    install(with_tests=False)
    prepare_kernels(again=False)
    if window:
        check_qt(on_screen=os.environ.get("QT_QPA_PLATFORM", "xcb") == "xcb")
    if not NEEDS_NO_MODEL & set(arguments[:1]):
        try:
            prepare_demo_model()
        except SetupError as cause:
            say(f"No demo model: {cause} Splitpin opens without it.")
    if window:
        say("Opening Splitpin ...")
    return subprocess.call([str(venv_python()), "-P", "-m", "app", *arguments], env=child_environment())


def main(arguments: list[str]) -> int:
    """Exit code of the command, 2 if the set-up failed."""
    if sys.version_info < OLDEST_PYTHON:
        say("Splitpin needs Python {}.{} or newer; this is {}.".format(*OLDEST_PYTHON, platform.python_version()))
        return 2
    try:
        if arguments[:1] == ["test"]:
            return run_tests(arguments[1:])
        if arguments[:1] == ["prepare"]:
            prepare()
            return 0
        return open_app(arguments)
    except SetupError as error:
        say(str(error))
    except OSError as error:
        say(f"{error.strerror or error}: {error.filename or PROJECT}")
    except KeyboardInterrupt:
        say("\nStopped. Run it again to go on.")
        return 130
    return 2


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code and os.name == "nt" and len(sys.argv) == 1 and sys.stdin is not None and sys.stdin.isatty():
        input("Press Enter to close this window.")  # opened by double click, it would vanish with the message
    sys.exit(code)
