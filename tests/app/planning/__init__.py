"""Tests of the planning rules."""
