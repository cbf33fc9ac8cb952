"""Options that several doors share."""

from argparse import Namespace
from pathlib import Path

import pytest

from app.doors.common import engine_argv_of, profile_of, simulated_gpu
from app.paths import Profile
from engine.contract.errors import UsageError
from engine.contract.units import MIB


def test_the_limits_of_a_simulated_gpu_are_read() -> None:
    gpu = simulated_gpu("vram=800MiB,pin=300MiB, refuse-pin-after=4,refuse-lock-after=0")
    assert (gpu.vram_bytes, gpu.pin_bytes) == (800 * MIB, 300 * MIB)
    assert (gpu.refuse_pin_after_layers, gpu.refuse_lock_after_layers) == (4, 0)
    assert simulated_gpu("vram=1GiB").pin_bytes == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vram",
        "vram=",
        "vram=0",
        "pin=300MiB",
        "vram=1GiB,pin=-1",
        "vram=1GiB,speed=9",
        "vram=1GiB,refuse-pin-after=x",
    ],
)
def test_limits_that_make_no_sense_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        simulated_gpu(text)
    assert "vram=800MiB" in caught.value.fix


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python -m engine", ["python", "-m", "engine"]),
        ("'/opt/my engine/python' -m engine", ["/opt/my engine/python", "-m", "engine"]),
        (
            '"C:\\Program Files\\Python\\python.exe" -m engine',
            ["C:\\Program Files\\Python\\python.exe", "-m", "engine"],
        ),
    ],
)
def test_the_command_of_another_engine_keeps_its_paths_whole(command: str, words: list[str]) -> None:
    assert engine_argv_of(Namespace(engine=command)) == words
    assert engine_argv_of(Namespace()) is None


def test_an_unclosed_quote_is_a_refusal() -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        engine_argv_of(Namespace(engine="'python -m engine"))


@pytest.mark.parametrize("command", ["", "  ", '""', "'' serve"])
def test_an_empty_engine_command_is_said_to_be_empty(command: str) -> None:
    with pytest.raises(UsageError, match="is empty"):
        engine_argv_of(Namespace(engine=command))


def test_the_profile_is_the_users_own_unless_another_one_is_named(tmp_path: Path) -> None:
    assert profile_of(Namespace(profile_dir=tmp_path)) == Profile(tmp_path)
    assert profile_of(Namespace()) == Profile.default()
