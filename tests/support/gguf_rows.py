"""Random rows of any GGUF type: blocks whose scales are numbers and whose weights are anything the type can hold."""

import gguf
import numpy as np

# where in a block a float16 lies: its factor, its minimum
_HALVES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ1_S": (0,), "IQ1_M": (), "IQ2_XXS": (0,), "IQ2_XS": (0,),
    "IQ2_S": (0,), "IQ3_XXS": (0,), "IQ3_S": (0,), "IQ4_NL": (0,), "IQ4_XS": (0,), "TQ1_0": (52,), "TQ2_0": (64,),
    "MXFP4": (), "NVFP4": (),
}  # fmt: skip


def random_gguf_rows(
    random: np.random.Generator, name: str, rows: int, columns: int, spread: float = 2.0
) -> np.ndarray:
    """Packed rows, uint8 [rows, bytes]; float16 scales lie between -`spread` and `spread`."""
    weights, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    raw = random.integers(0, 256, (rows, columns // weights, size), dtype=np.uint8)
    for at in _HALVES[name]:
        raw[:, :, at : at + 2] = random.uniform(-spread, spread, (*raw.shape[:2], 1)).astype(np.float16).view(np.uint8)
    if name == "MXFP4":
        raw[:, :, 0] = random.integers(118, 126, raw.shape[:2])
    elif name == "NVFP4":
        raw[:, :, :4] = random.integers(1, 64, (*raw.shape[:2], 4))
    elif name == "IQ1_M":  # the factor's four bits each: the uppermost words decide whether it is a number
        raw[:, :, 55] = (raw[:, :, 55] & 0x0F) | 0x20
    return raw.reshape(rows, -1)
