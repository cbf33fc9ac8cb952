"""Tests of the dependency rule."""
