"""`python -m app chat`: the whole way without a window."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.__main__ import main
from app.doors import plan as plan_door
from app.supervision.ledger import RunLedger
from engine.contract.plan import MemoryPlan
from engine.contract.processes import ProcessIdentity, RunEntry
from engine.contract.units import GIB
from tests.support.processes import identity_of, lives, wait_until

CONFIG = {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 2048,
    "vocab_size": 100,
    "dtype": "bfloat16",
}
QUESTION = "What is the capital of France?"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that can be planned, and that only the fake engine can load."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    return folder


def _words(tmp_path: Path, model: Path, *words: str, fake: str | None = "") -> list[str]:
    engine = [] if fake is None else ["--engine", f'"{sys.executable}" -m tests.support.fake_engine {fake}']
    return ["--profile-dir", str(tmp_path / "profile"), "chat", "--model", str(model), *engine, *words]


def _no_run_left(tmp_path: Path) -> bool:
    return RunLedger(tmp_path / "profile" / "runs").read() == ()


def _document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_question_is_answered_and_nothing_is_left(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--prompt", QUESTION, "--system", "Be brief.", "--context", "512", "--json")
    assert main(_words(tmp_path, model, *words)) == 0
    document = _document(capsys)
    assert document["answer"] == f"You said: {QUESTION}"
    assert document["finish_reason"] == "stop"
    usage = document["usage"]
    assert usage["prompt_tokens"] == 8, "the system prompt counts"
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert document["timings"]["load_s"] > 0 and document["timings"]["decode_tok_s"] > 0
    assert document["plan"]["context_tokens"] == 512
    layers = document["residency"]["layers"]
    assert len(layers) == 4
    assert all(layer["asked"] == layer["settled"] for layer in layers)
    assert _no_run_left(tmp_path)


def test_people_read_the_answer_on_standard_output_and_the_rest_beside_it(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = "--reply 'It is Paris.' --fail-pins-from 1"
    gpu = ("--simulate-gpu", "vram=14MiB,pin=1MiB", "--vram-layers", "1")
    assert main(_words(tmp_path, model, "--prompt", QUESTION, *gpu, fake=fake)) == 0
    captured = capsys.readouterr()
    assert captured.out == "It is Paris.\n"
    assert "3 tokens" in captured.err
    assert "simulated GPU" in captured.err
    assert "asked pinned, got locked: The driver refused" in captured.err
    assert "fewer than you asked for. Use" in captured.err and "--pin-cap" in captured.err, "what to do next time"


def test_the_length_of_the_answer_can_be_limited(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_words(tmp_path, model, "--prompt", QUESTION, "--max-tokens", "2", "--json")) == 0
    document = _document(capsys)
    assert (document["answer"], document["finish_reason"]) == ("You said:", "length")


def test_a_crash_while_loading_is_a_refusal_with_the_log(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = _words(tmp_path, model, "--prompt", QUESTION, "--json", fake="--crash-at-layer 1 --crash-code 3")
    assert main(words) == 2
    error = _document(capsys)["error"]
    assert error["kind"] == "engine_stopped"
    assert error["numbers"]["exit_code"] == 3
    assert "scripted crash" in error["numbers"]["log_tail"]
    assert _no_run_left(tmp_path)


def test_a_failure_the_engine_tells_keeps_its_kind_for_people_too(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_words(tmp_path, model, "--prompt", QUESTION, fake="--fail-at-layer 1")) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "of RAM" in captured.err and "Choose a smaller model." in captured.err
    assert "Traceback" not in captured.err


def _planned_then_changed(monkeypatch: pytest.MonkeyPatch, model: Path, times: int) -> None:
    """The first so many plans are followed by another config.json."""
    planned: list[MemoryPlan] = []

    def plan_of(*args: Any) -> MemoryPlan:
        planned.append(plan_door.plan_of(*args))
        if len(planned) <= times:
            changed = {**CONFIG, "num_experts_per_tok": 2 + len(planned)}
            (model / "config.json").write_text(json.dumps(changed), "utf-8")
        return planned[-1]

    monkeypatch.setattr("app.doors.chat.plan_of", plan_of)


def test_a_model_that_changed_after_the_plan_is_planned_again_once(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = _words(tmp_path, model, "--prompt", QUESTION, "--json", fake="--read-folder")
    _planned_then_changed(monkeypatch, model, 1)
    assert main(words) == 0
    captured = capsys.readouterr()
    assert "experts a token 2 in the plan, 3 now. Planning again." in captured.err
    assert json.loads(captured.out)["answer"] == f"You said: {QUESTION}"
    (model / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    _planned_then_changed(monkeypatch, model, 2)
    assert main(words) == 2
    assert _document(capsys)["error"]["kind"] == "model_changed", "who changes it all the time is told"
    assert _no_run_left(tmp_path)


def test_a_prompt_longer_than_the_cache_is_refused_with_both_numbers(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_words(tmp_path, model, "--prompt", "word " * 600, "--context", "256", "--json")) == 2
    error = _document(capsys)["error"]
    assert error["kind"] == "context_length_exceeded"
    assert "600" in error["sentence"] and "256" in error["sentence"]
    assert _no_run_left(tmp_path)


def test_a_folder_that_is_no_model_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_words(tmp_path, tmp_path / "absent", "--prompt", QUESTION, "--json")) == 2
    assert _document(capsys)["error"]["kind"] == "model_folder"
    assert not (tmp_path / "profile" / "runs").exists()


def test_a_left_over_engine_refuses_the_start_unless_the_user_says_so(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import subprocess,sys;print(subprocess.Popen([sys.executable,'-c','import time;time.sleep(600)'],{}).pid)"
    quiet = "stdin=-3,stdout=-3,stderr=-3,start_new_session=True"
    made = subprocess.run([sys.executable, "-c", code.replace("{}", quiet)], capture_output=True, text=True, check=True)
    left_over = identity_of(int(made.stdout))
    try:
        gone = ProcessIdentity(pid=left_over.pid, create_time=left_over.create_time - 500)
        entry = RunEntry(run_id="earlier", engine=left_over, supervisor=gone)
        RunLedger(tmp_path / "profile" / "runs").record(entry)
        assert main(_words(tmp_path, model, "--prompt", QUESTION, "--json")) == 2
        error = _document(capsys)["error"]
        assert error["kind"] == "orphan"
        assert str(left_over.pid) in error["sentence"]
        assert main(_words(tmp_path, model, "--prompt", QUESTION, "--despite-orphans", "--json")) == 0
        assert lives(left_over)
    finally:
        psutil.Process(left_over.pid).kill()
        assert wait_until(lambda: not lives(left_over))


@pytest.mark.skipif(os.name == "nt", reason="signals reach a child of a test on POSIX only")
@pytest.mark.parametrize("request_to_end", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_request_to_end_stops_the_engine_and_leaves_nothing(tmp_path: Path, model: Path, request_to_end: str) -> None:
    words = _words(tmp_path, model, "--prompt", QUESTION, fake=f"--token-delay-ms 50 --reply '{'word ' * 500}'")
    command = [sys.executable, "-m", "app", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as door:
        assert door.stdout is not None and door.stderr is not None
        assert door.stdout.read(8) == "word wor"
        (entry,) = RunLedger(tmp_path / "profile" / "runs").read()
        door.send_signal(signal.Signals[request_to_end])
        _, err = door.communicate(timeout=60)
    assert door.returncode == 130
    assert "Traceback" not in err
    assert not lives(entry.engine)
    assert _no_run_left(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="a process cannot send itself Ctrl-C there")
def test_ctrl_c_in_the_moment_of_the_start_leaves_nothing(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[RunEntry] = []
    record = RunLedger.record

    def interrupted(self: RunLedger, entry: RunEntry) -> bool:
        if not started:
            os.kill(os.getpid(), signal.SIGINT)
        started.append(entry)
        return record(self, entry)

    monkeypatch.setattr(RunLedger, "record", interrupted)
    assert main(_words(tmp_path, model, "--prompt", QUESTION)) == 130
    assert not lives(started[0].engine)
    assert _no_run_left(tmp_path)


def test_an_engine_that_says_something_else_is_named(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.doors.headless._VERDICT_S", 0.1)

    def nonsense(payload: str) -> None:
        raise ValueError("an event is not a JSON object")

    monkeypatch.setattr("app.doors.headless.read_chunk", nonsense)
    assert main(_words(tmp_path, model, "--prompt", QUESTION, "--json")) == 2
    error = _document(capsys)["error"]
    assert error["kind"] == "no_answer"
    assert "not a JSON object" in error["sentence"]
    assert _no_run_left(tmp_path)


def test_a_question_on_standard_input_may_begin_with_a_mark(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\ufeffWho?"))
    assert main(_words(tmp_path, model, "--prompt", "-", "--json")) == 0
    assert _document(capsys)["answer"] == "You said: Who?"


def test_a_closed_standard_input_is_a_refusal(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main(_words(tmp_path, model, "--prompt", "-", "--json")) == 2
    assert _document(capsys)["error"]["kind"] == "usage"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpu", "settled"),
    [
        (None, {"locked"}),
        ("vram=800MiB,pin=300MiB", {"vram", "pinned", "locked"}),
        ("vram=800MiB,pin=300MiB,refuse-pin-after=2", {"vram", "pinned", "locked"}),
    ],
    ids=["CPU", "simulated GPU", "refused pins"],
)
def test_the_demo_model_knows_paris_in_every_tier(
    tmp_path: Path, demo_model: Path, capsys: pytest.CaptureFixture[str], gpu: str | None, settled: set[str]
) -> None:
    words = ["--prompt", QUESTION, "--context", "1024", "--json", *(["--simulate-gpu", gpu] if gpu else [])]
    assert main(_words(tmp_path, demo_model, *words, fake=None)) == 0
    document = _document(capsys)
    assert document["answer"] == "The capital of France is Paris."
    layers = document["residency"]["layers"]
    assert {layer["settled"] for layer in layers} == settled
    fallen = [layer for layer in layers if layer["asked"] != layer["settled"]]
    assert bool(fallen) == (gpu is not None and "refuse" in gpu)
    assert all("refuse" in layer["cause"] or "refusal" in layer["cause"] for layer in fallen)
    assert [one["kind"] for one in document["advice"]] == (["pin"] if fallen else [])
    assert document["plan"]["pools"]["ram"] < 8 * GIB
    assert _no_run_left(tmp_path)
