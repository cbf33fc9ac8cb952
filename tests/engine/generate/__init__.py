"""Sampling, text, stop strings, one request from prompt to last token."""
