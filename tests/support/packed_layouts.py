"""The tensors that one matrix of weights becomes in every published layout, as headers only."""

from collections.abc import Callable

from tests.support.weight_files import Tensor, tensor

Matrix = Callable[[int, int], dict[str, Tensor]]  # rows, columns -> suffix and tensor


def nvfp4_modelopt(rows: int, columns: int) -> dict[str, Tensor]:
    return {
        "weight": tensor("U8", rows, columns // 2),
        "weight_scale": tensor("F8_E4M3", rows, columns // 16),
        "weight_scale_2": tensor("F32"),
        "input_scale": tensor("F32"),
    }


def nvfp4_packed(rows: int, columns: int) -> dict[str, Tensor]:
    return {
        "weight_packed": tensor("U8", rows, columns // 2),
        "weight_scale": tensor("F8_E4M3", rows, columns // 16),
        "weight_global_scale": tensor("F32", 1),
        "input_global_scale": tensor("F32", 1),
    }


def fp8_blocks(scale: str, name: str = "weight_scale_inv") -> Matrix:
    return lambda rows, columns: {
        "weight": tensor("F8_E4M3", rows, columns),
        name: tensor(scale, -(-rows // 128), -(-columns // 128)),
    }


def fp8_whole(rows: int, columns: int) -> dict[str, Tensor]:
    return {
        "weight": tensor("F8_E4M3", rows, columns),
        "weight_scale": tensor("F32"),
        "input_scale": tensor("F32"),
    }


def fp8_rows(rows: int, columns: int) -> dict[str, Tensor]:
    return {"weight": tensor("F8_E4M3", rows, columns), "weight_scale": tensor("BF16", rows, 1)}


def gptq(bits: int, group: int) -> Matrix:
    def tensors(rows: int, columns: int) -> dict[str, Tensor]:
        groups = columns // group
        return {
            "qweight": tensor("I32", columns * bits // 32, rows),
            "qzeros": tensor("I32", groups, rows * bits // 32),
            "scales": tensor("F16", groups, rows),
            "g_idx": tensor("I32", columns),
        }

    return tensors


def awq(rows: int, columns: int) -> dict[str, Tensor]:
    return {
        "qweight": tensor("I32", columns, rows // 8),
        "qzeros": tensor("I32", columns // 128, rows // 8),
        "scales": tensor("F16", columns // 128, rows),
    }


def packed_int(symmetric: bool) -> Matrix:
    def tensors(rows: int, columns: int) -> dict[str, Tensor]:
        found = {
            "weight_packed": tensor("I32", rows, columns // 8),
            "weight_scale": tensor("BF16", rows, columns // 128),
            "weight_shape": tensor("I64", 2),
        }
        return found if symmetric else {**found, "weight_zero_point": tensor("I32", rows // 8, columns // 128)}

    return tensors


def mxfp4(rows: int, columns: int) -> dict[str, Tensor]:
    return {"weight_packed": tensor("U8", rows, columns // 2), "weight_scale": tensor("U8", rows, columns // 32)}


def fp4_exponents(rows: int, columns: int) -> dict[str, Tensor]:
    """DeepSeek V4: two fp4 numbers in an int8, one exponent per 32."""
    return {"weight": tensor("I8", rows, columns // 2), "scale": tensor("F8_E8M0", rows, columns // 32)}


def int8_rows(rows: int, columns: int) -> dict[str, Tensor]:
    return {"weight": tensor("I8", rows, columns), "weight_scale": tensor("BF16", rows, 1)}


def plain(dtype: str) -> Matrix:
    return lambda rows, columns: {"weight": tensor(dtype, rows, columns)}
