"""Tests of single widgets."""
