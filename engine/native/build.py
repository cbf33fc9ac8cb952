"""Compiles the C files of this folder: `python -m engine.native.build [--target TARGET ...] [--into FOLDER]`.

With the C compiler of the PyPI package `ziglang`, which is downloaded into a temporary folder unless it is installed
(90 MB, nothing of it stays): it compiles for Windows and for Linux on either, and needs no compiler of the system.
Compiling itself takes some seconds. Nothing is done when the library is there and the sources have not changed.
"""

import argparse
import hashlib
import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ZIG = "ziglang==0.17.1"
FOLDER = Path(__file__).resolve().parent
BUILT = FOLDER / "built"
_WAIT_S = 600
_PLAIN = ("cpu", "library", "pool")  # C files for any x86-64
_FORMATS = ("tiles", "outputs", "blocks")  # C files for each of the instruction sets; the longest first
_INSTRUCTIONS = {"avx2": "+avx2+fma+f16c", "avx512": "+avx2+fma+f16c+avx512f+avx512bw+avx512dq+avx512vl"}
# no fused operations but those that are asked for: unpacked weights are those of the reference, bit for bit
_FLAGS = ("-std=c11", "-O3", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fvisibility=hidden")


class BuildError(Exception):
    """The library cannot be built; the text is one sentence."""


class Target(NamedTuple):
    """A system to compile for."""

    triple: str
    library: str
    threads: str  # its C file
    compile: tuple[str, ...] = ()
    link: tuple[str, ...] = ()


TARGETS = {
    "linux": Target(
        "x86_64-linux-gnu.2.28", "splitpin_kernels.so", "threads_posix", ("-fPIC", "-D_GNU_SOURCE"), ("-pthread",)
    ),
    "windows": Target(
        "x86_64-windows-gnu",
        "splitpin_kernels.dll",
        "threads_windows",
        ("-ffreestanding",),
        ("-nostdlib", "-lkernel32"),  # no C runtime: the DLL needs none, and zig would build one for minutes
    ),
}


def this_target() -> str | None:
    """The target that runs here, None: this processor or system is not known."""
    known = platform.machine().lower() in ("x86_64", "amd64")
    return {"Linux": "linux", "Windows": "windows"}.get(platform.system()) if known else None


def sources() -> list[Path]:
    """Everything a library is made from."""
    return [*sorted(FOLDER.rglob("*.[ch]")), Path(__file__)]


def stamp() -> str:
    """Changes whenever one of the sources does."""
    found = hashlib.sha256(ZIG.encode())
    for file in sources():
        found.update(f"{file.relative_to(FOLDER).as_posix()}\n".encode() + file.read_bytes().replace(b"\r\n", b"\n"))
    return found.hexdigest()


def _stamp_of(library: Path) -> Path:
    """Beside a library: what it was made from, and the SHA-256 of the library itself, by which a whole one is known."""
    return library.with_name(f"{library.name}.stamp")


def is_current(target: str, into: Path = BUILT) -> bool:
    """Whether the library is there and made from these sources."""
    library = into / TARGETS[target].library
    try:
        return library.exists() and _stamp_of(library).read_text("utf-8").split()[0] == stamp()
    except (OSError, IndexError):
        return False


def build(target: str, into: Path = BUILT, zig: list[str] | None = None) -> Path:
    """Compile for a target and return the library.

    Args:
        zig: command of the compiler; None: the installed one, or one that is downloaded.

    Raises:
        BuildError: no compiler, or it refuses.
    """
    if zig is None:
        with compiler() as found:
            return build(target, into, found)
    aim = TARGETS[target]
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="splitpin-") as scratch:
        caches = {name: str(Path(scratch, name)) for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
        command = [*zig, "cc", "-target", aim.triple]
        work = [(name, isa) for name in _FORMATS for isa in _INSTRUCTIONS]
        work += [(name, "") for name in (*_PLAIN, aim.threads)]

        def compile_one(one: tuple[str, str]) -> str:
            name, isa = one
            made = str(Path(scratch, f"{name}{isa}.o"))
            chosen = [f"-mcpu=x86_64{_INSTRUCTIONS.get(isa, '')}", f"-DISA={isa}", *_FLAGS, *aim.compile]
            _run([*command, *chosen, "-c", str(FOLDER / f"{name}.c"), "-o", made], caches)
            return made

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, work))
        made = Path(scratch, aim.library)
        _run([*command, "-shared", "-s", *objects, *aim.link, "-o", str(made)], caches)
        return _put(made, into / aim.library)


def _put(made: Path, library: Path) -> Path:
    """Put a library in its place. Windows lets nobody overwrite one that is in use, but rename it."""
    old = library.with_name(f"{library.name}.old")
    try:
        old.unlink(missing_ok=True)
        if library.exists():
            library.replace(old)
        library.write_bytes(made.read_bytes())
        digest = hashlib.sha256(made.read_bytes()).hexdigest()
        _stamp_of(library).write_text(f"{stamp()}\n{digest}\n", "utf-8")
    except OSError as cause:
        raise BuildError(f"{library} cannot be written: {cause.strerror or cause}") from cause
    return library


@contextmanager
def compiler() -> Iterator[list[str]]:
    """The command of zig.

    Raises:
        BuildError: it is not installed and cannot be downloaded.
    """
    if importlib.util.find_spec("ziglang") is not None:
        yield [sys.executable, "-m", "ziglang"]
        return
    with tempfile.TemporaryDirectory(prefix="splitpin-zig-", ignore_cleanup_errors=True) as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        _run([*pip, "--no-deps", "--retries", "1", "--timeout", "20", "--target", folder, ZIG], {"PIP_USER": "0"})
        name = "zig.exe" if os.name == "nt" else "zig"
        yield [str(Path(folder, "ziglang", name))]


def _run(command: list[str], environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_WAIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise BuildError(f"{command[0]} cannot be run: {cause}") from cause
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        telling = [line for line in said if "error" in line.lower()] or said
        raise BuildError(telling[0].strip() if telling else f"{command[0]} failed without a word")


def main(arguments: list[str] | None = None) -> int:
    """Entry point; 0 or, with one line on standard error, 1."""
    parser = argparse.ArgumentParser(prog="python -m engine.native.build", description=__doc__)
    parser.add_argument("--target", choices=sorted(TARGETS), action="append", help="default: this machine")
    parser.add_argument("--into", type=Path, default=BUILT, metavar="FOLDER")
    parser.add_argument("--check", action="store_true", help="build nothing, only say whether something is to do")
    options = parser.parse_args(arguments)
    here = this_target()
    targets = options.target or ([here] if here else [])
    if not targets:
        print(f"There are no kernels for {platform.system()} on {platform.machine()}.", file=sys.stderr)
        return 1
    stale = [target for target in targets if not is_current(target, options.into)]
    if options.check or not stale:
        return int(bool(stale))
    try:
        with compiler() as zig:
            for target in stale:
                build(target, options.into, zig)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
