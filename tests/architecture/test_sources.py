"""What no file of the project may contain."""

import ast
import re
import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
MACHINE_PATHS = re.compile(
    r"(?<![\w.~])/(?:home|root|Users|workspace|work|mnt)/(?!maria\b)\w|[A-Z]:\\+Users\\+(?!maria\b|%|<)\w", re.ASCII
)


def sources(*suffixes: str) -> list[Path]:
    """Files under version control with one of the endings."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, encoding="utf-8", check=True
    ).stdout
    files = [PROJECT / name for name in listed.split("\0") if name.endswith(suffixes)]
    return [file for file in files if file.is_file()]


def test_no_file_names_a_folder_of_one_machine() -> None:
    found = [
        f"{file.relative_to(PROJECT)}:{number}: {line.strip()}"
        for file in sources(".py", ".md", ".toml", ".txt", ".json", ".iss")
        for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1)
        if MACHINE_PATHS.search(line) and file != Path(__file__)
    ]
    assert not found, "\n".join(found)


def test_package_files_hold_a_docstring_and_nothing_else() -> None:
    for file in sources("__init__.py"):
        body = ast.parse(file.read_text("utf-8")).body
        assert len(body) == 1 and isinstance(body[0], ast.Expr), file.relative_to(PROJECT)
