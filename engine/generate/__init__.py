"""From prompt tokens to answer tokens: prefill, decode, sampling."""
