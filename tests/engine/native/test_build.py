"""The script that compiles the C kernels, with a stand-in for the compiler."""

import hashlib
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from engine.native import build
from engine.native.build import BUILT, FOLDER, TARGETS, ZIG, BuildError, is_current, this_target

PROJECT = Path(__file__).resolve().parents[3]
COMPILER = """
import sys
name = sys.argv[sys.argv.index("-o") + 1]
if "broken" in sys.argv:
    print("clang: warning: first", file=sys.stderr)
    print("tiles.c:3:1: error: no such thing", file=sys.stderr)
    sys.exit(1)
open(name, "w").write(" ".join(sys.argv[1:]))
"""


@pytest.fixture
def zig(tmp_path: Path) -> list[str]:
    """Writes its arguments instead of compiling."""
    script = tmp_path / "compiler.py"
    script.write_text(COMPILER)
    return [sys.executable, str(script)]


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the C files."""
    folder = tmp_path / "native"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("built", "__pycache__"))
    monkeypatch.setattr(build, "FOLDER", folder)
    monkeypatch.setattr(build, "__file__", str(folder / "build.py"))
    return folder


def test_the_library_of_this_checkout_is_made_from_its_sources() -> None:
    here = this_target()
    assert here is not None and is_current(here, BUILT), "build it: python -m engine.native.build"


@pytest.mark.parametrize("target", list(TARGETS))
def test_a_library_is_current_until_a_source_changes(target: str, sources: Path, zig: list[str]) -> None:
    into = sources / "built"
    assert not is_current(target, into)
    library = build.build(target, into, zig)
    assert library.name == TARGETS[target].library
    assert is_current(target, into)
    assert hashlib.sha256(library.read_bytes()).hexdigest() in (into / f"{library.name}.stamp").read_text()
    with (sources / "formats" / "q4_0.h").open("a") as file:
        file.write("\n")
    assert not is_current(target, into)


def test_the_end_of_lines_makes_no_difference(sources: Path) -> None:
    before, file = build.stamp(), sources / "kernels.h"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert build.stamp() == before


def test_both_systems_fit_in_one_folder(sources: Path, zig: list[str]) -> None:
    into = sources / "built"
    for target in TARGETS:
        build.build(target, into, zig)
    assert all(is_current(target, into) for target in TARGETS)


def test_a_library_that_is_there_is_renamed_and_not_overwritten(sources: Path, zig: list[str]) -> None:
    into = sources / "built"
    library = build.build("windows", into, zig)
    library.write_text("in use")
    build.build("windows", into, zig)
    assert (into / f"{library.name}.old").read_text() == "in use"
    assert library.read_text() != "in use"


def test_the_error_of_the_compiler_is_passed_on(
    sources: Path, zig: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BuildError, match=r"^tiles\.c:3:1: error: no such thing$"):
        build.build("linux", sources / "built", [*zig, "broken"])
    assert not (sources / "built" / TARGETS["linux"].library).exists()
    monkeypatch.setattr(build, "_run", _refuse)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert build.main(["--target", "linux", "--into", str(sources / "built")]) == 1
    assert capsys.readouterr().err == "No network.\n"


def _refuse(command: list[str], environment: dict[str, str]) -> None:
    raise BuildError("No network.")


def test_a_processor_without_kernels_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert build.main([]) == 1
    assert "There are no kernels for" in capsys.readouterr().err


def test_checking_builds_nothing(sources: Path, zig: list[str]) -> None:
    into = sources / "built"
    assert build.main(["--target", "linux", "--into", str(into), "--check"]) == 1
    assert not into.exists()
    build.build("linux", into, zig)
    assert build.main(["--target", "linux", "--into", str(into), "--check"]) == 0


@pytest.mark.skipif(os.name == "nt", reason="permissions are others there")
def test_a_folder_that_cannot_be_written_is_named(sources: Path, zig: list[str]) -> None:
    into = sources / "built"
    (into / TARGETS["linux"].library).mkdir(parents=True)
    (into / f"{TARGETS['linux'].library}.old").mkdir()
    with pytest.raises(BuildError, match="cannot be written"):
        build.build("linux", into, zig)


def test_wheels_are_built_with_the_same_compiler() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))
    assert ZIG in project["build-system"]["requires"]


def test_every_format_file_is_compiled() -> None:
    text = "".join(file.read_text("utf-8") for file in FOLDER.glob("*.c"))
    files = {file.stem for file in (FOLDER / "formats").glob("*.h")}
    assert set(re.findall(r'#include "formats/(\w+)\.h"', text)) == files
    assert set(re.findall(r"^ +FORMAT\((\w+)\),$", text, re.MULTILINE)) == files
