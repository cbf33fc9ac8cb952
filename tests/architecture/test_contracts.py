"""The dependency rule: each import contract holds, and each fails when a forbidden import is put in."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
CONTRACTS = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
SHELVES = {"contract", "system"}

BREACHES = {
    "launcher-sees-two-shelves": ("app/core/breach.py", "import engine.banks"),
    "engine-knows-no-launcher": ("engine/banks/breach.py", "import app.planning.wishes"),
    "contract-is-pure": ("engine/contract/breach.py", "import subprocess"),
    "system-is-light": ("engine/system/breach.py", "import torch"),
    "one-place-for-the-os": ("app/supervision/breach.py", "import ctypes"),
    "engine-layers": ("engine/banks/breach.py", "import engine.serve"),
    "launcher-layers": ("app/planning/breach.py", "import app.core"),
    "thinking-needs-no-qt": ("app/chat/breach.py", "from PySide6 import QtCore"),
}
MORE_BREACHES = [
    ("launcher-sees-two-shelves", "app/ui/breach.py", "def late() -> None:\n    import torch"),
    ("engine-knows-no-launcher", "engine/system/breach.py", "from PySide6.QtCore import QObject"),
    ("launcher-layers", "app/core/breach.py", "import app.chat"),  # neighbours do not know each other
    ("launcher-layers", "app/newcomer.py", ""),  # a new module must be given a layer
    ("engine-layers", "engine/contract/breach.py", "import engine.system"),
    ("engine-layers", "engine/newcomer.py", ""),
]


def lint(folder: Path, *contracts: str) -> subprocess.CompletedProcess[str]:
    """Run import-linter in a folder, on some contracts or on all."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    command += ["--no-logo", "--cache-dir", str(PROJECT / ".import_linter_cache")]
    for contract in contracts:
        command += ["--contract", contract]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources in a folder of their own."""
    folder = tmp_path_factory.mktemp("tree")
    for package in ("app", "engine"):
        shutil.copytree(PROJECT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", folder)
    return folder


def test_all_contracts_are_kept() -> None:
    outcome = lint(PROJECT)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_every_contract_has_a_breach_here() -> None:
    assert [contract["id"] for contract in CONTRACTS] == list(BREACHES)


@pytest.mark.parametrize(
    ("contract", "file", "line"),
    [*((name, *breach) for name, breach in BREACHES.items()), *MORE_BREACHES],
)
def test_a_forbidden_import_breaks_its_contract(copied: Path, contract: str, file: str, line: str) -> None:
    breach = copied / file
    breach.write_text(f'"""Not allowed."""\n\n{line}\n', "utf-8")
    try:
        outcome = lint(copied, contract)
    finally:
        breach.unlink()
    name = next(entry["name"] for entry in CONTRACTS if entry["id"] == contract)
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    assert f"{name} BROKEN" in " ".join(outcome.stdout.split())


def test_every_room_of_the_engine_but_the_shelves_is_closed_to_the_launcher() -> None:
    forbidden = next(entry for entry in CONTRACTS if entry["id"] == "launcher-sees-two-shelves")["forbidden_modules"]
    packages = {entry.parent.name for entry in (PROJECT / "engine").glob("*/__init__.py")}
    modules = {entry.stem for entry in (PROJECT / "engine").glob("*.py")} - {"__init__", "__main__"}
    assert {f"engine.{name}" for name in packages | modules if name not in SHELVES} <= set(forbidden)
