"""How the C kernels are compiled."""
