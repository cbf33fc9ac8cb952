"""How weights are stored, and how many bytes that takes.

Sources: NVFP4 = 4 bits a weight + one fp8 scale per 16; MXFP4 = 4 bits + one e8m0 scale per 32 (OCP Microscaling
Formats v1.0); fp8 block = 8 bits + one scale per 128×128 tile; GPTQ and AWQ = packed int32 words, one 16-bit scale and
one packed zero point per group of columns; GGUF types: `GGML_QUANT_SIZES` of the gguf package.

A matrix in a bank takes the bytes it takes on disk: weights, then its scales, zero points and column order. One scale
for a whole matrix (the second scale of NVFP4, per-tensor fp8) is no part of a record: these few numbers stay with the
weights that every token uses, as the engine needs them wherever the record is. Scales of activations are not kept.
"""

from enum import StrEnum

from pydantic import Field

from engine.contract.record import Record


class WeightFormat(StrEnum):
    """Storage of the routed experts' weights."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"  # one scale for the whole matrix
    FP8_CHANNEL = "fp8_channel"  # one scale a row
    FP8_BLOCK = "fp8_block"  # one scale a tile
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"
    INT8 = "int8"
    INT4 = "int4"
    INT3 = "int3"
    INT2 = "int2"
    Q4_0 = "q4_0"
    Q4_1 = "q4_1"
    Q5_0 = "q5_0"
    Q5_1 = "q5_1"
    Q8_0 = "q8_0"
    Q2_K = "q2_k"
    Q3_K = "q3_k"
    Q4_K = "q4_k"
    Q5_K = "q5_k"
    Q6_K = "q6_k"
    IQ1_S = "iq1_s"
    IQ1_M = "iq1_m"
    IQ2_XXS = "iq2_xxs"
    IQ2_XS = "iq2_xs"
    IQ2_S = "iq2_s"
    IQ3_XXS = "iq3_xxs"
    IQ3_S = "iq3_s"
    IQ4_NL = "iq4_nl"
    IQ4_XS = "iq4_xs"
    TQ1_0 = "tq1_0"
    TQ2_0 = "tq2_0"


class MatrixStorage(Record):
    """How one weight matrix [rows, columns] is stored. A tile size of 0 stands for all rows, or all columns."""

    format: WeightFormat
    block_weights: int = Field(default=1, gt=0, description="weights packed together, neighbours in a row")
    block_bytes: int = Field(gt=0)
    tile_rows: int = Field(default=1, ge=0)
    tile_columns: int = Field(default=0, ge=0)
    scale_bytes: int = Field(default=0, ge=0, description="bytes of one tile's scale; 0: none, or inside the blocks")
    zero_bits: int = Field(default=0, ge=0, le=32, description="zero point of one row and group, packed in words")
    order_bytes: int = Field(default=0, ge=0, description="group number of each column, where they are reordered")

    @property
    def computable(self) -> bool:
        """Whether the engine can compute with a matrix stored so."""
        return self.format in _UNPACKED or self in (_USUAL[form] for form in _PLAIN)

    def weight_bytes(self, rows: int, columns: int) -> int:
        """Packed weights alone."""
        return rows * -(-columns // self.block_weights) * self.block_bytes

    def scale_grid(self, rows: int, columns: int) -> tuple[int, int]:
        """How many tiles there are, down and across."""
        down = -(-rows // self.tile_rows) if self.tile_rows else 1
        across = -(-columns // self.tile_columns) if self.tile_columns else 1
        return down, across

    def pieces(self, rows: int, columns: int) -> tuple[tuple[str, int, int, int], ...]:
        """What is stored: suffix of the part's name, rows, columns, bytes. The weights come first."""
        down, across = self.scale_grid(rows, columns)
        found = [("", rows, columns, self.weight_bytes(rows, columns))]
        if self.scale_bytes:
            found.append(("_scale", down, across, down * across * self.scale_bytes))
        if self.zero_bits:
            found.append(("_zero", rows, across, -(-rows * self.zero_bits // 32) * 4 * across))
        if self.order_bytes:
            found.append(("_order", 1, columns, columns * self.order_bytes))
        return tuple(found)

    def matrix_bytes(self, rows: int, columns: int) -> int:
        """Bytes of one matrix with everything that belongs to it."""
        return sum(size for *_, size in self.pieces(rows, columns))


class ExpertStorage(Record):
    """How the experts of one layer are stored; `gate` says nothing about experts without a gate."""

    gate: MatrixStorage
    up: MatrixStorage
    down: MatrixStorage
    bias_bytes: int = Field(default=2, gt=0, description="bytes of one bias value")

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """Formats of gate, up and down."""
        return self.gate.format, self.up.format, self.down.format

    @property
    def computable(self) -> bool:
        """Whether the engine can compute with experts stored so."""
        return self.gate.computable and self.up.computable and self.down.computable

    def plain_format(self, has_bias: bool) -> WeightFormat | None:
        """The number type of all matrices and biases, where it is one and nothing has to be unpacked."""
        plain = alike(_USUAL[self.up.format], self.bias_bytes if not has_bias else None)
        return self.up.format if self.up.format in _PLAIN and self == plain else None


_Sizes = dict[WeightFormat, tuple[int, int]]  # weights and bytes of one block

_PLAIN: _Sizes = {WeightFormat.FP32: (1, 4), WeightFormat.BF16: (1, 2), WeightFormat.FP16: (1, 2)}
GGUF_BLOCKS: _Sizes = {
    WeightFormat.Q4_0: (32, 18),
    WeightFormat.Q4_1: (32, 20),
    WeightFormat.Q5_0: (32, 22),
    WeightFormat.Q5_1: (32, 24),
    WeightFormat.Q8_0: (32, 34),
    WeightFormat.Q2_K: (256, 84),
    WeightFormat.Q3_K: (256, 110),
    WeightFormat.Q4_K: (256, 144),
    WeightFormat.Q5_K: (256, 176),
    WeightFormat.Q6_K: (256, 210),
    WeightFormat.IQ1_S: (256, 50),
    WeightFormat.IQ1_M: (256, 56),
    WeightFormat.IQ2_XXS: (256, 66),
    WeightFormat.IQ2_XS: (256, 74),
    WeightFormat.IQ2_S: (256, 82),
    WeightFormat.IQ3_XXS: (256, 98),
    WeightFormat.IQ3_S: (256, 110),
    WeightFormat.IQ4_NL: (32, 18),
    WeightFormat.IQ4_XS: (256, 136),
    WeightFormat.TQ1_0: (256, 54),
    WeightFormat.TQ2_0: (256, 66),
}
_UNPACKED = frozenset(  # by engine/experts/dequant
    {
        WeightFormat.FP8,
        WeightFormat.FP8_CHANNEL,
        WeightFormat.FP8_BLOCK,
        WeightFormat.MXFP8,
        WeightFormat.NVFP4,
        WeightFormat.MXFP4,
        WeightFormat.INT8,
        WeightFormat.INT4,
        WeightFormat.INT3,
        WeightFormat.INT2,
        *GGUF_BLOCKS,
    }
)
INT_BITS = {WeightFormat.INT8: 8, WeightFormat.INT4: 4, WeightFormat.INT3: 3, WeightFormat.INT2: 2}


def int_groups(
    weight_format: WeightFormat,
    group: int,
    *,
    scale_bytes: int = 2,
    zeros: bool = True,
    order_bytes: int = 0,
) -> MatrixStorage:
    """Whole numbers of 8, 4, 3 or 2 bits in int32 words, `group` columns to a scale (0: all columns of the row)."""
    bits = INT_BITS[weight_format]
    words = 3 if bits == 3 else 1  # 3-bit numbers cross words; 32 of them fill three
    return MatrixStorage(
        format=weight_format,
        block_weights=words * 32 // bits,
        block_bytes=4 * words,
        tile_columns=group,
        scale_bytes=scale_bytes,
        zero_bits=bits if zeros else 0,
        order_bytes=order_bytes,
    )


def _usual(weight_format: WeightFormat) -> MatrixStorage:
    def scaled(weights: int, size: int, rows: int, columns: int, scale: int) -> MatrixStorage:
        return MatrixStorage(
            format=weight_format,
            block_weights=weights,
            block_bytes=size,
            tile_rows=rows,
            tile_columns=columns,
            scale_bytes=scale,
        )

    match weight_format:
        case WeightFormat.FP8:
            return scaled(1, 1, 0, 0, 0)
        case WeightFormat.FP8_CHANNEL:
            return scaled(1, 1, 1, 0, 4)
        case WeightFormat.FP8_BLOCK:
            return scaled(1, 1, 128, 128, 4)
        case WeightFormat.MXFP8:
            return scaled(1, 1, 1, 32, 1)
        case WeightFormat.NVFP4:
            return scaled(2, 1, 1, 16, 1)
        case WeightFormat.MXFP4:
            return scaled(2, 1, 1, 32, 1)
        case WeightFormat.INT8 | WeightFormat.INT4 | WeightFormat.INT3 | WeightFormat.INT2:
            return int_groups(weight_format, 128)
        case _:
            weights, size = (_PLAIN | GGUF_BLOCKS)[weight_format]
            return MatrixStorage(format=weight_format, block_weights=weights, block_bytes=size)


_USUAL = {weight_format: _usual(weight_format) for weight_format in WeightFormat}


def usual_storage(weight_format: WeightFormat) -> MatrixStorage:
    """The most common layout of a format: fp8 blocks with fp32 scales, integers in groups of 128 with zero points."""
    return _USUAL[weight_format]


def alike(storage: MatrixStorage, bias_bytes: int | None = None) -> ExpertStorage:
    """Gate, up and down stored the same way; biases in bf16, or fp32 where the weights are."""
    usual_bias = 4 if storage.format is WeightFormat.FP32 else 2
    return ExpertStorage(gate=storage, up=storage, down=storage, bias_bytes=bias_bytes or usual_bias)


def matrix_bytes(weight_format: WeightFormat, rows: int, columns: int) -> int:
    """Bytes of one [rows, columns] weight matrix with its scales, in the usual layout of a format."""
    return usual_storage(weight_format).matrix_bytes(rows, columns)
