"""Loads in which something is refused or breaks at a random moment, and what must be true afterwards."""

import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor
from typing_extensions import override

from engine.banks.devices import Mark
from engine.checkpoint.meter import LoadCancelledError
from engine.checkpoint.weight_files import open_weights
from engine.contract.errors import ModelFileError, NotEnoughCommitError, NotEnoughVramError, SplitpinError
from engine.contract.estimate import banks
from engine.contract.plan import MemoryPlan, Pool, SimulatedGpu
from engine.model.build import Drivers, load_model
from engine.system.protocols import LockRefusedError
from tests.support.disks import failing_after
from tests.support.reference import greedy, random_prompt
from tests.support.refusals import Machine, RefusingDevice, RefusingLocker, Script, reported
from tests.support.tiny_models import TinyModel, plan_for

CHUNK_BYTES = 4096  # of a pin, so that it can be refused inside a layer
HANGS_AFTER_S = 120.0
PROMPT = random_prompt(20)
ROOMY = 1 << 30
FAMILIES = ("mixtral", "qwen3_moe", "gpt_oss")

# What is expected: None is a load that goes on, with layers in lower tiers.
KINDS: dict[str, type[Exception] | None] = {
    "pin refused at byte k": None,
    "lock refused at byte k": None,
    "pin and lock refused": None,
    "pin refused, the error stays until it is cleared": None,
    "driver registers and copies nothing": None,
    "VRAM refused": NotEnoughVramError,
    "commit refused": NotEnoughCommitError,
    "cancelled while loading": LoadCancelledError,
    "disk read error": ModelFileError,
    "file ends while it is read": ModelFileError,
    "shard cut before the load": ModelFileError,
}


class _Device(RefusingDevice):
    """Loses every byte that is copied out of layers pinned after so many others."""

    def __init__(self, limits: SimulatedGpu, script: Script, good_pins: int | None) -> None:
        super().__init__(limits, script, chunk_bytes=CHUNK_BYTES)
        self._good_pins = good_pins
        self._bad: dict[int, int] = {}

    @override
    def pin(self, address: int, nbytes: int) -> None:
        super().pin(address, nbytes)
        if self._good_pins is not None:
            self._good_pins -= 1
            if self._good_pins < 0:
                self._bad[address] = nbytes

    @override
    def copy_in(self, target: Tensor, source: Tensor, after: Mark | None) -> Mark | None:
        address = source.data_ptr()
        if any(start <= address < start + size for start, size in self._bad.items()):
            return None
        return super().copy_in(target, source, after)


class _Locker(RefusingLocker):
    """Locks up to so many bytes."""

    def __init__(self, script: Script, most_bytes: int) -> None:
        super().__init__(script)
        self._most_bytes = most_bytes

    @override
    def lock(self, address: int, nbytes: int) -> None:
        if sum(self.locked.values()) + nbytes > self._most_bytes:
            raise LockRefusedError(asked_bytes=nbytes, code=12, words="cannot allocate memory")
        super().lock(address, nbytes)


class _Scenario(Machine):
    """A machine on which one thing goes wrong."""

    def __init__(self, kind: str, chance: random.Random, bank: int, weights: int, layers: int) -> None:
        pins, locks = "pin" in kind, "lock" in kind
        limits = SimulatedGpu(vram_bytes=ROOMY, pin_bytes=chance.randrange(layers * bank) if pins else ROOMY)
        super().__init__(limits)
        self.device = _Device(limits, self.script, chance.randrange(layers) if kind.startswith("driver") else None)
        self.locker = _Locker(self.script, chance.randrange(layers * bank) if locks else ROOMY)
        disk = failing_after(chance.randrange(weights), "error" if "error" in kind else "end")
        breaks = kind in ("disk read error", "file ends while it is read")
        self.drivers = Drivers(self.device, self.memory, self.locker, disk.open if breaks else open_weights)
        self._polls = chance.randrange(1, 12) if kind.startswith("cancelled") else None
        self._kind = kind
        self._chance = chance

    def cancelled(self) -> bool:
        """Whether somebody wants the load to end, from a random question on."""
        if self._polls is None:
            return False
        self._polls -= 1
        return self._polls < 0

    def arm(self) -> None:
        """Choose the call that is refused."""
        what = {"VRAM refused": "vram", "commit refused": "commit"}.get(self._kind)
        if what is not None:
            _refuse_only(self.script, what, self._chance.randrange(3))


def _refuse_only(script: Script, what: str, number: int) -> None:
    """Let the script refuse one call of one kind."""
    seen = [0]

    def refuses(asked: str) -> bool:
        if asked != what:
            return False
        seen[0] += 1
        return seen[0] == number + 1

    script.refuses = refuses  # type: ignore[method-assign, assignment]


@dataclass
class Tally:
    """Results by kind."""

    loaded: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    fallen_layers: Counter[str] = field(default_factory=Counter)
    retries_in_processes: int = 0


