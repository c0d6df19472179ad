"""Operators: on numbers without a type, which are folded, and on tensors, which broadcast."""

from __future__ import annotations

from collections.abc import Callable

from linnet.check import typed
from linnet.check.context import Context, Flex, Node
from linnet.check.dims import Dim
from linnet.check.expressions import (
    check,
    check_value,
    rule,
    short,
    tensor,
    typed_as,
    unproven,
    within_i64,
)
from linnet.check.scope import PRELUDE_FUNCTIONS, Failed
from linnet.check.typed import AnyDType, DTypeVar, Shape, TensorT, Type
from linnet.check.types import (
    BOOL,
    NotBroadcast,
    broadcast,
    describe,
    dtype_of_hint,
    dtypes_of,
    of_dtype,
    show,
    show_shape,
)
from linnet.diagnostics import Note, Span
from linnet.dtypes import DType
from linnet.syntax import ast

ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem"}
COMPARISON = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
BITWISE = {"&": "and", "|": "or", "^": "xor"}
LOGICAL = {"&&": "and", "||": "or"}
PRIMITIVE = ARITHMETIC | COMPARISON | BITWISE

_ON_DIMS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}
_ON_FLOATS: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}
_ON_INTEGERS = {"&": int.__and__, "|": int.__or__, "^": int.__xor__}


# --- one operand ----------------------------------------------------------------------------


@rule(ast.Unary)
def _unary(ctx: Context, expr: ast.Unary, expected: Type | None) -> Node:
    operand = expr.operand
    if expr.op == "-" and isinstance(operand, ast.IntLiteral) and operand.value == 1 << 63:
        return Flex(Dim.const(-operand.value), expr.span)  # Its magnitude alone is beyond i64.
    node = check(ctx, operand, expected if expr.op != "!" else None)
    if isinstance(node, Flex):
        if expr.op == "!":
            raise _not_bool(ctx, expr, describe(node.type))
        return Flex(node.value if expr.op == "+" else -node.value, expr.span)
    type_ = tensor(ctx, node, f"`{expr.op}`")
    if expr.op == "!":
        if type_ != BOOL:
            raise _not_bool(ctx, expr, describe(type_), type_.dtype == DType.BOOL)
        return typed.Prim("not", (node,), (), BOOL, expr.span)
    if DType.BOOL in dtypes_of(type_.dtype):
        raise _unsupported(ctx, expr.op, type_.dtype, expr.span)
    return node if expr.op == "+" else typed.Prim("neg", (node,), (), type_, expr.span)


def _not_bool(ctx: Context, expr: ast.Unary, found: str, is_tensor: bool = False) -> Failed:
    return ctx.fail(
        "E2116",
        f"`!` takes a scalar `bool`, found {found}",
        expr.span,
        help=f"on a tensor of `bool`: `{short(expr.operand.span)} ^ true`" if is_tensor else None,
    )


# --- two operands ---------------------------------------------------------------------------


@rule(ast.Binary)
def _binary(ctx: Context, expr: ast.Binary, expected: Type | None) -> Node:
    if expr.op in LOGICAL:
        return _logical(ctx, expr)
    hint = dtype_of_hint(expected) if expr.op not in COMPARISON else None
    left, right = check_pair(ctx, expr.left, expr.right, hint)
    if isinstance(left, Flex) and isinstance(right, Flex):
        return _fold(ctx, expr, left, right, hint)
    a, b = same_dtype(ctx, left, right, f"`{expr.op}`", hint)
    if expr.op in ("==", "!=") and isinstance(a.type, typed.EnumT):
        raise ctx.fail(
            "E2104", "enums are not compared", expr.span, help=f"use `match {short(a.span)}`"
        )
    return elementwise(ctx, expr.op, a, b, expr.span)


def check_pair(
    ctx: Context, left: ast.Expr, right: ast.Expr, hint: AnyDType | None
) -> tuple[Node, Node]:
    """Two operands that shall have one dtype: each is the other's context for its literals."""
    if _is_open(ctx, left) and not _is_open(ctx, right):
        second = check(ctx, right, of_dtype(hint) if hint else None)
        return check(ctx, left, _context(second, hint)), second
    first = check(ctx, left, of_dtype(hint) if hint else None)
    return first, check(ctx, right, _context(first, hint))


