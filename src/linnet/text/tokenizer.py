"""Text to token ids and back, by the tokenizers library.

A `Tokenizer` comes from a checkpoint directory's `tokenizer.json`, or is rebuilt from the
metadata of a GGUF file (`gguf_tokenizer.py`). Either way it also knows the special tokens and the
chat template that belong to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers


class TokenizerError(ValueError):
    """A tokenizer that can't be read or rebuilt; says what is missing or unknown."""


@dataclass(frozen=True)
class Tokenizer:
    """`backend` does the work; `bos_id` is put first where `adds_bos`."""

    backend: tokenizers.Tokenizer
    bos_id: int | None
    eos_ids: tuple[int, ...]
    """Ids that end a generation."""
    adds_bos: bool
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """What templates call `bos_token`, `eos_token` and the like."""

    @property
    def vocab_size(self) -> int:
        return self.backend.get_vocab_size(with_added_tokens=True)

    def id_of(self, token: str) -> int:
        """A token's id; raises `KeyError`."""
        found = self.backend.token_to_id(token)
        if found is None:
            raise KeyError(token)
        return found

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Token ids of a text, with the beginning-of-sequence token where the model has one.

        Special tokens written in the text (`<|im_end|>`) become themselves, or plain text where
        `parse_special` is false.
        """
        self.backend.encode_special_tokens = not parse_special
        ids = self.backend.encode(text, add_special_tokens=False).ids
        if add_special and self.adds_bos and self.bos_id is not None:
            return [self.bos_id, *ids]
        return ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of token ids; bytes that form no UTF-8 become U+FFFD."""
        return self.backend.decode(list(ids), skip_special_tokens=skip_special)

    def stream(self, *, skip_special: bool = True) -> TextStream:
        return TextStream(self, skip_special)


class TextStream:
    """Decodes token by token, never giving half a character.

    A window of tokens is decoded with and without the newest; what the newest adds is given once
    it ends in a whole character. The pieces together are what `decode` gives for all tokens.
    """

    LONGEST = 8
    """Tokens held back at most: a character has four bytes, so more means bytes that form none."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool):
        self._tokenizer, self._skip_special = tokenizer, skip_special
        self._ids: list[int] = []
        self._window = 0
        self._given = 0
        """Tokens from `_window` up to here are decoded, and their text was given."""

    def push(self, token: int) -> str:
        """The text that a further token completes; often none, or more than one character."""
        self._ids.append(token)
        text = self._new_text()
        if text.endswith("\ufffd") and len(self._ids) - self._given < self.LONGEST:
            return ""
        return self._advance(text)

    def flush(self) -> str:
        """The text of what was held back."""
        return self._advance(self._new_text())

    def _decode(self, start: int, stop: int) -> str:
        return self._tokenizer.decode(self._ids[start:stop], skip_special=self._skip_special)

    def _new_text(self) -> str:
        before = self._decode(self._window, self._given)
        return self._decode(self._window, len(self._ids))[len(before) :]

    def _advance(self, text: str) -> str:
        if text:
            self._window, self._given = self._given, len(self._ids)
        return text


def read_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer in a checkpoint directory, from `tokenizer.json` and what stands beside it.

    Raises `TokenizerError`.
    """
    import tokenizers

    path = directory / "tokenizer.json"
    if not path.is_file():
        raise TokenizerError(f"{directory} has no tokenizer.json")
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises plain `Exception`.
        raise TokenizerError(f"{path}: {error}") from error
    config = _read_json(directory / "tokenizer_config.json")
    generation = _read_json(directory / "generation_config.json")
    named = {
        key: _token_text(value)
        for key, value in config.items()
        if key.endswith("_token") and _token_text(value) is not None
    }
    special = {key: value for key, value in named.items() if value is not None}
    bos = backend.token_to_id(special.get("bos_token", ""))
    eos = generation.get("eos_token_id")
    eos_ids = [eos] if isinstance(eos, int) else eos if isinstance(eos, list) else []
    if "eos_token" in special:
        eos_ids = [*eos_ids, backend.token_to_id(special["eos_token"])]
    return Tokenizer(
        backend,
        bos,
        unique_ids(eos_ids),
        adds_bos=_adds_bos(backend, config, bos),
        chat_template=_template(directory, config),
        special_tokens=special,
    )


def unique_ids(ids: Iterable[object]) -> tuple[int, ...]:
    """The ids among the values, each once, in order."""
    return tuple(dict.fromkeys(i for i in ids if isinstance(i, int) and not isinstance(i, bool)))


def _adds_bos(backend: tokenizers.Tokenizer, config: Mapping[str, object], bos: int | None) -> bool:
    if isinstance(value := config.get("add_bos_token"), bool):
        return value
    return bos is not None and backend.encode("", add_special_tokens=True).ids[:1] == [bos]


def _token_text(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _template(directory: Path, config: Mapping[str, object]) -> str | None:
    file = directory / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _read_json(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} must hold an object")
    return value
