"""Doors without a window: each file is one command of `python -m app`."""
