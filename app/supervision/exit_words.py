"""Why the engine ended, in words: exit codes of Windows and signals of Linux, and what its last log lines say."""

import re
from dataclasses import dataclass

from engine.contract.errors import EngineStoppedError, FixOption

_NTSTATUS = {
    0xC0000005: ("access violation", "access_violation"),
    0xC0000017: ("Windows had no memory left to give", "commit_limit"),
    0xC000001D: ("illegal instruction: this CPU lacks a feature the engine uses", "illegal_instruction"),
    0xC00000FD: ("stack overflow", "stack_overflow"),
    0xC000012D: ("commit limit reached: RAM and page file are promised away", "commit_limit"),
    0xC0000135: ("a DLL is missing", "dll_missing"),
    0xC0000139: ("a DLL is of another version", "dll_missing"),
    0xC000013A: ("ended by Ctrl-C or by closing its console", "closed"),
    0xC0000142: ("a DLL could not be initialised", "dll_missing"),
    0xC0000374: ("heap corruption", "heap_corruption"),
    0xC0000409: ("fast-fail or abort", "abort"),
}
_SIGNALS = {
    2: ("SIGINT", "ended by Ctrl-C", "closed"),
    4: ("SIGILL", "illegal instruction: this CPU lacks a feature the engine uses", "illegal_instruction"),
    6: ("SIGABRT", "abort", "abort"),
    7: ("SIGBUS", "bus error", "access_violation"),
    8: ("SIGFPE", "arithmetic error", "arithmetic"),
    9: ("SIGKILL", "ended from outside, by a person or because the system ran out of memory", "killed"),
    11: ("SIGSEGV", "access violation", "access_violation"),
    15: ("SIGTERM", "asked to end by another program", "closed"),
}
_LAST_SIGNAL = 64

# What the engine's own words mean, most telling first. The pin call says "out of memory" as well, so it comes first.
_LOG_CAUSES = (
    (re.compile(r"cudaHost(?:Register|Alloc).*out of memory|pinned memory.*(?:refused|out of memory)", re.I), "pinned"),
    (re.compile(r"os error 1455|WinError 1455|paging file is too small|page file is too small", re.I), "commit_limit"),
    (re.compile(r"CUDA out of memory|CUDA error: out of memory|OutOfMemoryError", re.I), "vram"),
    (re.compile(r"DefaultCPUAllocator: (?:can't|not enough)|Cannot allocate memory|MemoryError", re.I), "ram"),
    (re.compile(r"WinError 126|DLL load failed|cannot open shared object file", re.I), "dll_missing"),
    (re.compile(r"WinError 10048|WinError 10013|[Aa]ddress already in use", re.I), "port"),
)
_CAUSE_WORDS = {
    "pinned": "pinned memory ran out",
    "commit_limit": "the commit limit was reached (RAM and page file)",
    "vram": "VRAM ran out",
    "ram": "RAM ran out",
    "port": "its network port was taken",
    "dll_missing": "a library is missing",
}
_FIXES = {
    "pinned": "Pin fewer layers.",
    "commit_limit": "Close other programs, enlarge the page file, or keep fewer layers in RAM.",
    "vram": "Choose a shorter context, or close programs that use the GPU.",
    "ram": "Close other programs, or choose a smaller model.",
    "killed": "If RAM was short, keep fewer layers locked or close other programs; then start again.",
    "illegal_instruction": "This build of the engine needs a newer CPU; the log names the instruction set.",
    "dll_missing": "Reinstall Splitpin; a part of the engine is missing or blocked by a virus scanner.",
    "port": "Let Splitpin use any free port.",
    "closed": "Start the engine again.",
}
_FIX = "Start the engine again; if it ends the same way, open the log."


@dataclass(frozen=True, slots=True)
class ExitWords:
    """An exit code for people: `code` as one searches for it, `words` as one understands it."""

    code: str
    words: str
    cause: str


def exit_words(exit_code: int) -> ExitWords:
    """Translate an exit code, however wide or signed the system reported it.

    Codes from 0x80000000 up are NTSTATUS values; -1 to -64 are the signals of a POSIX system.
    """
    if -_LAST_SIGNAL <= exit_code < 0:
        name, words, cause = _SIGNALS.get(-exit_code, (f"signal {-exit_code}", "ended by a signal", "killed"))
        return ExitWords(name, words, cause)
    unsigned = exit_code & 0xFFFFFFFF
    if unsigned < 0x80000000:
        return ExitWords(str(unsigned), "ended by itself" if unsigned == 0 else "ended with an error", "error")
    words, cause = _NTSTATUS.get(unsigned, ("ended by the system", "system"))
    return ExitWords(f"0x{unsigned:08X}", words, cause)


def log_cause(log_tail: tuple[str, ...]) -> str | None:
    """What the last log lines blame, newest first: a key such as "pinned" or "vram", or None."""
    for line in reversed(log_tail):
        for pattern, cause in _LOG_CAUSES:
            if pattern.search(line):
                return cause
    return None


def explain_end(exit_code: int, log_tail: tuple[str, ...], *, log_file: str | None = None) -> EngineStoppedError:
    """The error for an engine that ended without being asked to, with code, cause and the log tail as numbers."""
    told = exit_words(exit_code)
    blamed = log_cause(log_tail)
    cause = blamed or told.cause
    why = _CAUSE_WORDS[blamed] if blamed else f"{told.words} (exit code {told.code})"
    stopped = EngineStoppedError(
        f"The engine stopped: {why}.",
        _FIXES.get(cause, _FIX),
        exit_code=exit_code,
        code=told.code,
        cause=cause,
        log_tail="\n".join(log_tail),
        log_file=log_file,
    )
    if cause == "port":
        stopped.fixes = (FixOption(change="port", sentence="Use any free port", numbers={"port": 0}),)
    return stopped
