"""The bytes that tokens stand for.

A tokenizer splits bytes, not characters: one token may end in the middle of an emoji. So decoding
joins bytes first and reads them as UTF-8 after, and a stream does the same with a decoder that
waits for the rest of a character. A token spells its bytes in one of two ways: byte-level (GPT-2's
stand-ins, one printable character a byte) or as SentencePiece does (`▁` for a space, `<0x0A>` for
a byte).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Spelling:
    """How the tokens of one tokenizer spell their bytes."""

    bytes_of: Callable[[str], bytes]
    """The bytes of one ordinary token, from its text in the vocabulary."""
    strips_space: bool = False
    """Whether a text's first space was put there by the tokenizer, and leaves with decoding."""


def byte_level_alphabet() -> list[str]:
    """The printable characters that stand for the 256 bytes, by byte (Radford et al., 2019).

    Printable Latin-1 stands for itself; the other bytes take U+0100 and on, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


_BYTES = {stand_in: byte for byte, stand_in in enumerate(byte_level_alphabet())}
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level_bytes(token: str) -> bytes:
    """The bytes of a byte-level token; one written in other characters is its own text."""
    try:
        return bytes([_BYTES[char] for char in token])
    except KeyError:
        return token.encode("utf-8", "replace")


def sentencepiece_bytes(token: str) -> bytes:
    """The bytes of a SentencePiece token."""
    if byte := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(byte[1], 16)])
    return token.replace("▁", " ").encode("utf-8", "replace")


def spelling_of(decoder: Mapping[str, Any] | None) -> Spelling | None:
    """The spelling that the `decoder` of a `tokenizer.json` describes; None for one of neither."""
    steps = _steps(decoder)
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        return Spelling(byte_level_bytes)
    if kinds[:3] == ["Replace", "ByteFallback", "Fuse"] and _is_space(steps[0]):
        rest = steps[3:]
        if not rest:
            return Spelling(sentencepiece_bytes)
        if len(rest) == 1 and rest[0] == {"type": "Strip", "content": " ", "start": 1, "stop": 0}:
            return Spelling(sentencepiece_bytes, strips_space=True)
    return None


def _steps(decoder: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if decoder is None:
        return []
    if decoder.get("type") == "Sequence":
        return [step for inner in decoder["decoders"] for step in _steps(inner)]
    return [decoder]


def _is_space(step: Mapping[str, Any]) -> bool:
    return step.get("pattern") == {"String": "▁"} and step.get("content") == " "


class TextStream:
    """Decodes token by token, never giving half a character.

    The pieces together, with what `flush` gives, are what decoding all tokens at once gives: bytes
    that form no UTF-8 become U+FFFD, in both alike.
    """

    def __init__(self, bytes_of: Callable[[int], bytes], strips_space: bool):
        self._bytes_of = bytes_of
        self._strips_space = strips_space
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that a further token completes; often none, or more than one character."""
        data = self._bytes_of(token)
        if self._strips_space and data:
            data, self._strips_space = data.removeprefix(b" "), False
        return self._utf8.decode(data)

    def flush(self) -> str:
        """What was held back: U+FFFD for a character whose rest did not come."""
        return self._utf8.decode(b"", final=True)
