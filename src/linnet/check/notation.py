"""Index notation: comprehensions, reductions, accesses.

An index has one extent, that of the first axis it is accessed by alone; every later axis must be
provably as long. Affine accesses (`x[2 * o + k]`) are proven to stay in range at the end, once all
extents are known.
"""

from __future__ import annotations

from linnet.check import typed
from linnet.check.context import AffineAccess, Comprehending, Context, Flex, IndexName, Node
from linnet.check.dims import Dim
from linnet.check.expressions import (
    check,
    check_value,
    default_dtype,
    rule,
    short,
    tensor,
    typed_as,
    unproven,
)
from linnet.check.names import resolve_block
from linnet.check.resolve import generic_value
from linnet.check.slices import check_slice, in_range, require_integer
from linnet.check.typed import Affine, GenericParam, Pack, PackSubscript, Shape, TensorT, Type
from linnet.check.types import dtype_of_hint, of_dtype, shapes_equal, show, show_shape
from linnet.diagnostics import Note, Span
from linnet.dtypes import DType
from linnet.syntax import ast

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
    indices = [_add_index(ctx, comprehending, *_index_of(output)) for output in outputs]
    outer, ctx.index = ctx.index, comprehending
    try:
        node = _element(ctx, body, dtype_of_hint(expected))
        for index in indices:
            if index.extent is None:
                raise _no_extent(ctx, comprehending, index)
        _prove_pending(ctx, comprehending)
    finally:
        ctx.index = outer
    shape: list[typed.ShapeItem] = []
    named: list[tuple[str, Dim | Shape]] = []
    for index in indices:
        assert index.extent is not None
        shape.extend((index.extent,) if isinstance(index.extent, Dim) else index.extent)
        named.append((index.name, index.extent))
    assert isinstance(node.type, TensorT)
    type_ = TensorT(tuple(shape), node.type.dtype)
    return typed.Comprehension(tuple(named), node, type_, span)


def _index_of(output: ast.Name | ast.Spread) -> tuple[ast.Name, bool]:
    return (output.name, True) if isinstance(output, ast.Spread) else (output, False)


def _add_index(
    ctx: Context, comprehending: Comprehending, name: ast.Name, is_pack: bool
) -> IndexName:
    ctx.refuse_prelude(name)
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


def _element(ctx: Context, body: ast.Expr, hint: typed.AnyDType | None) -> typed.Expr:
    """A body: one number for each choice of the indices."""
    node = check(ctx, body, of_dtype(hint) if hint else None)
    if isinstance(node, Flex):
        node = typed_as(ctx, node, hint or default_dtype(node))
    if not isinstance(node.type, TensorT):
        raise ctx.fail("E3104", f"index notation makes tensors, no `{show(node.type)}`", node.span)
    rank = len(node.type.shape)
    if rank:
        letters = ", ".join("ijklmnpqrs"[:rank])
        raise ctx.fail(
            "E3104",
            f"`{show(node.type)}` is a whole tensor: in index notation each of its axes has an "
            "index",
            node.span,
            help=f"as in `{short(node.span)}[{letters}]`",
        )
    return node


def _no_extent(ctx: Context, comprehending: Comprehending, index: IndexName) -> Exception:
    used = [a for a in comprehending.pending if any(i is index for i, _ in a.terms)]
    if used:
        return ctx.fail(
            "E3103",
            f"how far `{index.name}` runs is not known: it stands alone in no access",
            index.span,
            notes=[Note("it is used here", used[0].span)],
            help=f"index a tensor of the extent wanted by `{index.name}` alone",
        )
    star = "*" if index.is_pack else ""
    return ctx.fail(
        "E3103",
        f"the output index `{star}{index.name}` indexes nothing",
        index.span,
        help="to repeat a value along an axis, use `broadcast_to` or `fill`",
    )


def _prove_pending(ctx: Context, comprehending: Comprehending) -> None:
    for access in comprehending.pending:
        facts = ctx.facts
        position = access.offset
        for index, coefficient in access.terms:
            if not isinstance(index.extent, Dim):
                raise _no_extent(ctx, comprehending, index)
            # A name that no source has, so that it can't meet a generic of the same name.
            variable = Dim.var(f"{index.name}'")
            facts = facts.with_fact("<", variable, index.extent)
            position = position + coefficient * variable
        if not (facts.nonnegative(position) and facts.proves("<", position, access.extent)):
            raise ctx.fail(
                "E2209",
                f"`{short(access.span)}` is not proven to stay within an axis of `{access.extent}`",
                access.span,
                label=_reach(access),
                notes=[
                    Note(f"`{index.name}` runs over `{index.extent}`", index.extent_span)
                    for index, _ in access.terms
                ],
            )


