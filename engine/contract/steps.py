"""What the experts of one layer cost in one step, and on which processor they are computed. Pure: numbers in, a choice
out.

The engine decides by this while it runs, with rates of the model's own layers (engine/experts/measure_steps.py); the
launcher predicts by it, with figures of this PC (app/planning/figures.py). Both processors compute the same operations
in the same order, so a choice changes times, never the meaning of an answer; they may round the last bit differently.
"""

from dataclasses import dataclass

# A step leaves its usual place only for a clear gain: rates were measured once, on a PC that does other things too.
GAIN = 1.25
# Not measured: from so many rows an expert on, weights of locked layers go to the GPU. At 16 bits a row is as many
# operations as an expert has bytes; a CPU at 50 to 100 G operations a second then takes longer for 16 rows than the
# slowest bus in use (3 GB/s in both directions of RAM and bus) takes for the bytes.
SAFE_ROWS = 16


@dataclass(frozen=True, slots=True)
class ExpertRates:
    """What one expert costs a processor: `expert_s` however many rows it gets, and `row_s` for each of them."""

    expert_s: float
    row_s: float

    def seconds(self, experts: float, rows: float) -> float:
        """Of so many experts with so many rows between them."""
        return experts * self.expert_s + rows * self.row_s


@dataclass(frozen=True, slots=True)
class StepRates:
    """Both processors and the way between them, on this machine."""

    host: ExpertRates
    device: ExpertRates
    copy_bytes_s: float  # pinned RAM to GPU
    copy_s: float  # of starting a copy, however small
    stage_bytes_s: float  # ordinary RAM into the pinned side of the transfer ring


@dataclass(frozen=True, slots=True)
class Step:
    """The work of one layer in one step. Whole numbers while the engine runs, expected ones in a prediction."""

    experts: float  # different experts that were chosen
    rows: float  # choices of all tokens
    missing: float  # chosen experts whose weights are not on the GPU
    record_bytes: int
    staged: bool  # weights go through the pinned side of the ring: the layer is not pinned


def host_s(step: Step, rates: StepRates) -> float:
    """Seconds on the CPU, where the weights are."""
    return rates.host.seconds(step.experts, step.rows)


def device_s(step: Step, rates: StepRates) -> float:
    """Seconds on the GPU: staging, copies and computation run side by side once the first expert has arrived."""
    each = step.record_bytes / rates.copy_bytes_s + rates.copy_s
    stage = step.record_bytes / rates.stage_bytes_s if step.staged else 0.0
    first = min(step.missing, 1) * (each + stage)
    others = max(step.missing - 1, 0)
    return first + max(others * each, others * stage, rates.device.seconds(step.experts, step.rows))


def on_host(step: Step, rates: StepRates | None) -> bool:
    """Whether the CPU computes this step.

    Usual is the GPU for pinned layers; for locked ones the CPU, but from `SAFE_ROWS` rows an expert on the GPU. The
    other place is taken where the rates promise `GAIN`. Without rates (None) the usual place it is.
    """
    usually = step.staged and step.rows < SAFE_ROWS * step.experts
    if rates is None:
        return usually
    host, device = host_s(step, rates), device_s(step, rates)
    return device * GAIN > host if usually else host * GAIN < device


def chosen_s(step: Step, rates: StepRates) -> float:
    """Seconds where `on_host` lets it be computed."""
    return host_s(step, rates) if on_host(step, rates) else device_s(step, rates)
