"""Generation, on a model that is a table: what comes after a token follows from it alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from linnet.dtypes import DType
from linnet.generate import Generation, check_prompt, encode_prompt, generate, prefill_plan, stream
from linnet.runtime import EntrySignature
from linnet.text import ChatTemplateError, SamplingParams, Tokenizer, gguf_tokenizer
from linnet.text.sampling import log_softmax
from tests.text.metadata import bpe_metadata, spm_metadata


class TableModel:
    """After token t comes t + 1; the cache holds what was taken in."""

    name, dtype, weight_bytes, compile_s = "table", DType.F32, 0, 0.0

    def __init__(self, vocab: int, max_seq: int = 32, batch: int = 1):
        self.generics = {"Vocab": vocab, "MaxSeq": max_seq, "Batch": batch}
        self.entries = {
            name: EntrySignature(name, (), (), "") for name in ("forward", "prefill", "decode")
        }
        self.taken: list[int] = []
        self.calls: list[tuple[str, int, int]] = []
        self.on_host = 0
        """Rows of logits that were taken off the device."""

    def run_entry(self, name: str, inputs: Sequence[Any], **generics: int) -> np.ndarray:
        tokens, position = inputs
        assert tokens.dtype == np.int32 and len(tokens) == self.generics["Batch"]
        assert (tokens == tokens[:1]).all()
        assert name == "prefill" or tokens.shape[1] == 1
        assert position <= len(self.taken), "the cache has a hole"
        self.calls.append((name, position, tokens.shape[1]))
        self.taken = [*self.taken[:position], *tokens[0].tolist()]
        assert len(self.taken) <= self.generics["MaxSeq"]
        logits = np.zeros((len(tokens), self.generics["Vocab"]), np.float32)
        logits[:, (self.taken[-1] + 1) % self.generics["Vocab"]] = 5.0
        return logits

    def argmax(self, logits: np.ndarray) -> np.ndarray:
        return logits.argmax(-1)

    def to_numpy(self, value: np.ndarray) -> np.ndarray:
        self.on_host += len(value)
        return value

    def reset_state(self) -> None:
        self.taken = []

    def state_dict(self) -> dict[str, np.ndarray]:
        return {}

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
    assert ignoring.text == "12<tool>"


def test_ends_at_a_stop_token(model: TableModel, tokenizer: Tokenizer) -> None:
    found = generate(model, tokenizer, letters("a"), stop_tokens=letters("d"))
    assert (found.text, found.tokens, found.finish) == ("bc", letters("bcd"), "stop")


def test_ends_at_a_stop_string(model: TableModel, tokenizer: Tokenizer) -> None:
    found = generate(model, tokenizer, letters("a"), max_new_tokens=20, stop=["ef"])
    assert (found.text, found.finish) == ("bcd", "stop")


def test_two_stop_strings_or_one_alone(model: TableModel, tokenizer: Tokenizer) -> None:
    assert generate(model, tokenizer, letters("a"), stop=["gh", "cde"]).text == "b"
    assert generate(model, tokenizer, letters("a"), stop="gh").text == "bcdef"
    with pytest.raises(ValueError, match="must not be empty"):
        stream(model, tokenizer, letters("a"), stop=[""])


@pytest.mark.parametrize("stop", [(), ["fg"]])
def test_ends_where_the_cache_is_full(tokenizer: Tokenizer, stop: Sequence[str]) -> None:
    model = TableModel(tokenizer.vocab_size, max_seq=5)
    pieces = list(stream(model, tokenizer, letters("abc"), max_new_tokens=20, stop=stop))
    assert [(p.token, p.text) for p in pieces] == [(100, "d"), (101, "e"), (102, "f")]
    assert len(model.taken) == 5


def test_a_prompt_may_fill_the_cache(tokenizer: Tokenizer) -> None:
    model = TableModel(tokenizer.vocab_size, max_seq=3)
    found = generate(model, tokenizer, letters("abc"))
    assert (found.text, found.finish, len(model.taken)) == ("d", "length", 3)


def test_characters_come_whole(tokenizer: Tokenizer) -> None:
    # The bytes of U+07BF are followed by those that no character has.
    model = TableModel(tokenizer.vocab_size)
    pieces = list(stream(model, tokenizer, [0xDD], max_new_tokens=2))
    assert [p.text for p in pieces] == ["", "\ufffd\ufffd"]
    words = gguf_tokenizer(spm_metadata())
    pieces = list(stream(TableModel(words.vocab_size), words, [258], max_new_tokens=3))
    assert [p.text for p in pieces] == ["a", "an", " an"]


def test_held_text_is_given_at_the_end(model: TableModel, tokenizer: Tokenizer) -> None:
    found = generate(model, tokenizer, letters("a"), max_new_tokens=3, stop=["de"])
    assert found.text == "bcd"


def test_greedily_no_logits_leave_the_device(model: TableModel, tokenizer: Tokenizer) -> None:
    generate(model, tokenizer, letters("a"), max_new_tokens=5)
    assert model.on_host == 0
    biased = SamplingParams(logit_bias={ord("x"): 9.0})
    assert generate(model, tokenizer, letters("a"), max_new_tokens=2, params=biased).text == "xx"
    assert model.on_host == 2


def test_logprobs_are_the_model_s_own(model: TableModel, tokenizer: Tokenizer) -> None:
    row = np.zeros(model.generics["Vocab"])
    row[0] = 5.0
    for params in (SamplingParams(), SamplingParams(temperature=0.1, seed=0)):
        pieces = list(
            stream(model, tokenizer, letters("a"), max_new_tokens=3, params=params, logprobs=True)
        )
        assert [p.token for p in pieces] == letters("bcd")
        np.testing.assert_allclose([p.logprob or 0.0 for p in pieces], log_softmax(row)[0])


def test_rows_of_a_larger_batch_are_all_the_same(tokenizer: Tokenizer) -> None:
    model = TableModel(tokenizer.vocab_size, batch=3)
    assert generate(model, tokenizer, letters("ab"), max_new_tokens=3).text == "cde"


@pytest.mark.parametrize(
    ("length", "lengths", "plan"),
    [
        (7, (), [7]),
        (7, (4,), [4, 1, 1, 1]),
        (7, (2, 4), [4, 2, 1]),
        (8, (4, 4), [4, 4]),
        (3, (4,), [1, 1, 1]),
        (1, (), [1]),
    ],
)
def test_prefill_in_few_lengths(
    tokenizer: Tokenizer, length: int, lengths: tuple[int, ...], plan: list[int]
) -> None:
    assert prefill_plan(length, lengths) == plan
    model = TableModel(tokenizer.vocab_size)
    prompt = letters("abcdefgh")[:length]
    found = generate(model, tokenizer, prompt, max_new_tokens=2, prefill_lengths=lengths)
    assert found.tokens == [prompt[-1] + 1, prompt[-1] + 2]
    assert model.taken == [*prompt, prompt[-1] + 1]
    names = ["decode" if size == 1 else "prefill" for size in plan]
    assert [(name, size) for name, _, size in model.calls] == [
        *zip(names, plan, strict=True), ("decode", 1),
    ]  # fmt: skip


def test_a_prefill_of_nothing(model: TableModel, tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="must be at least 1, found 0"):
        stream(model, tokenizer, letters("a"), prefill_lengths=[8, 0])


def test_time_is_that_of_the_model(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]

    class Slow(TableModel):
        def run_entry(self, name: str, inputs: Sequence[Any], **generics: int) -> np.ndarray:
            seconds[0] += 8.0 if name == "prefill" else 1.0
            return super().run_entry(name, inputs, **generics)

    monkeypatch.setattr("linnet.generate.time", SimpleNamespace(perf_counter=lambda: seconds[0]))
    found = Generation()
    model = Slow(tokenizer.vocab_size)
    for _ in stream(model, tokenizer, letters("ab"), max_new_tokens=4, generation=found):
        seconds[0] += 100.0
    assert (found.ttft_s, found.decode_s, found.decode_tok_s) == (8.0, 3.0, 1.0)
    assert Generation(tokens=[1]).decode_tok_s == 0.0


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
    model: TableModel, tokenizer: Tokenizer, prompt: list[int], count: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_prompt(model, prompt, count)
    with pytest.raises(ValueError, match=message):
        stream(model, tokenizer, prompt, max_new_tokens=count)  # Not only at its first piece.


def test_a_model_that_does_not_generate(model: TableModel, tokenizer: Tokenizer) -> None:
    del model.entries["decode"]
    with pytest.raises(
        ValueError, match="needs the entry `decode`; this model has `forward`, `pre"
    ):
        generate(model, tokenizer, letters("a"))


def test_pieces_carry_their_tokens(model: TableModel, tokenizer: Tokenizer) -> None:
    pieces = list(stream(model, tokenizer, letters("a"), max_new_tokens=2))
    assert [(p.token, p.text) for p in pieces] == [(98, "b"), (99, "c")]


def test_prompts_need_a_template_unless_raw(tokenizer: Tokenizer) -> None:
    assert encode_prompt(tokenizer, "hello", raw=True) == tokenizer.encode("hello")
    with pytest.raises(ChatTemplateError, match="no chat template"):
        encode_prompt(tokenizer, "hello")
    with pytest.raises(ValueError, match="a raw prompt is text"):
        encode_prompt(tokenizer, [{"role": "user", "content": "hello"}], raw=True)


def test_a_prompt_is_a_user_s_message(tokenizer: Tokenizer) -> None:
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|end|>{% endfor %}"
    chatty = dataclasses.replace(tokenizer, chat_template=template)
    expected = tokenizer.encode("<user>hello<|end|>")
    assert encode_prompt(chatty, "hello") == expected
    assert encode_prompt(chatty, [{"role": "user", "content": "hello"}]) == expected
    assert expected[-1] in tokenizer.eos_ids
