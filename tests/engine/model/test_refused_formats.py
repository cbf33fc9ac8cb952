"""Weight files that can only be planned for are refused before anything is allocated."""

import pytest

from engine.contract.errors import UnsupportedModelError
from engine.contract.formats import MatrixStorage, WeightFormat, alike
from engine.contract.plan import MemoryPlan
from engine.model.build import load_model
from tests.support.tiny_plan import tiny_plan
from tests.support.untouched import untouched_drivers

ODD = MatrixStorage(format=WeightFormat.BF16, block_bytes=2, scale_bytes=2)  # plain numbers with a scale


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"storages": (alike(ODD),)}, "experts stored as bf16"),
        ({"blocked": "its files are odd"}, "its files are odd"),
    ],
)
def test_a_format_the_engine_cannot_run_is_named(change: dict[str, object], match: str) -> None:
    plan: MemoryPlan = tiny_plan()
    plan = plan.model_copy(update={"model": plan.model.model_copy(update=change)})
    drivers = untouched_drivers()
    with pytest.raises(UnsupportedModelError, match=match) as refused:
        load_model(plan, report=lambda event: None, cancelled=lambda: False, drivers=drivers)
    assert "bf16" in refused.value.fix
