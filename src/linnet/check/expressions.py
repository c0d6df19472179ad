"""Checking an expression: the way in, what every rule shares, and the simplest rules.

`check(ctx, expr, expected)` gives a typed node. A number without a type comes back as `Flex`;
`typed_as` gives it one. `expected` is a hint that literals, `none` and branches take their type
from; whether the result fits is the caller's question (`require`). Each kind of expression has one
rule, registered by `@rule` in the module that is about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from linnet.check import typed
from linnet.check.context import Context, Flex, Node
from linnet.check.dims import Dim
from linnet.check.scope import Failed
from linnet.check.typed import AnyDType, DTypeVar, OptionalT, StructT, TensorT, Type
from linnet.check.types import (
    BOOL,
    MAX_PARTS,
    describe,
    differing_axis,
    dtype_of_hint,
    dtypes_of,
    has_too_many_parts,
    mismatch,
    show,
    types_equal,
    unmarked,
)
from linnet.diagnostics import Note, Span
from linnet.dtypes import INTEGERS, DType
from linnet.syntax import ast

Rule = Callable[[Context, Any, Type | None], Node]
RULES: dict[type, Rule] = {}


def rule(kind: type) -> Callable[[Rule], Rule]:
    """Registers how a kind of expression is checked."""

    def register(function: Rule) -> Rule:
        RULES[kind] = function
        return function

    return register


def check(ctx: Context, expr: ast.Expr, expected: Type | None = None) -> Node:
    """The typed node of an expression; raises `Failed` after reporting."""
    return RULES[type(expr)](ctx, expr, expected)


def check_value(ctx: Context, expr: ast.Expr, expected: Type | None = None) -> typed.Expr:
    """The same with a type for certain: a number without one takes `expected`'s or its default."""
    node = check(ctx, expr, expected)
    if not isinstance(node, Flex):
        return node
    return typed_as(ctx, node, dtype_of_hint(expected) or default_dtype(node))


def check_as(ctx: Context, expr: ast.Expr, expected: Type, what: str) -> typed.Expr:
    """A value of just the expected type, or E2101, E2103 or E2202 that says what it was for."""
    node = check_value(ctx, expr, expected)
    require(ctx, node, expected, what)
    return node


def require(
    ctx: Context, node: typed.Expr, expected: Type, what: str, notes: tuple[Note, ...] = ()
) -> None:
    """That a value has just the expected type."""
    found = node.type
    if types_equal(found, expected, ctx.facts):
        return
    raise ctx.fail(
        mismatch(expected, found),
        f"{what} must be `{show(expected)}`, found `{show(found)}`",
        node.span,
        notes=[*axis_notes(ctx, expected, found), *notes],
        help=_conversion(ctx, node, expected),
    )


def _conversion(ctx: Context, node: typed.Expr, expected: Type) -> str | None:
    """What would make a value fit its place."""
    found, text = node.type, short(node.span)
    if isinstance(expected, OptionalT) and types_equal(expected.inner, found, ctx.facts):
        return f"wrap it: `some({text})`"
    if isinstance(found, OptionalT) and not isinstance(expected, OptionalT):
        return f"take it apart: `match {text} {{ some(x) => …, none => … }}`"
    if isinstance(expected, TensorT) and isinstance(found, TensorT):
        if expected.dtype != found.dtype:
            return f"convert it: `cast<{expected.dtype}>({text})`"
        return where_help(ctx, expected, found)
    return None


def axis_notes(ctx: Context, expected: Type, found: Type) -> list[Note]:
    """Where two types that look alike differ: the axis of two shapes, the field of two structs."""
    if isinstance(expected, OptionalT) and isinstance(found, OptionalT):
        return axis_notes(ctx, expected.inner, found.inner)
    if isinstance(expected, StructT) and isinstance(found, StructT):
        return _field_notes(ctx, expected, found)
    if not (isinstance(expected, TensorT) and isinstance(found, TensorT)):
        return []
    axis = differing_axis(expected.shape, found.shape, ctx.facts)
    if axis is None or len(found.shape) == 1 or expected.dtype != found.dtype:
        return []
    return [Note(f"axis {axis} must be `{expected.shape[axis]}`, here it is `{found.shape[axis]}`")]


def _field_notes(ctx: Context, expected: StructT, found: StructT) -> list[Note]:
    if expected.key != found.key:
        return []
    pairs = zip(expected.fields, found.fields, strict=True)
    for (name, wanted), (_, here) in pairs:
        if not types_equal(wanted, here, ctx.facts):
            return [Note(f"the field `{name}` must be `{show(wanted)}`, here it is `{show(here)}`")]
    return []


