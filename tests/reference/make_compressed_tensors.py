"""Writes compressed_tensors.safetensors: small matrices packed by compressed-tensors, and what it unpacks them to.

    pip install --no-deps --target DIR compressed-tensors==0.20.1 loguru
    PYTHONPATH=DIR:. python -m tests.reference.make_compressed_tensors

Names in the file: "<case>.<ending of the tensor in a checkpoint>", and "<case>.values" for the unpacked weights.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

FILE = Path(__file__).with_name("compressed_tensors.safetensors")
ROWS, COLUMNS = 16, 128

_INT: dict[str, Any] = {"type": "int", "strategy": "group", "group_size": 32}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "int4": ("pack-quantized", {**_INT, "num_bits": 4, "symmetric": True}),
    "int4_zeros": ("pack-quantized", {**_INT, "num_bits": 4, "symmetric": False}),
    "int8_zeros": ("pack-quantized", {**_INT, "num_bits": 8, "symmetric": False}),
    "int3": ("pack-quantized", {**_INT, "num_bits": 3, "symmetric": True}),
    "int8_rows": ("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}),
    "fp8_rows": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}),
    "nvfp4": (
        "nvfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True},
    ),
    "mxfp4": (
        "mxfp4-pack-quantized",
        {
            "num_bits": 4,
            "type": "float",
            "strategy": "group",
            "group_size": 32,
            "symmetric": True,
            "scale_dtype": torch.uint8,
        },
    ),
}


def _scales(case: str, weight: Tensor) -> dict[str, Tensor]:
    """Scales and zero points as a calibration would find them."""
    scale = (weight.view(ROWS, -1, 32).abs().amax(2) / 7).to(torch.bfloat16)
    match case:
        case "int4_zeros" | "int8_zeros":
            points = (torch.arange(scale.numel()).view(scale.shape) % 13 - 6).to(torch.int8)
            return {"weight_scale": scale, "weight_zero_point": points}
        case "int8_rows":
            return {"weight_scale": (weight.abs().amax(1, keepdim=True) / 127).to(torch.bfloat16)}
        case "fp8_rows":
            return {"weight_scale": (weight.abs().amax(1, keepdim=True) / 448).to(torch.bfloat16)}
        case "nvfp4":
            whole = 448 * 6 / weight.abs().max()
            return {
                "weight_scale": weight.view(ROWS, -1, 16).abs().amax(2) / 6 * whole,
                "weight_global_scale": whole.reshape(1),
            }
        case "mxfp4":
            return {"weight_scale": torch.exp2(torch.floor(torch.log2(weight.view(ROWS, -1, 32).abs().amax(2))) - 2)}
        case _:
            return {"weight_scale": scale}


def main() -> None:
    """Write the file."""
    quantization: Any = import_module("compressed_tensors.quantization")
    compressors: Any = import_module("compressed_tensors.compressors")
    random = torch.Generator().manual_seed(1)
    found: dict[str, Tensor] = {}
    for case, (layout, arguments) in CASES.items():
        weight = torch.randn(ROWS, COLUMNS, generator=random) * 0.1
        scheme = quantization.QuantizationScheme(
            targets=["Linear"], weights=quantization.QuantizationArgs(**arguments), format=layout
        )
        compressor = compressors.BaseCompressor.get_value_from_registry(layout)
        packed = compressor.compress({"weight": weight, **_scales(case, weight)}, scheme)
        values = compressor.decompress(packed, scheme)["weight"]
        kept = {name: tensor for name, tensor in packed.items() if isinstance(tensor, Tensor)}
        found |= {f"{case}.{name}": tensor.detach().contiguous() for name, tensor in kept.items()}
        found[f"{case}.values"] = values.detach().float().contiguous()
    save_file(found, FILE)


if __name__ == "__main__":
    main()
