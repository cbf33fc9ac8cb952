"""Mixture-of-Experts types of transformers 5.24 that cannot be estimated or run yet, each with its reason."""

_LATENT = "multi-head latent attention"
_LATENT_INDEX = "multi-head latent attention with an index of its own"
_LINEAR = "linear attention layers"
_CONVOLUTION = "layers that keep convolution states"

CANNOT_ESTIMATE: dict[str, str] = {
    "deepseek_v4": "compressed attention in several tiers",
    "diffusion_gemma": "text diffusion instead of token-by-token generation",
    "dots3_note": _LATENT_INDEX,
    "ernie4_5_vl_moe": "two banks of routed experts in each layer",
    "glm5_next": _LINEAR,
    "hy_v4": _LATENT_INDEX,
    "hy_v4_vl": _LATENT_INDEX,
    "inkling": _CONVOLUTION,
    "inkling2": _CONVOLUTION,
    "inkling2_loop": _CONVOLUTION,
    "minimax_m3_vl": "sparse attention with an index of its own",
    "mistral_large4": _LATENT_INDEX,
    "openai_privacy_filter": "an encoder that labels tokens instead of generating them",
    "qwen4_exp": _LINEAR,
    "unlimited_ocr": "reference windows in its attention",
}

NOT_RUNNABLE: dict[str, str] = {
    "dbrx": "its experts are stored and called in a way of their own",
    "doge": "its experts are single neurons fetched by keys",
    "jetmoe": "its attention has experts too",
    "longcat_flash": "its experts are called in a way of their own",
    "nllb_moe": "it is an encoder-decoder model",
    "step3p5": "its experts are called in a way of their own",
    "step3p7": "its experts are called in a way of their own",
    "switch_transformers": "it is an encoder-decoder model",
}
