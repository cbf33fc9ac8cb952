"""Computes routed experts from the banks: kernels, slots, transfer."""
