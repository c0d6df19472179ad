"""`std.random` draws what `jax.random` draws: the vectors that `jax_random.py` wrote."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.ir.programs import Model

VECTORS = json.loads((Path(__file__).parent / "jax_random.json").read_text(encoding="utf-8"))
DRAWN = pytest.mark.parametrize("drawn", VECTORS["keys"], ids=lambda drawn: str(drawn["key"]))

MODEL = Model.of("""
module test

use std.random::{bits, categorical, fold_in, key, normal, split, uniform}

pub entry seeded(seed: i64) -> Tensor[2; i64] { return key(seed) }
pub entry parts(k: Tensor[2; i64]) -> Tensor[5, 2; i64] { return split<5>(k) }
pub entry folded(k: Tensor[2; i64], data: i64) -> Tensor[2; i64] { return fold_in(k, data) }
pub entry words(k: Tensor[2; i64]) -> Tensor[9; i64] { return bits<9>(k) }
pub entry even(k: Tensor[2; i64]) -> Tensor[33; f32] { return uniform<33>(k) }
pub entry bell(k: Tensor[2; i64]) -> Tensor[33; f32] { return normal<33>(k) }
pub entry rounded(k: Tensor[2; i64]) -> Tensor[33; f16] { return normal<33, f16>(k) }
pub entry chosen<B: Dim, V: Dim>(k: Tensor[2; i64], logits: Tensor[B, V; f32]) -> Tensor[B; i32] {
    return categorical(k, logits)
}
""")


def draw(entry: str, key: list[int], *more: object) -> np.ndarray:
    return MODEL.run(entry, np.array(key, np.int64), *more).result


@pytest.mark.parametrize(("seed", "words"), VECTORS["seeds"])
def test_the_key_of_a_seed(seed: int, words: list[int]) -> None:
    assert MODEL.run("seeded", np.int64(seed)).result.tolist() == words


@DRAWN
def test_keys_of_a_key(drawn: dict) -> None:
    assert draw("parts", drawn["key"]).tolist() == drawn["split"]
    for data, words in zip(VECTORS["data"], drawn["fold_in"], strict=True):
        assert draw("folded", drawn["key"], np.int64(data)).tolist() == words


@DRAWN
def test_bits_and_uniform_numbers(drawn: dict) -> None:
    assert draw("words", drawn["key"]).tolist() == drawn["bits"]
    assert draw("even", drawn["key"]).tolist() == drawn["uniform"]


@DRAWN
def test_normal_numbers(drawn: dict) -> None:
    found, expected = draw("bell", drawn["key"]), np.array(drawn["normal"], np.float32)
    # The last bits are those of XLA's logarithm, on one kind of device in one version.
    np.testing.assert_array_max_ulp(found, expected, maxulp=3)
    assert draw("rounded", drawn["key"]).tolist() == found.astype(np.float16).tolist()


@DRAWN
def test_categories(drawn: dict) -> None:
    logits = np.array(VECTORS["logits"], np.float32)
    assert draw("chosen", drawn["key"], logits).tolist() == drawn["categorical"]


@DRAWN
def test_a_category_without_probability_is_never_drawn(drawn: dict) -> None:
    logits = np.full((500, 3), -np.inf, np.float32)
    logits[:, 1] = 0
    assert (draw("chosen", drawn["key"], logits) == 1).all()


def test_frequencies_follow_the_logits() -> None:
    shares = np.array([0.5, 0.25, 0.125, 0.125])
    logits = np.broadcast_to(np.log(shares), (20_000, 4)).astype(np.float32)
    found = draw("chosen", [1, 2], logits)
    counts = np.bincount(found, minlength=4) / len(found)
    np.testing.assert_allclose(counts, shares, atol=0.012)  # more than three deviations