def _reach(access: AffineAccess) -> str:
    """How far an access that only grows with its indices goes."""
    last = access.offset
    for index, coefficient in access.terms:
        if (coefficient.constant or 0) <= 0 or not isinstance(index.extent, Dim):
            return ""
        last = last + coefficient * (index.extent - 1)
    return f"up to `{last}`"


# --- reductions -----------------------------------------------------------------------------


@rule(ast.Reduction)
def _reduction(ctx: Context, expr: ast.Reduction, expected: Type | None) -> Node:
    comprehending = ctx.index
    if comprehending is None:
        return check_comprehension(ctx, (), expr, expr.span, expected)
    added = [_add_index(ctx, comprehending, name, False) for name in expr.indices]
    dtype = None
    if expr.dtype is not None:
        dtype = dtype_argument(ctx, ast.NameExpr(expr.dtype.text, expr.dtype.span), "DType")
    node = _element(ctx, expr.body, dtype or dtype_of_hint(expected))
    assert isinstance(node.type, TensorT)
    found = node.type.dtype
    if (expr.op in ("any", "all")) != (found == DType.BOOL):
        raise ctx.fail(
            "E2104",
            f"`{expr.op}` is not defined for `{found}`",
            expr.span,
            help=_reduction_help(expr.op, found),
        )
    if dtype is not None and found != dtype:
        raise ctx.fail(
            "E2103",
            f"`{expr.op}<{dtype}>` accumulates `{dtype}`, its body is `{found}`",
            node.span,
            help=f"convert the body: `cast<{dtype}>({short(node.span)})`",
        )
    indices: list[tuple[str, Dim]] = []
    for index in added:
        if index.extent is None and any(
            i is index for a in comprehending.pending for i, _ in a.terms
        ):
            raise _no_extent(ctx, comprehending, index)
        if not isinstance(index.extent, Dim):
            raise ctx.fail(
                "E3102", f"the reduced index `{index.name}` indexes nothing", index.span,
                help="leave it out, or index what it shall run over by it",
            )  # fmt: skip
        indices.append((index.name, index.extent))
        del comprehending.indices[index.name]
    return typed.Reduce(expr.op, tuple(indices), node, node.type, expr.span)


def _reduction_help(op: str, found: typed.AnyDType) -> str | None:
    if found == DType.BOOL:
        return "count with `sum` of `select(c, 1, 0)`"
    return f"compare first, as in `{op}[i] x[i] != 0`" if isinstance(found, DType) else None


def dtype_argument(ctx: Context, arg: ast.GenericArg, kind: str) -> typed.AnyDType:
    """A dtype written between `<` and `>`."""
    dtype = generic_value(ctx, arg, GenericParam("T", kind, None))
    assert isinstance(dtype, DType | typed.DTypeVar)
    return dtype


# --- accesses -------------------------------------------------------------------------------


@rule(ast.Index)
def _index(ctx: Context, expr: ast.Index, expected: Type | None) -> Node:
    with ctx.without_indices("what is indexed"):
        if resolve_block(ctx, expr.base) is not None:
            raise ctx.fail(
                "E1208",
                f"the block `{short(expr.span)}` is not a value",
                expr.span,
                help="call one of its methods",
            )
        base = check_value(ctx, expr.base)
    return _access(ctx, expr, base) if ctx.index is not None else check_slice(ctx, expr, base)