def _context(node: Node, hint: AnyDType | None) -> Type | None:
    if not isinstance(node, Flex) and isinstance(node.type, TensorT):
        return of_dtype(node.type.dtype)
    return of_dtype(hint) if hint else None


def _is_open(ctx: Context, expr: ast.Expr) -> bool:
    """Whether an expression is made of numbers alone, so that it takes any context's dtype."""
    match expr:
        case ast.IntLiteral() | ast.FloatLiteral():
            return True
        case ast.NameExpr(name, _):
            return ctx.local(name) is None and isinstance(ctx.generics.get(name), Flex)
        case ast.Unary(_, operand, _):
            return _is_open(ctx, operand)
        case ast.Binary(_, left, right, _, _):
            return _is_open(ctx, left) and _is_open(ctx, right)
        case ast.Call(ast.NameExpr(name, _), None, args, _):
            return name in PRELUDE_FUNCTIONS and all(_is_open(ctx, a.value) for a in args)
    return False


def same_dtype(
    ctx: Context, left: Node, right: Node, what: str, hint: AnyDType | None
) -> tuple[typed.Expr, typed.Expr]:
    """Two operands with types: a number without one takes the other's, else the hint's."""
    if isinstance(left, Flex) and isinstance(right, Flex):
        is_float = isinstance(left.value, float) or isinstance(right.value, float)
        dtype = hint or (DType.F64 if is_float else DType.I64)
        return typed_as(ctx, left, dtype), typed_as(ctx, right, dtype)
    if isinstance(left, Flex):
        assert not isinstance(right, Flex)
        return typed_as(ctx, left, tensor(ctx, right, what).dtype), right
    if isinstance(right, Flex):
        return left, typed_as(ctx, right, tensor(ctx, left, what).dtype)
    return left, right


def elementwise(
    ctx: Context, op: str, left: typed.Expr, right: typed.Expr, span: Span
) -> typed.Expr:
    """An arithmetic, bitwise or comparing operator on two tensors, broadcast."""
    a = tensor(ctx, left, f"`{op}`")
    require_one_dtype(ctx, f"`{op}`", left, right, span)
    allowed = dtypes_of(a.dtype)
    is_bool = DType.BOOL in allowed
    if op in BITWISE:
        bad = any(d.is_float for d in allowed)
    elif op in ("%", "shl", "shr"):
        bad = is_bool or any(d.is_float for d in allowed)
    else:
        bad = is_bool and op not in ("==", "!=")
    if bad:
        raise _unsupported(ctx, op, a.dtype, span)
    shape = broadcast_or_fail(ctx, left, right, span)
    dtype = DType.BOOL if op in COMPARISON else a.dtype
    return typed.Prim(PRIMITIVE.get(op, op), (left, right), (), TensorT(shape, dtype), span)


def require_one_dtype(
    ctx: Context, what: str, left: typed.Expr, right: typed.Expr, span: Span
) -> None:
    """E2103 where two tensors' dtypes differ."""
    a, b = tensor(ctx, left, what), tensor(ctx, right, what)
    if a.dtype != b.dtype:
        raise ctx.fail(
            "E2103",
            f"{what} takes one dtype, found `{a.dtype}` and `{b.dtype}`",
            span,
            notes=_sides(left, right),
            help=f"nothing is converted by itself: `cast<{a.dtype}>({short(right.span)})`",
        )


def _sides(left: typed.Expr, right: typed.Expr) -> list[Note]:
    return [Note(f"this is `{show(side.type)}`", side.span) for side in (left, right)]


