"""A tokenizer rebuilt from the metadata of a GGUF file.

Byte-level BPE (`tokenizer.ggml.model` is `gpt2`) splits text first, in one of the ways of
`PRE_TOKENIZERS`; the file names which. SentencePiece-style BPE (`llama`) works on the text with
spaces as `▁`, and falls back to bytes. The names are llama.cpp's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from linnet.text.tokenizer import Tokenizer, TokenizerError, unique_ids

if TYPE_CHECKING:
    import tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""`tokenizer.ggml.token_type`."""


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How text is split before BPE."""

    pattern: str | None = None
    """Pieces are the matches and what lies between them; None for GPT-2's own split."""
    digits: bool = False
    """Whether each digit is split off first."""
    nfc: bool = False
    """Whether text is normalised to NFC first."""
    ignore_merges: bool = False
    """Whether a piece that is a token itself is not built up by merges."""


_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "gpt-2": PreTokenizer(),
    "smollm": PreTokenizer(digits=True),
    "starcoder": PreTokenizer(digits=True),
    "llama-bpe": PreTokenizer(_LLAMA3, ignore_merges=True),
    "qwen2": PreTokenizer(_QWEN2, nfc=True),
}
"""By `tokenizer.ggml.pre`."""


def gguf_tokenizer(metadata: Mapping[str, object]) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describes.

    Raises `TokenizerError` where a part is missing, malformed or of a kind that is not known.
    """
    model = metadata.get("tokenizer.ggml.model")
    build = {"gpt2": _byte_level, "llama": _sentencepiece}.get(str(model))
    if build is None:
        raise TokenizerError(
            f"`tokenizer.ggml.model` is {model!r}: `gpt2` (byte-level BPE) and `llama` "
            "(SentencePiece BPE) are known"
        )
    tokens = _list(metadata, "tokenizer.ggml.tokens", str)
    types = _list(metadata, "tokenizer.ggml.token_type", int)
    if len(types) != len(tokens):
        raise TokenizerError(f"{len(tokens)} tokens, but {len(types)} token types")
    if len(set(tokens)) != len(tokens):
        raise TokenizerError("two tokens of the same text")
    backend = build(metadata, tokens)
    _add_special(backend, tokens, types)
    ids = {
        name: _id(metadata, f"tokenizer.ggml.{name}_token_id", len(tokens))
        for name in ("bos", "eos", "eot", "unknown", "padding")
    }
    names = {"unknown": "unk", "padding": "pad"}
    special = {
        f"{names.get(name, name)}_token": tokens[i] for name, i in ids.items() if i is not None
    }
    template = metadata.get("tokenizer.chat_template")
    adds_bos = metadata.get("tokenizer.ggml.add_bos_token", model == "llama")
    return Tokenizer(
        backend,
        ids["bos"],
        unique_ids([ids["eos"], ids["eot"]]),
        adds_bos=bool(adds_bos),
        chat_template=template if isinstance(template, str) else None,
        special_tokens=special,
    )


def _byte_level(metadata: Mapping[str, object], tokens: list[str]) -> tokenizers.Tokenizer:
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

    name = metadata.get("tokenizer.ggml.pre")
    pre = PRE_TOKENIZERS.get(str(name))
    if pre is None:
        raise TokenizerError(
            f"`tokenizer.ggml.pre` is {name!r}, a way of splitting text that is not known; known "
            f"are {', '.join(PRE_TOKENIZERS)}"
        )
    merges = []
    for merge in _list(metadata, "tokenizer.ggml.merges", str):
        left, space, right = merge.partition(" ")
        if not space or not left or not right or " " in right:
            raise TokenizerError(f"the merge {merge[:80]!r} is not two tokens")
        merges.append((left, right))
    vocab = {token: i for i, token in enumerate(tokens)}
    backend = _backend(
        lambda: models.BPE(vocab=vocab, merges=merges, ignore_merges=pre.ignore_merges)
    )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre.pattern is None)
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if pre.digits else []
    if pre.pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(pre.pattern), "isolated"))
    backend.pre_tokenizer = pre_tokenizers.Sequence([*steps, byte_level])
    if pre.nfc:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece(metadata: Mapping[str, object], tokens: list[str]) -> tokenizers.Tokenizer:
    from tokenizers import decoders, models, normalizers

    scores = _list(metadata, "tokenizer.ggml.scores", float)
    if len(scores) != len(tokens):
        raise TokenizerError(f"{len(tokens)} tokens, but {len(scores)} scores")
    vocab = {token: i for i, token in enumerate(tokens)}
    unknown = _id(metadata, "tokenizer.ggml.unknown_token_id", len(tokens))
    merges = _merges_by_score(vocab, scores)
    backend = _backend(
        lambda: models.BPE(
            vocab=vocab,
            merges=merges,
            unk_token=tokens[unknown if unknown is not None else 0],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    steps: list[Any] = [normalizers.Prepend("▁")] if prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    tail: list[Any] = [decoders.Strip(" ", 1, 0)] if prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *tail]
    )
    return backend


def _merges_by_score(vocab: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """SentencePiece joins the neighbours whose joined token scores highest: as merges, every way
    to split a token into two, the best token first."""
    found: list[tuple[float, int, str, str]] = []
    for token, i in vocab.items():
        for at in range(1, len(token)):
            left, right = token[:at], token[at:]
            if left in vocab and right in vocab:
                found.append((-scores[i], i, left, right))
    found.sort(key=lambda merge: merge[:2])
    return [(left, right) for _, _, left, right in found]


def _backend(build: Any) -> tokenizers.Tokenizer:
    import tokenizers

    try:
        return tokenizers.Tokenizer(build())
    except Exception as error:  # The library raises plain `Exception`.
        raise TokenizerError(f"the vocabulary and merges don't fit together: {error}") from error


def _add_special(backend: tokenizers.Tokenizer, tokens: list[str], types: list[int]) -> None:
    from tokenizers import AddedToken

    special = [
        AddedToken(token, special=True, normalized=False)
        for token, kind in zip(tokens, types, strict=True)
        if kind in (CONTROL, UNKNOWN) and token
    ]
    plain = [
        AddedToken(token, special=False, normalized=False)
        for token, kind in zip(tokens, types, strict=True)
        if kind == USER_DEFINED and token
    ]
    backend.add_special_tokens(special)
    backend.add_tokens(plain)


def _list(metadata: Mapping[str, object], key: str, kind: type) -> list[Any]:
    value = metadata.get(key)
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise TokenizerError(f"`{key}` must be a list of {kind.__name__}")
    return value


def _id(metadata: Mapping[str, object], key: str, count: int) -> int | None:
    value = metadata.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < count:
        raise TokenizerError(f"`{key}` is {value!r}, no token of {count}")
    return value
