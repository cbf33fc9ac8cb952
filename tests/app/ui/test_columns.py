"""Columns of the numbers on the Split page."""

from hypothesis import given
from hypothesis import strategies as st

from app.ui.columns import column_widths

PARTS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 300)), min_size=1, max_size=6)


def test_columns_stay_in_place_while_every_text_fits() -> None:
    assert column_widths(900, (3, 2, 4), (200, 150, 10)) == column_widths(900, (3, 2, 4), (300, 200, 390))


def test_a_text_that_needs_more_than_its_share_takes_it_from_those_with_room() -> None:
    assert column_widths(900, (1, 1, 1), (400, 0, 0)) == [400, 250, 250]


@given(st.integers(0, 2000), PARTS)
def test_columns_fill_the_room_and_cut_no_text_that_fits(room: int, parts: list[tuple[int, int]]) -> None:
    shares, needs = [share for share, _ in parts], [need for _, need in parts]
    widths = column_widths(room, shares, needs)
    assert sum(widths) == room
    if sum(needs) <= room:
        assert all(width >= need for width, need in zip(widths, needs, strict=True))