def _access(ctx: Context, expr: ast.Index, base: typed.Expr) -> typed.Expr:
    """`a[m, labels[b], *s]` inside a comprehension."""
    type_ = tensor(ctx, base, "indexing")
    components: list[ast.Expr] = []
    for component in expr.components:
        if isinstance(component, ast.EllipsisMark | ast.SliceRange):
            raise ctx.fail(
                "E3104", "index notation takes an index for each axis, no slices", component.span,
                help="slice the tensor before, by `let`",
            )  # fmt: skip
        components.append(component)
    packs = [c for c in components if isinstance(c, ast.Spread)]
    if len(packs) > 1:
        raise ctx.fail("E3106", "one pack stands in an access", packs[1].span)
    covered = len(type_.shape) - (len(components) - len(packs))
    if covered < 0 or (covered and not packs):
        raise _wrong_number(ctx, expr, len(components), type_)
    subscripts: list[Affine | PackSubscript | typed.Expr] = []
    at = 0
    for component in components:
        if isinstance(component, ast.Spread):
            subscripts.append(_pack_access(ctx, component, type_.shape[at : at + covered]))
            at += covered
            continue
        extent = type_.shape[at]
        at += 1
        if isinstance(extent, Pack):
            raise ctx.fail(
                "E3106",
                f"`*{extent.name}` stands for any number of axes and needs a pack of indices",
                component.span,
                help="as in `x[*s, i]`",
            )
        subscripts.append(_subscript(ctx, component, extent))
    return typed.Access(base, tuple(subscripts), TensorT((), type_.dtype), expr.span)


def _wrong_number(ctx: Context, expr: ast.Index, found: int, type_: TensorT) -> Exception:
    rank = len(type_.shape)
    return ctx.fail(
        "E2204",
        f"{found} {'index' if found == 1 else 'indices'} for the {rank} "
        f"{'axis' if rank == 1 else 'axes'} of `{show(type_)}`",
        expr.span,
        notes=[Note(f"this is `{show(type_)}`", expr.base.span)],
    )


def _pack_access(ctx: Context, spread: ast.Spread, run: Shape) -> PackSubscript:
    assert ctx.index is not None
    name = spread.name.text
    index = ctx.index.indices.get(name)
    if index is None:
        raise ctx.fail(
            "E3101",
            f"the pack `*{name}` is no output index",
            spread.span,
            help=f"list it on the left: `let y[*{name}] = …`",
        )
    if not index.is_pack:
        raise ctx.fail(
            "E3106", f"`{name}` is one index, not a pack", spread.span, help=f"write `{name}`"
        )
    if index.extent is None:
        index.extent, index.extent_span = run, spread.span
        return PackSubscript(name)
    known = index.extent
    assert not isinstance(known, Dim)
    if not shapes_equal(known, run, ctx.facts):
        raise ctx.fail(
            "E2201",
            f"the pack `*{name}` runs over `[{show_shape(known)}]` and `[{show_shape(run)}]`",
            spread.span,
            notes=[Note(f"here it runs over `[{show_shape(known)}]`", index.extent_span)],
        )
    return PackSubscript(name)


def _subscript(ctx: Context, expr: ast.Expr, extent: Dim) -> Affine | typed.Expr:
    comprehending = ctx.index
    assert comprehending is not None
    affine = _affine(ctx, expr) if _has_index(ctx, expr) else None
    if affine is None:
        _refuse_unknown(ctx, expr)
        node = check(ctx, expr)
        if isinstance(node, Flex):
            return Affine((), in_range(ctx, node, extent))
        require_integer(ctx, node)
        return node
    if not affine.terms:
        return Affine((), in_range(ctx, Flex(affine.offset, expr.span), extent))
    ((name, factor), *others) = affine.terms
    if not others and factor.constant == 1 and affine.offset.constant == 0:
        _meet(ctx, comprehending.indices[name], extent, expr.span)
    else:
        terms = [(comprehending.indices[name], factor) for name, factor in affine.terms]
        comprehending.pending.append(AffineAccess(terms, affine.offset, extent, expr.span))
    return affine


def _meet(ctx: Context, index: IndexName, extent: Dim, span: Span) -> None:
    """An axis indexed by just this index: the first gives its extent, the others must agree."""
    known = index.extent
    if known is None:
        index.extent, index.extent_span = extent, span
    elif not (isinstance(known, Dim) and ctx.facts.equal(known, extent)):
        assert isinstance(known, Dim)
        raise ctx.fail(
            "E2201",
            f"the index `{index.name}` runs over `{known}` and `{extent}`",
            span,
            notes=[Note(f"here it runs over `{known}`", index.extent_span)],
            help=unproven(ctx, "==", known, extent).help,
        )


# --- affine subscripts ----------------------------------------------------------------------


