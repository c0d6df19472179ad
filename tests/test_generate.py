"""Generation, on a model that is a table: what comes after a token follows from it alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from linnet.dtypes import DType
from linnet.generate import check_prompt, encode_prompt, generate, stream
from linnet.text import ChatTemplateError, SamplingParams, Tokenizer, gguf_tokenizer
from tests.text.test_tokenizer import bpe_metadata


class TableModel:
    """After token t comes t + 1; the cache holds what was taken in."""

    name, dtype, weight_bytes, compile_s = "table", DType.F32, 0, 0.0

    def __init__(self, vocab: int, max_seq: int = 32):
        self.generics = {"Vocab": vocab, "MaxSeq": max_seq, "Batch": 1}
        self.entries: dict[str, Any] = {}
        self.taken: list[int] = []

    def run_entry(self, name: str, inputs: Sequence[Any], **generics: int) -> np.ndarray:
        tokens, position = inputs
        assert name == "prefill" or tokens.shape == (1, 1)
        assert position == (0 if name == "prefill" else len(self.taken))
        self.taken = [*self.taken[:position], *tokens[0].tolist()]
        assert len(self.taken) <= self.generics["MaxSeq"]
        logits = np.zeros((1, self.generics["Vocab"]), np.float32)
        logits[0, (self.taken[-1] + 1) % self.generics["Vocab"]] = 5.0
        return logits

    def argmax(self, logits: np.ndarray) -> np.ndarray:
        return logits.argmax(-1)

    def to_numpy(self, value: np.ndarray) -> np.ndarray:
        return value

    def reset_state(self) -> None:
        self.taken = []

    def generated_source(self, entry: str, **generics: int) -> str:
        return ""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return gguf_tokenizer(bpe_metadata())


def letters(text: str) -> list[int]:
    return [ord(char) for char in text]


@pytest.fixture
def model(tokenizer: Tokenizer) -> TableModel:
    return TableModel(tokenizer.vocab_size)


def test_goes_on_from_the_prompt(model: TableModel, tokenizer: Tokenizer) -> None:
    found = generate(model, tokenizer, letters("ab"), max_new_tokens=4)
    assert (found.text, found.tokens, found.finish) == ("cdef", letters("cdef"), "length")
    assert found.prompt_tokens == 2


def test_text_comes_as_it_is_made(model: TableModel, tokenizer: Tokenizer) -> None:
    pieces: list[str] = []
    generate(model, tokenizer, letters("a"), max_new_tokens=3, on_text=pieces.append)
    assert pieces == ["b", "c", "d"]


def test_ends_at_an_end_token(model: TableModel, tokenizer: Tokenizer) -> None:
    (end,) = tokenizer.eos_ids
    found = generate(model, tokenizer, [end - 2], max_new_tokens=9)
    assert (found.tokens, found.finish) == ([end - 1, end], "stop")
    ignoring = generate(model, tokenizer, [end - 2], max_new_tokens=3, ignore_eos=True)
    assert ignoring.tokens == [end - 1, end, end + 1]


def test_ends_at_a_stop_string(model: TableModel, tokenizer: Tokenizer) -> None:
    found = generate(model, tokenizer, letters("a"), max_new_tokens=20, stop=["ef"])
    assert (found.text, found.finish) == ("bcd", "stop")


def test_ends_where_the_cache_is_full(tokenizer: Tokenizer) -> None:
    model = TableModel(tokenizer.vocab_size, max_seq=5)
    found = generate(model, tokenizer, letters("abc"), max_new_tokens=20)
    assert (found.text, found.finish, len(model.taken)) == ("def", "length", 5)


def test_held_text_is_given_at_the_end(model: TableModel, tokenizer: Tokenizer) -> None:
    found = generate(model, tokenizer, letters("a"), max_new_tokens=3, stop=["de"])
    assert found.text == "bcd"


def test_sampling_is_the_sampler_s(model: TableModel, tokenizer: Tokenizer) -> None:
    params = SamplingParams(temperature=2.0, seed=1)
    runs = [generate(model, tokenizer, letters("a"), max_new_tokens=8, params=params).tokens
            for _ in range(2)]  # fmt: skip
    assert runs[0] == runs[1] != letters("bcdefghi")


@pytest.mark.parametrize(
    ("prompt", "count", "message"),
    [
        ([], 1, "the prompt is empty"),
        ([1] * 33, 1, "the prompt has 33 tokens, the cache holds 32"),
        ([99999], 1, "the token 99999 is not in the model's vocabulary"),
        ([1], 0, "max_new_tokens must be at least 1"),
    ],
)
def test_a_prompt_that_does_not_fit(
    model: TableModel, prompt: list[int], count: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_prompt(model, prompt, count)


def test_pieces_carry_their_tokens(model: TableModel, tokenizer: Tokenizer) -> None:
    pieces = list(stream(model, tokenizer, letters("a"), max_new_tokens=2))
    assert [(p.token, p.text) for p in pieces] == [(98, "b"), (99, "c")]


def test_prompts_need_a_template_unless_raw(tokenizer: Tokenizer) -> None:
    assert encode_prompt(tokenizer, "hello", raw=True) == tokenizer.encode("hello")
    with pytest.raises(ChatTemplateError, match="no chat template"):
        encode_prompt(tokenizer, "hello")
