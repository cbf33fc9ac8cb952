"""`run.py`: what it installs, what it skips, and what it says when something is missing."""

import ast
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import run
from run import Meter, SetupError, TorchBuild, torch_build

posix_only = pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with a space and an umlaut in its name; its .venv holds this test's own Python."""
    folder = tmp_path / "my pröject"
    folder.mkdir()
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(run.PROJECT / name, folder)
    monkeypatch.setattr(run, "PROJECT", folder)
    monkeypatch.setattr(run, "VENV", folder / ".venv")
    run.venv_python().parent.mkdir(parents=True)
    return folder


def stand_in(file: Path, script: str) -> None:
    """A program that runs a shell script."""
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


# --- Python -----------------------------------------------------------------------------------------------------------


def test_an_old_python_can_read_the_file() -> None:
    ast.parse((Path(run.__file__)).read_text("utf-8"), feature_version=(3, 7))


def test_an_old_python_is_told_which_one_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 2))
    assert run.main([]) == 2
    assert capsys.readouterr().err.startswith("Splitpin needs Python 3.11 or newer; this is ")


def test_nothing_but_the_standard_library_is_imported() -> None:
    tree = ast.parse(Path(run.__file__).read_text("utf-8"))
    names = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    names |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names


def test_programs_find_the_project_and_not_a_foreign_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "before")
    monkeypatch.setenv("PYTHONHOME", "elsewhere")
    environment = run.child_environment()
    assert environment["PYTHONPATH"] == f"{run.PROJECT}{os.pathsep}before"
    assert "PYTHONHOME" not in environment


@pytest.mark.slow
def test_an_interrupted_environment_is_made_anew(project: Path) -> None:
    leftover = run.VENV / "pyvenv.cfg"
    leftover.write_text("half")
    run.ensure_venv()
    assert leftover.read_text("utf-8") != "half"
    made = leftover.stat().st_mtime_ns
    run.ensure_venv()
    assert leftover.stat().st_mtime_ns == made


# --- torch ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "driver", "kind", "attempts"),
    [
        ("Windows", None, "cpu", [["torch==9.9"]]),
        ("Linux", None, "cpu", [["torch==9.9+cpu"], ["torch==9.9", "--index-url", f"{run.TORCH_INDEX}/cpu"]]),
        ("Windows", "591.44", "cu130", [["torch==9.9", "--index-url", f"{run.TORCH_INDEX}/cu130"]]),
        ("Windows", "", "cu130", [["torch==9.9", "--index-url", f"{run.TORCH_INDEX}/cu130"]]),
        ("Windows", "560.94", "cu126", [["torch==9.9", "--index-url", f"{run.TORCH_INDEX}/cu126"]]),
        ("Linux", "580.95.05", "cu130", [["torch==9.9"]]),
        ("Linux", "550.54", "cu126", [["torch==9.9", "--index-url", f"{run.TORCH_INDEX}/cu126"]]),
    ],
)
def test_the_build_of_torch_follows_system_and_driver(
    system: str, driver: str | None, kind: str, attempts: list[list[str]]
) -> None:
    assert torch_build(system, driver, "9.9") == TorchBuild(kind, attempts)


@posix_only
@pytest.mark.parametrize(
    ("script", "driver"), [("echo 580.95.05; echo 580.95.05", "580.95.05"), ("echo broken; exit 9", None), ("", None)]
)
def test_only_a_driver_that_answers_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, driver: str | None
) -> None:
    stand_in(tmp_path / "nvidia-smi", script)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert run.nvidia_driver() == driver


# --- packages ---------------------------------------------------------------------------------------------------------


