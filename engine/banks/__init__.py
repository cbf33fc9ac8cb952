"""Host and device memory of the routed experts: allocate, pin, lock, measure."""
