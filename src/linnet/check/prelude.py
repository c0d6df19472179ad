"""The prelude's functions: one checking rule each, in a table."""

from __future__ import annotations

from collections.abc import Callable

from linnet.check import typed
from linnet.check.context import Context, Flex, Node
from linnet.check.dims import Dim, Quotient, dim_max, dim_min
from linnet.check.expressions import (
    axis_notes,
    check,
    check_dim,
    check_extent,
    check_value,
    default_dtype,
    short,
    tensor,
    typed_as,
    unproven,
)
from linnet.check.notation import dtype_argument
from linnet.check.operators import (
    broadcast_or_fail,
    check_pair,
    elementwise,
    require_one_dtype,
    same_dtype,
)
from linnet.check.resolve import plural, resolve_shape
from linnet.check.scope import ELEMENTWISE_FLOAT
from linnet.check.typed import AnyDType, DTypeVar, Pack, Shape, TensorT, Type
from linnet.check.types import (
    count,
    dtype_of_hint,
    dtypes_of,
    of_dtype,
    shapes_equal,
    show,
    show_shape,
)
from linnet.diagnostics import Note
from linnet.dtypes import DType
from linnet.syntax import ast


def check_prelude(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    rule = _RULES[name]
    if ctx.index is not None and name in _WHOLE:
        # `iota(N)[i]` is checked by the access; anything else here has no elements to give.
        raise ctx.fail(
            "E3104",
            f"`{name}` makes a whole tensor, not an element",
            expr.span,
            help="define it outside by `let`, then index it",
        )
    return rule(ctx, expr, name, expected)


_WHOLE = frozenset({"reshape", "permute", "broadcast_to", "concat", "iota", "fill"})


def _args(
    ctx: Context, expr: ast.Call, name: str, number: int, generics: int = 0
) -> list[ast.Expr]:
    """The positional arguments, their number checked; no keywords."""
    for arg in expr.args:
        if arg.name is not None:
            raise ctx.fail(
                "E2102",
                f"`{name}` has no parameter `{arg.name.text}`",
                arg.name.span,
                help="give its arguments by position",
            )
    if len(expr.args) != number:
        raise ctx.fail(
            "E2102",
            f"`{name}` takes {plural(number, 'argument')}, found {len(expr.args)}",
            expr.span,
            help=f"as in `{_USE[name]}`",
        )
    if len(expr.generics or ()) > generics:
        raise ctx.fail(
            "E2111",
            f"`{name}` takes {plural(generics, 'generic argument')}",
            expr.span,
            help=f"as in `{_USE[name]}`",
        )
    return [arg.value for arg in expr.args]


_USE = {
    **{name: f"{name}(x)" for name in (*ELEMENTWISE_FLOAT, "abs")},
    "cast": "cast<f32>(x)",
    "min": "min(a, b)",
    "max": "max(a, b)",
    "shl": "shl(x, bits)",
    "shr": "shr(x, bits)",
    "select": "select(condition, a, b)",
    "reshape": "reshape(x, [B, S, H])",
    "permute": "permute(x, [0, 2, 1])",
    "broadcast_to": "broadcast_to(x, [B, S])",
    "concat": "concat(a, b, axis = -1)",
    "iota": "iota<i32>(N)",
    "fill": "fill<f32>([B, S], 0)",
}
"""How each is called, for a help line."""


# --- elementwise ----------------------------------------------------------------------------


def _float_function(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    (operand,) = _args(ctx, expr, name, 1)
    node = check(ctx, operand, expected)
    if isinstance(node, Flex):
        default = default_dtype(node) if name == "abs" else DType.F64
        node = typed_as(ctx, node, dtype_of_hint(expected) or default)
    type_ = tensor(ctx, node, f"`{name}`")
    allowed = dtypes_of(type_.dtype)
    wrong = DType.BOOL in allowed if name == "abs" else any(not d.is_float for d in allowed)
    if wrong:
        kind, help = ("a number", None) if name == "abs" else ("a float", _float_help(node))
        raise ctx.fail(
            "E2104", f"`{name}` takes {kind}, found `{show(type_)}`", node.span, help=help
        )
    return typed.Prim(name, (node,), (), type_, expr.span)


def _float_help(node: typed.Expr) -> str:
    assert isinstance(node.type, TensorT)
    if isinstance(node.type.dtype, DTypeVar):
        return f"narrow the generic: `{node.type.dtype}: Float`"
    return f"convert it: `cast<f32>({short(node.span)})`"


def _cast(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    (operand,) = _args(ctx, expr, name, 1, generics=1)
    if not expr.generics:
        raise ctx.fail(
            "E2110", "`cast` needs the dtype to convert to", expr.span, help="`cast<f32>(x)`"
        )
    dtype = dtype_argument(ctx, expr.generics[0], "DType")
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
    hint = dtype_of_hint(expected)
    first, second = _args(ctx, expr, name, 2)
    left, right = check_pair(ctx, first, second, hint)
    if isinstance(left, Flex) and isinstance(right, Flex):
        a, b = left.value, right.value
        if isinstance(a, Dim) and isinstance(b, Dim):
            return Flex((dim_min if name == "min" else dim_max)(a, b), expr.span)
    return elementwise(ctx, name, *same_dtype(ctx, left, right, f"`{name}`", hint), expr.span)


def _shift(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    hint = dtype_of_hint(expected)
    first, second = _args(ctx, expr, name, 2)
    left, right = check_pair(ctx, first, second, hint)
    return elementwise(ctx, name, *same_dtype(ctx, left, right, f"`{name}`", hint), expr.span)


def _select(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    test_expr, then_expr, else_expr = _args(ctx, expr, name, 3)
    test = check_value(ctx, test_expr)
    if not isinstance(test.type, TensorT) or test.type.dtype != DType.BOOL:
        raise ctx.fail(
            "E2114",
            f"the condition of `select` must be `bool`, found `{show(test.type)}`",
            test.span,
            help=f"compare it, as in `{short(test.span)} != 0`"
            if isinstance(test.type, TensorT)
            else None,
        )
    hint = dtype_of_hint(expected)
    pair = check_pair(ctx, then_expr, else_expr, hint)
    then, otherwise = same_dtype(ctx, *pair, "`select`", hint)
    require_one_dtype(ctx, "`select`", then, otherwise, expr.span)
    type_ = tensor(ctx, then, "`select`")
    shape = broadcast_or_fail(ctx, then, otherwise, expr.span)
    args = (test, then, otherwise)
    chosen = typed.Prim("select", args, (), TensorT(shape, type_.dtype), expr.span)
    shape = broadcast_or_fail(ctx, test, chosen, expr.span)
    return typed.Prim("select", args, (), TensorT(shape, type_.dtype), expr.span)


# --- shapes ---------------------------------------------------------------------------------


def _dims_list(ctx: Context, expr: ast.Expr, name: str) -> Shape:
    """`[B, S, *R]` as a shape."""
    if not isinstance(expr, ast.ArrayExpr):
        raise ctx.fail(
            "E2101",
            f"`{name}` takes a list of dimensions",
            expr.span,
            help=f"as in `{_USE[name]}`",
        )
    return resolve_shape(ctx, expr.items)


def _operand(
    ctx: Context, expr: ast.Expr, name: str, expected: Type | None
) -> tuple[typed.Expr, TensorT]:
    """A tensor to reshape, permute or join: of its result's dtype, not of its shape."""
    hint = dtype_of_hint(expected)
    node = check_value(ctx, expr, of_dtype(hint) if hint else None)
    return node, tensor(ctx, node, f"`{name}`")


def _reshape(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    operand, dims = _args(ctx, expr, name, 2)
    node, type_ = _operand(ctx, operand, name, expected)
    shape = _dims_list(ctx, dims, name)
    have, want = count(type_.shape), count(shape)
    if not ctx.facts.equal(have, want):
        have, want = ctx.facts.simplify(have), ctx.facts.simplify(want)
        why = unproven(ctx, "==", have, want)
        has_pack = any(name.startswith("*") for name in have.variables() | want.variables())
        raise ctx.fail(
            "E2203",
            f"`reshape` from `[{show_shape(type_.shape)}]` to `[{show_shape(shape)}]` "
            f"{why.words('changes', 'is not proven to keep')} the number of elements",
            expr.span,
            notes=[
                Note(f"there are `{have}` elements", node.span),
                Note(f"the new shape holds `{want}`", dims.span),
            ],
            help=why.help and (_even_help(have, want) or (None if has_pack else why.help)),
        )
    return typed.Prim("reshape", (node,), (), TensorT(shape, type_.dtype), expr.span)


def _even_help(have: Dim, want: Dim) -> str | None:
    """The evenness of a division that would make two counts equal."""
    for atom in [*have.atoms(), *want.atoms()]:
        if isinstance(atom, Quotient):
            return f"add `where {atom.numerator} % {atom.denominator} == 0`"
    return None


def _permute(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    operand, axes_expr = _args(ctx, expr, name, 2)
    node, type_ = _operand(ctx, operand, name, expected)
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
    operand, dims = _args(ctx, expr, name, 2)
    node, type_ = _operand(ctx, operand, name, expected)
    shape = _dims_list(ctx, dims, name)
    target = typed.Literal(0, TensorT(shape, type_.dtype), dims.span)
    common = broadcast_or_fail(ctx, node, target, expr.span)
    if not shapes_equal(common, shape, ctx.facts):
        raise ctx.fail(
            "E2207",
            f"`[{show_shape(type_.shape)}]` does not broadcast to `[{show_shape(shape)}]`",
            expr.span,
            notes=[Note(f"this is `{show(type_)}`", node.span)],
        )
    return typed.Prim("broadcast_to", (node,), (), TensorT(shape, type_.dtype), expr.span)


def _concat(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    values = [arg.value for arg in expr.args if arg.name is None]
    axis_expr = None
    for arg in expr.args:
        if arg.name is not None:
            if arg.name.text != "axis":
                raise ctx.fail(
                    "E2102",
                    f"`concat` has no parameter `{arg.name.text}`",
                    arg.name.span,
                    help=f"as in `{_USE[name]}`",
                )
            axis_expr = arg.value
    if len(values) < 2:
        raise ctx.fail(
            "E2102",
            "`concat` takes two or more tensors",
            expr.span,
            help=f"as in `{_USE[name]}`",
        )
    if expr.generics:
        raise ctx.fail("E2111", "`concat` takes no generic arguments", expr.span)
    nodes = [_operand(ctx, value, name, expected) for value in values]
    first = nodes[0][1]
    at = _axis(ctx, axis_expr or ast.IntLiteral(-1, expr.span), first)
    total = first.shape[at]
    assert isinstance(total, Dim)
    for node, type_ in nodes[1:]:
        require_one_dtype(ctx, "`concat`", nodes[0][0], node, node.span)
        wanted = TensorT((*first.shape[:at], type_.shape[at], *first.shape[at + 1 :])
                         if at < len(type_.shape) else first.shape, first.dtype)  # fmt: skip
        extent = type_.shape[at] if at < len(type_.shape) else None
        if not isinstance(extent, Dim) or not shapes_equal(wanted.shape, type_.shape, ctx.facts):
            raise ctx.fail(
                "E2202",
                f"all axes but `axis` must agree: `{show(first)}` and `{show(type_)}`",
                node.span,
                notes=[
                    Note(f"this is `{show(first)}`", nodes[0][0].span),
                    *axis_notes(ctx, wanted, type_),
                ],
            )
        total = total + extent
    shape = (*first.shape[:at], total, *first.shape[at + 1 :])
    return typed.Prim(
        "concat",
        tuple(node for node, _ in nodes),
        (at - len(shape),),
        TensorT(shape, first.dtype),
        expr.span,
    )


def _axis(ctx: Context, expr: ast.Expr, type_: TensorT) -> int:
    """The item of a shape that an axis, maybe counted from the end, falls on."""
    rank = len(type_.shape)
    axis = check_dim(ctx, expr, "an axis").constant
    if axis is None:
        raise ctx.fail("E2210", "an axis must be a plain integer", expr.span)
    if not -rank <= axis < rank:
        allowed = f"from {-rank} to {rank - 1}" if rank else "none"
        raise ctx.fail(
            "E2210", f"`{show(type_)}` has no axis {axis}", expr.span, label=f"it is {allowed}"
        )
    at = axis % rank
    # A pack may stand for any number of axes: only those on its own side can be counted.
    counted = type_.shape[at:] if axis < 0 else type_.shape[: at + 1]
    if any(isinstance(item, Pack) for item in counted):
        raise ctx.fail(
            "E2210",
            f"which axis {axis} of `{show(type_)}` is depends on the pack",
            expr.span,
            help="count from the other end",
        )
    return at


# --- creation -------------------------------------------------------------------------------


def _iota(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    (extent,) = _args(ctx, expr, name, 1, generics=1)
    dtype: AnyDType = DType.I64
    if expr.generics:
        dtype = dtype_argument(ctx, expr.generics[0], "Numeric")
    dim = check_extent(ctx, extent, "the length of `iota`")
    return typed.Prim("iota", (), (), TensorT((dim,), dtype), expr.span)


def _fill(ctx: Context, expr: ast.Call, name: str, expected: Type | None) -> Node:
    dims, value = _args(ctx, expr, name, 2, generics=1)
    shape = _dims_list(ctx, dims, name)
    written = dtype_argument(ctx, expr.generics[0], "DType") if expr.generics else None
    hint = written or dtype_of_hint(expected)
    node = check(ctx, value, of_dtype(hint) if hint else None)
    if isinstance(node, Flex):
        node = typed_as(ctx, node, hint or default_dtype(node))
    type_ = tensor(ctx, node, "`fill`")
    if type_.shape:
        raise ctx.fail(
            "E2202",
            f"`fill` takes a scalar, found `{show(type_)}`",
            node.span,
            help="to stretch a tensor, use `broadcast_to`",
        )
    if written is not None and type_.dtype != written:
        raise ctx.fail(
            "E2103",
            f"`fill<{written}>` takes `{written}`, found `{type_.dtype}`",
            node.span,
            help=f"convert it: `cast<{written}>({short(node.span)})`",
        )
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
