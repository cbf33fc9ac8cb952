"""What the user wants of each model, and what holds for all of them in this run. No Qt here."""

from dataclasses import dataclass, field
from pathlib import Path

from app.planning.wishes import Wishes
from engine.contract.plan import SimulatedGpu


@dataclass(slots=True)
class SplitWishes:
    """`saved` are the wishes by model folder; the simulated GPU and the limit for pinned memory are the same for all.

    A limit belongs to the machine it was met on: the one of this PC is no limit of a simulated GPU.
    """

    simulated_gpu: SimulatedGpu | None = None
    pin_cap_bytes: int | None = None
    saved: dict[Path, Wishes] = field(default_factory=dict)

    def of(self, folder: Path | None) -> Wishes:
        """Everything to plan a model with."""
        saved = Wishes() if folder is None else self.saved.get(folder, Wishes())
        common = {"simulated_gpu": self.simulated_gpu}
        return saved.model_copy(
            update=common if self.pin_cap_bytes is None else {**common, "pin_cap_bytes": self.pin_cap_bytes}
        )

    def change(self, folder: Path, **changes: object) -> Wishes:
        """Take other wishes for a model; returns them as they are saved."""
        self.saved[folder] = self.saved.get(folder, Wishes()).model_copy(update=changes)
        return self.saved[folder]
