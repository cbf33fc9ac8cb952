"""Weight files that can only be planned for are refused before anything is allocated."""

import pytest

from engine.contract.errors import UnsupportedModelError
from engine.contract.formats import WeightFormat, alike, usual_storage
from engine.contract.plan import MemoryPlan
from engine.model.build import Drivers, load_model
from tests.support.tiny_plan import tiny_plan


class _Untouched:
    """Drivers nobody may ask for anything."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was asked for")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"expert_format": WeightFormat.IQ3_S}, "experts stored as iq3_s"),
        ({"storages": (alike(usual_storage(WeightFormat.Q4_K)),)}, "experts stored as q4_k"),
        ({"container": "gguf"}, "cannot load GGUF files"),
    ],
)
def test_a_format_the_engine_cannot_run_is_named(change: dict[str, object], match: str) -> None:
    plan: MemoryPlan = tiny_plan()
    plan = plan.model_copy(update={"model": plan.model.model_copy(update=change)})
    nothing = _Untouched()
    drivers = Drivers(nothing, nothing, nothing)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedModelError, match=match) as refused:
        load_model(plan, report=lambda event: None, cancelled=lambda: False, drivers=drivers)
    assert "bf16" in refused.value.fix
