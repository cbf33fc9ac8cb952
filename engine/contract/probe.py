"""What the probe for pinned memory prints, one JSON object a line; the last line says why it stopped."""

from typing import Literal

from pydantic import Field

from engine.contract.errors import Problem
from engine.contract.record import Record

StopReason = Literal["need", "ram", "refused", "time"]


class ProbeLine(Record):
    """How far the probe has come. Each line is a lower bound, so that a probe that is ended still tells something."""

    pinned_bytes: int = Field(default=0, ge=0)
    vram_bytes: int = Field(default=0, ge=0, description="held meanwhile, as a loaded engine would")
    elapsed_s: float = Field(default=0, ge=0)
    stopped: StopReason | None = Field(
        default=None,
        description="need: enough for what was asked; ram: too little is left for other programs; refused: the driver"
        " said no; time: it took too long",
    )
    refused_bytes: int | None = Field(default=None, description="the sum that was refused")
    words: str = Field(default="", description="of the driver, or of the system")
    problem: Problem | None = Field(default=None, description="the probe could not begin")
