"""The transformer itself: transformers' modelling with our experts function and KV cache."""
