"""Text to token ids and back.

A `Tokenizer` comes from a checkpoint directory's `tokenizer.json`, or is rebuilt from the metadata
of a GGUF file (`gguf_tokenizer.py`). Encoding is the tokenizers library's work; decoding joins the
bytes that tokens stand for (`spelling.py`). A tokenizer also knows the special tokens and the chat
template that belong to it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from linnet.text.errors import TokenizerError
from linnet.text.spelling import Spelling, TextStream, spelling_of

if TYPE_CHECKING:
    import tokenizers


@dataclass(frozen=True)
class Tokenizer:
    """`backend` encodes, `spelling` decodes; `bos_id` is put first where `adds_bos`.

    May be used by several threads at a time.
    """

    backend: tokenizers.Tokenizer
    spelling: Spelling
    bos_id: int | None
    eos_ids: tuple[int, ...]
    """Ids that end a generation."""
    adds_bos: bool
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """What templates call `bos_token`, `eos_token` and the like."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _spelled: dict[int, bytes] = field(default_factory=dict, repr=False, compare=False)

    @property
    def eos_id(self) -> int | None:
        """The id that ends a generation, where there is one: the first of `eos_ids`."""
        return self.eos_ids[0] if self.eos_ids else None

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
        `parse_special` is false. Raises `ValueError` for text with half a surrogate pair.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"the text has half a surrogate pair at character {error.start}: it is no Unicode"
            ) from error
        with self._lock:  # The mode belongs to the backend, not to the call.
            self.backend.encode_special_tokens = not parse_special
            ids = self.backend.encode(text, add_special_tokens=False).ids
        if add_special and self.adds_bos and self.bos_id is not None:
            return [self.bos_id, *ids]
        return ids

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of token ids; bytes that form no UTF-8 become U+FFFD."""
        data = b"".join([self.token_bytes(i, skip_special=skip_special) for i in ids])
        if self.spelling.strips_space:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")

    def stream(self, *, skip_special: bool = True) -> TextStream:
        """Decodes token by token, in whole characters."""
        return TextStream(
            lambda token: self.token_bytes(token, skip_special=skip_special),
            self.spelling.strips_space,
        )

    def token_bytes(self, token: int, *, skip_special: bool = False) -> bytes:
        """The bytes that a token stands for: none for an id without a token.

        A model's vocabulary may be padded beyond its tokenizer's.
        """
        if skip_special and token in self.special_ids:
            return b""
        found = self._spelled.get(token)
        if found is None:
            found = self._spelled[token] = self._spell(token)
        return found

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The tokens that steer the model and are no text."""
        return frozenset(i for i, token in self._added.items() if token.special)

    @cached_property
    def _added(self) -> dict[int, tokenizers.AddedToken]:
        return self.backend.get_added_tokens_decoder()

    def _spell(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].content.encode("utf-8", "replace")
        text = self.backend.id_to_token(token) if token >= 0 else None
        return b"" if text is None else self.spelling.bytes_of(text)


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
    # A file may ask for both, for training; a prompt is never cut or filled up in silence.
    backend.no_truncation()
    backend.no_padding()
    decoder = backend.decoder
    spelling = spelling_of(json.loads(decoder.__getstate__()) if decoder is not None else None)
    if spelling is None:
        raise TokenizerError(
            f"{path} has the decoder {decoder}: `ByteLevel`, and SentencePiece's `Replace`, "
            "`ByteFallback`, `Fuse` with or without `Strip` are known"
        )
    config = _read_json(directory / "tokenizer_config.json")
    generation = _read_json(directory / "generation_config.json")
    special = {
        key: text
        for key, value in config.items()
        if key.endswith("_token") and (text := _token_text(value)) is not None
    }
    bos = backend.token_to_id(special.get("bos_token", ""))
    eos = generation.get("eos_token_id")
    eos_ids = [eos] if isinstance(eos, int) else eos if isinstance(eos, list) else []
    if "eos_token" in special:
        eos_ids = [*eos_ids, backend.token_to_id(special["eos_token"])]
    return Tokenizer(
        backend,
        spelling,
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
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise TokenizerError(f"{file} is no UTF-8: {error}") from error
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
