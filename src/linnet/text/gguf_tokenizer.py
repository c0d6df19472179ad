"""A tokenizer rebuilt from the metadata of a GGUF file.

Byte-level BPE (`tokenizer.ggml.model` is `gpt2`) splits text first, in one of the ways of
`PRE_TOKENIZERS`; the file names which. SentencePiece-style BPE (`llama`) works on the text with
spaces as `▁`, and falls back to bytes. The names are llama.cpp's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from linnet.text.errors import TokenizerError
from linnet.text.spelling import Spelling, byte_level_bytes, sentencepiece_bytes
from linnet.text.tokenizer import Tokenizer, unique_ids

if TYPE_CHECKING:
    import tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""`tokenizer.ggml.token_type`."""


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How text is split before BPE."""

    patterns: tuple[str, ...] = ()
    """Splits one after the other; pieces are a pattern's matches and what lies between them."""
    gpt2: bool = False
    """Whether GPT-2's own split comes last."""
    nfc: bool = False
    """Whether text is normalised to NFC first."""
    ignore_merges: bool = False
    """Whether a piece that is a token itself is not built up by merges."""
    adds_bos: bool = False
    """Whether text begins with a token of its own, where the file doesn't say."""


_NUMBER = r"\p{N}"
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

GPT2 = PreTokenizer(gpt2=True)
DIGITS = PreTokenizer((_NUMBER,), gpt2=True)
"""Each digit alone, then GPT-2's split."""
LLAMA3 = PreTokenizer((_LLAMA3,), ignore_merges=True, adds_bos=True)
QWEN2 = PreTokenizer((_QWEN2,), nfc=True)
PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": GPT2,
    "phi-2": GPT2,
    "smollm": DIGITS,
    "starcoder": DIGITS,
    "refact": DIGITS,
    "command-r": DIGITS,
    "codeshell": DIGITS,
    "exaone": DIGITS,
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "falcon3": LLAMA3,
    "smaug-bpe": PreTokenizer((_LLAMA3,)),
    "dbrx": PreTokenizer((_LLAMA3,)),
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, adds_bos=True),
    "gpt-4o": PreTokenizer((_GPT4O,)),
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
    backend, spelling = build(metadata, tokens)
    _add_special(backend, tokens, types)
    ids = {
        name: _id(metadata, f"tokenizer.ggml.{name}_token_id", len(tokens))
        for name in ("bos", "eos", "eot", "eom", "unknown", "padding")
    }
    names = {"unknown": "unk", "padding": "pad"}
    special = {
        f"{names.get(name, name)}_token": tokens[i] for name, i in ids.items() if i is not None
    }
    template = metadata.get("tokenizer.chat_template")
    return Tokenizer(
        backend,
        spelling,
        ids["bos"],
        unique_ids([ids["eos"], ids["eot"], ids["eom"]]),
        adds_bos=_flag(metadata, "tokenizer.ggml.add_bos_token", _adds_bos(metadata)),
        chat_template=template if isinstance(template, str) else None,
        special_tokens=special,
    )


def _byte_level(
    metadata: Mapping[str, object], tokens: list[str]
) -> tuple[tokenizers.Tokenizer, Spelling]:
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

    name = metadata.get("tokenizer.ggml.pre")
    pre = PRE_TOKENIZERS.get(str(name))
    if pre is None:
        raise TokenizerError(
            f"`tokenizer.ggml.pre` is {name!r}, a way of splitting text that is not known; known "
            f"are {', '.join(PRE_TOKENIZERS)}"
        )
    merges = [tuple(merge.split(" ")) for merge in _list(metadata, "tokenizer.ggml.merges", str)]
    for merge in merges:
        if len(merge) != 2 or not all(merge):
            raise TokenizerError(f"the merge {' '.join(merge)[:80]!r} is not two tokens")
    vocab = dict(zip(tokens, range(len(tokens)), strict=True))
    backend = _backend(
        lambda: models.BPE(vocab=vocab, merges=merges, ignore_merges=pre.ignore_merges)
    )
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre.gpt2)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    if pre.nfc:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend, Spelling(byte_level_bytes)


def _adds_bos(metadata: Mapping[str, object]) -> bool:
    """Whether text begins with a token of its own by what kind of tokenizer it is."""
    pre = PRE_TOKENIZERS.get(str(metadata.get("tokenizer.ggml.pre")))
    return metadata["tokenizer.ggml.model"] == "llama" or (pre is not None and pre.adds_bos)


def _sentencepiece(
    metadata: Mapping[str, object], tokens: list[str]
) -> tuple[tokenizers.Tokenizer, Spelling]:
    from tokenizers import decoders, models, normalizers

    scores = _list(metadata, "tokenizer.ggml.scores", float)
    if len(scores) != len(tokens):
        raise TokenizerError(f"{len(tokens)} tokens, but {len(scores)} scores")
    vocab = dict(zip(tokens, range(len(tokens)), strict=True))
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
    prefix = _flag(metadata, "tokenizer.ggml.add_space_prefix", True)
    steps: list[Any] = [normalizers.Prepend("▁")] if prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    tail: list[Any] = [decoders.Strip(" ", 1, 0)] if prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *tail]
    )
    return backend, Spelling(sentencepiece_bytes, strips_space=prefix)


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
    if not isinstance(value, list) or not set(map(type, value)) <= {kind}:
        raise TokenizerError(f"`{key}` must be a list of {kind.__name__}")
    return value


def _id(metadata: Mapping[str, object], key: str, count: int) -> int | None:
    value = metadata.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < count:
        raise TokenizerError(f"`{key}` is {value!r}, no token of {count}")
    return value


def _flag(metadata: Mapping[str, object], key: str, default: bool) -> bool:
    value = metadata.get(key, default)
    if not isinstance(value, bool):
        raise TokenizerError(f"`{key}` must be true or false, found {value!r}")
    return value
