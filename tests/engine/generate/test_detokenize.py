"""Text out of tokens: T21, and equality with what the tokenizer itself says about the whole answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import Metaspace
from transformers import PreTrainedTokenizerFast

from engine.generate.detokenize import (
    MOST_HELD_TOKENS,
    REPLACEMENT,
    ByteStream,
    Detokenizer,
    TextStream,
    Utf8Stream,
    WindowStream,
)
from tests.support.fake_model import byte_tokenizer

BYTES = byte_tokenizer()


def fallback_tokenizer() -> Any:
    """A SentencePiece-like vocabulary: a few words, and bytes for the rest."""
    pieces = ["<unk>", "</s>", "▁", "▁hello", "▁world", "h", "e", "l", "o", "▁你", "<think>"]
    pieces += [f"<0x{byte:02X}>" for byte in range(256)]
    core = Tokenizer(
        models.BPE({piece: place for place, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True)
    )
    core.pre_tokenizer = Metaspace(prepend_scheme="first", split=False)
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    make: Any = PreTrainedTokenizerFast
    tokenizer = make(tokenizer_object=core, unk_token="<unk>", eos_token="</s>")
    tokenizer.add_tokens(["<think>"])  # an added token that is text, not a special one
    return tokenizer


FALLBACK = fallback_tokenizer()


def streamed(stream: TextStream, ids: list[int]) -> list[str]:
    return [*(stream.feed(token_id) for token_id in ids), stream.flush()]


def test_t21_characters_split_over_pieces_wait_for_their_last_byte() -> None:
    stream = Utf8Stream()
    pieces = [b"\xf0\x9f", b"\x8d\x8e", b"\x20\xe4\xbd", b"\xa0"]
    assert [stream.feed(piece) for piece in pieces] == ["", "🍎", " ", "你"]
    assert stream.flush() == ""


def test_t21_an_unfinished_character_becomes_one_replacement_at_the_end() -> None:
    stream = Utf8Stream()
    assert stream.feed(b"\x41\xf0\x9f") == "A"
    assert stream.flush() == REPLACEMENT


@given(st.binary(max_size=40), st.data())
def test_any_cut_of_the_bytes_gives_the_same_text(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=6)))
    stream = Utf8Stream()
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert "".join(stream.feed(piece) for piece in pieces) + stream.flush() == data.decode("utf-8", errors="replace")


@given(st.text(max_size=30))
def test_byte_level_tokens_stream_into_the_text_they_came_from(text: str) -> None:
    ids = BYTES.encode(text, add_special_tokens=False)
    parts = streamed(Detokenizer(BYTES).stream(), ids)
    assert "".join(parts) == BYTES.decode(ids, skip_special_tokens=True)
    if REPLACEMENT not in text:
        assert not any(REPLACEMENT in part for part in parts)


@given(st.text(alphabet="hello wrd你🍎é\n", max_size=20))
def test_byte_fallback_tokens_stream_into_what_the_tokenizer_says(text: str) -> None:
    ids = FALLBACK.encode(text, add_special_tokens=False)
    parts = streamed(Detokenizer(FALLBACK).stream(), ids)
    assert "".join(parts) == FALLBACK.decode(ids, skip_special_tokens=True)
    assert not any(REPLACEMENT in part for part in parts)


def test_one_broken_byte_does_not_take_its_neighbours_along() -> None:
    token_ids = FALLBACK.convert_tokens_to_ids(["h", "<0xFF>", "<0x41>"])
    assert "".join(streamed(Detokenizer(FALLBACK).stream(), token_ids)) == f"h{REPLACEMENT}A"


@given(st.text(alphabet="hello 你🍎x", max_size=20))
def test_a_tokenizer_of_an_unknown_kind_streams_the_same_text(text: str) -> None:
    ids = BYTES.encode(text, add_special_tokens=False)
    parts = streamed(WindowStream(BYTES), ids)
    assert "".join(parts) == text
    assert not any(REPLACEMENT in part for part in parts)


@pytest.mark.parametrize("tokenizer", [BYTES, FALLBACK])
def test_vocabularies_of_bytes_are_recognised(tokenizer: Any) -> None:
    assert isinstance(Detokenizer(tokenizer).stream(), ByteStream)


def test_an_unknown_decoder_falls_back_to_the_window() -> None:
    core = Tokenizer(models.WordPiece({"[UNK]": 0, "hel": 1, "##lo": 2}, unk_token="[UNK]"))
    core.decoder = decoders.WordPiece()
    make: Any = PreTrainedTokenizerFast
    tokenizer = make(tokenizer_object=core, unk_token="[UNK]")
    stream = Detokenizer(tokenizer).stream()
    assert isinstance(stream, WindowStream)
    assert "".join(streamed(stream, [1, 2, 1])) == "hello hel"


def test_special_tokens_are_silent_and_added_tokens_are_text() -> None:
    think = FALLBACK.convert_tokens_to_ids("<think>")
    stop = FALLBACK.convert_tokens_to_ids("</s>")
    assert "".join(streamed(Detokenizer(FALLBACK).stream(), [think, stop, 3])) == "<think> hello"


def test_an_id_beyond_the_vocabulary_is_silent() -> None:
    assert "".join(streamed(Detokenizer(BYTES).stream(), [len(BYTES) + 5])) == ""


def test_two_answers_do_not_share_half_a_character() -> None:
    detokenizer = Detokenizer(BYTES)
    first, second = detokenizer.stream(), detokenizer.stream()
    apple = BYTES.encode("🍎", add_special_tokens=False)
    first.feed(apple[0])
    letter = BYTES.encode("A", add_special_tokens=False)[0]
    assert second.feed(letter) == "A"


@pytest.mark.parametrize("says", [REPLACEMENT, ""])
def test_tokens_that_never_make_a_character_do_not_make_each_next_one_slower(says: str) -> None:
    windows: list[int] = []

    class Endless:
        def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
            windows.append(len(ids))
            return "".join(says if token_id else "a" for token_id in ids)

    stream = WindowStream(Endless())
    told = [stream.feed(token_id) for token_id in [0, *[1] * 1000, 0]]
    assert max(windows) <= 2 * MOST_HELD_TOKENS
    assert "".join([*told, stream.flush()]) == "a" + says * 1000 + "a"
