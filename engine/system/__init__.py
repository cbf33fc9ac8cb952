"""Shelf 2, shared with the launcher: the only place that asks the operating system and the driver."""
