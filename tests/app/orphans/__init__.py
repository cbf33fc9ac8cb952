"""Tests of app.orphans."""
