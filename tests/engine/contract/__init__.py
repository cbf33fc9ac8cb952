"""Tests of what launcher and engine share."""
