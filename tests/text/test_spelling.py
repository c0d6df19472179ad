"""Decoding: bytes first, characters after; a stream says what decoding at once says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.text import Tokenizer, gguf_tokenizer
from linnet.text.spelling import (
    byte_level_alphabet,
    byte_level_bytes,
    sentencepiece_bytes,
    spelling_of,
)
from tests.text.metadata import bpe_metadata, spm_metadata

BYTE_LEVEL = gguf_tokenizer(bpe_metadata())
SENTENCEPIECE = gguf_tokenizer(spm_metadata())
FIRST_BYTE = 3
"""The SentencePiece token of byte 0; byte-level, a byte's token is the byte."""


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = tokenizer.stream()
    return [*(stream.push(token) for token in ids), stream.flush()]


def test_the_alphabet_is_gpt2_s() -> None:
    alphabet = byte_level_alphabet()
    assert (alphabet[ord("a")], alphabet[ord(" ")], alphabet[ord("\n")]) == ("a", "Ġ", "Ċ")
    assert len(set(alphabet)) == 256
    assert byte_level_bytes("".join(alphabet)) == bytes(range(256))


def test_a_token_in_other_characters_is_its_own_text() -> None:
    assert byte_level_bytes("two words") == b"two words"
    assert byte_level_bytes("中") == "中".encode()


def test_sentencepiece_tokens() -> None:
    assert sentencepiece_bytes("▁a▁") == b" a "
    assert sentencepiece_bytes("<0x0A>") == b"\n"
    assert sentencepiece_bytes("<0xZZ>") == b"<0xZZ>"


@given(st.lists(st.integers(0, BYTE_LEVEL.vocab_size + 3), max_size=40))
def test_decodes_as_the_tokenizers_library(ids: list[int]) -> None:
    assert BYTE_LEVEL.decode(ids) == BYTE_LEVEL.backend.decode(ids)
    assert BYTE_LEVEL.decode(ids, skip_special=False) == BYTE_LEVEL.backend.decode(
        ids, skip_special_tokens=False
    )


@given(st.text(max_size=20))
def test_sentencepiece_decodes_as_the_tokenizers_library(text: str) -> None:
    ids = SENTENCEPIECE.encode(text)
    assert SENTENCEPIECE.decode(ids) == SENTENCEPIECE.backend.decode(ids)


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["bytes", "sentencepiece"])
@given(data=st.data())
def test_a_stream_of_any_tokens_is_what_decode_gives(tokenizer: Tokenizer, data) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 3), max_size=40))
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)


@given(st.text(max_size=20))
def test_a_stream_never_gives_half_a_character(text: str) -> None:
    pieces = streamed(BYTE_LEVEL, list(text.encode()))
    assert "".join(pieces) == text
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)


def test_a_whole_character_comes_after_any_number_of_broken_ones() -> None:
    ids = [0xFF] * 7 + list("中".encode())
    assert streamed(BYTE_LEVEL, ids) == ["\ufffd"] * 7 + ["", "", "中", ""]


def test_an_unfinished_character_is_told_at_the_end() -> None:
    assert streamed(BYTE_LEVEL, list("é👍".encode())[:-1]) == ["", "é", "", "", "", "\ufffd"]


def test_the_space_in_front_leaves_once() -> None:
    ids = SENTENCEPIECE.encode("  ban")
    assert streamed(SENTENCEPIECE, ids)[:3] == ["", "", " "]
    assert SENTENCEPIECE.decode(ids) == "  ban"
    raw = gguf_tokenizer(spm_metadata(**{"tokenizer.ggml.add_space_prefix": False}))
    assert raw.decode(raw.encode(" ban")) == " ban"


def test_bytes_of_single_tokens() -> None:
    assert SENTENCEPIECE.token_bytes(FIRST_BYTE + 10) == b"\n"
    assert SENTENCEPIECE.token_bytes(SENTENCEPIECE.id_of("▁banana")) == b" banana"
    assert BYTE_LEVEL.token_bytes(BYTE_LEVEL.id_of("<|end|>")) == b"<|end|>"
    assert BYTE_LEVEL.token_bytes(BYTE_LEVEL.id_of("<|end|>"), skip_special=True) == b""
    assert BYTE_LEVEL.token_bytes(10**9) == BYTE_LEVEL.token_bytes(-1) == b""


SPACES = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
SENTENCE = [SPACES, {"type": "ByteFallback"}, {"type": "Fuse"}]


@pytest.mark.parametrize(
    ("decoder", "strips"),
    [
        ({"type": "ByteLevel", "use_regex": True}, False),
        ({"type": "Sequence", "decoders": SENTENCE}, False),
        ({"type": "Sequence", "decoders": [*SENTENCE, STRIP]}, True),
        ({"type": "Sequence", "decoders": [*SENTENCE, {**STRIP, "start": 2}]}, None),
        ({"type": "Sequence", "decoders": [{**SPACES, "content": "_"}, *SENTENCE[1:]]}, None),
        ({"type": "WordPiece", "prefix": "##"}, None),
        (None, None),
    ],
)
def test_decoders_that_are_known(decoder: dict | None, strips: bool | None) -> None:
    found = spelling_of(decoder)
    assert (found.strips_space if found else None) == strips
