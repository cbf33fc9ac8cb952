"""Tests of engine.banks."""