def where_help(ctx: Context, expected: TensorT, found: TensorT) -> str | None:
    """The fact that would make two shapes agree, where one would and it could be true."""
    axis = differing_axis(expected.shape, found.shape, ctx.facts)
    if axis is None:
        return None
    return unproven(ctx, "==", expected.shape[axis], found.shape[axis]).help


@dataclass(frozen=True, slots=True)
class Unproven:
    """Why a comparison of dimensions was not proven: it is false, or a fact is missing."""

    is_false: bool
    help: str | None

    def words(self, if_false: str, if_unknown: str) -> str:
        return if_false if self.is_false else if_unknown


def unproven(ctx: Context, op: str, a: typed.ShapeItem, b: typed.ShapeItem) -> Unproven:
    """What to say of `a op b`, which the facts in scope don't prove.

    No fact is asked for that could only hold for tensors without elements.
    """
    if not (isinstance(a, Dim) and isinstance(b, Dim)):
        return Unproven(False, None)
    facts = ctx.facts
    for name in a.variables() | b.variables():
        facts = facts.with_fact(">=", Dim.var(name), 1)
    if facts.refutes(op, a, b):
        return Unproven(ctx.facts.refutes(op, a, b), None)
    if a.constant is not None:
        op, a, b = _FLIPPED[op], b, a
    return Unproven(False, f"add `where {a} {op} {b}`")


_FLIPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def short(span: Span) -> str:
    """An expression's source, for a help line."""
    text = " ".join(span.text.split())
    return text if len(text) <= 60 else "…"


def check_dim(ctx: Context, expr: ast.Expr, what: str) -> Dim:
    """A compile-time integer; E2123 for anything else."""
    with ctx.without_indices(what):
        node = check(ctx, expr)
    if isinstance(node, Flex) and isinstance(node.value, Dim):
        return node.value
    if isinstance(node, typed.Literal) and node.type.dtype in INTEGERS:
        return Dim.const(int(node.value))  # An integer constant that was given a dtype.
    raise ctx.fail(
        "E2123",
        f"{what} must be a compile-time integer, found {describe(node.type)}",
        expr.span,
        help="dimensions are made of literals, `Dim` generics and integer constants",
    )


def check_extent(ctx: Context, expr: ast.Expr, what: str = "a dimension") -> Dim:
    """A dimension that isn't proven to be negative (E2208)."""
    dim = check_dim(ctx, expr, what)
    if ctx.facts.negative(dim):
        raise ctx.fail("E2208", f"{what} can't be negative: `{dim}`", expr.span)
    return dim


def tensor(ctx: Context, node: typed.Expr, what: str) -> TensorT:
    """The node's tensor type, or E2101."""
    if isinstance(node.type, TensorT):
        return node.type
    raise ctx.fail(
        "E2101",
        f"{what} takes tensors, found `{show(node.type)}`",
        node.span,
        help=_conversion(ctx, node, BOOL),
    )


# --- numbers --------------------------------------------------------------------------------

_LARGEST = {
    DType.F16: 65504.0,
    DType.BF16: 3.3895313892515355e38,
    DType.F32: 3.4028234663852886e38,
}


def default_dtype(node: Flex) -> AnyDType:
    return DType.I64 if isinstance(node.value, Dim) else DType.F64


def typed_as(ctx: Context, node: Flex, dtype: AnyDType) -> typed.Expr:
    """A number as a scalar of a dtype, which must be able to hold it (E2105)."""
    value, type_ = node.value, TensorT((), dtype)
    allowed = dtypes_of(dtype)
    if isinstance(value, float):
        if not all(d.is_float for d in allowed):
            raise ctx.fail(
                "E2105", f"a float literal can't be `{dtype}`", node.span, help=_whole(value)
            )
        _require_finite(ctx, value, dtype, node.span)
        return typed.Literal(value, type_, node.span)
    if DType.BOOL in allowed:
        raise ctx.fail(
            "E2105", f"an integer can't be `{dtype}`", node.span, help="use `true` or `false`"
        )
    assert isinstance(value, Dim)
    number = value.constant
    if number is None:
        return typed.DimValue(value, type_, node.span)
    for candidate in sorted(allowed):
        if candidate.is_integer:
            low, high = candidate.integer_range
            if not low <= number <= high:
                as_ = f" as `{candidate}`" if isinstance(dtype, DTypeVar) else ""
                raise ctx.fail(
                    "E2105",
                    f"`{dtype}`{as_} can't hold {number}",
                    node.span,
                    label=f"from {low} to {high}",
                )
    if all(d.is_float for d in allowed):
        _require_finite(ctx, number, dtype, node.span)
        return typed.Literal(float(number), type_, node.span)
    return typed.Literal(number, type_, node.span)


