"""Sampling: each step against its definition, the draw against its distribution."""

from __future__ import annotations

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
    ],
)
def test_a_value_out_of_range(given: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingParams(**given)  # type: ignore[arg-type]


def test_softmax_is_stable() -> None:
    np.testing.assert_allclose(softmax(np.array([1e6, 1e6])), [0.5, 0.5])


def test_a_stop_string_across_pieces() -> None:
    stop = StopText(["END", "\n\n"])
    assert [stop.push(piece) for piece in ["a E", "N", "x EN", "D more"]] == ["a ", "", "ENx ", ""]
    assert stop.found == "END"
    assert stop.push("after") == ""


@given(st.lists(st.text("abE", max_size=4), max_size=8))
def test_text_without_a_stop_is_all_given(pieces: list[str]) -> None:
    stop = StopText(["EEEEE"])
    given = "".join(stop.push(piece) for piece in pieces) + stop.flush()
    text = "".join(pieces)
    assert given == (text.partition("EEEEE")[0] if "EEEEE" in text else text)
