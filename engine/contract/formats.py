"""How weights are stored, and how many bytes that takes.

Sources: NVFP4 = 4 bits a weight + one fp8 scale per 16; MXFP4 = 4 bits + one e8m0 scale per 32 (OCP Microscaling
Formats v1.0); fp8 block = 8 bits + one fp32 scale per 128×128 tile.
"""

from enum import StrEnum


class WeightFormat(StrEnum):
    """Storage of the routed experts' weights."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8_BLOCK = "fp8_block"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"

    @property
    def loadable(self) -> bool:
        """Whether the engine can run experts stored so."""
        return self in (WeightFormat.FP32, WeightFormat.BF16)


_PLAIN_BYTES = {WeightFormat.FP32: 4, WeightFormat.BF16: 2, WeightFormat.FP16: 2}


def matrix_bytes(weight_format: WeightFormat, rows: int, columns: int) -> int:
    """Bytes of one [rows, columns] weight matrix with its scales; scales run along the columns."""
    if weight_format in _PLAIN_BYTES:
        return rows * columns * _PLAIN_BYTES[weight_format]
    match weight_format:
        case WeightFormat.FP8_BLOCK:
            return rows * columns + -(-rows // 128) * -(-columns // 128) * 4
        case WeightFormat.NVFP4:
            return rows * -(-columns // 2) + rows * -(-columns // 16)
        case _:
            return rows * -(-columns // 2) + rows * -(-columns // 32)
