"""The prelude's functions: one checking rule each, in a table."""

from __future__ import annotations

from collections.abc import Callable

from linnet.check import typed
from linnet.check.dims import Dim, dim_max, dim_min
from linnet.check.expressions import (
    broadcast_or_fail,
    check,
    check_dim,
    check_value,
    elementwise,
    tensor,
    typed_as,
)
from linnet.check.scope import ELEMENTWISE_FLOAT, Context, Failed, Flex, Node
from linnet.check.typed import AnyDType, DTypeVar, GenericParam, Pack, Shape, TensorT, Type
from linnet.check.types import count, dtypes_of, show, show_shape
from linnet.diagnostics import Note
from linnet.dtypes import DType
from linnet.syntax import ast


def check_prelude(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    rule = _RULES[name]
    if ctx.index is not None and name in _WHOLE:
        # `iota(N)[i]` is checked by the access; anything else here has no elements to give.
        raise ctx.fail(
            "E3104", f"`{name}` makes a whole tensor, not an element", expr.span,
            help="define it outside by `let`, then index it",
        )  # fmt: skip
    return rule(ctx, expr, name, expected)


_WHOLE = frozenset("reshape permute broadcast_to concat iota fill".split())


def _args(
    ctx: Context, expr: ast.Call, name: str, counts: tuple[int, ...], generics: int = 0
) -> list[ast.Expr]:
    """The positional arguments, their number checked; no keywords."""
    for arg in expr.args:
        if arg.name is not None:
            raise ctx.fail(
                "E2102", f"`{name}` has no parameter `{arg.name.text}`", arg.name.span
            )
    if len(expr.args) not in counts:
        wanted = " or ".join(map(str, counts))
        plural = "" if counts == (1,) else "s"
        raise ctx.fail(
            "E2102",
            f"`{name}` takes {wanted} argument{plural}, found {len(expr.args)}",
            expr.span,
        )
    written = len(expr.generics or ())
    if written > generics:
        raise ctx.fail("E2111", f"`{name}` takes {generics or 'no'} generic arguments", expr.span)
    return [arg.value for arg in expr.args]


def _float_function(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    (operand,) = _args(ctx, expr, name, (1,))
    node = check(ctx, operand, expected)
    if isinstance(node, Flex):
        dtype = expected.dtype if isinstance(expected, TensorT) else DType.F64
        node = typed_as(ctx, node, dtype)
    type_ = tensor(ctx, node, f"`{name}`")
    allowed = dtypes_of(type_.dtype)
    wrong = any(not d.is_float for d in allowed) if name != "abs" else DType.BOOL in allowed
    if wrong:
        kind = "a number" if name == "abs" else "a float"
        raise ctx.fail(
            "E2104",
            f"`{name}` takes {kind}, found `{show(type_)}`",
            node.span,
            help=f"convert it: `cast<f32>({node.span.text})`" if name != "abs" else None,
        )
    return typed.Prim(name, (node,), (), type_, expr.span)


def _cast(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    from linnet.check.calls import generic_value

    (operand,) = _args(ctx, expr, name, (1,), generics=1)
    if not expr.generics:
        raise ctx.fail(
            "E2110", "`cast` needs the dtype to convert to", expr.span, help="`cast<f32>(x)`"
        )
    dtype = generic_value(ctx, expr.generics[0], GenericParam("T", "DType", None))
    assert isinstance(dtype, DType | DTypeVar)
    node = check(ctx, operand)
    if isinstance(node, Flex):
        if isinstance(node.value, Dim) or all(d.is_float for d in dtypes_of(dtype)):
            return typed_as(ctx, node, dtype)
        node = typed_as(ctx, node, DType.F64)
    type_ = tensor(ctx, node, "`cast`")
    if type_.dtype == dtype:
        return node
    return typed.Prim("cast", (node,), (), TensorT(type_.shape, dtype), expr.span)


def _min_max(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    left, right = (check(ctx, a, expected) for a in _args(ctx, expr, name, (2,)))
    if isinstance(left, Flex) and isinstance(right, Flex):
        a, b = left.value, right.value
        if isinstance(a, Dim) and isinstance(b, Dim):
            return Flex(dim_min(a, b) if name == "min" else dim_max(a, b), expr.span)
        dtype: AnyDType = expected.dtype if isinstance(expected, TensorT) else DType.F64
        left, right = typed_as(ctx, left, dtype), typed_as(ctx, right, dtype)
    return _pair(ctx, expr, name, left, right)


def _shift(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    left, right = (check(ctx, a, expected) for a in _args(ctx, expr, name, (2,)))
    if isinstance(left, Flex) and isinstance(right, Flex):
        dtype: AnyDType = expected.dtype if isinstance(expected, TensorT) else DType.I64
        left, right = typed_as(ctx, left, dtype), typed_as(ctx, right, dtype)
    return _pair(ctx, expr, name, left, right)


def _pair(ctx: Context, expr: ast.Call, name: str, left: Node, right: Node) -> Node:
    if isinstance(left, Flex):
        assert not isinstance(right, Flex)
        left = typed_as(ctx, left, tensor(ctx, right, f"`{name}`").dtype)
    elif isinstance(right, Flex):
        right = typed_as(ctx, right, tensor(ctx, left, f"`{name}`").dtype)
    assert not isinstance(right, Flex)
    return elementwise(ctx, name, left, right, expr.span)


def _select(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    test_expr, then_expr, else_expr = _args(ctx, expr, name, (3,))
    test = check_value(ctx, test_expr)
    type_ = tensor(ctx, test, "`select`")
    if type_.dtype != DType.BOOL:
        raise ctx.fail(
            "E2114",
            f"the condition of `select` must be `bool`, found `{show(type_)}`",
            test.span,
        )
    then, otherwise = check(ctx, then_expr, expected), check(ctx, else_expr, expected)
    if isinstance(then, Flex) and isinstance(otherwise, Flex):
        is_float = isinstance(then.value, float) or isinstance(otherwise.value, float)
        default = DType.F64 if is_float else DType.I64
        dtype: AnyDType = expected.dtype if isinstance(expected, TensorT) else default
        then, otherwise = typed_as(ctx, then, dtype), typed_as(ctx, otherwise, dtype)
    elif isinstance(then, Flex):
        assert not isinstance(otherwise, Flex)
        then = typed_as(ctx, then, tensor(ctx, otherwise, "`select`").dtype)
    elif isinstance(otherwise, Flex):
        otherwise = typed_as(ctx, otherwise, tensor(ctx, then, "`select`").dtype)
    assert not isinstance(then, Flex) and not isinstance(otherwise, Flex)
    a, b = tensor(ctx, then, "`select`"), tensor(ctx, otherwise, "`select`")
    if a.dtype != b.dtype:
        raise ctx.fail(
            "E2103",
            f"`select` takes one dtype, found `{a.dtype}` and `{b.dtype}`",
            expr.span,
            notes=[
                Note(f"this is `{show(a)}`", then.span),
                Note(f"this is `{show(b)}`", otherwise.span),
            ],
        )
    shape = broadcast_or_fail(ctx, a.shape, b.shape, expr.span, (then, otherwise))
    shape = broadcast_or_fail(ctx, type_.shape, shape, expr.span, (test, then))
    return typed.Prim("select", (test, then, otherwise), (), TensorT(shape, a.dtype), expr.span)


# --- shapes ---------------------------------------------------------------------------------


def dims_list(ctx: Context, expr: ast.Expr, name: str) -> Shape:
    """`[B, S, *R]` as a shape."""
    if not isinstance(expr, ast.ArrayExpr):
        raise ctx.fail(
            "E2101", f"`{name}` takes a list of dimensions", expr.span, help="as in `[B, S, H]`"
        )
    items: list[typed.ShapeItem] = []
    for item in expr.items:
        if isinstance(item, ast.Spread):
            pack = ctx.generics.get(item.name.text)
            if not isinstance(pack, Pack):
                raise ctx.fail("E3106", f"`{item.name.text}` is no pack", item.span)
            items.append(pack)
            continue
        dim = check_dim(ctx, item, "a dimension")
        if not ctx.facts.nonnegative(dim):
            raise ctx.fail(
                "E2208", f"the dimension `{dim}` is not proven to be at least 0", item.span
            )
        items.append(dim)
    return tuple(items)


def _operand(ctx: Context, expr: ast.Expr, name: str) -> tuple[typed.Expr, TensorT]:
    node = check_value(ctx, expr)
    return node, tensor(ctx, node, f"`{name}`")


def _reshape(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    operand, dims = _args(ctx, expr, name, (2,))
    node, type_ = _operand(ctx, operand, name)
    shape = dims_list(ctx, dims, name)
    have, want = count(type_.shape), count(shape)
    if not ctx.facts.equal(have, want):
        raise ctx.fail(
            "E2203",
            f"`reshape` from `[{show_shape(type_.shape)}]` to `[{show_shape(shape)}]` is not "
            "proven to keep the number of elements",
            expr.span,
            notes=[
                Note(f"there are `{ctx.facts.simplify(have)}` elements", node.span),
                Note(f"the new shape holds `{ctx.facts.simplify(want)}`", dims.span),
            ],
            help=_missing_fact(have, want),
        )
    return typed.Prim("reshape", (node,), (), TensorT(shape, type_.dtype), expr.span)


def _missing_fact(have: Dim, want: Dim) -> str | None:
    """A `where` that would make a reshape right: the evenness of a division in it."""
    from linnet.check.dims import Quotient

    for atom in [*have.atoms(), *want.atoms()]:
        if isinstance(atom, Quotient):
            return f"add `where {atom.numerator} % {atom.denominator} == 0`"
    return None


def _permute(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    operand, axes_expr = _args(ctx, expr, name, (2,))
    node, type_ = _operand(ctx, operand, name)
    if not isinstance(axes_expr, ast.ArrayExpr):
        raise ctx.fail(
            "E2101", "`permute` takes a list of axes", axes_expr.span, help="as in `[0, 2, 1]`"
        )
    rank = _known_rank(ctx, node, type_, name)
    axes = []
    for item in axes_expr.items:
        axis = check_dim(ctx, item, "an axis").constant
        if axis is None:
            raise ctx.fail("E2210", "an axis must be a plain integer", item.span)
        axes.append(axis)
    if sorted(axes) != list(range(rank)):
        raise ctx.fail(
            "E2210",
            f"`{axes_expr.span.text}` is no permutation of the axes 0 to {rank - 1}",
            axes_expr.span,
            notes=[Note(f"this is `{show(type_)}`", node.span)],
        )
    shape = tuple(type_.shape[a] for a in axes)
    return typed.Prim("permute", (node,), tuple(axes), TensorT(shape, type_.dtype), expr.span)


def _known_rank(ctx: Context, node: typed.Expr, type_: TensorT, name: str) -> int:
    if any(isinstance(item, Pack) for item in type_.shape):
        raise ctx.fail(
            "E2210", f"`{name}` needs to know every axis, `{show(type_)}` has a pack", node.span
        )
    return len(type_.shape)


def _broadcast_to(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    operand, dims = _args(ctx, expr, name, (2,))
    node, type_ = _operand(ctx, operand, name)
    shape = dims_list(ctx, dims, name)
    target = typed.Literal(0, TensorT(shape, type_.dtype), dims.span)
    common = broadcast_or_fail(ctx, type_.shape, shape, expr.span, (node, target))
    if common != shape and not _same(ctx, common, shape):
        raise ctx.fail(
            "E2207",
            f"`[{show_shape(type_.shape)}]` does not broadcast to `[{show_shape(shape)}]`",
            expr.span,
        )
    return typed.Prim("broadcast_to", (node,), (), TensorT(shape, type_.dtype), expr.span)


def _same(ctx: Context, a: Shape, b: Shape) -> bool:
    from linnet.check.types import shapes_equal

    return shapes_equal(a, b, ctx.facts)


def _concat(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    values = [arg.value for arg in expr.args if arg.name is None]
    axis_arg = None
    for arg in expr.args:
        if arg.name is not None:
            if arg.name.text != "axis":
                raise ctx.fail(
                    "E2102", f"`concat` has no parameter `{arg.name.text}`", arg.name.span
                )
            axis_arg = arg.value
    if len(values) < 2 or axis_arg is None:
        raise ctx.fail(
            "E2102", "`concat` takes two or more tensors and `axis`", expr.span,
            help="`concat(a, b, axis = -1)`",
        )  # fmt: skip
    nodes = [_operand(ctx, value, name) for value in values]
    first = nodes[0][1]
    axis = check_dim(ctx, axis_arg, "an axis").constant
    rank = len(first.shape)
    if axis is None or not -rank <= axis < rank:
        raise ctx.fail(
            "E2210", f"`axis` must be from {-rank} to {rank - 1} for `{show(first)}`",
            axis_arg.span,
        )  # fmt: skip
    at = axis % rank
    if any(isinstance(item, Pack) for item in first.shape[: at + 1]) and (
        axis >= 0 or any(isinstance(item, Pack) for item in first.shape[at:])
    ):
        raise ctx.fail("E2210", f"the axis {axis} of `{show(first)}` is not known", axis_arg.span)
    total = first.shape[at]
    assert isinstance(total, Dim)
    for node, type_ in nodes[1:]:
        if type_.dtype != first.dtype:
            raise ctx.fail(
                "E2103", f"`concat` takes one dtype, found `{first.dtype}` and `{type_.dtype}`",
                node.span,
            )  # fmt: skip
        rest = (*type_.shape[:at], *type_.shape[at + 1 :])
        if len(type_.shape) != rank or not _same(
            ctx, rest, (*first.shape[:at], *first.shape[at + 1 :])
        ):
            raise ctx.fail(
                "E2202",
                f"all but axis {axis} must agree: `{show(first)}` and `{show(type_)}`",
                node.span,
                notes=[Note(f"this is `{show(first)}`", nodes[0][0].span)],
            )
        extent = type_.shape[at]
        assert isinstance(extent, Dim)
        total = total + extent
    shape = (*first.shape[:at], total, *first.shape[at + 1 :])
    return typed.Prim(
        "concat",
        tuple(node for node, _ in nodes),
        (at - rank,),
        TensorT(shape, first.dtype),
        expr.span,
    )


# --- creation -------------------------------------------------------------------------------


def _dtype_arg(ctx: Context, expr: ast.Call, kind: str, default: AnyDType | None) -> AnyDType | None:
    from linnet.check.calls import generic_value

    if not expr.generics:
        return default
    dtype = generic_value(ctx, expr.generics[0], GenericParam("T", kind, None))
    assert isinstance(dtype, DType | DTypeVar)
    return dtype


def _iota(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    (extent,) = _args(ctx, expr, name, (1,), generics=1)
    dtype = _dtype_arg(ctx, expr, "Numeric", DType.I64)
    assert dtype is not None
    dim = check_dim(ctx, extent, "the length of `iota`")
    if not ctx.facts.nonnegative(dim):
        raise ctx.fail("E2208", f"`{dim}` is not proven to be at least 0", extent.span)
    return typed.Prim("iota", (), (), TensorT((dim,), dtype), expr.span)


def _fill(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    dims, value = _args(ctx, expr, name, (2,), generics=1)
    shape = dims_list(ctx, dims, name)
    dtype = _dtype_arg(ctx, expr, "DType", None)
    node = check(ctx, value, TensorT((), dtype) if dtype else None)
    if isinstance(node, Flex):
        if dtype is None:
            from linnet.check.expressions import default_dtype

            dtype = expected.dtype if isinstance(expected, TensorT) else default_dtype(node)
        node = typed_as(ctx, node, dtype)
    type_ = tensor(ctx, node, "`fill`")
    if type_.shape:
        raise ctx.fail("E2202", f"`fill` takes a scalar, found `{show(type_)}`", node.span)
    if dtype is not None and type_.dtype != dtype:
        raise ctx.fail("E2103", f"`fill` of `{dtype}` with `{type_.dtype}`", node.span)
    return typed.Prim("fill", (node,), (), TensorT(shape, type_.dtype), expr.span)


_RULES: dict[str, Callable[[Context, ast.Call, str, Type | None], Node]] = {
    **dict.fromkeys((*ELEMENTWISE_FLOAT, "abs"), _float_function),
    "cast": _cast,
    "min": _min_max,
    "max": _min_max,
    "shl": _shift,
    "shr": _shift,
    "select": _select,
    "reshape": _reshape,
    "permute": _permute,
    "broadcast_to": _broadcast_to,
    "concat": _concat,
    "iota": _iota,
    "fill": _fill,
}

__all__ = ["Failed", "check_prelude", "dims_list"]
