"""What a shape derives from its layers."""

from pathlib import Path

from engine.contract.shape import ModelShape
from tests.support.model_configs import QWEN3_235B, shape_of


def test_a_copy_with_other_layers_derives_everything_anew(tmp_path: Path) -> None:
    shape = shape_of(QWEN3_235B, tmp_path / "q")
    assert len(shape.kv_layers) == len(shape.cached_layers) == len(shape.moe_layers) == 94
    fewer = shape.model_copy(update={"layers": shape.layers[:3]})
    assert len(fewer.kv_layers) == len(fewer.cached_layers) == len(fewer.moe_layers) == 3


def test_what_is_derived_is_neither_written_nor_compared(tmp_path: Path) -> None:
    shape = shape_of(QWEN3_235B, tmp_path / "q")
    untouched = ModelShape.model_validate_json(shape.model_dump_json())
    assert shape.kv_layers and "kv_layers" not in shape.model_dump()
    assert shape == untouched and hash(shape) == hash(untouched)
