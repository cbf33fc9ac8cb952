"""Stop strings never leak, not even a part of one."""

from hypothesis import given
from hypothesis import strategies as st

from engine.generate.stops import StopStrings


def through(stops: StopStrings, pieces: list[str]) -> list[str]:
    return [*(stops.feed(piece) for piece in pieces), stops.flush()]


def test_the_beginning_of_a_stop_string_is_held_until_it_is_decided() -> None:
    assert through(StopStrings(("END",)), ["go E", "N", "ough E"]) == ["go ", "", "ENough ", "E"]


def test_a_stop_string_over_three_pieces_ends_the_answer_before_it() -> None:
    stops = StopStrings(("END",))
    assert through(stops, ["go E", "N", "D more", "and more"]) == ["go ", "", "", "", ""]
    assert stops.found


def test_the_earliest_of_several_stop_strings_counts() -> None:
    assert through(StopStrings(("later", "now")), ["a now b later"])[0] == "a "


def test_without_stop_strings_nothing_is_held() -> None:
    assert through(StopStrings(()), ["a", "b"]) == ["a", "b", ""]


@given(
    text=st.text(alphabet="ab", max_size=25),
    stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=3),
    draw=st.data(),
)
def test_any_cut_of_the_text_ends_before_a_stop_string(text: str, stops: list[str], draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    holder = StopStrings(tuple(stops))
    out = "".join(through(holder, pieces))
    assert not any(stop in out for stop in stops)
    assert text.startswith(out)
    assert holder.found == any(stop in text for stop in stops)
    if not holder.found:
        assert out == text