def _unsupported(ctx: Context, op: str, dtype: AnyDType, span: Span) -> Failed:
    help = None
    if isinstance(dtype, DTypeVar):
        wanted = "Integer" if op in BITWISE or op in ("%", "shl", "shr") else "Numeric"
        help = f"narrow the generic: `{dtype.name}: {wanted}`"
    elif dtype == DType.BOOL and op in ARITHMETIC:
        help = "convert it first, as in `cast<i32>(x)`"
    elif op in BITWISE or op in ("shl", "shr"):
        help = "bits are those of integers: convert first, as in `cast<i32>(x)`"
    return ctx.fail("E2104", f"`{op}` is not defined for `{dtype}`", span, help=help)


def broadcast_or_fail(ctx: Context, left: typed.Expr, right: typed.Expr, span: Span) -> Shape:
    """The common shape of two tensors, or E2207."""
    assert isinstance(left.type, TensorT) and isinstance(right.type, TensorT)
    a, b = left.type.shape, right.type.shape
    try:
        return broadcast(a, b, ctx.facts)
    except NotBroadcast as error:
        why = unproven(ctx, "==", error.left, error.right)
        raise ctx.fail(
            "E2207",
            f"`[{show_shape(a)}]` and `[{show_shape(b)}]` do not broadcast: `{error.left}` and "
            f"`{error.right}` are not {why.words('', 'proven ')}equal, and neither is 1",
            span,
            notes=_sides(left, right),
            help=why.help,
        ) from None


# --- numbers without a type -----------------------------------------------------------------


def _fold(ctx: Context, expr: ast.Binary, left: Flex, right: Flex, hint: AnyDType | None) -> Node:
    a, b, op = left.value, right.value, expr.op
    if isinstance(a, Dim) and isinstance(b, Dim):
        if op in ("/", "%"):
            require_divisor(ctx, b, expr.right.span)
        if op in ARITHMETIC:
            return Flex(within_i64(ctx, _ON_DIMS[op](a, b), expr.span), expr.span)
        if op in COMPARISON:
            return compared(ctx, op, a, b, expr.span)
        x, y = a.constant, b.constant
        if x is not None and y is not None:
            return Flex(Dim.const(_ON_INTEGERS[op](x, y)), expr.span)
    else:
        x = a.constant if isinstance(a, Dim) else a
        y = b.constant if isinstance(b, Dim) else b
        if x is not None and y is not None and op in _ON_FLOATS and not (op == "/" and y == 0):
            return Flex(_ON_FLOATS[op](float(x), float(y)), expr.span)
    return elementwise(ctx, op, *same_dtype(ctx, left, right, f"`{op}`", hint), expr.span)


def require_divisor(ctx: Context, divisor: Dim, span: Span) -> None:
    """E2205 for a dimension that may be 0."""
    if ctx.facts.positive(divisor):
        return
    is_known = divisor.constant is not None
    raise ctx.fail(
        "E2205",
        f"the divisor `{divisor}` is {'not' if is_known else 'not proven to be'} positive",
        span,
        help=unproven(ctx, ">", divisor, Dim.const(0)).help,
    )


def compared(ctx: Context, op: str, a: Dim, b: Dim, span: Span) -> typed.Expr:
    """A comparison of compile-time integers: its result, or what will be known by binding time."""
    if ctx.facts.proves(op, a, b):
        return typed.Literal(True, BOOL, span)
    if ctx.facts.refutes(op, a, b):
        return typed.Literal(False, BOOL, span)
    return typed.DimCompare(op, a, b, BOOL, span)


# --- logic ----------------------------------------------------------------------------------


def _logical(ctx: Context, expr: ast.Binary) -> Node:
    sides = []
    for side in (expr.left, expr.right):
        node = check_value(ctx, side)
        if node.type != BOOL:
            is_tensor = isinstance(node.type, TensorT) and node.type.dtype == DType.BOOL
            raise ctx.fail(
                "E2116",
                f"`{expr.op}` takes a scalar `bool`, found {describe(node.type)}",
                node.span,
                help=f"on tensors of `bool`, use `{expr.op[0]}`" if is_tensor else None,
            )
        sides.append(node)
    return typed.Prim(LOGICAL[expr.op], tuple(sides), (), BOOL, expr.span)
