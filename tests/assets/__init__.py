"""Tests of assets/."""
