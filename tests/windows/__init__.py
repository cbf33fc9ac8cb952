"""Tests that need Windows, or the Windows interpreter under Wine; skipped elsewhere."""