def _has_index(ctx: Context, expr: ast.Expr) -> bool:
    """Whether an index stands in the arithmetic of a subscript (not in an access inside it)."""
    assert ctx.index is not None
    match expr:
        case ast.NameExpr(name, _):
            return name in ctx.index.indices
        case ast.Unary(_, operand, _):
            return _has_index(ctx, operand)
        case ast.Binary(_, left, right, _, _):
            return _has_index(ctx, left) or _has_index(ctx, right)
    return False


def _affine(ctx: Context, expr: ast.Expr) -> Affine | None:
    """A sum of indices with compile-time coefficients; None for anything else.

    It looks at each part of the arithmetic once and into no access, so that it stays linear.
    """
    assert ctx.index is not None
    match expr:
        case ast.NameExpr(name, span) if name in ctx.index.indices:
            if ctx.index.indices[name].is_pack:
                raise ctx.fail(
                    "E3106", f"`{name}` is a pack of indices", span, help=f"write `*{name}`"
                )
            return Affine(((name, Dim.const(1)),), Dim.const(0))
        case ast.Unary("-" | "+" as op, operand, _):
            affine = _affine(ctx, operand)
            return affine and _scaled(affine, Dim.const(-1 if op == "-" else 1))
        case ast.Binary("+" | "-" as op, left, right, _, _):
            a, b = _affine(ctx, left), _affine(ctx, right)
            if a is None or b is None:
                return None
            return _sum(a, b if op == "+" else _scaled(b, Dim.const(-1)))
        case ast.Binary("*", left, right, _, _):
            a, b = _affine(ctx, left), _affine(ctx, right)
            if a is None or b is None or (a.terms and b.terms):
                return None
            return _scaled(b, a.offset) if not a.terms else _scaled(a, b.offset)
    return None if _has_index(ctx, expr) else _constant(ctx, expr)


def _scaled(affine: Affine, factor: Dim) -> Affine:
    terms = tuple((n, c * factor) for n, c in affine.terms)
    return Affine(tuple((n, c) for n, c in terms if c.terms), affine.offset * factor)


def _sum(a: Affine, b: Affine) -> Affine:
    terms = dict(a.terms)
    for name, coefficient in b.terms:
        terms[name] = terms.get(name, Dim.const(0)) + coefficient
    return Affine(tuple((n, c) for n, c in terms.items() if c.terms), a.offset + b.offset)


def _constant(ctx: Context, expr: ast.Expr) -> Affine | None:
    """A part without indices, where it is a compile-time integer."""
    if not _is_plain(expr):
        return None
    _refuse_unknown(ctx, expr)
    node = check(ctx, expr)
    if isinstance(node, Flex) and isinstance(node.value, Dim):
        return Affine((), node.value)
    return None


def _is_plain(expr: ast.Expr) -> bool:
    """Whether an expression is arithmetic on names and literals, cheap to look at twice."""
    match expr:
        case ast.NameExpr() | ast.IntLiteral():
            return True
        case ast.Unary(_, operand, _):
            return _is_plain(operand)
        case ast.Binary(_, left, right, _, _):
            return _is_plain(left) and _is_plain(right)
        case ast.Call(ast.NameExpr("min" | "max"), None, args, _):
            return all(_is_plain(arg.value) for arg in args)
    return False


def _refuse_unknown(ctx: Context, expr: ast.Expr) -> None:
    """E3101 for a name in a subscript's arithmetic that means nothing: a forgotten index."""
    match expr:
        case ast.Unary(_, operand, _):
            _refuse_unknown(ctx, operand)
        case ast.Binary(_, left, right, _, _):
            _refuse_unknown(ctx, left)
            _refuse_unknown(ctx, right)
        case ast.NameExpr(name, span):
            assert ctx.index is not None
            is_known = (
                name in ctx.index.indices
                or ctx.local(name) is not None
                or name in ctx.generics
                or (ctx.block is not None and name in ctx.block.members)
                or ctx.scope.find(name) is not None
            )
            if not is_known:
                ctx.refuse_hidden(name, span)
                raise ctx.fail(
                    "E3101",
                    f"the index `{name}` is neither an output index nor reduced",
                    span,
                    help=f"list it on the left, or reduce over it: `sum[{name}] …`",
                )
