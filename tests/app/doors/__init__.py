"""Tests of app.doors."""
