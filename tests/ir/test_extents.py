"""Dimensions that the checker lets stand and only bound generics decide: none may be negative."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ir.programs import Model, evaluate, floats

ONE_LESS = """
pub entry f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N - 1; f32] { return fill([N - 1], 2) }
"""


def test_a_difference_is_an_extent() -> None:
    np.testing.assert_array_equal(evaluate(ONE_LESS, floats(3)).result, [2, 2])


def test_a_negative_extent_is_refused_when_its_generic_is_bound() -> None:
    with pytest.raises(ValueError, match="`N - 1` would be -1"):
        evaluate(ONE_LESS, floats(0))


def test_so_is_a_negative_generic() -> None:
    source = """
block Inner<N: Dim> { param w: Tensor[N; f32] }
pub block Outer<N: Dim> { sub inner: Inner<N - 2>
    pub entry f() -> i64 { return 1 } }
"""
    with pytest.raises(ValueError, match="`N - 2` would be -1"):
        Model.of(source, {"N": 1})


def test_an_affine_access_of_no_elements_starts_nowhere() -> None:
    source = """
pub entry f<N: Dim>(x: Tensor[2 * N; f32], y: Tensor[N; f32]) -> Tensor[N; f32] {
    let z[n] = x[2 * n] + x[2 * n + 1] + y[n]
    return z
}"""
    assert evaluate(source, floats(0), floats(0)).result.shape == (0,)
    np.testing.assert_allclose(
        evaluate(source, np.array([1, 2, 3, 4], np.float32), np.array([10, 20], np.float32)).result,
        [13, 27],
    )