class Scenarios:
    """Runs scenarios one after another with tiny checkpoints."""

    def __init__(self, tiny: Callable[[str], TinyModel], scratch: Path, seed: int) -> None:
        self._tiny = tiny
        self._scratch = scratch
        self._chance = random.Random(seed)
        self._answers: dict[str, list[int]] = {}
        self.tally = Tally()

    def run(self, kind: str, *, in_process: bool) -> None:
        """One scenario and its retry; `in_process`: the retry is a process of its own, with the real system.

        Raises:
            AssertionError: something that must be true is not; the words say what.
        """
        chance = self._chance
        family = chance.choice(FAMILIES)
        model = self._tiny(family)
        layers = len(model.shape.moe_layers)
        plan = plan_for(model, _tiers(kind, layers, chance), expert_slots=chance.choice([1, 3, 8]))
        threads = threading.active_count()
        if kind == "shard cut before the load":
            plan = self._cut(plan, chance)
        weights = model.shape.dense_bytes + layers * _bank(plan)
        machine = _Scenario(kind, chance, _bank(plan), weights, layers)
        machine.arm()
        error = _in_time(lambda: self._load(plan, family, machine, kind))
        expected = KINDS[kind]
        if error is not None:
            assert expected is not None and isinstance(error, expected), f"{kind}: {error!r}"
            self.tally.refused[kind] += 1
        assert machine.nothing_held(), f"{kind}: memory was not given back"
        assert threading.active_count() == threads, f"{kind}: a thread is left"
        if kind == "shard cut before the load":
            shutil.rmtree(plan.model_dir)
            plan = plan.model_copy(update={"model_dir": str(model.folder)})
        self._retry(plan, family, in_process=in_process)

    def _load(self, plan: MemoryPlan, family: str, machine: _Scenario, kind: str) -> Exception | None:
        try:
            model = load_model(plan, report=lambda _: None, cancelled=machine.cancelled, drivers=machine.drivers)
        except (SplitpinError, LoadCancelledError) as error:
            return error
        try:
            report = model.residency()
            assert reported(report) == machine.held(), f"{kind}: the report differs from what the drivers hold"
            driver = machine.device.driver
            assert driver.pinned_bytes == sum(machine.device.pinned.values()), f"{kind}: chunks are left"
            assert driver.last_error is None, f"{kind}: an error is left for the next call"
            for layer in report.layers:
                assert (layer.cause is None) == (layer.asked is layer.settled), f"{kind}: a fallen layer has a cause"
            vram = {line.what: line.bytes for line in report.ledger_settled if line.pool is Pool.VRAM}
            assert plan.device == "cpu" or vram == machine.device.allocated, f"{kind}: another ledger"
            assert greedy(model, PROMPT, 4) == self._answer(family), f"{kind}: another answer"
            self.tally.loaded[kind] += 1
            self.tally.fallen_layers[kind] += len(report.fallen)
        finally:
            model.close()
        return None

    def _answer(self, family: str) -> list[int]:
        """What the model says when nothing goes wrong."""
        if family not in self._answers:
            tiny = self._tiny(family)
            plan = plan_for(tiny, "l" * len(tiny.shape.moe_layers))
            model = load_model(plan, report=lambda _: None, cancelled=lambda: False)
            self._answers[family] = greedy(model, PROMPT, 4)
            model.close()
        return self._answers[family]

    def _retry(self, plan: MemoryPlan, family: str, *, in_process: bool) -> None:
        answer = self._answer(family)
        if not in_process:
            machine = Machine(SimulatedGpu(vram_bytes=ROOMY, pin_bytes=ROOMY))
            model = load_model(plan, report=lambda _: None, cancelled=lambda: False, drivers=machine.drivers)
            assert [layer.settled for layer in model.residency().layers] == list(plan.tiers)
            assert greedy(model, PROMPT, 4) == answer
            model.close()
            assert machine.nothing_held()
            return
        self.tally.retries_in_processes += 1
        file = self._scratch / "plan.json"
        file.write_text(plan.model_dump_json(), "utf-8")
        argv = [sys.executable, "-m", "tests.support.refusal_scenarios", str(file)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[-4:] == [str(token) for token in answer]

    def _cut(self, plan: MemoryPlan, chance: random.Random) -> MemoryPlan:
        """The same plan for a copy of the model one of whose shards lost its end."""
        folder = self._scratch / f"cut {chance.randrange(1 << 32)}"
        shutil.copytree(plan.model_dir, folder)
        shard = chance.choice(sorted(folder.glob("*.safetensors")))
        size = shard.stat().st_size
        with shard.open("r+b") as stream:
            stream.truncate(chance.randrange(size))
        return plan.model_copy(update={"model_dir": str(folder)})


def _tiers(kind: str, layers: int, chance: random.Random) -> str:
    letters = {"pin": "pp", "lock": "ll", "driver": "pp", "VRAM": "vv"}
    wanted = next((letters[word] for word in letters if word in kind), "vplg")
    if kind == "pin and lock refused":
        wanted = "ppl"
    return "".join(chance.choice(f"{wanted}{wanted}vplg") for _ in range(layers - 1)) + wanted[0]


def _bank(plan: MemoryPlan) -> int:
    return banks(plan.model)[0]


def _in_time(work: Callable[[], Exception | None]) -> Exception | None:
    """The work, in a thread that is given up when it hangs.

    Raises:
        AssertionError: it did not come back, or failed in a way that nobody expects.
    """
    result: list[Exception | BaseException | None] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            result.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANGS_AFTER_S)
    assert not thread.is_alive(), "the load hangs"
    outcome = result[0]
    if isinstance(outcome, AssertionError) or not isinstance(outcome, Exception | None):
        raise outcome
    return outcome


def _main() -> None:
    """Load the plan that is named, with the drivers of this system, and print four tokens."""
    plan = MemoryPlan.model_validate_json(Path(sys.argv[1]).read_bytes())
    model = load_model(plan, report=lambda _: None, cancelled=lambda: False)
    print(*greedy(model, PROMPT, 4))
    model.close()


if __name__ == "__main__":
    _main()
