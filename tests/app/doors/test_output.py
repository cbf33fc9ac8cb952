"""Standard output that nobody reads, that is full, or that is closed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MACHINE = Path(__file__).parents[2] / "machines" / "no_gpu.json"
COMMANDS = [["detect", "--machine", str(MACHINE), "--json"], ["detect", "--machine", str(MACHINE)], ["--help"]]


def _run(words: list[str], profile: Path, stdout: int) -> subprocess.CompletedProcess[str]:
    """As users run it: with buffered output, which breaks only when it is flushed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "app", "--profile-dir", str(profile), *words]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, env=environment, check=False
    )


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_reader_that_went_away_ends_the_program_without_a_word(words: list[str], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = _run(words, tmp_path, writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk that is always there")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_full_disk_is_a_refusal_in_words(words: list[str], tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = _run(words, tmp_path, full.fileno())
    assert done.returncode == 2
    assert done.stderr.startswith("The output could not be written: No space left on device.")
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
