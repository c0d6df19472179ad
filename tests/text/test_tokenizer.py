"""Tokenizers: rebuilt from a GGUF exactly, streamed without half characters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.text import Tokenizer, TokenizerError, gguf_tokenizer, read_tokenizer
from linnet.weights import open_checkpoint

HARD = [
    "Hello  world   three",
    "\ttabs\n\nnewlines\r\n  and trailing ",
    "123 45.67 1,000,000 3rd",
    "it's we'll I'm they've DON'T",
    "👩‍👩‍👧 flags 🇫🇷 skin 👍🏽",
    "中文字符 日本語 한국어",
    "العربية עברית",
    "e\u0301 combining \u0301alone",
    "def f(x):\n    return x**2  # code\n",
    "<|im_start|>user\nhi<|im_end|>",
    "almost <|im_end| and <|unknown|>",
    "nul \0 and \x7f",
    "",
    " ",
    "a" * 300,
]


@pytest.fixture(scope="module")
def smollm2(smollm2_gguf: Path) -> Tokenizer:
    return gguf_tokenizer(open_checkpoint(smollm2_gguf).metadata)


@pytest.fixture(scope="module")
def transformers_tokenizer(smollm2_gguf: Path):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(
        smollm2_gguf.parent, gguf_file=smollm2_gguf.name
    )


@pytest.mark.weights
@pytest.mark.parametrize("text", HARD)
def test_the_real_tokenizer_is_that_of_transformers(
    smollm2: Tokenizer, transformers_tokenizer, text: str
) -> None:
    expected = transformers_tokenizer.encode(text, add_special_tokens=False)
    assert smollm2.encode(text) == expected
    assert smollm2.decode(expected, skip_special=False) == text


# SmolLM2 has no tokens for some bytes: most control characters, and those that begin characters
# from U+40000 on. Like Transformers, it leaves out what it can't spell.
SPELLABLE = st.text(
    st.characters(max_codepoint=0x3FFFF, exclude_categories=["Cs", "Cc"]) | st.sampled_from("\t\n"),
    max_size=40,
)


@pytest.mark.weights
@given(text=SPELLABLE)
def test_any_text_comes_back(smollm2: Tokenizer, text: str) -> None:
    ids = smollm2.encode(text, parse_special=False)
    assert smollm2.decode(ids, skip_special=False) == text


@pytest.mark.weights
@given(text=SPELLABLE)
def test_a_stream_gives_the_whole_text_in_whole_characters(smollm2: Tokenizer, text: str) -> None:
    stream = smollm2.stream(skip_special=False)
    pieces = [stream.push(token) for token in smollm2.encode(text)]
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) + stream.flush() == text


@pytest.mark.weights
@given(ids=st.lists(st.integers(0, 49151), max_size=30))
def test_a_stream_of_any_tokens_ends_as_decode_does(smollm2: Tokenizer, ids: list[int]) -> None:
    stream = smollm2.stream()
    text = "".join(stream.push(token) for token in ids) + stream.flush()
    assert text.replace("\ufffd", "") == smollm2.decode(ids).replace("\ufffd", "")


@pytest.mark.weights
def test_special_tokens_are_known(smollm2: Tokenizer) -> None:
    assert smollm2.vocab_size == 49152
    assert (smollm2.bos_id, smollm2.eos_ids, smollm2.adds_bos) == (1, (2,), False)
    assert smollm2.id_of("<|im_end|>") == 2
    assert smollm2.encode("<|im_end|>") == [2]
    assert len(smollm2.encode("<|im_end|>", parse_special=False)) > 1
    assert smollm2.decode([2]) == ""
    with pytest.raises(KeyError):
        smollm2.id_of("<|nothing|>")


# --- byte-level BPE by hand -------------------------------------------------------------------


def byte_level_alphabet() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, by byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    stand_ins = {byte: chr(byte) for byte in printable}
    extra = 0
    for byte in range(256):
        if byte not in stand_ins:
            stand_ins[byte] = chr(256 + extra)
            extra += 1
    return [stand_ins[byte] for byte in range(256)]


def bpe_metadata(pre: str = "gpt-2") -> dict[str, object]:
    alphabet = byte_level_alphabet()
    space = alphabet[32]
    merges = ["h e", "l l", "he ll", "hell o", f"{space} w", "1 2"]
    tokens = [*alphabet, *(m.replace(" ", "") for m in merges), "<|end|>", "<tool>"]
    types = [1] * (len(tokens) - 2) + [3, 4]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": len(tokens) - 2,
    }


def texts(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.backend.id_to_token(i) for i in tokenizer.encode(text)]


def test_merges_join_in_their_order() -> None:
    tokenizer = gguf_tokenizer(bpe_metadata())
    assert texts(tokenizer, "hello hell")[0] == "hello"
    assert texts(tokenizer, "12<|end|>hello<tool>") == ["12", "<|end|>", "hello", "<tool>"]


def test_smollm_splits_digits_first() -> None:
    assert texts(gguf_tokenizer(bpe_metadata("smollm")), "12") == ["1", "2"]


def test_a_user_defined_token_stays_in_the_text() -> None:
    tokenizer = gguf_tokenizer(bpe_metadata())
    assert tokenizer.decode(tokenizer.encode("a<tool>b<|end|>")) == "a<tool>b"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, "`tokenizer.ggml.model` is 'bert'"),
        ({"tokenizer.ggml.pre": "klingon"}, "a way of splitting text that is not known"),
        ({"tokenizer.ggml.tokens": "no list"}, "must be a list of str"),
        ({"tokenizer.ggml.token_type": [1]}, "but 1 token types"),
        ({"tokenizer.ggml.merges": ["onlyone"]}, "is not two tokens"),
        ({"tokenizer.ggml.merges": ["zz top"]}, "don't fit together"),
        ({"tokenizer.ggml.eos_token_id": 99999}, "no token of"),
    ],
)
def test_metadata_that_makes_no_tokenizer(change: dict[str, object], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        gguf_tokenizer(bpe_metadata() | change)


# --- SentencePiece style ----------------------------------------------------------------------


def spm_metadata(**more: object) -> dict[str, object]:
    pieces = [("<unk>", 2, 0.0), ("<s>", 3, 0.0), ("</s>", 3, 0.0)]
    pieces += [(f"<0x{byte:02X}>", 6, 0.0) for byte in range(256)]
    words = ["▁a", "an", "▁an", "▁ban", "ana", "▁banana", "▁", "a", "n", "b", "▁b", "na"]
    pieces += [(word, 1, -float(i)) for i, word in enumerate(words)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [p[0] for p in pieces],
        "tokenizer.ggml.token_type": [p[1] for p in pieces],
        "tokenizer.ggml.scores": [p[2] for p in pieces],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **more,
    }


def spm_by_hand(text: str) -> list[str]:
    """SentencePiece's BPE as it is defined: join the best-scoring neighbours until none join."""
    table = spm_metadata()
    tokens, scores = table["tokenizer.ggml.tokens"], table["tokenizer.ggml.scores"]
    assert isinstance(tokens, list) and isinstance(scores, list)
    score = dict(zip(tokens, scores, strict=True))
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        joins = [
            (-score[a + b], i)
            for i, (a, b) in enumerate(zip(parts, parts[1:], strict=False))
            if a + b in score
        ]
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


# --- a directory ------------------------------------------------------------------------------


def test_a_directory_is_read_with_what_stands_beside_it(tmp_path: Path) -> None:
    built = gguf_tokenizer(bpe_metadata())
    built.backend.save(str(tmp_path / "tokenizer.json"))
    config = {"eos_token": {"content": "<|end|>"}, "chat_template": "T", "add_bos_token": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    read = read_tokenizer(tmp_path)
    assert read.encode("hello 12") == built.encode("hello 12")
    assert read.eos_ids == built.eos_ids
    assert read.chat_template == "T"
    assert read.special_tokens == {"eos_token": "<|end|>"}


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_directory_without_a_tokenizer(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(TokenizerError):
        read_tokenizer(tmp_path)
