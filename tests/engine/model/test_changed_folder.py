"""A model folder that was changed after it was planned is refused before anything is allocated."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.contract.changed_model import ModelChangedError
from engine.contract.checkpoint import read_shape
from engine.contract.kv_types import kept_in
from engine.contract.plan import MemoryPlan
from engine.model.build import load_model
from tests.engine.model.conftest import Load, Tiny
from tests.support.gguf_models import gguf_model
from tests.support.tiny_models import TinyModel, mixtral, plan_for
from tests.support.untouched import untouched_drivers

Change = Callable[[Path], object]


def _config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | changes), "utf-8")


def _refused(plan: MemoryPlan) -> ModelChangedError:
    with pytest.raises(ModelChangedError) as refused:
        load_model(plan, report=lambda event: None, cancelled=lambda: False, drivers=untouched_drivers())
    return refused.value


@pytest.fixture
def planned(tiny: Tiny, tmp_path: Path) -> MemoryPlan:
    """For a folder whose files may be changed."""
    checkpoint = tiny("mixtral")
    return plan_for(TinyModel(shutil.copytree(checkpoint.folder, tmp_path / "model"), checkpoint.shape), "vplg")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"num_experts_per_tok": 4}, "experts a token 2 in the plan, 4 now"),
        ({"max_position_embeddings": 256}, "longest context 512 in the plan, 256 now"),
        ({"sliding_window": 8}, "what layer 0 is or keeps"),
    ],
)
def test_another_configuration_is_refused(changes: dict[str, object], told: str, planned: MemoryPlan) -> None:
    _config(Path(planned.model_dir), **changes)
    assert told in _refused(planned).sentence


def test_other_weights_under_the_same_name_are_refused(planned: MemoryPlan) -> None:
    shutil.rmtree(planned.model_dir)
    mixtral(Path(planned.model_dir), tie_word_embeddings=True)
    assert "bytes of the weights that every token uses" in _refused(planned).sentence


def test_gguf_files_in_place_of_safetensors_are_refused(planned: MemoryPlan, tmp_path: Path) -> None:
    shutil.rmtree(planned.model_dir)
    shutil.copytree(gguf_model(tmp_path, "llama", gate="Q8_0").gguf.folder, planned.model_dir)
    assert "weight files safetensors in the plan, gguf now" in _refused(planned).sentence


def test_another_gguf_file_under_the_same_name_is_refused(tmp_path: Path) -> None:
    small, large = (gguf_model(tmp_path / name, "llama", gate=name) for name in ("Q4_0", "Q8_0"))
    plan = plan_for(small.gguf, "vplg")
    shutil.rmtree(small.gguf.folder)
    shutil.copytree(large.gguf.folder, small.gguf.folder)
    assert "format of the experts q4_0 in the plan, q8_0 now" in _refused(plan).sentence


def test_planning_again_is_the_way_out(planned: MemoryPlan, load: Load) -> None:
    folder = Path(planned.model_dir)
    _config(folder, num_experts_per_tok=4)
    load(plan_for(TinyModel(folder, read_shape(folder)), "vplg"))


def test_what_changes_no_byte_is_loaded(planned: MemoryPlan, load: Load) -> None:
    _config(Path(planned.model_dir), rope_theta=5e5, rms_norm_eps=1e-6)
    load(planned)


def test_a_plan_with_another_type_of_keys_and_values_is_no_change(planned: MemoryPlan, load: Load) -> None:
    folder = Path(planned.model_dir)
    load(plan_for(TinyModel(folder, kept_in(read_shape(folder), "fp8")), "vplg"))
