"""Mixture-of-Experts types of transformers 5.24 that are not run, each with its reason."""

NOT_RUNNABLE: dict[str, str] = {
    "diffusion_gemma": "it fills in whole blocks of text at once instead of writing token by token",
    "doge": "its experts are single neurons fetched by keys",
    "glm5_next": "it says nothing of its part for pictures, without which transformers does not build it",
    "nllb_moe": "it is an encoder-decoder model",
    "openai_privacy_filter": "it labels the words of a text instead of writing one",
    "switch_transformers": "it is an encoder-decoder model",
    "unlimited_ocr": "it reads text off pictures, and Splitpin hands no pictures to a model",
}
