"""Index notation: against an evaluator of its own that goes element by element, and for shape.

The evaluator below reads a typed comprehension as the language says it: for each value of the
output indices, compute the body, looping over the indices of its reductions.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linnet.check import typed
from linnet.check.dims import Dim
from linnet.diagnostics import SourceFile, Span
from linnet.dtypes import DType
from linnet.ir.instantiate import instantiate
from linnet.ir.interpreter import round_bf16, run
from linnet.ir.lower import lower
from linnet.ir.verify import verify
from tests.ir.programs import BF16, evaluate, floats, optimised

# --- the evaluator --------------------------------------------------------------------------

_BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": lambda a, b: a / b,
    "min": min,
    "max": max,
    "lt": operator.lt,
    "and": lambda a, b: a and b,
}
_REDUCE = {
    "sum": sum,
    "prod": math.prod,
    "max": lambda items: max(items, default=-math.inf),
    "min": lambda items: min(items, default=math.inf),
    "any": any,
    "all": all,
}


def element(expr: object, at: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Any:
    """The value of an expression for one value of each index."""
    match expr:
        case typed.Literal(value):
            return value
        case typed.DimValue(dim):
            return dim.constant
        case typed.Local(name):
            return inputs[name][()]
        case typed.Access(typed.Local(name), subscripts):
            position = []
            for subscript, extent in zip(subscripts, inputs[name].shape, strict=True):
                if isinstance(subscript, typed.Affine):
                    terms = [(at[index], number(step)) for index, step in subscript.terms]
                    where = number(subscript.offset) + sum(i * step for i, step in terms)
                    assert 0 <= where < extent
                else:
                    where = min(max(int(element(subscript, at, inputs)), 0), extent - 1)
                position.append(where)
            return inputs[name][tuple(position)].item()
        case typed.Prim("neg", (x,)):
            return -element(x, at, inputs)
        case typed.Prim("cast", (x,)):
            return float(element(x, at, inputs))
        case typed.Prim("tanh", (x,)):
            return math.tanh(element(x, at, inputs))
        case typed.Prim("select", (c, a, b)):
            return element(a if element(c, at, inputs) else b, at, inputs)
        case typed.Prim(op, (a, b)):
            return _BINARY[op](element(a, at, inputs), element(b, at, inputs))
        case typed.If(c, a, b):
            return element(a if element(c, at, inputs) else b, at, inputs)
        case typed.Reduce(op, indices, body):
            return _REDUCE[op](
                element(body, {**at, **inner}, inputs) for inner in positions(indices)
            )
    raise AssertionError(expr)


def number(dim: object) -> int:
    assert isinstance(dim, Dim) and dim.constant is not None
    return dim.constant


def positions(indices: Iterable[tuple[str, object]]) -> Iterator[dict[str, int]]:
    names = [name for name, _ in indices]
    for values in itertools.product(*(range(number(extent)) for _, extent in indices)):
        yield dict(zip(names, values, strict=True))


def by_elements(expr: typed.Comprehension, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    shape = tuple(number(extent) for _, extent in expr.indices)
    out = np.zeros(shape)
    for at in positions(expr.indices):
        out[tuple(at.values())] = element(expr.body, at, inputs)
    return out


# --- random comprehensions ------------------------------------------------------------------

SPAN = Span(SourceFile("test", "test"), 0, 4)
F64 = typed.TensorT((), DType.F64)
I64 = typed.TensorT((), DType.I64)
BOOL = typed.TensorT((), DType.BOOL)


class Writer:
    """Draws a comprehension and the tensors it reads."""

    def __init__(self, draw: st.DrawFn):
        self.draw = draw
        self.inputs: dict[str, np.ndarray] = {}
        self.extents: dict[str, int] = {}
        self.random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def pick(self, *options: object) -> object:
        return self.draw(st.sampled_from(options))

    def comprehension(self) -> typed.Comprehension:
        outputs = self.bind("ijk"[: self.draw(st.integers(1, 3))])
        body = self.scalar(list(outputs), 3)
        return typed.Comprehension(outputs_of(outputs), body, F64, SPAN)

    def bind(self, names: str) -> dict[str, int]:
        found = {name: self.draw(st.integers(1, 3)) for name in names}
        self.extents.update(found)
        return found

    def scalar(self, scope: list[str], depth: int) -> typed.Expr:
        kinds = ["access", "access", "mul", "mul", "add"]
        if depth > 0:
            kinds += ["sum", "sum", "sum", "reduce", "select", "unary", "div", "if"]
        match self.pick(*kinds):
            case "access":
                return self.access(scope, depth)
            case "sum":
                return self.reduction("sum", scope, depth)
            case "reduce":
                op = self.pick("max", "min", "prod")
                return self.reduction(str(op), scope, depth)
            case "unary":
                op = str(self.pick("neg", "tanh", "cast"))
                return typed.Prim(op, (self.scalar(scope, depth - 1),), (), F64, SPAN)
            case "select":
                sides = (self.access(scope, 0), self.scalar(scope, depth - 1))
                return typed.Prim("select", (self.condition(scope), *sides), (), F64, SPAN)
            case "if":
                return typed.If(self.condition(scope), self.access(scope, 0),
                                self.scalar(scope, depth - 1), F64, SPAN)  # fmt: skip
            case "div":
                parts = (self.product(scope, depth - 1), self.positive(scope))
                return typed.Prim("div", parts, (), F64, SPAN)
            case "add":
                op = str(self.pick("add", "sub", "max"))
                parts = (self.product(scope, depth - 1), self.product(scope, depth - 1))
                return typed.Prim(op, parts, (), F64, SPAN)
            case _:
                return self.product(scope, depth - 1)

    def product(self, scope: list[str], depth: int) -> typed.Expr:
        found = self.scalar(scope, depth) if depth > 0 else self.access(scope, 0)
        for _ in range(self.draw(st.integers(0, 2))):
            found = typed.Prim("mul", (found, self.access(scope, 0)), (), F64, SPAN)
        return found

    def condition(self, scope: list[str]) -> typed.Expr:
        sides = (self.access(scope, 0), self.access(scope, 0))
        return typed.Prim("lt", sides, (), BOOL, SPAN)

    def positive(self, scope: list[str]) -> typed.Expr:
        return self.access(scope, 0, low=1.0)

    def reduction(self, op: str, scope: list[str], depth: int) -> typed.Expr:
        free = [name for name in "klmn" if name not in scope]
        names = free[: self.draw(st.integers(1, min(2, len(free))))] if free else []
        if not names:
            return self.access(scope, 0)
        bound = self.bind("".join(names))
        body = self.scalar([*scope, *bound], depth - 1)
        for name in bound:  # The checker holds that a reduction's index is used.
            access = self.access([name], 0, only=[name])
            body = typed.Prim("mul", (body, access), (), F64, SPAN)
        return typed.Reduce(op, outputs_of(bound), body, F64, SPAN)

    def access(
        self,
        scope: list[str],
        depth: int,
        *,
        only: list[str] | None = None,
        low: float | None = None,
    ) -> typed.Access:
        names = only or self.draw(st.lists(st.sampled_from(scope), max_size=3))
        pairs = [self.subscript(scope, name, depth) for name in names]
        name = f"x{len(self.inputs)}"
        values = self.random.uniform(-1.5 if low is None else low, 2, [n for _, n in pairs])
        self.inputs[name] = values
        type_ = typed.TensorT(tuple(Dim.const(n) for _, n in pairs), DType.F64)
        base = typed.Local(name, type_, SPAN)
        return typed.Access(base, tuple(s for s, _ in pairs), F64, SPAN)

    def subscript(
        self, scope: list[str], name: str, depth: int
    ) -> tuple[typed.Affine | typed.Expr, int]:
        """A subscript that varies with an index, and the extent of the axis it is good for."""
        extent = self.extents[name]
        match self.pick("plain", "plain", "plain", "affine", "two", "falling", "constant", "run"):
            case "affine":
                step, offset = self.draw(st.integers(1, 2)), self.draw(st.integers(0, 2))
                spare = self.draw(st.integers(0, 2))
                end = offset + step * (extent - 1) + 1 + spare
                return affine({name: step}, offset), end
            case "two":
                other = str(self.draw(st.sampled_from(scope)))
                step = self.draw(st.integers(1, 2))
                terms = {name: 1 + step} if other == name else {name: 1, other: step}
                end = 1 + sum(n * (self.extents[x] - 1) for x, n in terms.items())
                return affine(terms, 0), end
            case "falling":
                return affine({name: -1}, extent - 1), extent
            case "constant":
                return affine({}, 1), 2
            case "run":
                index = self.indices([name])
                return index, self.draw(st.integers(1, 3))
            case _:
                return affine({name: 1}, 0), extent

    def indices(self, names: list[str]) -> typed.Access:
        """Runtime integers, some of them out of range."""
        shape = [self.extents[name] for name in names]
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.random.integers(-1, 4, shape)
        type_ = typed.TensorT(tuple(map(Dim.const, shape)), DType.I64)
        subscripts = tuple(affine({n: 1}, 0) for n in names)
        return typed.Access(typed.Local(name, type_, SPAN), subscripts, I64, SPAN)


def affine(terms: dict[str, int], offset: int) -> typed.Affine:
    return typed.Affine(
        tuple((name, Dim.const(step)) for name, step in terms.items()), Dim.const(offset)
    )


def outputs_of(extents: Mapping[str, int]) -> tuple[tuple[str, Dim], ...]:
    return tuple((name, Dim.const(extent)) for name, extent in extents.items())


def program_of(expr: typed.Comprehension, inputs: Mapping[str, np.ndarray]) -> typed.Program:
    params = []
    for name, array in inputs.items():
        dtype = DType.F64 if array.dtype.kind == "f" else DType.I64
        params.append(
            typed.Param(name, typed.TensorT(tuple(map(Dim.const, array.shape)), dtype), None)
        )
    shape = tuple(Dim.const(number(n)) for _, n in expr.indices)
    result = typed.TensorT(shape, DType.F64)
    body = (
        typed.Let(typed.BindName("out"), expr, SPAN),
        typed.Return(typed.Local("out", result, SPAN), SPAN),
    )
    function = typed.Function("crate::f", "f", "entry", None, (), tuple(params), result, (), body,
                              None, True, None, SPAN)  # fmt: skip
    return typed.Program("test", {"crate::f": function}, {}, (), {"f": "crate::f"})


@st.composite
def comprehensions(draw: st.DrawFn) -> tuple[typed.Comprehension, dict[str, np.ndarray]]:
    writer = Writer(draw)
    return writer.comprehension(), writer.inputs


@given(comprehensions())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_lowering_agrees_with_the_elements(
    case: tuple[typed.Comprehension, dict[str, np.ndarray]],
) -> None:
    expr, inputs = case
    module = lower(instantiate(program_of(expr, inputs)), "f", {})
    verify(module)
    expected = by_elements(expr, inputs)
    scale = 1e-9 * max(1.0, float(np.abs(expected).max(initial=0)))
    for version in [module, *optimised(module).values()]:
        (found,), _ = run(version, list(inputs.values()), {})
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=scale)


# --- what it becomes ------------------------------------------------------------------------


def work(body: str, params: str, result: str, *inputs: np.ndarray) -> tuple[int, int, list[str]]:
    """The most elements any operation gives, those of the result, and the operations."""
    out = evaluate(f"pub entry f({params}) -> {result} {{ {body} return c }}", *inputs)
    ops = [op for op in out.module.main.ops if op.kind != "constant"]
    return max(op.output.type.size for op in ops), out.result.size, [op.kind for op in ops]


A, B, C = floats(5, 7), floats(7, 6, seed=1), floats(6, 4, seed=2)
MATRICES = "a: Tensor[5, 7; f32], b: Tensor[7, 6; f32]"


@pytest.mark.parametrize(
    ("body", "params", "result", "inputs", "kinds"),
    [
        ("let c[m, n] = sum[k] a[m, k] * b[k, n]", MATRICES, "Tensor[5, 6; f32]", (A, B), ["dot"]),
        # The operands are put in the order that the result needs.
        ("let c[m, n] = sum[k] b[k, n] * a[m, k]", MATRICES, "Tensor[5, 6; f32]", (A, B), ["dot"]),
        ("let c[n, m] = sum[k] a[m, k] * b[k, n]", MATRICES, "Tensor[6, 5; f32]", (A, B), ["dot"]),
        # Signs and factors without the summed index stay outside.
        ("let c[m, n] = sum[k] -a[m, k] * (2.0 * b[k, n])", MATRICES, "Tensor[5, 6; f32]", (A, B),
         ["neg", "dot", "mul"]),
        # A third factor joins the one that has its indices; a divisor too.
        ("let c[m, n] = sum[k] a[m, k] * b[k, n] * s[k]", f"{MATRICES}, s: Tensor[7; f32]",
         "Tensor[5, 6; f32]", (A, B, floats(7)), ["broadcast", "mul", "dot"]),
        ("let c[m, n] = sum[k] a[m, k] * b[k, n] / s[k]", f"{MATRICES}, s: Tensor[7; f32]",
         "Tensor[5, 6; f32]", (A, B, floats(7)), ["broadcast", "div", "dot"]),
        # A chain contracts pair by pair; nested sums are one sum.
        ("let c[m, o] = sum[k, n] a[m, k] * b[k, n] * d[n, o]",
         f"{MATRICES}, d: Tensor[6, 4; f32]", "Tensor[5, 4; f32]", (A, B, C), ["dot", "dot"]),
        ("let c[m, o] = sum[k] sum[n] a[m, k] * b[k, n] * d[n, o]",
         f"{MATRICES}, d: Tensor[6, 4; f32]", "Tensor[5, 4; f32]", (A, B, C), ["dot", "dot"]),
        # An index that one factor has is summed there.
        ("let c[m, n] = sum[k, j] a[m, k] * b[j, n]", MATRICES, "Tensor[5, 6; f32]", (A, B),
         ["reduce", "reduce", "broadcast", "broadcast", "mul"]),
        # A sum over + and - of products is split.
        ("let c[m, n] = sum[k] (a[m, k] * b[k, n] - a[m, k] * b[k, n] * 2.0)", MATRICES,
         "Tensor[5, 6; f32]", (A, B), ["dot", "dot", "mul", "sub"]),
        # Matrix and vector; a row-wise product is not worth a dot.
        ("let c[m] = sum[k] a[m, k] * s[k]", "a: Tensor[5, 7; f32], s: Tensor[7; f32]",
         "Tensor[5; f32]", (A, floats(7)), ["dot"]),
        ("let c[m] = sum[k] a[m, k] * a[m, k]", "a: Tensor[5, 7; f32]", "Tensor[5; f32]", (A,),
         ["mul", "reduce"]),
        # Batch axes, in any place.
        ("let c[m, h, n] = sum[d] q[h, m, d] * k[n, h, d]",
         "q: Tensor[3, 5, 4; f32], k: Tensor[6, 3, 4; f32]", "Tensor[5, 3, 6; f32]",
         (floats(3, 5, 4), floats(6, 3, 4, seed=1)), ["dot", "permute"]),
    ],
)  # fmt: skip
def test_a_sum_of_products_contracts(
    body: str, params: str, result: str, inputs: tuple[np.ndarray, ...], kinds: list[str]
) -> None:
    most, size, found = work(body, params, result, *inputs)
    assert found == kinds
    assert most <= max(size, *(x.size for x in inputs))


def test_casts_under_a_sum_become_its_dtype() -> None:
    source = """
