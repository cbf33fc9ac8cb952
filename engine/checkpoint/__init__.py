"""Reads weights from model folders."""
