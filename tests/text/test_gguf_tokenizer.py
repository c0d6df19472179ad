"""Tokenizers rebuilt from GGUF metadata: splits, merges and scores as they are defined."""

from __future__ import annotations

import functools
import io
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.text import Tokenizer, TokenizerError, gguf_tokenizer
from linnet.text.gguf_tokenizer import PRE_TOKENIZERS
from linnet.text.spelling import byte_level_bytes
from tests.text.metadata import bpe_metadata, spm_metadata


def texts(tokenizer: Tokenizer, text: str) -> list[str]:
    return [str(tokenizer.backend.id_to_token(i)) for i in tokenizer.encode(text)]


@functools.cache
def tokenizer_of(pre: str) -> Tokenizer:
    return gguf_tokenizer(bpe_metadata(pre))


# --- byte-level BPE ---------------------------------------------------------------------------


def test_merges_join_in_their_order() -> None:
    tokenizer = gguf_tokenizer(bpe_metadata())
    assert texts(tokenizer, "hello hell")[0] == "hello"
    assert texts(tokenizer, "lllo") == ["ll", "lo"]
    assert texts(tokenizer, "12<|end|>hello<tool>") == ["12", "<|end|>", "hello", "<tool>"]


def test_smollm_splits_digits_first() -> None:
    assert texts(gguf_tokenizer(bpe_metadata("smollm")), "12") == ["1", "2"]


def test_llama3_takes_a_whole_token_without_its_merges() -> None:
    merges = bpe_metadata()["tokenizer.ggml.merges"]
    assert isinstance(merges, list)
    fewer = {"tokenizer.ggml.merges": [m for m in merges if m != "hell o"]}
    assert texts(gguf_tokenizer(bpe_metadata("llama-bpe", **fewer)), "hello")[-1] == "hello"
    assert texts(gguf_tokenizer(bpe_metadata("smaug-bpe", **fewer)), "hello") == ["hell", "o"]


def test_qwen2_composes_characters_first() -> None:
    tokenizer = gguf_tokenizer(bpe_metadata("qwen2"))
    assert tokenizer.decode(tokenizer.encode("e\u0301")) == "\u00e9"


def test_a_user_defined_token_stays_in_the_text() -> None:
    tokenizer = gguf_tokenizer(bpe_metadata())
    assert tokenizer.decode(tokenizer.encode("a<tool>b<|end|>")) == "a<tool>b"
    plain = tokenizer.encode("a<tool>b<|end|>", parse_special=False)
    assert tokenizer.id_of("<tool>") in plain and tokenizer.id_of("<|end|>") not in plain


FRAGMENTS = [
    *("hello", "World", "DON'T", "we're", "I'LL", "'s", "O'Neil", "__init__", "x**2", "don't"),
    *("123", "1", "4.5", "½", "²", "٣", "Ⅷ", " ", "  ", "    ", "\t", "\n", "\n\n", "\r\n", " \n "),
    *("...", "!!", "/*", "//", "-", "$5", "€", "=", "|", "{", "[0]", "中文", "日本", "한국"),
    *("العربية", "é", "e\u0301", "\u0301", "👩\u200d👩\u200d👧", "🇫🇷", "👍🏽", "ß", "ǅ", "ʰ", "İ"),
    *("ſ", "\u00a0", "\u2003", "\u200b", "\u0085", "นำ", "नमस्ते", "\0", "'ſ", "'S", "<|end|"),
]
GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def some_texts(count: int) -> list[str]:
    rng = random.Random(0)
    return ["".join(rng.choices(FRAGMENTS, k=rng.randint(1, 9))) for _ in range(count)]


def split_in_turn(regex, patterns: Sequence[str], text: str) -> list[str]:
    """What `patterns` match and what lies between, one after the other."""
    pieces = [text]
    for pattern in patterns:
        pieces = [
            part
            for piece in pieces
            for part in regex.split(f"({pattern})", piece, flags=regex.V1)
            if part
        ]
    return pieces


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_text_is_split_as_another_regex_engine_splits_it(name: str) -> None:
    regex = pytest.importorskip("regex")
    pre = PRE_TOKENIZERS[name]
    patterns = [*pre.patterns, *([GPT2_SPLIT] if pre.gpt2 else [])]
    splitter = gguf_tokenizer(bpe_metadata(name)).backend.pre_tokenizer
    assert splitter is not None
    for text in some_texts(150):
        found = [byte_level_bytes(piece).decode() for piece, _ in splitter.pre_tokenize_str(text)]
        assert found == split_in_turn(regex, patterns, text)


