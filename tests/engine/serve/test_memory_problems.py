"""Memory that runs out during a request: which one it was, and an engine that answers the next."""

import pytest
import torch

from engine.contract.errors import NotEnoughVramError
from engine.contract.units import GIB
from engine.serve.memory_problems import memory_problem
from engine.system.protocols import PinRefusedError
from tests.engine.serve.conftest import PATIENCE_S, Serve
from tests.support.fake_model import FakeModel

CUDA = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.99 GiB of which 512.00 MiB is "
    "free. Of the allocated memory 21.1 GiB is allocated by PyTorch."
)
LINUX = (
    "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "17179869184 bytes. Error code 12 (Cannot allocate memory)"
)
WINDOWS = (
    "[enforce fail at alloc_cpu.cpp:117] data. DefaultCPUAllocator: not enough memory: you tried to allocate "
    "17179869184 bytes."
)
PINNED = "CUDA error: out of memory in cudaHostAlloc, CachingHostAllocator could not get a block"


@pytest.mark.parametrize(
    ("error", "left", "kind", "sentence"),
    [
        (
            torch.OutOfMemoryError(CUDA),
            (0, None),
            "vram",
            "GPU memory ran out while answering: 2.0 GiB more were asked for, 0.5 GiB are left.",
        ),
        (RuntimeError("CUDA error: out of memory"), (0, None), "vram", None),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), (0, None), "vram", None),
        (RuntimeError(PINNED), (0, None), "pin_refused", None),
        (
            RuntimeError(WINDOWS),
            (20 * GIB, 4 * GIB),
            "commit",
            "Committed memory (RAM and page file) ran out while answering: 16.0 GiB more were asked for, "
            "4.0 GiB are left.",
        ),
        (RuntimeError(WINDOWS), (20 * GIB, 40 * GIB), "commit", None),
        (
            RuntimeError(LINUX),
            (3 * GIB, None),
            "ram",
            "RAM ran out while answering: 16.0 GiB more were asked for, 3.0 GiB are left.",
        ),
        (RuntimeError(LINUX), (3 * GIB, 40 * GIB), "ram", None),
        (MemoryError(), (3 * GIB, None), "ram", "RAM ran out while answering: 3.0 GiB are left."),
        (MemoryError(), (3 * GIB, 1 * GIB), "commit", None),
    ],
)
def test_the_memory_that_ran_out_is_named(
    error: Exception, left: tuple[int, int | None], kind: str, sentence: str | None
) -> None:
    problem = memory_problem(error, "while answering", lambda: left)
    assert problem is not None
    assert problem.kind == kind
    assert sentence in (None, problem.sentence)
    assert problem.fix


def test_the_missing_bytes_are_counted_where_they_are_known() -> None:
    problem = memory_problem(torch.OutOfMemoryError(CUDA), "while answering")
    assert problem is not None
    assert problem.numbers == {"asked_bytes": 2 * GIB, "available_bytes": GIB // 2}
    assert problem.short_bytes == 3 * GIB // 2


@pytest.mark.parametrize("error", [RuntimeError("shape mismatch"), KeyError("x"), ValueError("not enough values")])
def test_other_errors_are_not_about_memory(error: Exception) -> None:
    assert memory_problem(error, "while answering") is None


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (torch.OutOfMemoryError(CUDA), 500, "vram"),
        (RuntimeError(PINNED), 500, "pin_refused"),
        (RuntimeError(LINUX), 500, "ram"),
        (MemoryError(), 500, "ram"),
        (NotEnoughVramError(needed_bytes=2, available_bytes=1, fix="Close programs."), 507, "vram"),
        (PinRefusedError(asked_bytes=2, code=2, words="out of memory"), 507, "pin_refused"),
    ],
)
def test_the_request_fails_with_its_kind_and_the_next_one_is_answered(
    serve: Serve, error: Exception, status: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.serve.memory_problems.host_memory_left", lambda: (GIB, None))
    errors: list[Exception | None] = [error]
    served = serve(FakeModel(fail_prefill=lambda: errors.pop() if errors else None))
    response = served.chat()
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert served.model.recovered == 1
    assert served.chat().status_code == 200
    assert served.problems == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.OutOfMemoryError(CUDA), "vram"),
        (RuntimeError(PINNED), "pin_refused"),
        (RuntimeError(LINUX), "ram"),
        (MemoryError(), "ram"),
        (RuntimeError("can't start new thread"), "ram"),
    ],
)
def test_memory_that_runs_out_while_loading_is_named_so_that_the_right_pool_is_planned_anew(
    serve: Serve, error: Exception, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.serve.memory_problems.host_memory_left", lambda: (GIB, None))
    served = serve(FakeModel(), loaded=False)
    served.fail_loading(error)
    assert served.session.join(PATIENCE_S)
    [problem] = served.problems
    assert (problem.kind, problem.problem.kind) == (kind, kind)
    assert "ran out in the engine" in problem.sentence


def test_who_asked_is_told_even_where_the_engine_cannot_go_on(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve(FakeModel(fail_prefill=lambda: torch.OutOfMemoryError(CUDA)))

    def lost() -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(served.model, "recover", lost)
    assert served.chat().json()["error"]["code"] == "vram"
    assert served.session.join(PATIENCE_S)
    assert [problem.kind for problem in served.problems] == ["internal"]
