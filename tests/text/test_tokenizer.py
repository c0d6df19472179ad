"""Tokenizers: the real SmolLM2's against three others, and a checkpoint directory's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.text import Tokenizer, TokenizerError, gguf_tokenizer, read_tokenizer
from linnet.text.spelling import byte_level_alphabet
from tests.text.metadata import bpe_metadata, spm_metadata

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


@pytest.mark.weights
@pytest.mark.parametrize("text", HARD)
def test_the_real_tokenizer_is_that_of_transformers(
    smollm2: Tokenizer, transformers_smollm2, text: str
) -> None:
    expected = transformers_smollm2.encode(text, add_special_tokens=False)
    assert smollm2.encode(text) == expected
    assert smollm2.decode(expected, skip_special=False) == text


@pytest.fixture(scope="module")
def pipeline(smollm2_metadata: Mapping[str, Any]):
    """SmolLM2's tokenizer.json by hand, as its authors describe it."""
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import decoders, models, pre_tokenizers

    tokens = smollm2_metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split()) for merge in smollm2_metadata["tokenizer.ggml.merges"]]
    built = tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    built.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    built.decoder = decoders.ByteLevel()
    kinds = smollm2_metadata["tokenizer.ggml.token_type"]
    built.add_special_tokens([t for t, kind in zip(tokens, kinds, strict=True) if kind == 3])
    return built


@pytest.mark.weights
@pytest.mark.parametrize("text", HARD)
def test_the_real_tokenizer_is_its_pipeline(smollm2: Tokenizer, pipeline, text: str) -> None:
    expected = pipeline.encode(text).ids
    assert smollm2.encode(text) == expected
    assert smollm2.decode(expected) == pipeline.decode(expected)


def bpe_by_definition(regex, metadata: Mapping[str, Any], text: str) -> list[int]:
    """Byte-level BPE by its definition (Sennrich et al., 2016): join the earliest merge's pairs
    until none is left; digits alone, words as GPT-2's pattern says."""
    ranks = {merge: rank for rank, merge in enumerate(metadata["tokenizer.ggml.merges"])}
    alphabet = byte_level_alphabet()
    known = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    words = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    pieces = [
        word
        for part in regex.split(r"(\p{N})", text)
        if part
        for word in regex.findall(words, part)
    ]
    found = []
    for piece in pieces:
        parts = [alphabet[byte] for byte in piece.encode()]
        while pairs := [p for p in pairwise(parts) if " ".join(p) in ranks]:
            best = min(pairs, key=lambda pair: ranks[" ".join(pair)])
            at = list(pairwise(parts)).index(best)
            parts[at : at + 2] = ["".join(best)]
        # A byte without a token is left out.
        found += [known[part] for part in parts if part in known]
    return found


@pytest.mark.weights
@pytest.mark.parametrize("text", HARD)
def test_the_real_tokenizer_is_bpe_by_definition(
    smollm2: Tokenizer, smollm2_metadata: Mapping[str, Any], text: str
) -> None:
    regex = pytest.importorskip("regex")
    expected = bpe_by_definition(regex, smollm2_metadata, text)
    assert smollm2.encode(text, parse_special=False) == expected


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
    assert text == smollm2.decode(ids) == smollm2.backend.decode(ids)


@pytest.mark.weights
def test_special_tokens_are_known(smollm2: Tokenizer) -> None:
    assert smollm2.vocab_size == 49152
    assert (smollm2.bos_id, smollm2.eos_ids, smollm2.adds_bos) == (1, (2,), False)
    assert smollm2.eos_id == 2 and {0, 1, 2} <= smollm2.special_ids
    assert smollm2.id_of("<|im_end|>") == 2
    assert smollm2.encode("<|im_end|>") == [2]
    assert len(smollm2.encode("<|im_end|>", parse_special=False)) > 1
    assert smollm2.decode([2]) == ""
    with pytest.raises(KeyError):
        smollm2.id_of("<|nothing|>")


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


def saved(tokenizer: Tokenizer, directory: Path, **files: object) -> Path:
    tokenizer.backend.save(str(directory / "tokenizer.json"))
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return directory


@pytest.mark.parametrize("metadata", [bpe_metadata(), spm_metadata()], ids=["gpt2", "llama"])
def test_a_directory_decodes_as_the_file_did(tmp_path: Path, metadata: dict[str, object]) -> None:
    built = gguf_tokenizer(metadata)
    read = read_tokenizer(saved(built, tmp_path))
    ids = built.encode(" ban 中 hello", add_special=False)
    assert read.encode(" ban 中 hello", add_special=False) == ids
    assert read.decode(ids) == built.decode(ids) == " ban 中 hello"


def test_a_prompt_is_not_cut_or_filled_up(tmp_path: Path) -> None:
    built = gguf_tokenizer(bpe_metadata())
    built.backend.enable_truncation(3)
    built.backend.enable_padding(length=9)
    assert len(read_tokenizer(saved(built, tmp_path)).encode("b" * 20)) == 20
    assert len(read_tokenizer(tmp_path).encode("b")) == 1


def test_all_end_tokens_of_a_directory_end(tmp_path: Path) -> None:
    built = gguf_tokenizer(bpe_metadata())
    config = {"eos_token": "<|end|>", "bos_token": None, "pad_token": "<tool>"}
    files = {"tokenizer_config": config, "generation_config": {"eos_token_id": [3, 5, 3]}}
    read = read_tokenizer(saved(built, tmp_path, **files))
    assert read.eos_ids == (3, 5, built.id_of("<|end|>"))
    assert read.special_tokens == {"eos_token": "<|end|>", "pad_token": "<tool>"}
    assert not read.adds_bos and read.bos_id is None


def test_a_template_in_a_file_of_its_own(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    directory = saved(
        gguf_tokenizer(bpe_metadata()), tmp_path, tokenizer_config={"chat_template": named}
    )
    assert read_tokenizer(directory).chat_template == "D"
    (directory / "chat_template.jinja").write_text("F")
    assert read_tokenizer(directory).chat_template == "F"
    (directory / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match="is no UTF-8"):
        read_tokenizer(directory)


def test_a_decoder_that_is_not_known(tmp_path: Path) -> None:
    from tokenizers import decoders

    built = gguf_tokenizer(bpe_metadata())
    built.backend.decoder = decoders.WordPiece()
    with pytest.raises(TokenizerError, match=r"has the decoder WordPiece.*`ByteLevel`"):
        read_tokenizer(saved(built, tmp_path))


# --- every tokenizer --------------------------------------------------------------------------


def test_text_that_is_no_unicode() -> None:
    with pytest.raises(ValueError, match="half a surrogate pair at character 1"):
        gguf_tokenizer(bpe_metadata()).encode("a\ud83d")


def test_threads_with_and_without_special_tokens_do_not_meet() -> None:
    tokenizer = gguf_tokenizer(bpe_metadata())
    expected = {
        parse: tokenizer.encode("<|end|>" * 50, parse_special=parse) for parse in (True, False)
    }
    assert expected[True] != expected[False]

    def encode(turn: int) -> bool:
        parse = turn % 2 == 0
        return tokenizer.encode("<|end|>" * 50, parse_special=parse) == expected[parse]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(encode, range(400)))
