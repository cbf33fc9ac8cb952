"""What a load counts up to."""

from engine.contract.formats import WeightFormat, alike, usual_storage
from engine.contract.load_peak import weight_bytes
from tests.support.figures import EVEN


def test_all_weights_count_once_and_gaps_between_parts_do_not() -> None:
    assert weight_bytes(EVEN) == 100_000_000 + 8 * 32 * 3 * 1024 * 1024 * 2
    odd = EVEN.experts.model_copy(update={"width": 3, "inner": 5, "n_experts": 2, "top_k": 1})
    assert weight_bytes(EVEN.model_copy(update={"experts": odd})) == 100_000_000 + 8 * 2 * 3 * 15 * 2


def test_layers_that_are_stored_differently_count_as_they_are() -> None:
    plain, packed = (alike(usual_storage(form)) for form in (WeightFormat.BF16, WeightFormat.NVFP4))
    mixed = EVEN.model_copy(update={"storages": (plain,) * 3 + (packed,) * 5})
    matrices = 32 * 3 * 1024 * 1024
    assert weight_bytes(mixed) == 100_000_000 + matrices * (3 * 2) + 5 * (matrices // 2 + matrices // 16)
