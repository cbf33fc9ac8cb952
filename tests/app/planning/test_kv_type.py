"""The type of the KV cache as a wish and as a fix."""

import json
from pathlib import Path

import pytest

from app.__main__ import main
from app.planning.planner import make_plan
from app.planning.speed import predict, run_of
from app.planning.wishes import Wishes
from app.ui.split_wishes import SplitWishes
from engine.contract.errors import NotEnoughVramError, UsageError
from engine.contract.estimate import kv_cache_bytes, unpacked_kv_bytes
from engine.contract.facts import HardwareFacts
from engine.contract.kv_types import kept_in
from engine.contract.plan import MemoryPlan, Pool
from engine.contract.shape import KvType, ModelShape
from engine.contract.units import GIB, gib
from tests.support.machines import gib_bytes, gpu, machine
from tests.support.model_configs import DEEPSEEK_V3, QWEN3_30B, folder_with, shape_of

MACHINE, SMALL = (machine(gib_bytes(96), gpu(gib_bytes(vram))) for vram in (12, 6))
KINDS: tuple[KvType | None, ...] = (None, "fp8")
DESKTOP = str(Path(__file__).parents[2] / "machines" / "desktop_63gb_rtx4090.json")


@pytest.fixture
def qwen(tmp_path: Path) -> ModelShape:
    return shape_of(QWEN3_30B, tmp_path)


def _plan(
    shape: ModelShape, tokens: int | None, kv_dtype: KvType | None, facts: HardwareFacts = MACHINE, **wishes: object
) -> MemoryPlan:
    asked = Wishes.model_validate({"context_tokens": tokens, "kv_dtype": kv_dtype, **wishes})
    return make_plan(shape, facts, asked, model_dir="x")


def test_fp8_is_kept_as_the_user_fixed_it_and_leaves_more_layers_in_vram(qwen: ModelShape) -> None:
    own, fp8 = _plan(qwen, 16_384, None), _plan(qwen, 16_384, "fp8")
    assert (own.kv_dtype, fp8.kv_dtype) == ("bf16", "fp8")
    assert own.context_tokens == fp8.context_tokens
    lines = {line.what: line.bytes for line in fp8.ledger if line.pool is Pool.VRAM}
    assert lines["KV cache"] == kv_cache_bytes(fp8.model, 16_384) < 0.52 * kv_cache_bytes(qwen, 16_384)
    assert fp8.pool_bytes(Pool.VRAM) <= (fp8.budgets[Pool.VRAM] or 0)
    saved = kv_cache_bytes(own.model, 16_384) - lines["KV cache"] - lines["unpacked KV"]
    assert saved > GIB // 2
    assert MemoryPlan.model_validate_json(fp8.model_dump_json()) == fp8


def test_without_a_context_fp8_makes_it_longer(qwen: ModelShape) -> None:
    own, fp8 = (_plan(qwen, None, kind, SMALL, vram_layers=0).context_tokens for kind in KINDS)
    assert fp8 > 1.6 * own


def test_fp8_is_offered_with_what_it_saves_where_it_is_enough(qwen: ModelShape) -> None:
    most = _plan(qwen, None, None, SMALL, vram_layers=0).context_tokens
    asked = most * 3 // 2
    with pytest.raises(NotEnoughVramError) as refused:
        _plan(qwen, asked, None, SMALL)
    fix = next(fix for fix in refused.value.fixes if fix.change == "kv_dtype")
    small = kept_in(qwen, "fp8")
    plan = _plan(qwen, asked, "fp8", SMALL)
    tokens = plan.context_tokens
    saved = kv_cache_bytes(qwen, tokens) - kv_cache_bytes(small, tokens) - unpacked_kv_bytes(small, tokens)
    assert fix.sentence == f"Keep the KV cache in fp8: saves {gib(saved)}."
    assert fix.numbers == {"kv_dtype": "fp8", "saved_bytes": saved}
    with pytest.raises(NotEnoughVramError) as twice:
        _plan(qwen, 3 * most, None, SMALL)
    assert "kv_dtype" not in [fix.change for fix in twice.value.fixes], "half would not be enough"


def test_runs_with_another_kv_type_teach_nothing_of_this_one(qwen: ModelShape) -> None:
    own, fp8 = (_plan(qwen, 8192, kind) for kind in KINDS)
    run = run_of(fp8, prompt_tokens=500, answer_tokens=100, decode_tok_s=9.0, prefill_tok_s=90.0)
    assert run is not None
    assert predict(fp8, None, [run]) is not None
    assert predict(own, None, [run]) is None


def test_latents_are_refused_and_never_offered_in_fp8(tmp_path: Path) -> None:
    shape = shape_of(DEEPSEEK_V3, tmp_path)
    with pytest.raises(UsageError, match="keeps latents"):
        _plan(shape, 4096, "fp8")


def test_the_wish_of_a_model_is_kept_like_its_others() -> None:
    wishes, folder = SplitWishes(), Path("m")
    saved = wishes.change(folder, kv_dtype="fp8")
    assert wishes.of(folder).kv_dtype == "fp8"
    assert Wishes.model_validate_json(saved.model_dump_json()) == saved
    assert Wishes.model_validate({"kv_dtype": None}).kv_dtype is None, "as older settings say it"


def test_the_command_line_takes_the_type_and_the_document_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = folder_with(QWEN3_30B, tmp_path / "model")
    command = ["--profile-dir", str(tmp_path / "p"), "plan", "--model", str(model), "--machine", DESKTOP, "--json"]
    sizes = {}
    for asked, kept in (("auto", "bf16"), ("bf16", "bf16"), ("fp8", "fp8")):
        assert main([*command, "--context", "8192", "--kv-dtype", asked]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["plan"]["kv_dtype"] == kept
        sizes[asked] = found["model"]["kv_bytes"]
    assert sizes["auto"] == sizes["bf16"] > 1.9 * sizes["fp8"]
