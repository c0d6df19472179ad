"""What each operation means, on small cases with known answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.dtypes import DType
from linnet.ir.fold import fold_scalar, round_float
from linnet.ir.interpreter import cast, round_bf16, run
from linnet.ir.parse import parse_module
from linnet.ir.verify import verify
from tests.ir.programs import f32


def apply(op: str, result: str, *inputs: tuple[str, object], wide: bool = False) -> np.ndarray:
    """Runs one operation: `%` names stand for `a`, `b`, `c` in turn."""
    names = "abcd"[: len(inputs)]
    lines = [
        f"  input {name}: {type_} = {name}" for name, (type_, _) in zip(names, inputs, strict=True)
    ]
    text = "\n".join(["module f\n", "entry f", *lines, f"  r: {result} = {op}", "  return r"])
    module = parse_module(text)
    verify(module)
    (found,), _ = run(module, [np.asarray(x) for _, x in inputs], {}, wide=wide)
    return found


def pair(op: str, dtype: str, a: Sequence[object], b: Sequence[object]) -> list[object]:
    type_ = f"{dtype}[{len(a)}]"
    return apply(f"{op} a, b", type_, (type_, a), (type_, b)).tolist()


def test_integers_wrap() -> None:
    assert pair("add", "i8", [127, -128], [1, -1]) == [-128, 127]
    assert pair("mul", "u8", [200], [2]) == [144]
    assert pair("sub", "u32", [0], [1]) == [2**32 - 1]
    assert pair("mul", "i64", [2**62], [4]) == [0]
    assert apply("neg a", "i8[1]", ("i8[1]", [-128])).tolist() == [-128]
    assert apply("abs a", "i8[2]", ("i8[2]", [-128, -3])).tolist() == [-128, 3]


def test_integer_division_truncates_toward_zero() -> None:
    a, b = [7, -7, 7, -7, 5, -128], [2, 2, -2, -2, 0, -1]
    assert pair("div", "i8", a, b) == [3, -3, -3, 3, 0, -128]
    assert pair("rem", "i8", a, b) == [1, -1, 1, -1, 0, 0]
    assert pair("div", "u64", [2**64 - 1], [2]) == [2**63 - 1]
    assert pair("rem", "u64", [2**64 - 1], [10]) == [5]


def test_float_division_and_remainder() -> None:
    assert pair("div", "f32", [1.0, -1.0], [0.0, 0.0]) == [math.inf, -math.inf]
    assert pair("rem", "f32", [5.5, -5.5], [2.0, 2.0]) == [1.5, -1.5]


def test_shifts() -> None:
    assert pair("shl", "u32", [1, 1, 1], [31, 32, 40]) == [2**31, 0, 0]
    assert pair("shr", "i8", [-128, -1, 64, -5], [1, 9, 6, 1]) == [-64, -1, 1, -3]
    assert pair("shr", "u64", [2**63], [63]) == [1]


def test_logic_is_bitwise_on_integers() -> None:
    assert pair("and", "i32", [12], [10]) == [8]
    assert pair("xor", "bool", [True, True], [True, False]) == [False, True]
    assert apply("not a", "i8[1]", ("i8[1]", [5])).tolist() == [-6]
    assert apply("not a", "bool[1]", ("bool[1]", [True])).tolist() == [False]


def test_casts() -> None:
    x = f32(1.9, -1.9, 300, -300, math.nan, math.inf)
    assert cast(x, DType.F32, DType.I8).tolist() == [1, -1, 127, -128, 0, 127]
    assert cast(x, DType.F32, DType.U8).tolist() == [1, 0, 255, 0, 0, 255]
    assert cast(f32(2.0**63, -(2.0**63)), DType.F32, DType.I64).tolist() == [2**63 - 1, -(2**63)]
    assert apply("cast a", "i8[2]", ("i32[2]", [300, -129])).tolist() == [44, 127]
    assert apply("cast a", "bool[3]", ("f32[3]", [0.0, 0.5, -0.0])).tolist() == [False, True, False]
    assert apply("cast a", "f32[2]", ("bool[2]", [True, False])).tolist() == [1.0, 0.0]


@given(st.floats(width=32))
def test_bf16_is_the_nearest(x: float) -> None:
    found = float(round_bf16(f32(x))[0])
    if math.isnan(x):
        assert math.isnan(found)
        return
    assert found == round_float(x, DType.BF16)
    bits = int(np.float32(found).view(np.uint32))
    assert bits & 0xFFFF == 0
    if math.isfinite(found):
        for other in (bits + 0x10000, bits - 0x10000):
            neighbour = float(np.uint32(other % 2**32).view(np.float32))
            if math.isfinite(neighbour):
                assert abs(found - x) <= abs(neighbour - x)


def test_low_precision_sums_are_rounded_once() -> None:
    ones = np.full((1, 2048), 1.0)
    type_ = "bf16[1, 2048]"
    total = apply('reduce a {op = "sum", axes = [1]}', "bf16[1]", (type_, ones))
    assert total.tolist() == [2048.0]
    half = apply('reduce a {op = "sum", axes = [0]}', "f16[]", ("f16[4000]", np.full(4000, 1.0)))
    assert half == 4000


def test_wide_rounds_nothing() -> None:
    x = np.array([1 + 2.0**-40])
    assert apply("mul a, a", "bf16[1]", ("bf16[1]", x), wide=True)[0] == x[0] ** 2


@pytest.mark.parametrize(
    ("batch", "contract", "einsum"),
    [
        ("[[], []]", "[[1], [0]]", "ab,bc->ac"),
        ("[[0], [1]]", "[[1], [0]]", "ab,ba->a"),
        ("[[], []]", "[[], []]", "ab,cd->abcd"),
        ("[[], []]", "[[0, 1], [1, 0]]", "ab,ba->"),
        ("[[1], [1]]", "[[], []]", "ab,cb->bac"),
    ],
)
def test_dot_is_any_contraction(batch: str, contract: str, einsum: str) -> None:
    a = np.arange(9, dtype=np.float64).reshape(3, 3) + 0.5
    b = np.arange(9, 0, -1).reshape(3, 3) * 0.25
    expected = np.einsum(einsum, a, b)
    found = apply(
        f"dot a, b {{batch = {batch}, contract = {contract}}}",
        f"f64{list(expected.shape)}",
        ("f64[3, 3]", a),
        ("f64[3, 3]", b),
    )
    np.testing.assert_allclose(found, expected)


def test_dot_casts_to_its_dtype_first() -> None:
    attrs = "{batch = [[], []], contract = [[0], [0]]}"
    big = [100, 100]
    assert apply(f"dot a, b {attrs}", "i8[]", ("i8[2]", big), ("i8[2]", big)) == 20000 % 256
    assert apply(f"dot a, b {attrs}", "i32[]", ("i8[2]", big), ("i8[2]", big)) == 20000
    assert apply(f"dot a, b {attrs}", "f32[]", ("i8[2]", big), ("f16[2]", big)) == 20000


def test_reductions() -> None:
    x = ("i32[2, 3]", [[1, 5, 3], [4, 2, 6]])
    assert apply('reduce a {op = "max", axes = [1]}', "i32[2]", x).tolist() == [5, 6]
    assert apply('reduce a {op = "prod", axes = [0]}', "i32[3]", x).tolist() == [4, 10, 18]
    assert apply('reduce a {op = "min", axes = [0, 1]}', "i32[]", x) == 1
    none = ("i32[0]", np.zeros(0, np.int32))
    assert apply('reduce a {op = "max", axes = [0]}', "i32[]", none) == -(2**31)
    assert apply('reduce a {op = "sum", axes = [0]}', "i32[]", none) == 0
    empty = ("f32[0]", np.zeros(0))
    assert apply('reduce a {op = "min", axes = [0]}', "f32[]", empty) == math.inf
    truth = ("bool[2]", [True, False])
    assert apply('reduce a {op = "any", axes = [0]}', "bool[]", truth)
    assert not apply('reduce a {op = "all", axes = [0]}', "bool[]", truth)


def test_gather_clamps() -> None:
    x = ("f32[3, 2]", [[0, 1], [10, 11], [20, 21]])
    rows = ("i32[4]", [-5, 1, 2, 99])
    found = apply("gather a, b {axes = [0]}", "f32[4, 2]", x, rows)
    assert found.tolist() == [[0, 1], [10, 11], [20, 21], [20, 21]]
    both = apply("gather a, b, c {axes = [0, 1]}", "f32[2]", x, ("i64[2]", [2, 0]),
                 ("i32[2]", [0, 7]))  # fmt: skip
    assert both.tolist() == [20, 1]
    second = apply("gather a, b {axes = [1]}", "f32[1, 3]", x, ("i32[1]", [1]))
    assert second.tolist() == [[1, 11, 21]]


def test_update_slice_moves_so_that_it_fits() -> None:
    x, value = ("i32[5]", [0, 0, 0, 0, 0]), ("i32[2]", [1, 2])
    for start, expected in [(1, [0, 1, 2, 0, 0]), (9, [0, 0, 0, 1, 2]), (-3, [1, 2, 0, 0, 0])]:
        found = apply("update_slice a, b, c {axes = [0]}", "i32[5]", x, value, ("i32[]", start))
        assert found.tolist() == expected


def test_broadcast_places_and_stretches_axes() -> None:
    found = apply("broadcast a {axes = [0, 2]}", "i32[2, 3, 4]", ("i32[2, 1]", [[1], [2]]))
    assert found.shape == (2, 3, 4)
    assert found[0].tolist() == [[1] * 4] * 3


def test_missing_and_misshapen_operands_are_named() -> None:
    module = parse_module(
        "module f\n\nentry f\n  input x: f32[2] = x\n  param w: f32[2] = a.w\n"
        "  y: f32[2] = mul x, w\n  return y"
    )
    with pytest.raises(ValueError, match=r"`a\.w` is not given; it is f32\[2\]"):
        run(module, [f32(1, 2)], {})
    with pytest.raises(ValueError, match=r"`a\.w` must be f32\[2\], not of shape \[3\]"):
        run(module, [f32(1, 2)], {"a.w": f32(1, 2, 3)})
    with pytest.raises(ValueError, match="0 inputs given, 1 needed"):
        run(module, [], {"a.w": f32(1, 2)})


# --- folding --------------------------------------------------------------------------------

_UNARY = ["neg", "abs", "sqrt", "rsqrt", "exp", "log", "sin", "cos", "tanh"]
_BINARY = ["add", "sub", "mul", "div", "min", "max", "lt", "eq", "ge"]


@given(
    st.sampled_from([*_UNARY, *_BINARY]),
    st.sampled_from(["f32", "f64", "bf16", "f16"]),
    st.floats(-50, 50, width=32),
    st.floats(-50, 50, width=32),
)
def test_folding_agrees_with_the_interpreter_on_floats(
    kind: str, dtype: str, a: float, b: float
) -> None:
    source = DType(dtype)
    inputs = [round_float(a, source), round_float(b, source)][: 1 if kind in _UNARY else 2]
    result = "bool" if kind in ("lt", "eq", "ge") else dtype
    folded = fold_scalar(kind, inputs, source, DType(result))
    if folded is None:
        return
    names = ", ".join("ab"[: len(inputs)])
    found = apply(f"{kind} {names}", f"{result}[]", *((f"{dtype}[]", x) for x in inputs))
    tolerance = {"f16": 2e-3, "bf16": 2e-2, "f32": 3e-6, "f64": 1e-13}[dtype]
    assert found == pytest.approx(folded, rel=tolerance, abs=tolerance * 1e-2)


@given(
    st.sampled_from(["neg", "not", "abs", "add", "sub", "mul", "div", "rem", "min", "max", "and",
                     "or", "xor", "lt", "ne"]),
    st.sampled_from(["i8", "u8", "i32", "i64"]),
    st.data(),
)  # fmt: skip
def test_folding_agrees_with_the_interpreter_on_integers(
    kind: str, dtype: str, data: st.DataObject
) -> None:
    source = DType(dtype)
    low, high = source.integer_range
    count = 1 if kind in ("neg", "not", "abs") else 2
    inputs = [data.draw(st.integers(low, high)) for _ in range(count)]
    result = "bool" if kind in ("lt", "ne") else dtype
    folded = fold_scalar(kind, inputs, source, DType(result))
    if folded is None:
        assert inputs[-1] == 0
        return
    names = ", ".join("ab"[:count])
    arrays = [np.array(x).astype(dtype.replace("i", "int").replace("u", "uint")) for x in inputs]
    found = apply(f"{kind} {names}", f"{result}[]", *((f"{dtype}[]", x) for x in arrays))
    assert found == folded


@given(st.floats(allow_nan=False), st.sampled_from(["f16", "f32"]))
def test_rounding_agrees_with_numpy(x: float, dtype: str) -> None:
    with np.errstate(over="ignore"):
        expected = float(np.float64(x).astype(dtype.replace("f", "float")))
    assert round_float(x, DType(dtype)) == expected