@pytest.mark.parametrize(
    ("pre", "flag", "adds"),
    [
        ("gpt-2", None, False),
        ("llama-bpe", None, True),
        ("llama-bpe", False, False),
        ("gpt-2", True, True),
    ],
)
def test_a_beginning_where_the_model_has_one(pre: str, flag: bool | None, adds: bool) -> None:
    more: dict[str, object] = {"tokenizer.ggml.bos_token_id": 0}
    if flag is not None:
        more["tokenizer.ggml.add_bos_token"] = flag
    tokenizer = gguf_tokenizer(bpe_metadata(pre, **more))
    assert tokenizer.encode("b") == ([0, 98] if adds else [98])
    assert tokenizer.encode("b", add_special=False) == [98]


def test_every_end_token_ends() -> None:
    more = {"tokenizer.ggml.eot_token_id": 7, "tokenizer.ggml.eom_token_id": 8}
    tokenizer = gguf_tokenizer(bpe_metadata(**more))
    end = tokenizer.id_of("<|end|>")
    assert (tokenizer.eos_ids, tokenizer.eos_id) == ((end, 7, 8), end)


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "default", "llama-bpe", "tekken"])
@given(text=st.text(max_size=40))
def test_any_text_comes_back(pre: str, text: str) -> None:
    tokenizer = tokenizer_of(pre)
    assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text


# --- SentencePiece style ----------------------------------------------------------------------


def spm_by_hand(text: str) -> list[str]:
    """SentencePiece's BPE as it is defined: join the best-scoring neighbours until none join."""
    table = spm_metadata()
    tokens, scores = table["tokenizer.ggml.tokens"], table["tokenizer.ggml.scores"]
    assert isinstance(tokens, list) and isinstance(scores, list)
    score = dict(zip(tokens, scores, strict=True))
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        joins = [(-score[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in score]
        if not joins:
            break
        _, at = min(joins)
        parts[at : at + 2] = ["".join(parts[at : at + 2])]
    found = []
    for part in parts:
        found += [part] if part in score else [f"<0x{b:02X}>" for b in part.encode()]
    return found


@given(st.text("abn é中", max_size=12))
def test_sentencepiece_joins_by_score(text: str) -> None:
    tokenizer = gguf_tokenizer(spm_metadata())
    ids = tokenizer.encode(text)
    assert ids[0] == tokenizer.bos_id
    if text:
        assert [tokenizer.backend.id_to_token(i) for i in ids[1:]] == spm_by_hand(text)
        assert tokenizer.decode(ids) == text


def test_sentencepiece_without_a_prefix() -> None:
    tokenizer = gguf_tokenizer(spm_metadata(**{"tokenizer.ggml.add_space_prefix": False}))
    assert texts(tokenizer, "ban")[1:] == ["b", "an"]


def test_each_stretch_between_special_tokens_has_a_prefix() -> None:
    assert texts(gguf_tokenizer(spm_metadata()), "an</s>an") == ["<s>", "▁an", "</s>", "▁an"]


@pytest.fixture(scope="module", params=["plain", "without a prefix", "without bytes"])
def trained(request: pytest.FixtureRequest):
    """A model that the sentencepiece library trained, and its tokenizer from what a GGUF holds."""
    sentencepiece = pytest.importorskip("sentencepiece")
    prefix, fallback = request.param != "without a prefix", request.param != "without bytes"
    rng = random.Random(1)
    words = [
        "the",
        "of",
        "tensor",
        "batch",
        "shape",
        "naïve",
        "中文",
        "=====",
        "x1",
        "日本語",
        "café",
    ]
    lines = [" ".join(rng.choices(words, k=8)) + "  " * rng.randint(0, 2) for _ in range(300)]
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=written, model_type="bpe",
        vocab_size=360 if fallback else 90, byte_fallback=fallback, add_dummy_prefix=prefix,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True, minloglevel=2,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())

    def kind(i: int) -> int:
        special = 2 if model.is_unknown(i) else 3 if model.is_control(i) else 0
        return special or (6 if model.is_byte(i) else 1)

    ids = range(model.get_piece_size())
    return model, gguf_tokenizer(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [model.id_to_piece(i) for i in ids],
            "tokenizer.ggml.token_type": [kind(i) for i in ids],
            "tokenizer.ggml.scores": [model.get_score(i) for i in ids],
            "tokenizer.ggml.unknown_token_id": model.unk_id(),
            "tokenizer.ggml.add_space_prefix": prefix,
            "tokenizer.ggml.add_bos_token": False,
        }
    )


