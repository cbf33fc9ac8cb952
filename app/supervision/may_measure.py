"""When this PC must not be measured: a figure taken beside an engine, or on battery, would be believed for weeks."""

from collections.abc import Callable

from app.supervision.scan import Scanner, refuse_start
from engine.contract.errors import SplitpinError
from engine.system.power import on_battery


class NotNowError(SplitpinError):
    """A measurement would disturb, or be disturbed by, what runs now."""

    kind = "not_now"


def refuse_measuring(scanner: Scanner, on_battery: Callable[[], bool] = on_battery) -> None:
    """Look for what would spoil a measurement. Reads the process table: not for the UI thread.

    Raises:
        OrphanHoldsMemoryError: an engine of an earlier run still holds memory.
        NotNowError: an engine runs, or the PC runs on battery.
    """
    refuse_start(scanner.scan())
    if running := scanner.ledger.read():
        raise NotNowError(
            f"An engine is running (PID {running[0].engine.pid}); what it holds would be measured too.",
            "Stop the engine, then measure.",
            pid=running[0].engine.pid,
        )
    if on_battery():
        raise NotNowError("This PC runs on battery; figures would be too low.", "Connect it to power, then measure.")
