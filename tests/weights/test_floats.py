"""Float conversions: to the nearest, ties to even, whatever the two formats."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linnet.dtypes import DType
from linnet.weights.floats import NUMPY, convert, from_bf16, to_bf16

ANY_F32 = st.integers(0, 2**32 - 1).map(lambda bits: np.uint32(bits).view(np.float32))
ANY_F64 = st.integers(0, 2**64 - 1).map(lambda bits: np.uint64(bits).view(np.float64))


@given(st.lists(ANY_F32, min_size=1, max_size=50))
def test_bf16_is_rounded_as_torch_rounds(values: list[np.float32]) -> None:
    array = np.array(values, np.float32)
    expected = torch.from_numpy(array).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(from_bf16(to_bf16(array)), expected)


def test_ties_go_to_the_even_neighbour() -> None:
    ties = np.array([0x3F808000, 0x3F818000, 0xBF808000], np.uint32).view(np.float32)
    assert to_bf16(ties).tolist() == [0x3F80, 0x3F82, 0xBF80]


def test_bf16_keeps_infinity_and_nan() -> None:
    largest = np.float32(3.4e38)
    bits = to_bf16(np.array([np.inf, -np.inf, np.nan, largest, -largest], np.float32))
    back = from_bf16(bits)
    assert back[0] == np.inf and back[1] == -np.inf and np.isnan(back[2])
    assert back[3] == np.inf and back[4] == -np.inf  # Nearer to the next power of two.


@given(ANY_F64)
def test_f64_is_rounded_to_bf16_once(value: np.float64) -> None:
    found = from_bf16(convert(np.array([value]), DType.F64, DType.BF16))[0]
    if np.isnan(value):
        assert np.isnan(found)
        return
    # Exact in f64: bf16 has 8 bits of significand, and f64 holds the middle of two neighbours.
    bits = to_bf16(np.array([value]).astype(np.float32))
    around = from_bf16(np.clip(int(bits[0]) + np.array([-1, 0, 1]), 0, 65535).astype(np.uint16))
    around = around.astype(np.float64)[np.isfinite(around)]
    if np.isfinite(found):
        assert abs(float(found) - value) == np.abs(around - value).min()
    else:
        assert abs(value) >= (2.0 - 2.0**-8) * 2.0**127


def test_f64_just_above_a_tie_goes_up() -> None:
    # Rounded to f32 first this is the tie itself, which would then go down to the even neighbour.
    above = np.array([1.0 + 2.0**-8 + 2.0**-40, -(1.0 + 2.0**-8 + 2.0**-40)])
    assert convert(above, DType.F64, DType.BF16).tolist() == [0x3F81, 0xBF81]
    below = np.array([1.0 + 3 * 2.0**-8 - 2.0**-40])
    assert convert(below, DType.F64, DType.BF16).tolist() == [0x3F81]


FLOATS = (DType.F16, DType.BF16, DType.F32, DType.F64)


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", FLOATS)
def test_every_pair_of_floats_agrees_with_torch(source: DType, target: DType) -> None:
    names = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
             "f64": torch.float64}  # fmt: skip
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32) * np.float32(300)
    stored = torch.from_numpy(values).to(names[source])
    held = stored.view(torch.int16).numpy().view(np.uint16) if source == DType.BF16 else (
        stored.numpy())  # fmt: skip
    found = convert(held, source, target)
    assert found.dtype == NUMPY[target]
    wide = from_bf16(found) if target == DType.BF16 else found
    np.testing.assert_array_equal(wide, stored.to(names[target]).to(torch.float64).numpy())


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (DType.I32, DType.F32),
        (DType.F32, DType.I32),
        (DType.I32, DType.I64),
        (DType.BOOL, DType.U8),
    ],
)
def test_nothing_but_floats_converts(source: DType, target: DType) -> None:
    with pytest.raises(ValueError, match=f"{source} is not converted to {target}"):
        convert(np.zeros(1, NUMPY[source]), source, target)