class Pip:
    """Records what would be installed; fails on demand."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.fails_on: str | None = None

    def __call__(self, arguments: list[str], what: str) -> None:
        self.calls.append(arguments)
        if self.fails_on in arguments:
            raise SetupError("pip could not finish")


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    pip = Pip()
    monkeypatch.setattr(run, "run_pip", pip)
    monkeypatch.setattr(run, "nvidia_driver", lambda: None)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    return pip


def test_torch_comes_first_and_the_rest_in_exact_versions(project: Path, pip: Pip) -> None:
    run.install(with_tests=True)
    torch, rest = pip.calls
    assert torch[1].startswith("torch==2.") and torch[1].endswith("+cpu")
    assert rest[:3] == ["install", "-c", str(project / "constraints.txt")]
    assert "transformers==5.24.*" in rest and any(name.startswith("pytest>=") for name in rest)


def test_the_window_needs_no_test_tools(project: Path, pip: Pip) -> None:
    run.install(with_tests=False)
    assert not any(argument.startswith("pytest") for argument in pip.calls[-1])


def test_a_second_start_installs_nothing(project: Path, pip: Pip) -> None:
    run.install(with_tests=True)
    done = len(pip.calls)
    run.install(with_tests=True)
    run.install(with_tests=False)
    assert len(pip.calls) == done


def test_the_tests_after_the_window_install_the_test_tools(project: Path, pip: Pip) -> None:
    run.install(with_tests=False)
    run.install(with_tests=True)
    assert any(argument.startswith("pytest") for argument in pip.calls[-1])


def test_a_changed_version_is_installed(project: Path, pip: Pip) -> None:
    run.install(with_tests=False)
    done = len(pip.calls)
    with (project / "constraints.txt").open("a", encoding="utf-8") as file:
        file.write("added==1\n")
    run.install(with_tests=False)
    assert len(pip.calls) > done


def test_an_interrupted_installation_goes_on_next_time(project: Path, pip: Pip) -> None:
    pip.fails_on = "transformers==5.24.*"
    with pytest.raises(SetupError):
        run.install(with_tests=False)
    pip.fails_on = None
    pip.calls.clear()
    run.install(with_tests=False)
    assert len(pip.calls) == 2


def test_without_a_local_cpu_build_pytorchs_index_is_asked(project: Path, pip: Pip) -> None:
    pip.fails_on = "torch==2.13.0+cpu"
    run.install(with_tests=False)
    assert pip.calls[1] == ["install", "torch==2.13.0", "--index-url", f"{run.TORCH_INDEX}/cpu"]


def test_a_new_gpu_replaces_the_cpu_build(project: Path, pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    run.install(with_tests=False)
    pip.calls.clear()
    monkeypatch.setattr(run, "nvidia_driver", lambda: "590.1")
    run.install(with_tests=False)
    assert pip.calls[0] == ["uninstall", "--yes", "torch"]
    assert pip.calls[1] == ["install", "torch==2.13.0"]


def test_a_damaged_stamp_only_costs_time(project: Path, pip: Pip) -> None:
    (run.VENV / "splitpin-installed.json").write_text("[1]")
    run.install(with_tests=False)
    assert json.loads((run.VENV / "splitpin-installed.json").read_text("utf-8"))["torch"] == "cpu"


@posix_only
def test_pips_own_reason_is_passed_on(project: Path) -> None:
    stand_in(run.venv_python(), "echo Collecting torch; echo 'ERROR: No matching distribution found for torch'; exit 1")
    with pytest.raises(SetupError, match="No matching distribution found for torch") as failed:
        run.run_pip(["install", "torch"], "Installing torch")
    assert "run this again" in str(failed.value)
    assert "Collecting torch" in (run.VENV / "splitpin-pip.log").read_text("utf-8")


@posix_only
def test_long_downloads_are_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(
        run.venv_python(),
        "echo 'Collecting six==1.0'; echo '  Downloading six-1.0.whl (11 kB)';"
        "echo '  Downloading https://host/x/torch-2.13.0-win_amd64.whl (191.8 MB)'",
    )
    run.run_pip(["install", "torch"], "Installing torch")
    assert capsys.readouterr().err == "Installing torch ...\n  Downloading torch-2.13.0-win_amd64.whl (191.8 MB)\n"


# --- Qt and the demo model --------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="Windows has all that Qt needs")
def test_a_missing_library_of_qt_is_named_with_the_command(project: Path) -> None:
    stand_in(run.venv_python(), "echo 'ImportError: libEGL.so.1: cannot open shared object file' >&2; exit 1")
    with pytest.raises(SetupError, match=r"Qt needs the library libEGL\.so\.1\. Install it: sudo apt install libegl1"):
        run.check_qt(on_screen=False)


@pytest.mark.skipif(sys.platform != "linux", reason="Windows always has a screen")
def test_without_a_screen_no_window_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(SetupError, match="There is no screen here"):
        run.check_qt(on_screen=True)


@posix_only
def test_progress_of_the_demo_model_is_shown(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(run.venv_python(), "echo 'demo model 8 % source verified'; echo 'demo model 43 % layer 13 of 30'")
    run.prepare_demo_model()
    assert capsys.readouterr().err == "    8 %  demo model: source verified\n   43 %  demo model: layer 13 of 30\n"


@posix_only
def test_a_demo_model_that_is_there_is_not_mentioned(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(run.venv_python(), "echo 'demo model 100 % already there'")
    run.prepare_demo_model()
    assert capsys.readouterr().err == ""


@posix_only
def test_why_there_is_no_demo_model_is_said(project: Path) -> None:
    stand_in(run.venv_python(), "echo 'pip could not download it. Check the connection.' >&2; exit 2")
    with pytest.raises(SetupError, match=r"^pip could not download it\. Check the connection\.$"):
        run.prepare_demo_model()


@posix_only
def test_kernels_that_are_there_are_not_mentioned(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(run.venv_python(), "exit 0")
    run.prepare_kernels(again=False)
    assert capsys.readouterr().err == ""


@posix_only
def test_kernels_that_nobody_wants_are_not_built(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(run.venv_python(), "exit 1")
    monkeypatch.setenv("SPLITPIN_KERNELS", "off")
    run.prepare_kernels(again=True)
    assert capsys.readouterr().err == ""


@posix_only
def test_kernels_that_cannot_be_built_are_told_and_not_tried_at_every_start(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(run.venv_python(), "echo 'No network.' >&2; exit 1")
    run.prepare_kernels(again=False)
    assert "They could not be built: No network. Packed experts are computed" in capsys.readouterr().err
    run.prepare_kernels(again=False)
    assert capsys.readouterr().err == ""
    run.prepare_kernels(again=True)
    assert "No network" in capsys.readouterr().err


def test_off_a_terminal_the_bar_is_a_line_every_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    meter = Meter()
    for percent in range(101):
        meter.show(percent, "building")
    meter.close()
    assert len(capsys.readouterr().err.splitlines()) == 11


def test_the_window_opens_without_a_demo_model(
    project: Path, pip: Pip, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []

    def fail() -> None:
        raise SetupError("No network.")

    def call(command: list[str], env: dict[str, str]) -> int:
        started.append(command[1:])
        return 0

    monkeypatch.setattr(run, "ensure_venv", lambda: None)
    monkeypatch.setattr(run, "check_qt", lambda *, on_screen: None)
    monkeypatch.setattr(run, "prepare_kernels", lambda *, again: None)
    monkeypatch.setattr(run, "prepare_demo_model", fail)
    monkeypatch.setattr("subprocess.call", call)
    assert run.main(["--machine", "facts.json"]) == 0
    assert started == [["-P", "-m", "app", "--machine", "facts.json"]]
    assert "No demo model: No network. Splitpin opens without it." in capsys.readouterr().err


def test_the_tests_do_not_run_without_a_demo_model(
    project: Path, pip: Pip, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise SetupError("No network.")

    monkeypatch.setattr(run, "ensure_venv", lambda: None)
    monkeypatch.setattr(run, "check_qt", lambda *, on_screen: None)
    monkeypatch.setattr(run, "prepare_kernels", lambda *, again: None)
    monkeypatch.setattr(run, "prepare_demo_model", fail)
    assert run.main(["test"]) == 2
    assert capsys.readouterr().err.endswith("No network.\n")
