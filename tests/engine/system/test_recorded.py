"""Recorded machines replay as facts; a bad file is named with what is wrong in it."""

import json
from pathlib import Path

import pytest

from engine.contract.facts import HardwareFacts, Source
from engine.contract.processes import ProcessTable
from engine.contract.units import GIB, MIB
from engine.system.__main__ import as_text, main
from engine.system.recorded import RecordedFileError, RecordedMachine, RecordedMemory, RecordedProcesses

MACHINES = Path(__file__).parents[2] / "machines"
FILES = sorted(MACHINES.glob("*.json"))


def test_there_are_five_machines_and_each_is_in_the_readme() -> None:
    readme = (MACHINES / "README.md").read_text("utf-8")
    assert [file.stem for file in FILES] == [
        "desktop_192gb_rtx5090",
        "desktop_32gb_rtx3080ti",
        "desktop_63gb_rtx4090",
        "laptop_igpu_rtx4060",
        "no_gpu",
    ]
    assert all(file.name in readme for file in FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recorded_machine_is_consistent(file: Path) -> None:
    facts = RecordedMachine(file).read()
    assert facts.recorded
    total, available = facts.ram_total.value, facts.ram_available.value
    limit, used = facts.commit_limit.value, facts.commit_used.value
    assert total and available and limit and used
    assert available < total < limit
    assert total - available <= used < limit
    for gpu in facts.gpus:
        assert gpu.shared_limit.value == total // 2  # the rule of Windows
        assert gpu.vram_total.value is not None
        assert gpu.vram_used.value is not None
        assert gpu.vram_used.value < gpu.vram_total.value
        assert (gpu.context_bytes.source is Source.ASSUMED) == gpu.cuda
    if facts.pin_measured.value is not None:
        assert facts.pin_measured.value < total // 2


def test_the_machine_of_63_gib_is_the_one_of_the_reports() -> None:
    facts = RecordedMachine(MACHINES / "desktop_63gb_rtx4090.json").read()
    assert facts.cuda_gpu is not None
    assert facts.ram_total.value == 63 * GIB
    assert facts.cuda_gpu.vram_total.value == 24564 * MIB
    assert facts.cuda_gpu.shared_limit.value == 63 * GIB // 2
    assert facts.pin_measured.value is None


def test_the_laptop_uses_its_nvidia_card_and_the_mini_pc_has_none() -> None:
    laptop = RecordedMachine(MACHINES / "laptop_igpu_rtx4060.json").read()
    assert [gpu.vendor for gpu in laptop.gpus] == ["intel", "nvidia"]
    assert laptop.cuda_gpu is laptop.gpus[1]
    assert RecordedMachine(MACHINES / "no_gpu.json").read().cuda_gpu is None


def test_recorded_is_true_whatever_the_file_says(tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    file.write_text('{"os": "linux", "ram_total": 1073741824, "recorded": false}')
    facts = RecordedMachine(file).read()
    assert facts.recorded
    assert (facts.ram_total.value, facts.ram_total.source) == (GIB, Source.READ)


def test_facts_survive_the_way_to_a_file_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json"]) == 0
    file = tmp_path / "facts.json"
    file.write_text(capsys.readouterr().out, "utf-8")
    facts = HardwareFacts.model_validate_json(file.read_text("utf-8"))
    assert RecordedMachine(file).read() == facts.model_copy(update={"recorded": True})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Invalid JSON"),
        (b"\xff\xfe{", "Invalid JSON"),
        (b"[]", "object"),
        (b'{"os": "windows", "ram": 5}', "ram: Extra inputs"),
        (b'{"os": "beos"}', "os: Input should be"),
        (b'{"os": "linux", "ram_total": {"value": 5}}', "ram_total: a reading has a value and a source"),
        (b'{"os": "linux", "ram_total": "lots"}', "ram_total"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "facts.json"
    file.write_bytes(content)
    with pytest.raises(RecordedFileError) as refused:
        RecordedMachine(file).read()
    assert why in refused.value.sentence
    assert str(file) in refused.value.sentence
    assert refused.value.problem.kind == "recorded_file"


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordedFileError, match="No such file"):
        RecordedMachine(tmp_path / "facts.json").read()
    with pytest.raises(RecordedFileError):
        RecordedMachine(tmp_path).read()


def test_a_recorded_process_table_brings_its_own_ledger(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    file.write_text('{"now": 5.0, "engine_dirs": ["C:/Splitpin"], "processes": [{"pid": 4188, "ppid": 4120}]}')
    table = RecordedProcesses(file).read(["/elsewhere"], [])
    assert isinstance(table, ProcessTable)
    assert table.engine_dirs == ("C:/Splitpin",)
    file.write_text('{"processes": []}')
    with pytest.raises(RecordedFileError, match="now: Field required"):
        RecordedProcesses(file).read([], [])


def test_the_bars_of_a_recorded_machine() -> None:
    facts = RecordedMachine(MACHINES / "desktop_63gb_rtx4090.json").read()
    use = RecordedMemory(facts).read()
    assert (use.ram_total, use.ram_used) == (63 * GIB, 63 * GIB - 53800 * MIB)
    assert (use.vram_total, use.vram_used) == (24564 * MIB, 1140 * MIB)
    assert (use.shared_limit, use.shared_used) == (63 * GIB // 2, 410 * MIB)
    nothing = RecordedMemory(RecordedMachine(MACHINES / "no_gpu.json").read()).read()
    assert (nothing.vram_total, nothing.shared_limit) == (None, None)


def test_the_command_prints_each_number_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--machine", str(MACHINES / "laptop_igpu_rtx4060.json")]) == 0
    text = capsys.readouterr().out
    assert "Laptop, 32 GB, Intel graphics and RTX 4060: Windows 11 (build 26100) (recorded)" in text
    assert "31.7 GiB, read (GlobalMemoryStatusEx ullTotalPhys)" in text
    assert "Intel(R) Iris(R) Xe Graphics (not usable by the engine)" in text
    assert "0.6 GiB, assumed" in text


def test_the_command_answers_a_bad_file_with_one_json_document_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--json", "--machine", str(tmp_path / "none.json")]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["kind"] == "recorded_file"
    assert "none.json" in err


def test_unknown_is_written_as_unknown() -> None:
    text = as_text(HardwareFacts(os="linux", memlock_unlimited=True))
    assert "commit limit     unknown" in text
    assert "lock limit       none" in text
    assert "no graphics adapter" in text
