"""Whether this PC runs on battery."""

import psutil


def on_battery() -> bool:
    """True only if the system says so; a PC without a battery is on mains."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return battery is not None and battery.power_plugged is False
