"""Slices, and index notation: comprehensions, accesses, reductions.

An index has one extent, that of the first axis it is accessed by; every later axis must be
provably as long. Affine accesses (`x[2 * o + k]`) are proven to stay in range at the end, once all
extents are known.
"""

from __future__ import annotations

from linnet.check import typed
from linnet.check.dims import Dim
from linnet.check.expressions import (
    check,
    check_dim,
    check_value,
    default_dtype,
    resolve_block,
    tensor,
    typed_as,
)
from linnet.check.scope import Comprehending, Context, Flex, IndexName
from linnet.check.typed import Affine, Pack, PackSubscript, Shape, TensorT, Type
from linnet.check.types import items_equal, show, show_shape
from linnet.diagnostics import Note, Span
from linnet.dtypes import DType
from linnet.syntax import ast

# --- slices ---------------------------------------------------------------------------------


def check_slice(ctx: Context, expr: ast.Index) -> typed.Expr:
    """`x[0, :, 1:3]` outside of index notation."""
    base = _base(ctx, expr)
    type_ = tensor(ctx, base, "indexing")
    components = _expand_ellipsis(ctx, expr, type_)
    items: list[typed.Keep | typed.Range | typed.At] = []
    shape: list[typed.ShapeItem] = []
    for component, extent in zip(components, type_.shape, strict=True):
        if component is None:
            items.append(typed.Keep())
            shape.append(extent)
            continue
        if isinstance(extent, Pack):
            raise ctx.fail(
                "E2204", f"`*{extent.name}` stands for several axes: keep them by `...`",
                expr.span,
            )  # fmt: skip
        if isinstance(component, ast.SliceRange):
            item, length = _range(ctx, component, extent)
            items.append(item)
            shape.append(length)
        elif isinstance(component, ast.Spread):
            raise ctx.fail("E3106", "a pack indexes only in index notation", component.span)
        else:
            items.append(_at(ctx, component, extent))
    return typed.Slice(base, tuple(items), TensorT(tuple(shape), type_.dtype), expr.span)


def _base(ctx: Context, expr: ast.Index) -> typed.Expr:
    index, ctx.index = ctx.index, None
    try:
        if resolve_block(ctx, expr.base) is not None:
            raise ctx.fail(
                "E1208", f"the block `{expr.span.text}` is not a value", expr.span,
                help="call one of its methods",
            )  # fmt: skip
        return check_value(ctx, expr.base)
    finally:
        ctx.index = index


def _expand_ellipsis(
    ctx: Context, expr: ast.Index, type_: TensorT
) -> list[ast.Expr | ast.SliceRange | None]:
    """One component for each item of the shape, None for an axis that `...` keeps."""
    marks = [i for i, c in enumerate(expr.components) if isinstance(c, ast.EllipsisMark)]
    components = list(expr.components)
    rank = len(type_.shape)
    if len(marks) > 1:
        raise ctx.fail("E2209", "`...` stands once in an index", components[marks[1]].span)
    if marks:
        missing = rank - (len(components) - 1)
        if missing >= 0:
            kept: list[ast.Expr | ast.SliceRange | None] = [None] * missing
            at = marks[0]
            return [*components[:at], *kept, *components[at + 1 :]]  # type: ignore[list-item]
    # Axes that are not mentioned are kept, as in `x[0]`.
    if len(components) - len(marks) <= rank and components and not marks:
        rest: list[ast.Expr | ast.SliceRange | None] = [None] * (rank - len(components))
        return [*components, *rest]  # type: ignore[list-item]
    raise ctx.fail(
        "E2204",
        f"{len(components) - len(marks)} indices for the {rank} axes of `{show(type_)}`",
        expr.span,
        notes=[Note(f"this is `{show(type_)}`", expr.base.span)],
    )


