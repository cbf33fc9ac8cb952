"""Bytes of a matrix in every format, of banks that differ from layer to layer, and what the ledger makes of them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.contract.estimate import Costs, Split, bank_bytes, banks, expert_record, ledger, slot_bytes
from engine.contract.formats import (
    GGUF_BLOCKS,
    ExpertStorage,
    MatrixStorage,
    WeightFormat,
    alike,
    int_groups,
    matrix_bytes,
    usual_storage,
)
from engine.contract.plan import Pool, Tier
from engine.contract.shape import ExpertShape, ModelShape
from tests.support.tiny_plan import tiny_shape

BYTES_A_WEIGHT = {
    WeightFormat.FP32: Fraction(4),
    WeightFormat.BF16: Fraction(2),
    WeightFormat.FP16: Fraction(2),
    WeightFormat.FP8: Fraction(1),
    WeightFormat.FP8_CHANNEL: 1 + Fraction(4, 2048),
    WeightFormat.FP8_BLOCK: 1 + Fraction(4, 128 * 128),
    WeightFormat.MXFP8: 1 + Fraction(1, 32),
    WeightFormat.NVFP4: Fraction(9, 16),
    WeightFormat.MXFP4: Fraction(17, 32),
    WeightFormat.INT8: 1 + Fraction(2, 128) + Fraction(1, 128),
    WeightFormat.INT4: Fraction(1, 2) + Fraction(2, 128) + Fraction(1, 256),
    WeightFormat.INT3: Fraction(3, 8) + Fraction(2, 128) + Fraction(3, 8 * 128),
    WeightFormat.INT2: Fraction(1, 4) + Fraction(2, 128) + Fraction(1, 4 * 128),
    **{form: Fraction(size, weights) for form, (weights, size) in GGUF_BLOCKS.items()},
}


@pytest.mark.parametrize("weight_format", WeightFormat)
def test_a_matrix_takes_the_published_bytes_a_weight(weight_format: WeightFormat) -> None:
    assert matrix_bytes(weight_format, 1024, 2048) == BYTES_A_WEIGHT[weight_format] * 1024 * 2048


def test_tiles_at_the_edge_have_a_scale_too() -> None:
    assert matrix_bytes(WeightFormat.FP8_BLOCK, 129, 300) == 129 * 300 + 2 * 3 * 4


def test_gate_and_up_have_scales_of_their_own() -> None:
    """Each is cut into tiles by itself, so 2 · ⌈F/128⌉ rows of tiles and not ⌈2F/128⌉."""
    experts = ExpertShape(n_experts=1, top_k=1, width=128, inner=192)
    parts = {part.name: part for part in expert_record(experts, WeightFormat.FP8_BLOCK).parts}
    assert (parts["gate_up_scale"].rows, parts["gate_up_scale"].bytes) == (4, 16)


def test_the_record_names_what_belongs_to_each_matrix() -> None:
    experts = ExpertShape(n_experts=2, top_k=1, width=256, inner=512, has_bias=True)
    gptq = alike(int_groups(WeightFormat.INT4, 128, order_bytes=4))
    record = expert_record(experts, gptq)
    sizes = {part.name: part.bytes for part in record.parts}
    assert sizes == {
        "gate_up": 2 * 512 * 128, "gate_up_scale": 2 * 512 * 2 * 2, "gate_up_zero": 2 * 512 // 2 * 2,
        "gate_up_order": 2 * 256 * 4, "down": 256 * 256, "down_scale": 256 * 4 * 2, "down_zero": 256 // 2 * 4,
        "down_order": 512 * 4, "gate_up_bias": 1024 * 2, "down_bias": 256 * 2,
    }  # fmt: skip


def _mixed() -> ModelShape:
    """Three layers: bf16, Q4_K with a Q6_K down projection, gate and up unlike."""
    q4, q6 = usual_storage(WeightFormat.Q4_K), usual_storage(WeightFormat.Q6_K)
    return tiny_shape(3).model_copy(
        update={
            "experts": ExpertShape(n_experts=4, top_k=2, width=256, inner=512),
            "storages": (
                alike(usual_storage(WeightFormat.BF16)),
                ExpertStorage(gate=q4, up=q4, down=q6),
                ExpertStorage(gate=q6, up=q4, down=q4),
            ),
        }
    )


def test_banks_of_a_mixed_model_add_up_layer_by_layer() -> None:
    shape = _mixed()
    matrix = 4 * 256 * 512 // 256
    expected = (4 * 3 * 256 * 512 * 2, matrix * (144 + 144 + 210), matrix * (210 + 144 + 144))
    assert banks(shape) == expected
    assert slot_bytes(shape) == expected[0] // 4
    assert [part.name for part in expert_record(shape.experts, shape.storages[2]).parts] == ["gate", "up", "down"]


@given(st.permutations([Tier.VRAM, Tier.PINNED, Tier.LOCKED]))
def test_the_ledger_counts_the_bank_of_the_very_layer(tiers: list[Tier]) -> None:
    shape = _mixed()
    split = Split(context_tokens=256, prefill_chunk=32, expert_slots=3, tiers=tuple(tiers), on_gpu=True)
    lines = ledger(shape, split, Costs())
    sizes = dict(zip(tiers, banks(shape), strict=True))
    found = {line.what: line.bytes for line in lines if line.pool in (Pool.VRAM, Pool.PINNED, Pool.LOCKED)}
    assert found["expert layers"] == sizes[Tier.VRAM]
    assert found["pinned layers"] == sizes[Tier.PINNED]
    assert found["locked layers"] == sizes[Tier.LOCKED]
    assert found["expert slots"] == 3 * slot_bytes(shape)


def test_storages_are_for_no_layer_one_or_all() -> None:
    storage = alike(usual_storage(WeightFormat.Q8_0))
    assert tiny_shape(3).layer_storages == (alike(usual_storage(WeightFormat.BF16)),) * 3
    one = ModelShape.model_validate(tiny_shape(3).model_dump() | {"storages": [storage.model_dump()]})
    assert one.layer_storages == (storage,) * 3
    assert banks(one) == (bank_bytes(one.experts, storage),) * 3
    with pytest.raises(ValidationError, match="2 storages for 3 MoE layers"):
        ModelShape.model_validate(tiny_shape(3).model_dump() | {"storages": [storage.model_dump()] * 2})


def test_only_what_the_engine_can_run_is_called_runnable() -> None:
    shape = tiny_shape()
    assert shape.not_runnable is None
    assert all(shape.model_copy(update={"expert_format": form}).not_runnable is None for form in WeightFormat)
    assert shape.model_copy(update={"blocked": "it is too odd"}).not_runnable == "it is too odd"
    odd = MatrixStorage(format=WeightFormat.BF16, block_bytes=2, scale_bytes=2)
    assert shape.model_copy(update={"storages": (alike(odd),)}).not_runnable is not None
