"""Each core operation in StableHLO against the interpreter, over the dtypes it takes.

Tolerances: PyTorch and NumPy round `+ - * / sqrt` and conversions alike, so these agree bit for bit
in f32 and f64, and to one rounding (half a unit in the last place of the result, `eps`) in f16 and
bf16, whose operations either may compute in f32. Other functions are good to a few units in the
last place in either library: 4 `eps`. A sum of n terms is off by at most n `eps` times the sum of
their absolute values.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from linnet.dtypes import FLOATS, INTEGERS, DType
from linnet.ir.core import OPS
from linnet.ir.interpreter import round_bf16
from linnet.ir.parse import parse_module
from linnet.ir.verify import verify
from tests.emit.running_stablehlo import Outcome

EPS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}
FLOAT = sorted(d.value for d in FLOATS)
INTEGER = sorted(d.value for d in INTEGERS)
SIGNED = [d for d in INTEGER if d.startswith("i")]
NUMBER = FLOAT + INTEGER


def values(dtype: str, shape: tuple[int, ...], seed: int = 0, low: float = -4.0) -> np.ndarray:
    """Values of a dtype, with those at its edges."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    found = DType(dtype)
    if found.is_float:
        floats = random.uniform(low, 4.0, shape).astype(np.float32)
        if found == DType.BF16:
            return round_bf16(floats)
        return floats.astype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype])
    least, most = found.integer_range
    name = ("int" if found.is_signed else "uint") + str(found.bits)
    numbers = random.integers(max(least, -99), 99, shape).astype(name)
    edges = np.array([least, most, 0, 1, most - 1], name)
    numbers.reshape(-1)[: edges.size] = edges[: numbers.size]
    return numbers


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


UNARY = {
    "neg": NUMBER, "not": ["bool", *INTEGER], "abs": FLOAT + SIGNED, "exp": FLOAT, "log": FLOAT,
    "sqrt": FLOAT, "rsqrt": FLOAT, "sin": FLOAT, "cos": FLOAT, "tanh": FLOAT,
}  # fmt: skip
EXACT = ("neg", "not", "abs", "sqrt", "add", "sub", "mul", "div", "min", "max", "and", "or", "xor")


@pytest.mark.parametrize(("kind", "dtype"), [(k, d) for k, ds in UNARY.items() for d in ds])
def test_unary(kind: str, dtype: str) -> None:
    x = values(dtype, (3, 4), low=0.1 if kind in ("log", "sqrt", "rsqrt") else -4.0)
    tolerance = 0.0 if kind in EXACT or dtype not in EPS else 4 * EPS[dtype]
    if kind == "sqrt" and dtype in ("f16", "bf16"):
        tolerance = EPS[dtype]
    check(f"y: {dtype}[3, 4] = {kind} x", {"x": (dtype, x)}, tolerance, tolerance)


BINARY = {
    "add": NUMBER, "sub": NUMBER, "mul": NUMBER,
    "div": NUMBER, "rem": NUMBER,
    "min": NUMBER, "max": NUMBER,
    "and": ["bool", *INTEGER], "or": ["bool", *INTEGER], "xor": ["bool", *INTEGER],
    "shl": INTEGER, "shr": INTEGER,
}  # fmt: skip


def second(kind: str, dtype: str) -> np.ndarray:
    """A second operand: small shifts, some too far; divisors with a zero."""
    if kind in ("shl", "shr"):
        bits = DType(dtype).bits
        steps = np.array([0, 1, 3, bits - 1, bits, 120], values(dtype, (1,)).dtype)
        return np.resize(steps, (3, 4))
    y = values(dtype, (3, 4), seed=1)
    if kind in ("div", "rem") and dtype in INTEGER:
        y.reshape(-1)[5] = 0
        y.reshape(-1)[0] = 7  # the least value by -1 has no result that it could hold
    return y


@pytest.mark.parametrize(("kind", "dtype"), [(k, d) for k, ds in BINARY.items() for d in ds])
def test_binary(kind: str, dtype: str) -> None:
    x, y = values(dtype, (3, 4)), second(kind, dtype)
    tolerance = EPS.get(dtype, 0.0) if dtype in ("f16", "bf16") else 0.0
    given = {"a": (dtype, x), "b": (dtype, y)}
    check(f"y: {dtype}[3, 4] = {kind} a, b", given, tolerance)


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
    if source in INTEGER and dtype in ("f16", "bf16", "f32"):
        x = x % 100  # others round differently by way of f32
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


DOTS = {
    "matrices": ((3, 4), (4, 5), ((), ()), ((1,), (0,))),
    "linear": ((2, 3, 4), (5, 4), ((), ()), ((2,), (1,))),
    "transposed left": ((4, 3), (4, 5), ((), ()), ((0,), (0,))),
    "batches": ((2, 3, 4), (2, 4, 5), ((0,), (0,)), ((2,), (1,))),
    "batches, right turned": ((2, 2, 3, 4), (2, 2, 5, 4), ((0, 1), (0, 1)), ((3,), (3,))),
    "grouped heads": ((2, 3, 2, 1, 4), (2, 3, 5, 4), ((0, 1), (0, 1)), ((4,), (3,))),
    "a batch axis last": ((3, 4, 2), (4, 5, 2), ((2,), (2,)), ((1,), (0,))),
    "vectors": ((4,), (4,), ((), ()), ((0,), (0,))),
    "outer": ((3,), (4,), ((), ()), ((), ())),
    "two axes": ((3, 4, 5), (4, 5, 2), ((), ()), ((1, 2), (0, 1))),
    "nothing left": ((2, 4), (2, 4), ((0,), (0,)), ((1,), (1,))),
}


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16", "i32", "i64", "u8", "u32"])
@pytest.mark.parametrize("name", DOTS)
def test_dot(name: str, dtype: str) -> None:
    a, b, batch, contract = DOTS[name]
    shape = [a[i] for i in batch[0]]
    shape += [n for i, n in enumerate(a) if i not in (*batch[0], *contract[0])]
    shape += [n for i, n in enumerate(b) if i not in (*batch[1], *contract[1])]
    attrs = f"{{batch = {[list(s) for s in batch]}, contract = {[list(s) for s in contract]}}}"
    x, y = values(dtype, a), values(dtype, b, seed=1)
    # The terms are below 16, at most 20 of them; a result in f16 or bf16 is rounded once.
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
    *((op, d) for op in ("sum", "prod") for d in NUMBER),
    *((op, d) for op in ("max", "min") for d in NUMBER),
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


def test_reduction_that_keeps_its_axis() -> None:
    body = """
        t0: f32[2, 4] = reduce x {op = "sum", axes = [1]}
        t1: f32[2, 3, 4] = broadcast t0 {axes = [0, 2]}
        y: f32[2, 3, 4] = div x, t1
    """
    x = values("f32", (2, 3, 4), low=1.0)
    check(body, {"x": ("f32", x)}, relative=4 * EPS["f32"])


INDICES = [0, 2, -1, 5, 1, 1]


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
    assert set(OPS) - tested == {"call", "while", "if"}  # test_stablehlo.py