def _range(ctx: Context, part: ast.SliceRange, extent: Dim) -> tuple[typed.Range, Dim]:
    start = check_dim(ctx, part.start, "a slice's start") if part.start else Dim.const(0)
    stop = check_dim(ctx, part.stop, "a slice's end") if part.stop else extent
    step = check_dim(ctx, part.step, "a slice's step").constant if part.step else 1
    if step is None or step < 1:
        raise ctx.fail("E2209", "a slice's step must be a positive constant", part.span)
    for low, high, what in (
        (Dim.const(0), start, "its start is at least 0"),
        (start, stop, "its start is no later than its end"),
        (stop, extent, f"its end is at most `{extent}`"),
    ):
        if not ctx.facts.proves("<=", low, high):
            raise ctx.fail(
                "E2209",
                f"the slice `{part.span.text}` of an axis of `{extent}`: not proven that {what}",
                part.span,
                help=_bound_help(low, high, start),
            )
    length = ctx.facts.simplify((stop - start + (step - 1)) // step)
    return typed.Range(start, stop, step), length


def _bound_help(low: Dim, high: Dim, start: Dim) -> str | None:
    if start.constant is not None and start.constant < 0:
        return "there are no negative indices: count from the end as `N - 1`"
    if low.constant is not None and high.constant is not None:
        return None
    return f"add `where {low} <= {high}`"


def _at(ctx: Context, component: ast.Expr, extent: Dim) -> typed.At:
    node = check(ctx, component)
    if isinstance(node, Flex):
        return typed.At(_in_range(ctx, node, extent))
    _require_integer(ctx, node)
    return typed.At(node)


def _in_range(ctx: Context, node: Flex, extent: Dim) -> Dim:
    if not isinstance(node.value, Dim):
        raise ctx.fail("E2209", "an index must be an integer", node.span)
    if not (ctx.facts.nonnegative(node.value) and ctx.facts.proves("<", node.value, extent)):
        negative = node.value.constant is not None and node.value.constant < 0
        raise ctx.fail(
            "E2209",
            f"the index `{node.value}` is not proven to be within an axis of `{extent}`",
            node.span,
            help="there are no negative indices: count from the end as `N - 1`"
            if negative
            else None,
        )
    return node.value


def _require_integer(ctx: Context, node: typed.Expr) -> None:
    type_ = node.type
    if not (isinstance(type_, TensorT) and not type_.shape and _is_integer(type_)):
        raise ctx.fail(
            "E2209", f"an index must be a scalar integer, found `{show(node.type)}`", node.span
        )


def _is_integer(type_: TensorT) -> bool:
    from linnet.check.types import dtypes_of

    return all(d.is_integer for d in dtypes_of(type_.dtype))


# --- comprehensions -------------------------------------------------------------------------


def check_comprehension(
    ctx: Context,
    outputs: tuple[ast.Name | ast.Spread, ...],
    body: ast.Expr,
    span: Span,
    expected: Type | None,
) -> typed.Comprehension:
    """`let name[outputs] = body`; without outputs, a reduction that stands by itself."""
    comprehending = Comprehending()
    for output in outputs:
        name = output.name if isinstance(output, ast.Spread) else output
        _add_index(ctx, comprehending, name, isinstance(output, ast.Spread))
    outer, ctx.index = ctx.index, comprehending
    try:
        hint = TensorT((), expected.dtype) if isinstance(expected, TensorT) else None
        node = check(ctx, body, hint)
        if isinstance(node, Flex):
            node = typed_as(ctx, node, hint.dtype if hint else default_dtype(node))
        type_ = tensor(ctx, node, "index notation")
        _require_scalar(ctx, node, type_)
        indices = [comprehending.indices[_text(output)] for output in outputs]
        for index in indices:
            if index.extent is None:
                raise ctx.fail(
                    "E3103",
                    f"the output index `{index.name}` indexes nothing, so its extent is not known",
                    index.span,
                    help="index a tensor by it, or use `iota(N)[i]`, `broadcast_to` or `fill`",
                )
        _prove_pending(ctx, comprehending)
    finally:
        ctx.index = outer
    shape: list[typed.ShapeItem] = []
    for index in indices:
        if isinstance(index.extent, Dim):
            shape.append(index.extent)
        else:
            assert index.extent is not None
            shape.extend(index.extent)
    named = tuple((i.name, i.extent) for i in indices if i.extent is not None)
    return typed.Comprehension(named, node, TensorT(tuple(shape), type_.dtype), span)


def _text(output: ast.Name | ast.Spread) -> str:
    return output.name.text if isinstance(output, ast.Spread) else output.text


def _add_index(
    ctx: Context, comprehending: Comprehending, name: ast.Name, is_pack: bool
) -> IndexName:
    if name.text in comprehending.indices:
        raise ctx.fail(
            "E3105",
            f"the index `{name.text}` is listed twice",
            name.span,
            notes=[Note("first here", comprehending.indices[name.text].span)],
        )
    index = IndexName(name.text, name.span, is_pack)
    comprehending.indices[name.text] = index
    return index


def _require_scalar(ctx: Context, node: typed.Expr, type_: TensorT) -> None:
    if type_.shape:
        raise ctx.fail(
            "E3104",
            f"`{show(type_)}` is a whole tensor: in index notation it needs an index for each "
            "axis",
            node.span,
            help=f"`{node.span.text}[{', '.join('ijklmn'[: len(type_.shape)])}]`",
        )


def _prove_pending(ctx: Context, comprehending: Comprehending) -> None:
    for terms, offset, extent, span in comprehending.pending:
        facts = ctx.facts
        position = offset
        for index, coefficient in terms:
            if not isinstance(index.extent, Dim):
                raise ctx.fail(
                    "E3103",
                    f"the extent of `{index.name}` is not known: it stands alone in no access",
                    index.span,
                )
            # A name that no source has, so that it can't meet a generic of the same name.
            variable = Dim.var(f"{index.name}'")
            facts = facts.with_fact("<", variable, index.extent)
            position = position + coefficient * variable
        if not (facts.nonnegative(position) and facts.proves("<", position, extent)):
            raise ctx.fail(
                "E2209",
                f"`{span.text}` is not proven to stay within an axis of `{extent}`",
                span,
            )


def check_reduction(
    ctx: Context, expr: ast.Reduction, expected: Type | None
) -> typed.Reduce:
    """`sum<f32>[k] body`, inside a comprehension."""
    comprehending = ctx.index
    assert comprehending is not None
    added = [_add_index(ctx, comprehending, name, False) for name in expr.indices]
    dtype = _accumulator(ctx, expr)
    hint = TensorT((), dtype) if dtype else expected
    node = check(ctx, expr.body, hint)
    if isinstance(node, Flex):
        node = typed_as(
            ctx, node, hint.dtype if isinstance(hint, TensorT) else default_dtype(node)
        )
    type_ = tensor(ctx, node, f"`{expr.op}`")
    _require_scalar(ctx, node, type_)
    is_logical = expr.op in ("any", "all")
    is_bool = type_.dtype == DType.BOOL
    if is_logical != is_bool:
        raise ctx.fail(
            "E2104", f"`{expr.op}` is not defined for `{type_.dtype}`", expr.span,
            help="count with `sum` of `select(c, 1, 0)`" if is_bool else None,
        )  # fmt: skip
    if dtype is not None and type_.dtype != dtype:
        raise ctx.fail(
            "E2103",
            f"`{expr.op}<{dtype}>` adds up `{dtype}`, its body is `{type_.dtype}`",
            node.span,
            help=f"convert the body: `cast<{dtype}>(…)`",
        )
    indices: list[tuple[str, Dim]] = []
    for index in added:
        if not isinstance(index.extent, Dim):
            raise ctx.fail(
                "E3102", f"the reduced index `{index.name}` indexes nothing", index.span
            )
        indices.append((index.name, index.extent))
        del comprehending.indices[index.name]
    return typed.Reduce(expr.op, tuple(indices), node, type_, expr.span)


def _accumulator(ctx: Context, expr: ast.Reduction) -> typed.AnyDType | None:
    if expr.dtype is None:
        return None
    from linnet.check.calls import generic_value

    name = ast.NameExpr(expr.dtype.text, expr.dtype.span)
    dtype = generic_value(ctx, name, typed.GenericParam("T", "DType", None))
    assert isinstance(dtype, DType | typed.DTypeVar)
    return dtype


# --- accesses -------------------------------------------------------------------------------


def check_access(ctx: Context, expr: ast.Index) -> typed.Expr:
    """`a[m, labels[b], *s]` inside a comprehension."""
    comprehending = ctx.index
    assert comprehending is not None
    if isinstance(expr.base, ast.NameExpr) and expr.base.text in comprehending.indices:
        raise ctx.fail("E3104", f"the index `{expr.base.text}` is not a tensor", expr.base.span)
    base = _base(ctx, expr)
    type_ = tensor(ctx, base, "indexing")
    components = _spread_first(ctx, expr)
    packs = [i for i, c in enumerate(components) if isinstance(c, ast.Spread)]
    if len(packs) > 1:
        raise ctx.fail("E3106", "one pack stands in an access", components[packs[1]].span)
    covered = len(type_.shape) - (len(components) - len(packs))
    if covered < 0 or (covered and not packs):
        raise ctx.fail(
            "E2204",
            f"{len(components)} indices for the {len(type_.shape)} axes of `{show(type_)}`",
            expr.span,
            notes=[Note(f"this is `{show(type_)}`", expr.base.span)],
        )
    subscripts: list[Affine | PackSubscript | typed.Expr] = []
    at = 0
    for component in components:
        if isinstance(component, ast.Spread):
            run = type_.shape[at : at + covered]
            subscripts.append(_pack_access(ctx, component, run))
            at += covered
            continue
        extent = type_.shape[at]
        at += 1
        if isinstance(extent, Pack):
            raise ctx.fail(
                "E3106",
                f"`*{extent.name}` stands for several axes and needs a pack of indices",
                component.span,
                help="as in `x[*s, i]`",
            )
        subscripts.append(_subscript(ctx, component, extent))
    return typed.Access(base, tuple(subscripts), TensorT((), type_.dtype), expr.span)


def _spread_first(ctx: Context, expr: ast.Index) -> list[ast.Expr]:
    for component in expr.components:
        if isinstance(component, ast.EllipsisMark | ast.SliceRange):
            raise ctx.fail(
                "E3104", "index notation takes an index for each axis, no slices", component.span
            )
    return list(expr.components)  # type: ignore[arg-type]


def _pack_access(ctx: Context, spread: ast.Spread, run: Shape) -> PackSubscript:
    assert ctx.index is not None
    name = spread.name.text
    index = ctx.index.indices.get(name)
    if index is None:
        raise ctx.fail("E3101", f"the pack `*{name}` is no output index", spread.span)
    if not index.is_pack:
        raise ctx.fail(
            "E3106", f"`{name}` is one index, not a pack", spread.span, help=f"write `{name}`"
        )
    if index.extent is None:
        index.extent, index.extent_span = run, spread.span
    else:
        known = index.extent
        assert not isinstance(known, Dim)
        same = len(known) == len(run) and all(
            items_equal(a, b, ctx.facts) for a, b in zip(known, run, strict=True)
        )
        if not same:
            raise ctx.fail(
                "E2201",
                f"the pack `*{name}` is `[{show_shape(known)}]` and `[{show_shape(run)}]`",
                spread.span,
                notes=[Note("first used here", index.extent_span)],
            )
    return PackSubscript(name)


def _subscript(ctx: Context, expr: ast.Expr, extent: Dim) -> Affine | typed.Expr:
    comprehending = ctx.index
    assert comprehending is not None
    affine = _affine(ctx, expr)
    if affine is None:
        node = check(ctx, expr)
        if isinstance(node, Flex):
            return Affine((), _in_range(ctx, node, extent))
        _require_integer(ctx, node)
        return node
    if not affine.terms:
        return Affine((), _in_range(ctx, Flex(affine.offset, expr.span), extent))
    is_plain = len(affine.terms) == 1 and affine.terms[0][1].constant == 1
    if is_plain and affine.offset.constant == 0:
        _meet(ctx, comprehending.indices[affine.terms[0][0]], extent, expr.span)
    else:
        terms = [(comprehending.indices[name], factor) for name, factor in affine.terms]
        comprehending.pending.append((terms, affine.offset, extent, expr.span))
    return affine


def _meet(ctx: Context, index: IndexName, extent: Dim, span: Span) -> None:
    """An axis indexed by just this index: the first gives its extent, the others must agree."""
    if index.extent is None:
        index.extent, index.extent_span = extent, span
    elif not (isinstance(index.extent, Dim) and items_equal(index.extent, extent, ctx.facts)):
        raise ctx.fail(
            "E2201",
            f"the index `{index.name}` has the extents `{index.extent}` and `{extent}`",
            span,
            notes=[Note(f"here it runs over `{index.extent}`", index.extent_span)],
        )


def _affine(ctx: Context, expr: ast.Expr) -> Affine | None:
    """A sum of indices with compile-time coefficients; None for anything else."""
    assert ctx.index is not None
    match expr:
        case ast.NameExpr(name, span):
            index = ctx.index.indices.get(name)
            if index is not None:
                if index.is_pack:
                    raise ctx.fail(
                        "E3106", f"`{name}` is a pack of indices", span, help=f"write `*{name}`"
                    )
                return Affine(((name, Dim.const(1)),), Dim.const(0))
            known = (
                ctx.local(name) is not None
                or name in ctx.generics
                or (ctx.block is not None and name in ctx.block.members)
                or ctx.scope.find(name) is not None
            )
            if not known:
                raise ctx.fail(
                    "E3101",
                    f"the index `{name}` is neither an output index nor reduced",
                    span,
                    help=f"list it on the left, or reduce over it: `sum[{name}] …`",
                )
            return _constant_affine(ctx, expr)
        case ast.Binary("+" | "-" as op, left, right, _, _):
            a, b = _affine(ctx, left), _affine(ctx, right)
            if a is None or b is None:
                return None
            sign = 1 if op == "+" else -1
            terms = dict(a.terms)
            for name, coefficient in b.terms:
                terms[name] = terms.get(name, Dim.const(0)) + coefficient * sign
            kept = tuple((n, c) for n, c in terms.items() if c.terms)
            return Affine(kept, a.offset + b.offset * sign)
        case ast.Binary("*", left, right, _, _):
            a, b = _affine(ctx, left), _affine(ctx, right)
            if a is None or b is None or (a.terms and b.terms):
                return None
            factor, affine = (a.offset, b) if not a.terms else (b.offset, a)
            terms_ = tuple((n, c * factor) for n, c in affine.terms)
            return Affine(terms_, affine.offset * factor)
        case ast.IntLiteral():
            return Affine((), Dim.const(expr.value))
    return None


def _constant_affine(ctx: Context, expr: ast.NameExpr) -> Affine | None:
    node = check(ctx, expr)
    if isinstance(node, Flex) and isinstance(node.value, Dim):
        return Affine((), node.value)
    return None
