"""Sampling: each step against its definition, the draw against its distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.text.sampling import (
    Sampler,
    SamplingParams,
    StopText,
    draw,
    filter_logits,
    log_softmax,
    penalise,
    softmax,
)

LOGITS = np.log(np.array([[0.5, 0.25, 0.15, 0.1]]))


def kept(top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> list[int]:
    found = filter_logits(LOGITS, np.array([top_k]), np.array([top_p]), np.array([min_p]))
    return np.flatnonzero(np.isfinite(found[0])).tolist()


def test_filters_keep_the_likeliest() -> None:
    assert kept() == [0, 1, 2, 3]
    assert kept(top_k=2) == [0, 1]
    assert kept(top_p=0.6) == [0, 1]
    assert kept(top_p=0.4) == [0]
    assert kept(min_p=0.3) == [0, 1, 2]
    assert kept(top_k=3, top_p=0.8) == [0, 1]
    assert kept(top_p=1e-9, min_p=1.0) == [0]


def test_equally_likely_tokens_stay_or_go_together() -> None:
    logits = np.array([[1.0, 2.0, 2.0, 0.0, 2.0]])
    for limits in ((2, 1.0, 0.0), (0, 0.3, 0.0), (0, 1.0, 1.0)):
        found = filter_logits(logits, *(np.array([limit]) for limit in limits))
        assert np.flatnonzero(np.isfinite(found[0])).tolist() == [1, 2, 4]


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 5, 50, 500]),
    st.sampled_from([1.0, 0.99, 0.7, 0.1]),
    st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    st.sampled_from([0.3, 1.0, 1.7]),
    st.sampled_from([0.8, 1.0, 1.3]),
)
def test_logits_are_processed_as_transformers_does(
    seed: int, top_k: int, top_p: float, min_p: float, temperature: float, repetition: float
) -> None:
    torch = pytest.importorskip("torch")
    process = pytest.importorskip("transformers.generation.logits_process")
    rng = np.random.default_rng(seed)
    vocab = int(rng.integers(2, 200))
    logits = rng.normal(size=(1, vocab)) * 3
    prompt = rng.integers(0, vocab, 5)
    expected = process.RepetitionPenaltyLogitsProcessor(repetition)(
        torch.tensor(prompt)[None], torch.tensor(logits)
    )
    steps = [process.TemperatureLogitsWarper(temperature)]
    steps += [process.TopKLogitsWarper(top_k)] if top_k else []
    steps += [process.TopPLogitsWarper(top_p)] if top_p < 1 else []
    steps += [process.MinPLogitsWarper(min_p)] if min_p else []
    for step in steps:
        expected = step(None, expected)
    counts = np.bincount(prompt, minlength=vocab)[None]
    one = np.ones((1, 1))
    penalised = penalise(logits, counts, 0 * counts, repetition * one, 0 * one, 0 * one)
    limits = (np.array([limit]) for limit in (top_k, top_p, min_p))
    np.testing.assert_allclose(filter_logits(penalised / temperature, *limits), expected.numpy())


def test_rows_are_filtered_by_their_own_limits() -> None:
    both = filter_logits(
        np.repeat(LOGITS, 2, 0), np.array([1, 0]), np.array([1.0, 0.85]), np.zeros(2)
    )
    assert np.isfinite(both).sum(-1).tolist() == [1, 3]


def test_penalties() -> None:
    logits = np.array([[2.0, -2.0, 1.0]])
    prompt, answer = np.array([[1, 1, 0]]), np.array([[0, 2, 0]])
    one = np.ones((1, 1))
    np.testing.assert_allclose(penalise(logits, prompt, answer, 2 * one, 0 * one, 0 * one),
                               [[1.0, -4.0, 1.0]])  # fmt: skip
    np.testing.assert_allclose(penalise(logits, prompt, answer, one, 0.5 * one, 0.25 * one),
                               [[2.0, -3.0, 1.0]])  # fmt: skip


def test_draws_follow_the_distribution() -> None:
    uniform = (np.arange(10_000) + 0.5) / 10_000
    chosen = draw(np.repeat(LOGITS, 10_000, 0), uniform)
    np.testing.assert_allclose(np.bincount(chosen) / 10_000, [0.5, 0.25, 0.15, 0.1], atol=1e-3)


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 3))
def test_what_is_filtered_is_never_drawn(uniform: float, only: int) -> None:
    logits = np.full((1, 4), -np.inf)
    logits[0, only] = 3.0
    assert draw(logits, np.array([uniform])).tolist() == [only]


def test_a_seed_draws_the_same_tokens() -> None:
    params = SamplingParams(temperature=1.0, seed=7)
    random = np.random.default_rng(0).standard_normal((20, 50))
    runs = [[Sampler(params).choose(row) for row in random] for _ in range(2)]
    first = Sampler(params)
    assert runs[0] == runs[1] and len({first.choose(row) for row in random}) > 1


def test_greedy_with_a_bias_is_still_greedy() -> None:
    params = SamplingParams(logit_bias={3: 100.0})
    assert not params.is_greedy
    assert Sampler(params).choose(LOGITS[0]) == 3
    assert SamplingParams().is_greedy


def test_a_repetition_penalty_looks_at_prompt_and_answer() -> None:
    sampler = Sampler(SamplingParams(repetition_penalty=2.0), prompt=[0])
    logits = np.array([4.0, 3.0, 2.9, 0.0])
    assert [sampler.choose(logits) for _ in range(3)] == [1, 2, 0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"temperature": -1.0}, "temperature must be from 0 to 100, found -1.0"),
        ({"top_p": 0.0}, "top_p must be more than 0"),
        ({"top_p": 1.5}, "top_p must be from 0 to 1"),
        ({"top_k": -1}, "top_k must be"),
        ({"min_p": 2.0}, "min_p must be"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"temperature": "1"}, "temperature must be from 0 to 100, found '1'"),
        ({"top_p": True}, "top_p must be"),
        ({"top_k": 1.5}, "top_k must be a whole number"),
        ({"seed": -1}, "seed must be a whole number from 0 to"),
        ({"seed": 1.0}, "seed must be a whole number"),
        ({"logit_bias": {"1": 1.0}}, "logit_bias must be by token id, found '1'"),
        ({"logit_bias": {1: float("nan")}}, "logit_bias of token 1 must be a number"),
        ({"logit_bias": {1: float("inf")}}, "logit_bias of token 1 must be a number"),
    ],
)
def test_a_value_out_of_range(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingParams(**given)


def test_a_bias_beyond_the_vocabulary() -> None:
    with pytest.raises(ValueError, match="names token 4: the model's vocabulary has 4"):
        Sampler(SamplingParams(logit_bias={4: 1.0})).choose(LOGITS[0])


def test_a_banned_token_is_not_chosen() -> None:
    for params in (
        SamplingParams(logit_bias={0: -np.inf}),
        SamplingParams(1.0, logit_bias={0: -np.inf}),
    ):
        assert 0 not in [Sampler(params).choose(LOGITS[0]) for _ in range(50)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("logits", [[1.0, np.nan], [1.0, np.inf], [-np.inf, -np.inf]])
def test_logits_that_leave_nothing_to_choose(temperature: float, logits: list[float]) -> None:
    with pytest.raises(ValueError, match="no token can be chosen"):
        Sampler(SamplingParams(temperature)).choose(np.array(logits))


def test_a_tiny_temperature_is_greedy() -> None:
    sampler = Sampler(SamplingParams(temperature=1e-300, top_p=0.9))
    assert sampler.choose(np.array([-500.0, 700.0, 699.0])) == 1


def test_log_softmax_is_the_logarithm_of_softmax() -> None:
    np.testing.assert_allclose(log_softmax(LOGITS), np.log(softmax(LOGITS)))
    assert log_softmax(np.array([0.0, 5000.0], np.float32)).tolist() == [-5000.0, 0.0]


def test_softmax_is_stable() -> None:
    np.testing.assert_allclose(softmax(np.array([1e6, 1e6])), [0.5, 0.5])


def test_a_stop_string_across_pieces() -> None:
    stop = StopText(["END", "\n\n"])
    assert [stop.push(piece) for piece in ["a E", "N", "x EN", "D more"]] == ["a ", "", "ENx ", ""]
    assert stop.found == "END"
    assert stop.push("after") == ""


def test_one_stop_string_may_be_given_alone() -> None:
    stop = StopText("END")
    assert (stop.push("a D END b"), stop.found) == ("a D ", "END")


def test_an_empty_stop_string() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        StopText(["a", ""])


@given(
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.text("abc", max_size=4), max_size=10),
)
def test_how_text_is_cut_makes_no_difference(stops: list[str], pieces: list[str]) -> None:
    stop, whole = StopText(stops), StopText(stops)
    given = "".join(stop.push(piece) for piece in pieces) + stop.flush()
    assert given == whole.push("".join(pieces)) + whole.flush()
    assert stop.found == whole.found
    assert not any(s in given for s in stops)


@given(st.lists(st.text("abE", max_size=4), max_size=8))
def test_text_without_a_stop_is_all_given(pieces: list[str]) -> None:
    stop = StopText(["EEEEE"])
    given = "".join(stop.push(piece) for piece in pieces) + stop.flush()
    text = "".join(pieces)
    assert given == (text.partition("EEEEE")[0] if "EEEEE" in text else text)
