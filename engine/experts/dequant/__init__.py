"""Reference dequantisers: slow, exact, one file for each way of packing weights."""
