"""Sampling many rows at once: each row gets what it would get alone."""

from __future__ import annotations

import numpy as np
import pytest

from linnet.text.sampling import Sampler, SamplingParams, choose_rows, filter_logits, top_logprobs

KINDS = [
    SamplingParams(),
    SamplingParams(temperature=1.0, seed=1),
    SamplingParams(temperature=0.7, top_p=0.9, seed=2),
    SamplingParams(temperature=1.3, top_k=7, min_p=0.05, seed=3),
    SamplingParams(repetition_penalty=1.3, presence_penalty=0.5),
    SamplingParams(temperature=1.0, frequency_penalty=0.4, logit_bias={4: 3.0}, seed=4),
    SamplingParams(temperature=2.0, top_p=0.999, seed=5),
]


@pytest.mark.parametrize("vocab", [50, 3000])
def test_rows_do_not_touch_each_other(vocab: int) -> None:
    random = np.random.default_rng(0)
    steps = random.standard_normal((12, len(KINDS), vocab)).astype(np.float32) * 3
    together = [Sampler(params, [1, 2, 3]) for params in KINDS]
    single = [Sampler(params, [1, 2, 3]) for params in KINDS]
    for logits in steps:
        order = random.permutation(len(KINDS))
        found = choose_rows(logits[order], [together[i] for i in order])
        expected = [single[i].choose(logits[i]) for i in order]
        assert found == expected


def test_a_row_without_a_choice_gets_its_error_alone() -> None:
    logits = np.zeros((3, 10), np.float32)
    logits[1] = np.nan
    found = choose_rows(logits, [Sampler(SamplingParams()) for _ in range(3)])
    assert found[0] == found[2] == 0
    assert isinstance(found[1], ValueError) and "no token can be chosen" in str(found[1])


def test_choices_of_one_seed_differ_and_repeat() -> None:
    logits = np.zeros(1000, np.float32)
    params = SamplingParams(temperature=1.0, seed=5)
    draws = [[Sampler(params, (), choice).choose(logits) for _ in range(2)] for choice in range(9)]
    assert all(first == second for first, second in draws)
    assert len({first for first, _ in draws}) > 5


@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_top_p_keeps_the_fewest_that_reach_it(top_p: float, spread: float) -> None:
    """Against a plain sort; 4000 tokens, so that the likeliest 512 are not always enough."""
    logits = np.random.default_rng(1).standard_normal((1, 4000)) * spread
    kept = np.isfinite(filter_logits(logits, np.array([0]), np.array([top_p]), np.array([0.0])))
    order = np.argsort(-logits[0])
    share = np.exp(logits[0][order])
    share /= share.sum()
    count = int((np.cumsum(share) < top_p).sum()) + 1
    assert set(np.flatnonzero(kept[0])) == set(order[:count])


def test_the_likeliest_are_told_in_order() -> None:
    logprobs = np.log(np.array([0.1, 0.4, 0.2, 0.3]))
    assert [token for token, _ in top_logprobs(logprobs, 3)] == [1, 3, 2]
    assert top_logprobs(logprobs, 0) == []
    assert len(top_logprobs(logprobs, 9)) == 4
