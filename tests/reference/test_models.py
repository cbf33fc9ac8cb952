"""Every row of models.json: what is read of the configuration has the bytes that were worked out by hand.

A row says where its numbers are from (`source`) and how they come about (`kv`, `bank`: bytes of the first token, bytes
of one layer's experts). The test works these products out again, so that a row cannot contradict itself.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine.contract.estimate import banks, kv_bytes_per_token
from tests.support.model_configs import shape_of

ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("models.json").read_text("utf-8"))
_PRODUCT = re.compile(r"[\d ·+/()]+")


def _worked_out(product: str) -> int:
    assert _PRODUCT.fullmatch(product)
    value: int = eval(product.replace("·", "*"))  # digits and signs only, checked above
    return value


def test_there_are_enough_models_and_each_has_a_source() -> None:
    assert len(ROWS) >= 40
    assert len({row["name"] for row in ROWS}) == len(ROWS)
    assert len({str(row["config"]) for row in ROWS}) == len(ROWS)
    assert all(len(row["source"]) > 10 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_a_published_model_has_its_exact_bytes(row: dict[str, Any], tmp_path: Path) -> None:
    shape = shape_of(row["config"], tmp_path)
    assert kv_bytes_per_token(shape) == row["kv_bytes_per_token"] == _worked_out(row["kv"])
    assert len(shape.moe_layers) == row["moe_layers"]
    assert banks(shape) == (row["bank_bytes"],) * row["moe_layers"]
    assert row["bank_bytes"] == _worked_out(row["bank"])
    assert sum(banks(shape)) == row["bank_total_bytes"]
    if "total_bytes" in row:
        assert sum(banks(shape)) + shape.dense_bytes == row["total_bytes"]
