"""Tests of the engine, mirroring its tree."""
