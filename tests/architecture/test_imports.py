"""What importing costs: the launcher and both shelves load no torch, seen in a fresh interpreter."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def modules_after(statement: str) -> set[str]:
    """Top-level names of everything that is loaded after a statement."""
    script = f"import json, sys\n{statement}\nprint(json.dumps(sorted(name.split('.')[0] for name in sys.modules)))"
    outcome = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    return set(json.loads(outcome.stdout.splitlines()[-1]))


def import_all_of(*packages: str) -> str:
    """Statement that imports every module of some packages, except what starts the program or another system's code."""
    names = [
        ".".join(file.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__")
        for package in packages
        for file in sorted((PROJECT / package.replace(".", "/")).rglob("*.py"))
        if file.name != "__main__.py" and not file.name.startswith(("windows_", "posix_"))
    ]
    return "\n".join(f"import {name}" for name in names)


def test_the_engine_package_itself_loads_neither_torch_nor_pydantic() -> None:
    assert not {"torch", "pydantic"} & modules_after("import engine")


def test_the_contract_loads_no_torch_no_numpy_and_no_process_table() -> None:
    assert not {"torch", "numpy", "psutil", "transformers"} & modules_after(import_all_of("engine.contract"))


def test_the_system_shelf_loads_no_torch() -> None:
    assert not {"torch", "numpy", "transformers", "PySide6"} & modules_after(import_all_of("engine.system"))


def test_the_launcher_loads_no_torch() -> None:
    loaded = modules_after(import_all_of("app"))
    assert "PySide6" in loaded
    assert not {"torch", "transformers", "numpy", "safetensors", "fastapi"} & loaded


@pytest.mark.parametrize("package", ["planning", "core", "chat", "orphans", "supervision"])
def test_what_thinks_loads_no_qt(package: str) -> None:
    assert not {"PySide6", "torch"} & modules_after(import_all_of(f"app.{package}"))
