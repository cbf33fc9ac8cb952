"""The byte arithmetic against numbers from the field; cases are named by their ids."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract.errors import CannotEstimateError, UnsupportedModelError
from engine.contract.estimate import (
    BANK_ALIGN,
    PART_ALIGN,
    ContextBytes,
    Costs,
    Split,
    bank_bytes,
    expert_record,
    kv_bytes_per_token,
    kv_cache_bytes,
    kv_layer_bytes,
    ledger,
    state_bytes,
)
from engine.contract.estimate_work import workspace_bytes
from engine.contract.families_anatomy import Family
from engine.contract.families_facts import ConfigFacts
from engine.contract.formats import WeightFormat
from engine.contract.plan import Pool, Tier
from engine.contract.shape import ExpertShape, KvShape, LayerShape, ModelShape, PooledShape, StateShape, StateTensor
from tests.support.model_configs import (
    DBRX,
    DEEPSEEK_V3,
    ERNIE_21B,
    GEMMA4_26B,
    GLM_45,
    GPT_OSS_20B,
    GPT_OSS_120B,
    LLAMA4_SCOUT,
    LONGCAT_FLASH,
    MINIMAX_M25,
    MIXTRAL_8X7B,
    OLMOE,
    PHI35_MOE,
    QWEN3_30B,
    QWEN3_235B,
    QWEN3_NEXT_80B,
    QWEN15_MOE,
    QWEN35_35B,
    Config,
    shape_of,
)
from tests.support.tiny_plan import tiny_shape


def _bank(shape: ModelShape, weight_format: WeightFormat | None = None) -> int:
    return bank_bytes(shape.experts, weight_format or shape.expert_format)


def test_t04_qwen3_30b_has_its_exact_bytes(tmp_path: Path) -> None:
    shape = shape_of(QWEN3_30B, tmp_path)
    assert kv_bytes_per_token(shape) == 98_304
    assert kv_cache_bytes(shape, 40_960) == 15 << 28  # 3.75 GiB
    assert kv_cache_bytes(shape, 32_768) == 3 << 30
    assert _bank(shape) == 1_207_959_552
    assert 48 * _bank(shape) == 57_982_058_496
    assert _bank(shape, WeightFormat.NVFP4) == 339_738_624
    assert 48 * _bank(shape, WeightFormat.NVFP4) == int(15.1875 * (1 << 30))
    assert shape.moe_layers == tuple(range(48))


def test_t04_the_layer_rule_leaves_out_dense_layers(tmp_path: Path) -> None:
    named = shape_of(QWEN3_30B | {"mlp_only_layers": [0, 1]}, tmp_path / "a")
    assert named.moe_layers == tuple(range(2, 48))
    stepped = shape_of(QWEN3_30B | {"decoder_sparse_step": 2}, tmp_path / "b")
    assert stepped.moe_layers == tuple(range(1, 48, 2))


def test_t05_qwen35_keeps_tokens_in_every_fourth_layer_and_states_in_the_others(tmp_path: Path) -> None:
    shape = shape_of(QWEN35_35B, tmp_path / "interval")
    assert [layer.index for layer in shape.layers if layer.kv] == list(range(3, 40, 4))
    assert kv_bytes_per_token(shape) == 20_480
    assert kv_cache_bytes(shape, 262_144) == 5 << 30
    assert kv_cache_bytes(shape, 131_141) == 2_685_767_680
    assert len(shape.moe_layers) == 40
    assert _bank(shape, WeightFormat.NVFP4) == 452_984_832
    assert 40 * _bank(shape, WeightFormat.NVFP4) == 18_119_393_280
    theory = 30 * (32 * 128 * 128 * 4 + 8192 * 3 * 4)  # fp32, and three inputs of a convolution of width four
    assert state_bytes(shape) == 30 * (32 * 128 * 128 * 4 + 8192 * 4 * 2)  # ours: bf16 convolution, all four inputs
    assert 0.5 * theory < state_bytes(shape) < 1.5 * theory
    kinds = ["linear_attention"] * 3 + ["full_attention"]
    text = QWEN35_35B["text_config"] | {"layer_types": kinds * 10, "full_attention_interval": None}
    named = shape_of(QWEN35_35B | {"text_config": text}, tmp_path / "types")
    assert named.layers == shape.layers


def test_t06_gpt_oss_caps_its_windowed_layers(tmp_path: Path) -> None:
    shape = shape_of(GPT_OSS_120B, tmp_path)
    assert kv_cache_bytes(shape, 1) == kv_bytes_per_token(shape) == 73_728
    for tokens in (100, 128, 129, 131_072):
        assert kv_cache_bytes(shape, tokens) == 36_864 * tokens + 36_864 * min(tokens, 128)
    assert kv_cache_bytes(shape, 131_072) == 4_836_556_800
    assert _bank(shape) == 1_694_269_440
    assert 36 * _bank(shape) == 60_993_699_840


def test_t06_all_weights_of_gpt_oss_add_up_to_the_published_checkpoint(tmp_path: Path) -> None:
    shape = shape_of(GPT_OSS_120B, tmp_path)
    assert 36 * _bank(shape) + shape.dense_bytes == 65_248_815_744


def test_t07_deepseek_v3_keeps_latents_and_says_so(tmp_path: Path) -> None:
    shape = shape_of(DEEPSEEK_V3, tmp_path)
    assert kv_bytes_per_token(shape) == (512 + 64) * 2 * 61 == 70_272
    assert shape.moe_layers == tuple(range(3, 61))
    assert shape.expert_format is WeightFormat.FP8_BLOCK
    assert _bank(shape) == 11_277_041_664
    note = next(note for note in shape.assumptions if "latent" in note)
    assert "512 + 64 values a token" in note
    assert "128 heads" in note
    expanded = 128 * (192 + 128) * 2  # bytes a token of the one layer that is computed
    assert workspace_bytes(shape, 512, 32_768) - workspace_bytes(shape, 512, 16_384) > 16_384 * expanded


def test_layers_that_guess_ahead_are_left_out_and_said(tmp_path: Path) -> None:
    shape = shape_of(DEEPSEEK_V3, tmp_path / "with")
    assert len(shape.layers) == 61
    assert "1 layer that guesses tokens ahead is not loaded and not counted" in shape.assumptions
    without = shape_of(DEEPSEEK_V3 | {"num_nextn_predict_layers": 0}, tmp_path / "without")
    assert not [note for note in without.assumptions if "ahead" in note]


def test_t08_glm_45_has_its_exact_bytes(tmp_path: Path) -> None:
    shape = shape_of(GLM_45, tmp_path)
    assert kv_bytes_per_token(shape) == 376_832
    assert shape.moe_layers == tuple(range(3, 92))
    assert _bank(shape) == 7_549_747_200


def test_t08_a_head_size_that_cannot_be_derived_is_not_guessed(tmp_path: Path) -> None:
    without = {key: value for key, value in GLM_45.items() if key != "head_dim"}
    with pytest.raises(CannotEstimateError, match=r"(?i)cannot derive head size") as refused:
        shape_of(without, tmp_path)
    assert refused.value.numbers["hidden_size"] == 5120


def test_t09a_a_config_without_layers_is_not_estimated(tmp_path: Path) -> None:
    with pytest.raises(CannotEstimateError, match="neither layers nor attention"):
        shape_of({"model_type": "rwkv7", "hidden_size": 4096}, tmp_path)


def test_t09b_older_key_names_are_understood() -> None:
    facts = ConfigFacts({"n_layer": 12, "n_embd": 768, "n_head": 12}, "old")
    plain = Family(vocab_size=1, max_context=1, top_k=1, all_heads_if_missing=True)
    assert sum(2 * kv.values_per_token for kv in plain.kv_shapes(facts)) == 36_864


def test_t09c_no_kv_heads_mean_one_per_query_head(tmp_path: Path) -> None:
    assert kv_bytes_per_token(shape_of(OLMOE, tmp_path)) == 131_072


def test_t09d_a_text_part_elsewhere_is_named(tmp_path: Path) -> None:
    config = {"model_type": "llava", "text_config": {"_name_or_path": "org/model"}}
    with pytest.raises(CannotEstimateError, match="org/model") as refused:
        shape_of(config, tmp_path)
    assert refused.value.numbers["missing_file"] == "config.json"


def test_t10_minimax_has_its_exact_bytes(tmp_path: Path) -> None:
    shape = shape_of(MINIMAX_M25, tmp_path)
    assert shape.expert_format is WeightFormat.NVFP4
    assert _bank(shape) == 2_038_431_744
    assert kv_bytes_per_token(shape) == 253_952


def test_t11_gemma4_has_its_exact_bytes(tmp_path: Path) -> None:
    shape = shape_of(GEMMA4_26B, tmp_path)
    assert _bank(shape) == 1_522_532_352
    assert 30 * _bank(shape) == 45_675_970_560
    assert kv_bytes_per_token(shape) == 2 * (5 * 2 * 2 * 512 + 25 * 2 * 8 * 256)
    assert [layer.kv.window for layer in shape.layers if layer.kv].count(None) == 5


@pytest.mark.parametrize(
    ("config", "kv_layers", "kv_token", "bank_layers", "bank"),
    [
        pytest.param(MIXTRAL_8X7B, 32, 131_072, 32, 2_818_572_288, id="Mixtral-8x7B"),
        pytest.param(QWEN3_NEXT_80B, 12, 24_576, 48, 3_221_225_472, id="Qwen3-Next-80B-A3B"),
        pytest.param(QWEN15_MOE, 24, 196_608, 24, 1_038_090_240, id="Qwen1.5-MoE-A2.7B"),
        pytest.param(PHI35_MOE, 32, 131_072, 32, 2_516_582_400, id="Phi-3.5-MoE"),
        pytest.param(LLAMA4_SCOUT, 48, 196_608, 48, 4_026_531_840, id="Llama-4-Scout"),
        pytest.param(ERNIE_21B, 28, 57_344, 27, 1_509_949_440, id="ERNIE-4.5-21B-A3B"),
        pytest.param(GPT_OSS_20B, 24, 49_152, 24, 423_567_360, id="gpt-oss-20b"),
        pytest.param(DBRX, 40, 163_840, 40, 6_341_787_648, id="DBRX"),
        pytest.param(LONGCAT_FLASH, 56, 64_512, 28, 38_654_705_664, id="LongCat-Flash"),
        pytest.param(QWEN3_235B, 94, 192_512, 94, None, id="Qwen3-235B-A22B"),
    ],
)
def test_reference_values(
    config: Config, kv_layers: int, kv_token: int, bank_layers: int, bank: int | None, tmp_path: Path
) -> None:
    shape = shape_of(config, tmp_path)
    assert len(shape.kv_layers) == kv_layers
    assert kv_bytes_per_token(shape) == kv_token
    assert len(shape.moe_layers) == bank_layers
    assert bank is None or _bank(shape) == bank


@pytest.mark.parametrize("kind", ["doge", "nllb_moe"])
def test_families_whose_experts_cannot_be_taken_out_are_unsupported(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="not supported"):
        shape_of({"model_type": kind, "num_hidden_layers": 48, "num_local_experts": 16}, tmp_path)


experts = st.builds(
    ExpertShape,
    n_experts=st.integers(1, 40),
    top_k=st.just(1),
    width=st.integers(1, 300),
    inner=st.integers(1, 300),
    has_gate=st.booleans(),
    has_bias=st.booleans(),
)


@given(experts, st.sampled_from(WeightFormat))
def test_an_expert_record_is_aligned_and_holds_its_parts_without_overlap(
    shape: ExpertShape, weight_format: WeightFormat
) -> None:
    record = expert_record(shape, weight_format)
    end = 0
    for part in record.parts:
        assert part.offset % PART_ALIGN == 0
        assert part.offset >= end
        end = part.offset + part.bytes
    assert end <= record.bytes < end + PART_ALIGN
    bank = bank_bytes(shape, weight_format)
    assert bank % BANK_ALIGN == 0
    assert 0 <= bank - shape.n_experts * record.bytes < BANK_ALIGN


pools = st.builds(PooledShape, step=st.integers(2, 200), dim=st.integers(1, 128), index=st.booleans())
kv_shapes = st.builds(
    KvShape,
    n_kv_heads=st.integers(1, 8),
    key_dim=st.integers(1, 128),
    value_dim=st.integers(1, 128),
    window=st.none() | st.integers(1, 5000),
    n_heads=st.none() | st.integers(8, 64),
    writes_scores=st.booleans(),
    index_heads=st.integers(0, 8),
    index_positions=st.integers(0, 3),
    bias_extent=st.integers(0, 500),
    pooled=st.just(()) | st.lists(pools, max_size=2).map(tuple),
)


states = st.builds(
    StateShape,
    tensors=st.just((StateTensor(kind="convolution", sizes=(5, 4), dtype="model"),)),
    work_values=st.integers(0, 100_000),
    work_block=st.sampled_from([1, 64, 256]),
)


def _with_kv(kvs: list[KvShape | None], most: int = 100_000) -> ModelShape:
    layers = tuple(
        LayerShape(index=index, kv=kv, moe=True, passes=1 + index % 2) for index, kv in enumerate(kvs)
    )  # every other layer is passed through twice
    return tiny_shape().model_copy(update={"layers": layers, "max_context_tokens": most})


@given(
    st.lists(st.none() | kv_shapes, min_size=1, max_size=6),
    st.lists(states, max_size=3),
    st.integers(0, 100_000),
    st.integers(1, 600),
)
def test_context_bytes_are_cache_states_and_workspace(
    kvs: list[KvShape | None], kept: list[StateShape], tokens: int, chunk: int
) -> None:
    shape = _with_kv(kvs)
    linear = tuple(LayerShape(index=len(kvs) + index, state=state) for index, state in enumerate(kept))
    shape = shape.model_copy(update={"layers": (*shape.layers, *linear)})
    assert state_bytes(shape) == len(kept) * 5 * 4 * 2
    assert ContextBytes(shape, chunk).at(tokens) == (
        kv_cache_bytes(shape, tokens) + state_bytes(shape) + workspace_bytes(shape, chunk, tokens)
    )


@given(kv_shapes, st.integers(0, 10_000), st.integers(0, 300), st.sampled_from([1, 64, 512]))
def test_more_context_never_takes_less(kv: KvShape, tokens: int, more: int, chunk: int) -> None:
    assert kv_layer_bytes(kv, tokens) <= kv_layer_bytes(kv, tokens + more)
    context = ContextBytes(_with_kv([kv]), chunk)
    assert context.at(tokens) <= context.at(tokens + more)


@given(st.lists(kv_shapes, min_size=1, max_size=4), st.integers(0, 1 << 34), st.integers(1, 100_000))
def test_most_tokens_is_the_inverse_of_context_bytes(kvs: list[KvShape], budget: int, most: int) -> None:
    context = ContextBytes(_with_kv(list(kvs), most), 64)
    tokens = context.most_tokens(budget)
    assert tokens == most or tokens % 256 == 0
    assert tokens == 0 or context.at(tokens) <= budget
    if tokens < most:
        assert context.at(min(tokens + 256, most)) > budget


def test_a_negative_context_is_refused() -> None:
    with pytest.raises(ValueError, match="context_tokens"):
        kv_cache_bytes(tiny_shape(), -1)


def test_the_ledger_counts_every_byte_in_every_pool_it_limits() -> None:
    shape = tiny_shape(4)
    bank = bank_bytes(shape.experts, shape.expert_format)
    split = Split(
        context_tokens=256,
        prefill_chunk=32,
        expert_slots=3,
        tiers=(Tier.VRAM, Tier.PINNED, Tier.LOCKED, Tier.PAGEABLE),
        on_gpu=True,
    )
    lines = ledger(shape, split, Costs(context_bytes=7, host_runtime_bytes=11))
    pools = {pool: sum(line.bytes for line in lines if line.pool is pool) for pool in Pool}
    slots = 3 * expert_record(shape.experts, shape.expert_format).bytes
    device = shape.dense_bytes + kv_cache_bytes(shape, 256) + workspace_bytes(shape, 32, 256)
    assert pools[Pool.VRAM] == device + bank + slots + 7
    assert pools[Pool.PINNED] == pools[Pool.LOCKED] == pools[Pool.PAGEABLE] == bank
    assert pools[Pool.RAM] == 11 + 2 * bank
    assert pools[Pool.COMMIT] == 11 + 3 * bank
    assert all(line.bytes for line in lines)


def test_without_a_gpu_everything_counts_against_ram() -> None:
    shape = tiny_shape(2)
    split = Split(context_tokens=256, prefill_chunk=32, expert_slots=0, tiers=(Tier.LOCKED,) * 2, on_gpu=False)
    lines = ledger(shape, split, Costs(host_runtime_bytes=11))
    assert not [line for line in lines if line.pool is Pool.VRAM]
    ram = sum(line.bytes for line in lines if line.pool is Pool.RAM)
    banks = 2 * bank_bytes(shape.experts, shape.expert_format)
    assert ram == shape.dense_bytes + kv_cache_bytes(shape, 256) + workspace_bytes(shape, 32, 256) + 11 + banks