def _require_finite(ctx: Context, value: float, dtype: AnyDType, span: Span) -> None:
    """A generic's literal is rounded to what the generic stands for, so only `dtype` itself can
    be too small for it."""
    limit = _LARGEST.get(dtype, math.inf) if isinstance(dtype, DType) else math.inf
    if abs(value) > limit:
        raise ctx.fail("E2105", f"`{dtype}` can't hold {value:g}", span, label=f"up to {limit:g}")


def _whole(value: float) -> str | None:
    return f"write `{int(value)}`" if math.isfinite(value) and value == int(value) else None


@rule(ast.IntLiteral)
def _int(ctx: Context, expr: ast.IntLiteral, expected: Type | None) -> Node:
    return Flex(within_i64(ctx, Dim.const(expr.value), expr.span), expr.span)


def within_i64(ctx: Context, dim: Dim, span: Span) -> Dim:
    """E2105 for a constant that no compile-time integer can be."""
    if dim.constant is not None and not -(1 << 63) <= dim.constant < 1 << 63:
        raise ctx.fail("E2105", "an integer beyond the range of `i64`", span)
    return dim


@rule(ast.FloatLiteral)
def _float(ctx: Context, expr: ast.FloatLiteral, expected: Type | None) -> Node:
    return Flex(expr.value, expr.span)


@rule(ast.BoolLiteral)
def _bool(ctx: Context, expr: ast.BoolLiteral, expected: Type | None) -> Node:
    return typed.Literal(expr.value, BOOL, expr.span)


# --- what is made of parts, and what is no value ------------------------------------------------


@rule(ast.TupleExpr)
def _tuple(ctx: Context, expr: ast.TupleExpr, expected: Type | None) -> Node:
    hints: list[Type | None] = [None] * len(expr.items)
    if isinstance(expected, typed.TupleT) and len(expected.items) == len(expr.items):
        hints = [unmarked(item) for item in expected.items]
    items = tuple(check_value(ctx, e, h) for e, h in zip(expr.items, hints, strict=True))
    types = tuple(item.type for item in items)
    if has_too_many_parts(*types):
        raise ctx.fail("E2190", f"a tuple of more than {MAX_PARTS} tensors", expr.span)
    return typed.MakeTuple(items, typed.TupleT(types), expr.span)


@rule(ast.SomeExpr)
def _some(ctx: Context, expr: ast.SomeExpr, expected: Type | None) -> Node:
    inner = unmarked(expected.inner) if isinstance(expected, OptionalT) else None
    value = check_value(ctx, expr.value, inner)
    if isinstance(value.type, OptionalT):
        raise ctx.fail("E2101", "this would be optional twice", expr.span)
    return typed.Some(value, OptionalT(value.type), expr.span)


@rule(ast.NoneExpr)
def _none(ctx: Context, expr: ast.NoneExpr, expected: Type | None) -> Node:
    if not isinstance(expected, OptionalT):
        known = expected is not None and not isinstance(expected, TensorT)
        raise ctx.fail(
            "E2113",
            f"`none` can't be `{show(expected)}`" if known else "`none` needs an optional type",
            expr.span,
            help="say which: `let x: Tensor[…; T]? = none`",
        )
    return typed.NoneValue(expected, expr.span)


@rule(ast.StringLiteral)
def _string(ctx: Context, expr: ast.StringLiteral, expected: Type | None) -> Node:
    raise ctx.fail("E2101", "text is no value here: tensors hold numbers", expr.span)


@rule(ast.ArrayExpr)
def _array(ctx: Context, expr: ast.ArrayExpr, expected: Type | None) -> Node:
    raise ctx.fail(
        "E2101",
        "a list is no value",
        expr.span,
        help="lists give the dimensions or axes of `reshape`, `permute`, `fill`; join tensors "
        "with `concat`",
    )


@rule(ast.Spread)
def _spread(ctx: Context, expr: ast.Spread, expected: Type | None) -> Node:
    raise ctx.fail("E3106", f"the pack `*{expr.name.text}` stands for axes, not a value", expr.span)


@rule(ast.ErrorExpr)
def _error(ctx: Context, expr: ast.ErrorExpr, expected: Type | None) -> Node:
    raise Failed
