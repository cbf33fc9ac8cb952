"""Tests of app.supervision."""
