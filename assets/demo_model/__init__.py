"""Recipe of the demo model: a small real language model in the shape of a Mixture-of-Experts checkpoint."""
