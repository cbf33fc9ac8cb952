"""Painted widgets: each receives a value and paints it."""
