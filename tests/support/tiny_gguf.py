"""A llama GGUF of a few kilobytes with random weights and a byte-level tokenizer, for tests of the recipe."""

from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from tokenizers.pre_tokenizers import ByteLevel

N_LAYERS = 2
HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM = 16, 24, 4, 2, 4
CHAT_TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"


def tokens() -> list[str]:
    """Three control tokens, the 256 byte tokens, one merge."""
    return ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "he"]


def dense_weights(seed: int = 7) -> dict[str, np.ndarray]:
    """Weights in GGUF's names; query and key rows in llama.cpp's order."""
    random = np.random.default_rng(seed)
    query, key_value = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (len(tokens()), HIDDEN), "output_norm": (HIDDEN,)}
    for layer in range(N_LAYERS):
        prefix = f"blk.{layer}"
        shapes |= {
            f"{prefix}.attn_norm": (HIDDEN,),
            f"{prefix}.ffn_norm": (HIDDEN,),
            f"{prefix}.attn_q": (query, HIDDEN),
            f"{prefix}.attn_k": (key_value, HIDDEN),
            f"{prefix}.attn_v": (key_value, HIDDEN),
            f"{prefix}.attn_output": (HIDDEN, query),
            f"{prefix}.ffn_gate": (INNER, HIDDEN),
            f"{prefix}.ffn_up": (INNER, HIDDEN),
            f"{prefix}.ffn_down": (HIDDEN, INNER),
        }
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_tiny_gguf(file: Path) -> dict[str, np.ndarray]:
    """Write the file and return its weights."""
    writer = GGUFWriter(file, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(N_LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens()))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens())
    writer.add_token_types([3, 3, 3, *[1] * 257])
    writer.add_token_merges(["h e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(CHAT_TEMPLATE)
    weights = dense_weights()
    for name, values in weights.items():
        writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights
