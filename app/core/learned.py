"""What this PC has taught Splitpin: how much could be pinned, and how fast it is. One JSON file in the profile.

Everything is kept by machine: another amount of RAM, GPU, driver or system is another machine, and starts afresh.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from app.files import set_aside, write_atomically
from app.planning.quota import PROBE_MARGIN_SHARE
from app.planning.speed import SpeedRun
from engine.contract.facts import UNKNOWN, HardwareFacts, Reading, Source
from engine.contract.plan import Tier
from engine.contract.probe import ProbeLine
from engine.contract.rates import MeasuredRates
from engine.contract.record import Record
from engine.contract.residency import ResidencyReport
from engine.contract.units import MIB, gib

log = logging.getLogger(__name__)

KEPT_RUNS = 64
KEPT_MACHINES = 8
_RAM_STEP = 256 * MIB  # a new kernel or firmware moves the RAM it leaves by a few megabytes


class Machine(Record):
    """What makes experience comparable."""

    ram_steps: int | None = Field(description="RAM in steps of 256 MiB")
    gpu: str | None = Field(description="NVML identity, or the name where there is none")
    driver: str | None
    os_version: str | None


class PinExperience(Record):
    """Bytes that were or were not pinned. None: never tried."""

    granted_bytes: int | None = Field(default=None, ge=0, description="most that an engine run pinned at once")
    refused_bytes: int | None = Field(
        default=None, ge=0, description="least sum that an engine run was refused, with what others held of the pool"
    )
    probed_bytes: int | None = Field(default=None, ge=0, description="what the probe pinned")
    probe_refused: bool = Field(default=False, description="the driver ended the probe; else it found a lower bound")


class Experience(Record):
    """All that is known of one machine."""

    machine: Machine
    pins: PinExperience = PinExperience()
    rates: MeasuredRates | None = None
    runs: tuple[SpeedRun, ...] = ()


class _File(Record):
    version: Literal[1] = 1
    machines: tuple[Experience, ...] = Field(default=(), description="the one used last comes last")


def machine_of(facts: HardwareFacts) -> Machine:
    """The key of a machine's experience."""
    gpu, ram = facts.cuda_gpu, facts.ram_total.value
    return Machine(
        ram_steps=None if ram is None else round(ram / _RAM_STEP),
        gpu=None if gpu is None else gpu.uuid or gpu.name,
        driver=None if gpu is None else gpu.driver,
        os_version=facts.os_version,
    )


def with_residency(pins: PinExperience, report: ResidencyReport, beside_bytes: int = 0) -> PinExperience:
    """Learn from what an engine run was granted and refused.

    The first refusal of a run is final, so what is pinned then plus the first layer that was not is a refused sum. The
    pool belongs to all programs, so what others held of it before the start (`beside_bytes`) counts too: a refusal that
    a left-over engine caused is none once that is gone. The newest run counts most: a grant at or above a refused sum
    takes the refusal back, and the other way round. Simulated GPUs teach nothing, and neither do runs without pins.
    """
    asked = [layer for layer in report.layers if layer.asked is Tier.PINNED]
    if report.simulated or not asked:
        return pins
    granted = report.pinned_bytes
    fallen = [layer.bytes for layer in asked if layer.settled is not Tier.PINNED]
    most, least = max(granted, pins.granted_bytes or 0), pins.refused_bytes
    if least is not None and granted + beside_bytes >= least:
        least = None
    if fallen:
        refused = granted + fallen[0] + beside_bytes
        least = refused if least is None else min(refused, least)
        most = most if most + beside_bytes < least else granted
    return pins.model_copy(update={"granted_bytes": most, "refused_bytes": least})


def with_probe(pins: PinExperience, last: ProbeLine) -> PinExperience:
    """Keep what a probe found; a line without `stopped` is what a probe that was ended left behind.

    The newest probe replaces an older one. It takes the refusal of an engine run back only if it got past that sum
    while it held GPU memory as an engine does: an empty process gets more than a loaded one.
    """
    refused = pins.refused_bytes
    if refused is not None and last.vram_bytes and last.pinned_bytes >= refused:
        refused = None
    return pins.model_copy(
        update={
            "probed_bytes": last.pinned_bytes,
            "probe_refused": last.stopped == "refused",
            "refused_bytes": refused,
        }
    )


def with_run(runs: Sequence[SpeedRun], run: SpeedRun | None) -> tuple[SpeedRun, ...]:
    """The newest runs."""
    return tuple(runs if run is None else [*runs, run])[-KEPT_RUNS:]


