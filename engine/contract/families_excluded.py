"""Mixture-of-Experts types of transformers 5.24 that cannot be estimated or run yet, each with its reason."""

CANNOT_ESTIMATE: dict[str, str] = {
    "diffusion_gemma": "text diffusion instead of token-by-token generation",
    "glm5_next": "an index of pooled keys beside linear attention",
    "hy_v4": "several residual streams and an index shared between layers",
    "hy_v4_vl": "several residual streams and an index shared between layers",
    "inkling": "four convolution states in each layer with attention",
    "inkling2": "convolution states that are shared between layers",
    "inkling2_loop": "layers that are passed through more than once",
    "minimax_m3_vl": "sparse attention over blocks with an index of its own",
    "openai_privacy_filter": "an encoder that labels tokens instead of generating them",
    "qwen4_exp": "an index of pooled keys, and states of the words before",
    "unlimited_ocr": "reference windows in its attention",
}

NOT_RUNNABLE: dict[str, str] = {
    "doge": "its experts are single neurons fetched by keys",
    "nllb_moe": "it is an encoder-decoder model",
    "step3p5": "transformers runs it only as the language model inside step3p7",
    "switch_transformers": "it is an encoder-decoder model",
}
