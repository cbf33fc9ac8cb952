"""Tests of Qt around the child process and HTTP."""
