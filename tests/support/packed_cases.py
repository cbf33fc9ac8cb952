"""Every way of packing the experts that the engine unpacks, each on a family that is published so."""

from pathlib import Path
from typing import Any

import torch

from engine.contract.formats import WeightFormat
from tests.support import packed_weights as pack
from tests.support.packed_models import PackedModel, packed_model

Case = tuple[str, dict[str, Any], dict[str, Any]]  # family, quantization_config, arguments of packed_model

CASES: dict[str, tuple[Case, WeightFormat]] = {
    "gpt-oss": (("gpt_oss", {"quant_method": "mxfp4"}, {"experts": None}), WeightFormat.MXFP4),
    "mxfp4": (
        ("qwen3_moe", {"quant_method": "compressed-tensors"}, {"experts": pack.mxfp4, "dense": pack.mxfp4}),
        WeightFormat.MXFP4,
    ),
    "fp8 blocks": (
        (
            "qwen3_moe",
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            {
                "experts": pack.fp8_blocks("weight_scale_inv", torch.float32),
                "dense": pack.fp8_blocks("weight_scale_inv", torch.float32),
            },
        ),
        WeightFormat.FP8_BLOCK,
    ),
    "fp8 blocks, bf16 scales": (
        (
            "mixtral",
            {"quant_method": "fp8"},
            {
                "experts": pack.fp8_blocks("weight_scale_inv", torch.bfloat16),
                "dense": pack.fp8_blocks("weight_scale_inv", torch.bfloat16),
            },
        ),
        WeightFormat.FP8_BLOCK,
    ),
    "fp8 blocks, exponents": (
        ("mixtral", {"quant_method": "fp8"}, {"experts": pack.fp8_blocks("scale", torch.float8_e8m0fnu)}),
        WeightFormat.FP8_BLOCK,
    ),
    "fp8 whole": (
        ("mixtral", {"quant_method": "modelopt"}, {"experts": pack.fp8_whole, "dense": pack.fp8_whole}),
        WeightFormat.FP8,
    ),
    "fp8 rows": (
        ("qwen3_moe", {"quant_method": "compressed-tensors"}, {"experts": pack.fp8_rows, "dense": pack.fp8_rows}),
        WeightFormat.FP8_CHANNEL,
    ),
    "mxfp8": (("mixtral", {"quant_method": "modelopt"}, {"experts": pack.mxfp8}), WeightFormat.MXFP8),
    "nvfp4 modelopt": (
        ("qwen3_moe", {"quant_method": "modelopt"}, {"experts": pack.nvfp4_modelopt, "dense": pack.nvfp4_modelopt}),
        WeightFormat.NVFP4,
    ),
    "nvfp4 compressed-tensors": (
        (
            "mixtral",
            {"quant_method": "compressed-tensors"},
            {"experts": pack.nvfp4_compressed, "dense": pack.nvfp4_compressed},
        ),
        WeightFormat.NVFP4,
    ),
    "gptq": (
        ("qwen3_moe", {"quant_method": "gptq", "bits": 4}, {"experts": pack.gptq(4, 64), "dense": pack.gptq(4, 64)}),
        WeightFormat.INT4,
    ),
    "gptq 8 bits, version 2, reordered": (
        (
            "mixtral",
            {"quant_method": "gptq", "bits": 8, "checkpoint_format": "gptq_v2"},
            {"experts": pack.gptq(8, 32, version=2, reordered=True)},
        ),
        WeightFormat.INT8,
    ),
    "gptq 3 bits": (("mixtral", {"quant_method": "gptq", "bits": 3}, {"experts": pack.gptq(3, 64)}), WeightFormat.INT3),
    "gptq 2 bits": (("mixtral", {"quant_method": "gptq", "bits": 2}, {"experts": pack.gptq(2, 64)}), WeightFormat.INT2),
    "awq": (
        ("qwen3_moe", {"quant_method": "awq", "bits": 4}, {"experts": pack.awq, "dense": pack.awq}),
        WeightFormat.INT4,
    ),
    "packed int4": (
        (
            "mixtral",
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}},
            {"experts": pack.packed_ints(4, 64, zeros=False), "dense": pack.packed_ints(4, 64, zeros=False)},
        ),
        WeightFormat.INT4,
    ),
    "packed int8 with zero points": (
        (
            "qwen3_moe",
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}},
            {"experts": pack.packed_ints(8, 64, zeros=True), "dense": pack.packed_ints(8, 64, zeros=True)},
        ),
        WeightFormat.INT8,
    ),
    "int8 rows": (
        ("mixtral", {"quant_method": "compressed-tensors"}, {"experts": pack.int8_rows, "dense": pack.int8_rows}),
        WeightFormat.INT8,
    ),
    "mxfp4 in int8": (("mixtral", {"quant_method": "fp8"}, {"experts": pack.mxfp4_in_int8}), WeightFormat.MXFP4),
}


def packed_case(name: str, folder: Path) -> PackedModel:
    """Write both checkpoints of a case."""
    (family, quantised, more), _ = CASES[name]
    return packed_model(folder, family, quantised, **more)
