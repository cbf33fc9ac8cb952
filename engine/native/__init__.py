"""Products with packed experts in C, and how they are compiled. Nothing here is imported while the engine runs."""
