"""Golden answers and pictures."""
