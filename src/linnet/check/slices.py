"""Slices: `x[0, :, 1:3]` outside of index notation, every bound proven."""

from __future__ import annotations

from linnet.check import typed
from linnet.check.context import Context, Flex
from linnet.check.dims import Dim
from linnet.check.expressions import check, check_dim, short, tensor, unproven
from linnet.check.typed import Pack, TensorT
from linnet.check.types import dtypes_of, show
from linnet.diagnostics import Note, Span
from linnet.syntax import ast


def check_slice(ctx: Context, expr: ast.Index, base: typed.Expr) -> typed.Expr:
    """The elements of `base` that a slice keeps."""
    type_ = tensor(ctx, base, "indexing")
    components = _expand_ellipsis(ctx, expr, type_)
    items: list[typed.Keep | typed.Range | typed.At] = []
    shape: list[typed.ShapeItem] = []
    for component, extent in zip(components, type_.shape, strict=True):
        if component is None:
            items.append(typed.Keep())
            shape.append(extent)
        elif isinstance(extent, Pack):
            raise ctx.fail(
                "E2204",
                f"`*{extent.name}` stands for any number of axes",
                component.span,
                help="keep them by `...`, as in `x[..., 0]`",
            )
        elif isinstance(component, ast.SliceRange):
            item, length = _range(ctx, component, extent)
            items.append(item)
            shape.append(length)
        elif isinstance(component, ast.Spread):
            raise ctx.fail(
                "E3106",
                "a pack indexes only in index notation",
                component.span,
                help="keep the axes of a pack by `...`",
            )
        else:
            items.append(typed.At(_position(ctx, component, extent)))
    return typed.Slice(base, tuple(items), TensorT(tuple(shape), type_.dtype), expr.span)


Component = ast.Expr | ast.SliceRange


def _expand_ellipsis(ctx: Context, expr: ast.Index, type_: TensorT) -> list[Component | None]:
    """One component for each item of the shape, None for an axis that is kept."""
    before: list[Component] = []
    after: list[Component] = []
    mark: Span | None = None
    for component in expr.components:
        if not isinstance(component, ast.EllipsisMark):
            (before if mark is None else after).append(component)
        elif mark is None:
            mark = component.span
        else:
            raise ctx.fail("E2209", "`...` stands once in an index", component.span)
    written, rank = len(before) + len(after), len(type_.shape)
    if written > rank or not expr.components:
        raise ctx.fail(
            "E2204",
            f"{written} {'index' if written == 1 else 'indices'} for the {rank} "
            f"{'axis' if rank == 1 else 'axes'} of `{show(type_)}`",
            expr.span,
            notes=[Note(f"this is `{show(type_)}`", expr.base.span)],
        )
    # Axes that are not mentioned are kept, as in `x[0]`.
    kept: list[Component | None] = [None] * (rank - written)
    return [*before, *kept, *after]


def _range(ctx: Context, part: ast.SliceRange, extent: Dim) -> tuple[typed.Range, Dim]:
    start = check_dim(ctx, part.start, "a slice's start") if part.start else Dim.const(0)
    stop = check_dim(ctx, part.stop, "a slice's end") if part.stop else extent
    step = check_dim(ctx, part.step, "a slice's step").constant if part.step else 1
    if step is None or step < 1:
        raise ctx.fail("E2209", "a slice's step must be a positive constant", part.span)
    for low, high, what in (
        (Dim.const(0), start, "its start {} at least 0"),
        (start, stop, "its start {} before its end"),
        (stop, extent, "its end {} within the axis"),
    ):
        if not ctx.facts.proves("<=", low, high):
            is_not, help = _why(ctx, low, "<=", high)
            raise ctx.fail(
                "E2209",
                f"the slice `{short(part.span)}` of an axis of `{extent}`: {what.format(is_not)}",
                part.span,
                help=help,
            )
    length = ctx.facts.simplify((stop - start + (step - 1)) // step)
    return typed.Range(start, stop, step), length


def _position(ctx: Context, component: ast.Expr, extent: Dim) -> Dim | typed.Expr:
    node = check(ctx, component)
    if isinstance(node, Flex):
        return in_range(ctx, node, extent)
    require_integer(ctx, node)
    return node


def in_range(ctx: Context, node: Flex, extent: Dim) -> Dim:
    """A compile-time position within an axis, or E2209."""
    at = node.value
    if not isinstance(at, Dim):
        raise ctx.fail("E2209", "an index must be an integer", node.span)
    for low, op, high in ((Dim.const(0), "<=", at), (at, "<", extent)):
        if not ctx.facts.proves(op, low, high):
            is_not, help = _why(ctx, low, op, high)
            raise ctx.fail(
                "E2209",
                f"the index `{at}` {is_not} within an axis of `{extent}`",
                node.span,
                help=help,
            )
    return at


def _why(ctx: Context, low: Dim, op: str, high: Dim) -> tuple[str, str | None]:
    """How a bound fails, in words, and what to do about it."""
    why = unproven(ctx, op, low, high)
    is_negative = high.constant is not None and high.constant < 0
    help = "no negative indices: count from the end as in `x[N - 1]`" if is_negative else why.help
    return why.words("is not", "is not proven to be"), help


def require_integer(ctx: Context, node: typed.Expr) -> None:
    """That a runtime position is a scalar integer, or E2209."""
    type_ = node.type
    is_integer = isinstance(type_, TensorT) and all(d.is_integer for d in dtypes_of(type_.dtype))
    if isinstance(type_, TensorT) and is_integer and not type_.shape:
        return
    raise ctx.fail(
        "E2209",
        f"an index must be a scalar integer, found `{show(type_)}`",
        node.span,
        help="look up many at once in index notation: `let y[i] = x[ids[i]]`"
        if is_integer
        else None,
    )