def test_sentencepiece_is_that_of_the_library(trained) -> None:
    model, tokenizer = trained
    has_bytes = any(model.is_byte(i) for i in range(model.get_piece_size()))
    words = ["the tensor ", "café", "中文日本語", "====", "==", " ", "   ", "naïve", "xx11", "▁"]
    rng = random.Random(2)
    for text in [
        "".join(rng.choices([*words, *FRAGMENTS], k=rng.randint(0, 9))) for _ in range(600)
    ]:
        expected = model.encode(text)
        assert tokenizer.encode(text) == expected
        if has_bytes:
            assert tokenizer.decode(expected) == model.decode(expected)


# --- what makes no tokenizer ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, "`tokenizer.ggml.model` is 'bert'"),
        ({"tokenizer.ggml.pre": "klingon"}, "'klingon', a way of splitting .* are default, gpt-2"),
        ({"tokenizer.ggml.pre": None}, "`tokenizer.ggml.pre` is None"),
        ({"tokenizer.ggml.tokens": "no list"}, "must be a list of str"),
        ({"tokenizer.ggml.token_type": [1]}, "but 1 token types"),
        ({"tokenizer.ggml.merges": ["onlyone"]}, "is not two tokens"),
        ({"tokenizer.ggml.merges": ["a b c"]}, "is not two tokens"),
        ({"tokenizer.ggml.merges": ["zz top"]}, "don't fit together"),
        ({"tokenizer.ggml.eos_token_id": 99999}, "no token of"),
        ({"tokenizer.ggml.eos_token_id": True}, "no token of"),
        ({"tokenizer.ggml.add_bos_token": 1}, "must be true or false, found 1"),
    ],
)
def test_metadata_that_makes_no_tokenizer(change: dict[str, object], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        gguf_tokenizer(bpe_metadata() | change)


def test_two_tokens_of_one_text() -> None:
    tokens = bpe_metadata()["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    with pytest.raises(TokenizerError, match="two tokens of the same text"):
        gguf_tokenizer(bpe_metadata(**{"tokenizer.ggml.tokens": [*tokens[:-1], "a"]}))


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.floats(),
    st.text(max_size=4),
    st.lists(st.text(max_size=4), max_size=6),
    st.lists(st.integers(-2, 9), max_size=6),
    st.lists(st.floats(), max_size=6),
)


@pytest.mark.parametrize("base", [bpe_metadata(), spm_metadata()], ids=["gpt2", "llama"])
@given(data=st.data())
def test_any_metadata_makes_a_tokenizer_or_one_error(base: dict[str, object], data) -> None:
    keys = st.sampled_from(sorted(base))
    metadata = base | data.draw(st.dictionaries(keys, ANYTHING, min_size=1, max_size=3))
    try:
        tokenizer = gguf_tokenizer(metadata)
    except TokenizerError:
        return
    tokenizer.decode(tokenizer.encode("hello <tool> 12"))


@pytest.mark.parametrize("build", [bpe_metadata, spm_metadata])
@given(data=st.data())
def test_small_vocabularies_make_a_tokenizer_or_one_error(build, data) -> None:
    tokens = data.draw(st.lists(st.text("abc▁<>0xAF ", max_size=5), max_size=8, unique=True))

    def one_each(values: st.SearchStrategy) -> st.SearchStrategy[list]:
        return st.lists(values, min_size=len(tokens), max_size=len(tokens))

    metadata = build() | {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": data.draw(one_each(st.integers(0, 7))),
        "tokenizer.ggml.scores": data.draw(one_each(st.floats())),
        "tokenizer.ggml.merges": data.draw(st.lists(st.sampled_from(["a b", "b c", "ab c"]))),
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.bos_token_id": 0,
    }
    try:
        tokenizer = gguf_tokenizer(metadata)
    except TokenizerError:
        return
    tokenizer.decode(tokenizer.encode("abc <0x0A> a"))
