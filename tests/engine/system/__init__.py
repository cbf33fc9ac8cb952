"""Tests of the system shelf, on this machine and with recorded ones."""
