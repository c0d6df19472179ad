"""Each core operation in ONNX, on ONNX Runtime's CPU provider, against the interpreter.

Tolerances are those of `test_torch_ops`: bit for bit where both round alike, else a few units in
the last place, for sums times the number of terms.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from linnet.dtypes import DType
from linnet.ir.core import OPS
from linnet.ir.parse import parse_module
from linnet.ir.verify import verify

pytest.importorskip("onnxruntime")

from tests.emit.running_onnx import Outcome
from tests.emit.test_torch_ops import (
    BINARY,
    DOTS,
    EPS,
    EXACT,
    FLOAT,
    INDICES,
    INTEGER,
    NUMBER,
    SIGNED,
    UNARY,
    second,
    values,
)


def check(
    body: str,
    inputs: Mapping[str, tuple[str, np.ndarray]],
    relative: float = 0.0,
    absolute: float = 0.0,
) -> Outcome:
    """Runs a body, whose result is `y`, on inputs given with their types."""
    lines = ["module f", "", "entry f"]
    arrays = []
    for name, (dtype, array) in inputs.items():
        lines.append(f"  input {name}: {dtype}{list(array.shape)} = {name}")
        arrays.append(array)
    lines += [f"  {line.strip()}" for line in body.strip().splitlines()]
    lines.append("  return y")
    module = parse_module("\n".join(lines) + "\n")
    verify(module)
    outcome = Outcome(module, arrays)
    outcome.assert_close(relative, absolute)
    return outcome


@pytest.mark.parametrize(("kind", "dtype"), [(k, d) for k, ds in UNARY.items() for d in ds])
def test_unary(kind: str, dtype: str) -> None:
    x = values(dtype, (3, 4), low=0.1 if kind in ("log", "sqrt", "rsqrt") else -4.0)
    tolerance = 0.0 if kind in EXACT or dtype not in EPS else 4 * EPS[dtype]
    if kind == "sqrt" and dtype in ("f16", "bf16"):
        tolerance = EPS[dtype]
    check(f"y: {dtype}[3, 4] = {kind} x", {"x": (dtype, x)}, tolerance, tolerance)


ALL_BINARY = {**BINARY, **dict.fromkeys(("div", "rem", "min", "max"), NUMBER)}


@pytest.mark.parametrize(("kind", "dtype"), [(k, d) for k, ds in ALL_BINARY.items() for d in ds])
def test_binary(kind: str, dtype: str) -> None:
    x, y = values(dtype, (3, 4)), second(kind, dtype)
    tolerance = EPS.get(dtype, 0.0) if dtype in ("f16", "bf16") else 0.0
    check(f"y: {dtype}[3, 4] = {kind} a, b", {"a": (dtype, x), "b": (dtype, y)}, tolerance)


@pytest.mark.parametrize("dtype", SIGNED)
@pytest.mark.parametrize("kind", ["div", "rem"])
def test_the_least_integer_by_minus_one_wraps(kind: str, dtype: str) -> None:
    x = values(dtype, (3, 4))
    y = np.full((3, 4), -1, x.dtype)
    check(f"y: {dtype}[3, 4] = {kind} a, b", {"a": (dtype, x), "b": (dtype, y)})


@pytest.mark.parametrize("dtype", INTEGER)
@pytest.mark.parametrize("kind", ["add", "sub", "mul", "div", "rem", "min", "max", "shl", "shr"])
def test_binary_by_a_constant(kind: str, dtype: str) -> None:
    body = f"c: {dtype}[3, 4] = constant {{value = 3}}\ny: {dtype}[3, 4] = {kind} a, c"
    check(body, {"a": (dtype, values(dtype, (3, 4)))})


@pytest.mark.parametrize("dtype", NUMBER)
@pytest.mark.parametrize("kind", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_compare(kind: str, dtype: str) -> None:
    x, y = values(dtype, (3, 4)), values(dtype, (3, 4), seed=2)
    y[0] = x[0]
    check(f"y: bool[3, 4] = {kind} a, b", {"a": (dtype, x), "b": (dtype, y)})


CASTS = [(a, b) for a in ["bool", *NUMBER] for b in ["bool", *NUMBER] if a != b]


@pytest.mark.parametrize(("source", "dtype"), CASTS)
def test_cast(source: str, dtype: str) -> None:
    x = values(source, (3, 4))
    if source in FLOAT and dtype in INTEGER:
        x.reshape(-1)[:4] = [np.nan, np.inf, -np.inf, 3.7e4]
    if source in INTEGER and dtype in FLOAT:
        x = x % 100  # others may be rounded twice, by way of another dtype
    check(f"y: {dtype}[3, 4] = cast x", {"x": (source, x)})


@pytest.mark.parametrize("dtype", ["bool", *NUMBER])
def test_select_and_shapes(dtype: str) -> None:
    """Everything that moves elements, in one expression."""
    body = f"""
        p: {dtype}[4, 3] = permute a {{axes = [1, 0]}}
        r: {dtype}[2, 6] = reshape p
        s: {dtype}[2, 2] = slice r {{start = [0, 1], stop = [2, 5], step = [1, 2]}}
        t: {dtype}[2, 3, 2] = broadcast s {{axes = [0, 2]}}
        u: {dtype}[2, 3, 3] = concat t, b {{axis = 2}}
        v: {dtype}[2, 3, 3] = permute u {{axes = [0, 2, 1]}}
        y: {dtype}[2, 3, 3] = select c, u, v
    """
    given = {
        "a": (dtype, values(dtype, (3, 4))),
        "b": (dtype, values(dtype, (2, 3, 1), seed=3)),
        "c": ("bool", values("bool", (2, 3, 3))),
    }
    check(body, given)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((3, 4), (3, 1, 4)), ((3, 4), (1, 3, 4, 1)), ((3, 1, 4), (3, 4)), ((1,), ()), ((), (1, 1)),
        ((2, 3, 4), (6, 4)), ((1, 1, 5), (1, 5)), ((4, 1), (1, 4)), ((1, 3), (3, 1)),
        ((0, 3), (3, 0)),
    ],
)  # fmt: skip
def test_reshape(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    check(f"y: f32{list(new)} = reshape x", {"x": ("f32", values("f32", old))})


def test_reshapes_and_permutes_that_cancel_leave_nothing() -> None:
    body = """
        a: f32[2, 3, 2, 2] = reshape x
        b: f32[2, 2, 3, 2] = permute a {axes = [0, 2, 1, 3]}
        c: f32[2, 3, 2, 2] = permute b {axes = [0, 2, 1, 3]}
        d: f32[2, 3, 4] = reshape c
        y: f32[2, 3, 4] = neg d
    """
    outcome = check(body, {"x": ("f32", values("f32", (2, 3, 4)))})
    assert [node.op for node in outcome.emitted.graph.nodes] == ["Neg"]


@pytest.mark.parametrize(
    ("shape", "start", "stop", "step"),
    [
        ((5, 4), (0, 0), (5, 4), (1, 1)), ((5, 4), (4, 0), (5, 4), (1, 1)),
        ((5, 4), (0, 1), (5, 4), (2, 3)), ((5, 4, 3), (0, 0, 1), (5, 4, 2), (1, 1, 1)),
        ((5,), (2,), (2,), (1,)), ((5, 4), (0, 3), (5, 4), (1, 1)),
    ],
)  # fmt: skip
def test_slice_then_dropping_an_axis(shape, start, stop, step) -> None:
    extents = [-(-(b - a) // s) for a, b, s in zip(start, stop, step, strict=True)]
    attrs = f"{{start = {list(start)}, stop = {list(stop)}, step = {list(step)}}}"
    kept = list(extents)
    if 1 in kept:
        kept.remove(1)
    body = f"t0: f32{extents} = slice x {attrs}\ny: f32{kept} = reshape t0"
    check(body, {"x": ("f32", values("f32", shape))})


@pytest.mark.parametrize("dtype", NUMBER)
def test_creation(dtype: str) -> None:
    body = f"""
        i: {dtype}[2, 3, 4] = iota {{axis = 1}}
        j: {dtype}[2, 3, 4] = iota {{axis = 2}}
        c: {dtype}[2, 3, 4] = constant {{value = {3 if dtype in INTEGER else 0.1}}}
        t: {dtype}[2, 3, 4] = add i, c
        y: {dtype}[2, 3, 4] = mul t, j
    """
    check(body, {}, EPS.get(dtype, 0.0) * 2 if dtype in ("f16", "bf16") else 0.0)


def test_a_long_iota_is_counted_when_it_runs() -> None:
    outcome = check("y: f32[3, 5000] = iota {axis = 1}", {})
    assert not any(len(tensor.values) > 9 for tensor in outcome.emitted.constants.values())


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16", "i32", "i64", "u8", "u32", "u64"])
@pytest.mark.parametrize("name", DOTS)
def test_dot(name: str, dtype: str) -> None:
    a, b, batch, contract = DOTS[name]
    shape = [a[i] for i in batch[0]]
    shape += [n for i, n in enumerate(a) if i not in (*batch[0], *contract[0])]
    shape += [n for i, n in enumerate(b) if i not in (*batch[1], *contract[1])]
    attrs = f"{{batch = {[list(s) for s in batch]}, contract = {[list(s) for s in contract]}}}"
    x, y = values(dtype, a), values(dtype, b, seed=1)
    count = int(np.prod([a[i] for i in contract[0]]))
    accumulated = EPS["f32"] if dtype in ("f16", "bf16") else EPS.get(dtype, 0.0)
    absolute = 16.0 * count * count * accumulated
    relative = EPS[dtype] if dtype in ("f16", "bf16") else 0.0
    given = {"a": (dtype, x), "b": (dtype, y)}
    check(f"y: {dtype}{shape} = dot a, b {attrs}", given, relative, absolute)


def test_dot_casts_its_inputs() -> None:
    x, y = values("bf16", (3, 8)), values("bf16", (5, 8), seed=1)
    body = "y: f32[3, 5] = dot a, b {batch = [[], []], contract = [[1], [1]]}"
    check(body, {"a": ("bf16", x), "b": ("bf16", y)}, absolute=16.0 * 64 * EPS["f32"])


REDUCE = [
    *((op, d) for op in ("sum", "prod", "max", "min") for d in NUMBER),
    ("any", "bool"),
    ("all", "bool"),
]


@pytest.mark.parametrize("axes", [(1,), (0, 2), (0, 1, 2), (2,)])
@pytest.mark.parametrize(("op", "dtype"), REDUCE)
def test_reduce(op: str, dtype: str, axes: tuple[int, ...]) -> None:
    x = values(dtype, (2, 3, 4))
    shape = [n for i, n in enumerate(x.shape) if i not in axes]
    count = int(np.prod([x.shape[i] for i in axes]))
    relative = count * EPS.get(dtype, 0.0)
    absolute = 4.0 * count * relative if op == "sum" else 0.0
    exact = op in ("max", "min")
    body = f'y: {dtype}{shape} = reduce x {{op = "{op}", axes = {list(axes)}}}'
    check(body, {"x": (dtype, x)}, 0 if exact else relative, 0 if exact else absolute)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_reduce_over_nothing(op: str) -> None:
    body = f'y: f32[3] = reduce x {{op = "{op}", axes = [1]}}'
    check(body, {"x": ("f32", np.zeros((3, 0), np.float32))})


@pytest.mark.parametrize("op", ["max", "min"])
def test_an_extreme_of_nan_is_nan_wherever_it_stands(op: str) -> None:
    x = values("f32", (4, 70_000))
    x[0, 0] = x[1, 69_999] = x[2, 40_000] = np.nan
    check(f'y: f32[4] = reduce x {{op = "{op}", axes = [1]}}', {"x": ("f32", x)})


@pytest.mark.parametrize("dtype", ["bool", *NUMBER])
@pytest.mark.parametrize("index", SIGNED)
def test_gather(dtype: str, index: str) -> None:
    i = np.array(INDICES, f"int{DType(index).bits}").reshape(2, 3)
    body = f"y: {dtype}[2, 3, 3, 2] = gather x, i {{axes = [1]}}"
    check(body, {"x": (dtype, values(dtype, (3, 4, 2))), "i": (index, i)})


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_gather_of_axes(axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    x = values("f32", (3, 4, 2))
    rest = [n for i, n in enumerate(x.shape) if i not in axes]
    names = ["i", "j"][: len(axes)]
    given = {"x": ("f32", x)}
    for seed, name in enumerate(names):
        random = np.random.default_rng(seed)
        given[name] = ("i32", random.integers(-1, 5, shape).astype(np.int32))
    body = f"y: f32{[*shape, *rest]} = gather x, {', '.join(names)} {{axes = {list(axes)}}}"
    check(body, given)


@pytest.mark.parametrize("dtype", ["bool", *NUMBER])
@pytest.mark.parametrize("start", [-2, 0, 1, 9])
def test_update_slice(dtype: str, start: int) -> None:
    body = f"y: {dtype}[3, 4] = update_slice x, v, i {{axes = [1]}}"
    given = {
        "x": (dtype, values(dtype, (3, 4))),
        "v": (dtype, values(dtype, (3, 2), seed=4)),
        "i": ("i32", np.array(start, np.int32)),
    }
    check(body, given)


@pytest.mark.parametrize("axes", [(), (0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("size", [(1, 1, 1), (2, 2, 1), (3, 2, 2), (3, 4, 2)])
def test_update_slice_of_axes(axes: tuple[int, ...], size: tuple[int, ...]) -> None:
    names = ["i", "j", "k"][: len(axes)]
    given = {"x": ("f32", values("f32", (3, 4, 2))), "v": ("f32", values("f32", size, seed=4))}
    for n, name in enumerate(names):
        given[name] = ("i64", np.array(n, np.int64))
    operands = ", ".join(["x", "v", *names])
    check(f"y: f32[3, 4, 2] = update_slice {operands} {{axes = {list(axes)}}}", given)


def test_every_operation_is_tested_here() -> None:
    tested = {*UNARY, *BINARY, "eq", "ne", "lt", "le", "gt", "ge", "cast", "select", "constant",
              "iota", "reshape", "permute", "broadcast", "slice", "concat", "dot", "reduce",
              "gather", "update_slice"}  # fmt: skip
    assert set(OPS) - tested == {"call", "while", "if"}  # test_onnx_structure.py
