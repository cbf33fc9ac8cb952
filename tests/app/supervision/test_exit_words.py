"""Exit codes and log lines in words."""

import pytest

from app.supervision.exit_words import exit_words, explain_end


@pytest.mark.parametrize(
    ("exit_code", "code", "words"),
    [
        (3221226505, "0xC0000409", "fast-fail"),
        (-1073740791, "0xC0000409", "abort"),
        (18446744072635810825, "0xC0000409", "abort"),
        (3221225477, "0xC0000005", "access violation"),
        (3221225501, "0xC000001D", "illegal instruction"),
        (3221225781, "0xC0000135", "DLL is missing"),
        (3221225786, "0xC000013A", "Ctrl-C"),
        (0xC0000A00, "0xC0000A00", "ended by the system"),
        (-9, "SIGKILL", "out of memory"),
        (-11, "SIGSEGV", "access violation"),
        (-4, "SIGILL", "illegal instruction"),
        (-33, "signal 33", "signal"),
        (1, "1", "error"),
        (0, "0", "by itself"),
    ],
)
def test_t17_exit_codes_read_as_one_searches_for_them(exit_code: int, code: str, words: str) -> None:
    told = exit_words(exit_code)
    assert told.code == code
    assert words in told.words


@pytest.mark.parametrize(
    ("line", "cause", "words", "fix"),
    [
        ("RuntimeError: cudaHostRegister failed: out of memory", "pinned", "pinned memory", "Pin fewer layers"),
        ("The paging file is too small (os error 1455)", "commit_limit", "commit limit", "page file"),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", "vram", "VRAM", "shorter context"),
    ],
)
def test_t17_the_log_tells_which_memory_ran_out(line: str, cause: str, words: str, fix: str) -> None:
    tail = ("loading layer 7", line, "engine ends")
    problem = explain_end(1, tail).problem
    assert problem.kind == "engine_stopped"
    assert problem.numbers["cause"] == cause
    assert words in problem.sentence
    assert fix in problem.fix
    assert problem.numbers["log_tail"] == "\n".join(tail)


def test_t17_without_a_telling_line_the_code_speaks() -> None:
    problem = explain_end(3221225477, ("loading layer 7",), log_file="engine.log").problem
    assert problem.sentence == "The engine stopped: access violation (exit code 0xC0000005)."
    told = explain_end(1, ("RuntimeError: CUDA out of memory",)).problem
    assert told.sentence == "The engine stopped: VRAM ran out.", "a code that says less is left to the details"
    assert told.numbers["code"] == "1"
    assert problem.numbers["exit_code"] == 3221225477
    assert problem.numbers["log_file"] == "engine.log"


def test_the_newest_telling_line_counts() -> None:
    tail = ("CUDA out of memory, trying a smaller chunk", "cudaHostRegister: out of memory")
    assert explain_end(1, tail).problem.numbers["cause"] == "pinned"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("OSError: [WinError 10013] An attempt was made to access a socket in a way forbidden", "port"),
        ("[Errno 98] Address already in use", "port"),
        ("OSError: [WinError 126] The specified module could not be found", "dll_missing"),
        ("ImportError: DLL load failed while importing _C", "dll_missing"),
        ("[WinError 1455] The paging file is too small for this operation to complete", "commit_limit"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "vram"),
        ("cudaHostAlloc: out of memory", "pinned"),
        ("RuntimeError: DefaultCPUAllocator: not enough memory", "ram"),
    ],
)
def test_causes_are_told_apart_by_the_last_lines(line: str, cause: str) -> None:
    assert explain_end(1, ("loading", line)).problem.numbers["cause"] == cause


def test_a_port_that_was_taken_comes_with_the_change_that_helps() -> None:
    problem = explain_end(1, ("[Errno 98] Address already in use",)).problem
    assert [(fix.change, fix.numbers) for fix in problem.fixes] == [("port", {"port": 0})]
