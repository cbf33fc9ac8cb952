"""Shelf 1, shared with the launcher: the records both sides agree on. Pure; no torch, no OS calls."""