pub entry f(a: Tensor[4, 32; bf16], b: Tensor[32, 4; bf16]) -> Tensor[4, 4; f32] {
    let c[m, n] = sum<f32>[k] cast<f32>(a[m, k]) * cast<f32>(b[k, n])
    return c
}"""
    a, b = (floats(*shape, seed=n).astype(np.float16).astype(np.float32)
            for n, shape in enumerate([(4, 32), (32, 4)]))  # fmt: skip
    out = evaluate(source, BF16(a), BF16(b))
    (op,) = out.module.main.ops
    assert (op.kind, op.output.type.dtype) == ("dot", DType.F32)
    assert [value.type.dtype for value in op.inputs] == [DType.BF16, DType.BF16]
    np.testing.assert_allclose(out.result, round_bf16(a) @ round_bf16(b), rtol=1e-5)


def test_a_cast_of_an_integer_product_is_not_widened() -> None:
    source = """
pub entry f(a: Tensor[2; i8], b: Tensor[2; i8]) -> i32 {
    return sum<i32>[k] cast<i32>(a[k] * b[k])
}"""
    a = np.array([100, 3], np.int8)
    assert evaluate(source, a, a).result == (100 * 100 + 128) % 256 - 128 + 9


def test_gathers_diagonals_and_constants() -> None:
    source = """