def applied(facts: HardwareFacts, pins: PinExperience) -> HardwareFacts:
    """The facts with what was learned: see `app.planning.quota` for what follows from it.

    A probe that no refusal ended is a lower bound, so it counts like a grant, less the margin of a probe.
    """
    granted = _learned(pins.granted_bytes, "granted to an earlier engine run")
    probed = UNKNOWN
    if pins.probed_bytes is not None and pins.probe_refused:
        probed = Reading(value=pins.probed_bytes, source=Source.MEASURED, detail="probe, then refused")
    elif pins.probed_bytes is not None:
        least = pins.probed_bytes - -(-pins.probed_bytes // PROBE_MARGIN_SHARE)
        if least > (granted.value or 0):
            words = f"at least: {gib(pins.probed_bytes)} pinned by the probe, less a tenth"
            granted = Reading(value=least, source=Source.MEASURED, detail=words)
    left = None if pins.refused_bytes is None else max(0, pins.refused_bytes - _held_by_others(facts))
    refused = _learned(left, "refused to an earlier engine run")
    return facts.model_copy(update={"pin_granted": granted, "pin_refused": refused, "pin_probed": probed})


def _held_by_others(facts: HardwareFacts) -> int:
    """What all programs hold of the pool for pinned memory; 0 where nobody knows, as on Linux."""
    gpu = facts.cuda_gpu
    return 0 if gpu is None or gpu.shared_used.value is None else gpu.shared_used.value


def _learned(value: int | None, detail: str) -> Reading:
    return UNKNOWN if value is None else Reading(value=value, source=Source.LEARNED, detail=detail)


@dataclass(frozen=True, slots=True)
class LearnedStore:
    """Reads and writes learned.json. Not for recorded machines: they are not this PC.

    What cannot be read or written is logged: a plan and a run are worth more than what they teach.
    """

    file: Path

    def experience(self, facts: HardwareFacts) -> Experience:
        """What is known of this machine; nothing yet is an answer too, and all there is of a recorded machine."""
        machine = machine_of(facts)
        known = () if facts.recorded else (one for one in self._load().machines if one.machine == machine)
        return next(iter(known), Experience(machine=machine))

    def applied_to(self, facts: HardwareFacts) -> HardwareFacts:
        """The facts with what was learned of pinning; recorded facts stay as they were recorded."""
        return facts if facts.recorded else applied(facts, self.experience(facts).pins)

    def learn_residency(self, facts: HardwareFacts, report: ResidencyReport) -> None:
        """To be called whenever an engine reports that it is ready; `facts` are those of before its start."""
        beside = _held_by_others(facts)
        self._change(facts, lambda known: {"pins": with_residency(known.pins, report, beside)})

    def learn_probe(self, facts: HardwareFacts, last: ProbeLine) -> None:
        """Keep the result of a probe."""
        self._change(facts, lambda known: {"pins": with_probe(known.pins, last)})

    def learn_rates(self, facts: HardwareFacts, rates: MeasuredRates) -> None:
        """Keep measured figures beside those of other formats; those of a simulated GPU are not this machine's."""
        if not rates.simulated:
            self._change(facts, lambda known: {"rates": rates.with_earlier(known.rates)})

    def learn_run(self, facts: HardwareFacts, run: SpeedRun | None) -> None:
        """To be called whenever a request is done."""
        self._change(facts, lambda known: {"runs": with_run(known.runs, run)})

    def _change(self, facts: HardwareFacts, change: Callable[[Experience], dict[str, object]]) -> None:
        if facts.recorded:
            return
        known = self.experience(facts)
        fresh = known.model_copy(update=change(known))
        if fresh == known:
            return
        others = [one for one in self._load().machines if one.machine != fresh.machine]
        content = _File(machines=tuple([*others, fresh][-KEPT_MACHINES:]))
        try:
            write_atomically(self.file, content.model_dump_json(indent=2) + "\n")
        except OSError as cause:
            log.warning("what was learned could not be saved in %s: %s", self.file, cause)

    def _load(self) -> _File:
        try:
            return _File.model_validate(json.loads(self.file.read_text("utf-8")))
        except FileNotFoundError:
            return _File()
        except OSError as cause:
            log.warning("%s cannot be read: %s", self.file, cause)
            return _File()
        except (ValidationError, ValueError) as cause:
            self._set_aside(cause)
            return _File()

    def _set_aside(self, cause: Exception) -> None:
        try:
            kept = set_aside(self.file)
        except OSError as trouble:
            log.warning("%s is not understood (%s) and cannot be renamed: %s", self.file, cause, trouble)
            return
        log.warning("%s is not understood (%s); it is kept as %s", self.file, cause, kept.name)
