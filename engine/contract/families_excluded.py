"""Mixture-of-Experts types of transformers 5.24 that cannot be estimated or run yet, each with its reason."""

CANNOT_ESTIMATE: dict[str, str] = {
    "diffusion_gemma": "text diffusion instead of token-by-token generation",
    "inkling": "four convolution states in each layer with attention",
    "inkling2": "convolution states that are shared between layers",
    "inkling2_loop": "layers that are passed through more than once",
    "openai_privacy_filter": "an encoder that labels tokens instead of generating them",
    "unlimited_ocr": "reference windows in its attention",
}

NOT_RUNNABLE: dict[str, str] = {
    "doge": "its experts are single neurons fetched by keys",
    "nllb_moe": "it is an encoder-decoder model",
    "switch_transformers": "it is an encoder-decoder model",
}