pub entry f(logits: Tensor[3, 5; f32], labels: Tensor[3; i32], t: Tensor[4, 4, 2; f32], at: i32,
    one: f32)    -> (Tensor[3; f32], Tensor[4; f32], Tensor[2, 4; f32], Tensor[3, 3; f32]) {
    let picked[b] = logits[b, labels[b]]
    let diagonal[i] = t[i, i, 1]
    let moved[k, i] = t[at, i, k]
    let windows[i, k] = logits[0, i + k] * broadcast_to(one, [3, 3])[i, k]
    return (picked, diagonal, moved, windows)
}"""
    logits, t = floats(3, 5), floats(4, 4, 2, seed=1)
    labels = np.array([4, 0, 9], np.int32)
    out = evaluate(source, logits, labels, t, np.int32(2), np.float32(1))
    np.testing.assert_array_equal(out.results[0], logits[[0, 1, 2], [4, 0, 4]])
    np.testing.assert_array_equal(out.results[1], np.diagonal(t[:, :, 1]))
    np.testing.assert_array_equal(out.results[2], t[2].T)
    np.testing.assert_array_equal(out.results[3], [logits[0, i : i + 3] for i in range(3)])


def test_an_even_step_is_a_slice() -> None:
    source = """
pub entry f(x: Tensor[2, 9; f32], y: Tensor[4; f32]) -> Tensor[2, 4; f32] {
    let c[b, i] = x[b, 2 * i + 1] + x[b, 2 * i] + y[i]
    return c
}"""
    out = evaluate(source, x := floats(2, 9), y := floats(4))
    np.testing.assert_allclose(out.result, x[:, 1::2] + x[:, 0:8:2] + y, rtol=1e-6)
    kinds = [op.kind for op in out.module.main.ops]
    assert kinds == ["slice", "slice", "add", "broadcast", "add"]


def test_a_condition_inside_index_notation_selects() -> None:
    source = """
pub entry f(x: Tensor[3; f32], n: f32) -> Tensor[3; f32] {
    let z[i] = if n > 1 { x[i] } else { -x[i] }
    return z
}"""
    x = floats(3)
    np.testing.assert_allclose(evaluate(source, x, np.float32(2)).result, x)
    np.testing.assert_allclose(evaluate(source, x, np.float32(0)).result, -x)


def test_optionals_inside_index_notation() -> None:
    source = """
pub entry f(x: Tensor[3; f32], b: Tensor[3; f32]?) -> Tensor[3; f32] {
    let y[i] = match b { some(v) => x[i] + v[i], none => x[i] * 2 }
    return y
}"""
    x, b = floats(3), floats(3, seed=1)
    np.testing.assert_allclose(evaluate(source, x, b).result, x + b)
    np.testing.assert_allclose(evaluate(source, x, None).result, x * 2)
