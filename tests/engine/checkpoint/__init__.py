"""Tests of engine.checkpoint."""
