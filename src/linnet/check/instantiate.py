"""One use of a function: its generics there, its arguments' types, its `where` proven.

Generics are settled in this order: what is written, what the arguments' types say, what the place
of the result says, a generic's default, the default dtype of a number.
"""

from __future__ import annotations

from linnet.check import typed
from linnet.check.context import Context, Flex, Node
from linnet.check.dims import Dim
from linnet.check.expressions import (
    axis_notes,
    check,
    default_dtype,
    require,
    short,
    typed_as,
    unproven,
)
from linnet.check.infer import Unifier
from linnet.check.resolve import generic_value, plural
from linnet.check.target import Target
from linnet.check.typed import (
    DTypeVar,
    GenericParam,
    GenericValue,
    OptionalT,
    Pack,
    TensorT,
    Type,
)
from linnet.check.types import (
    MARK,
    Binding,
    describe_dtype,
    dtype_of_hint,
    dtypes_of,
    is_dtype_only,
    is_marked,
    mismatch,
    show,
    show_generic,
    types_equal,
    unmarked,
)
from linnet.diagnostics import Note, Span
from linnet.dtypes import KINDS
from linnet.syntax import ast


def instantiate(
    ctx: Context,
    expr: ast.Call,
    target: Target,
    args: list[ast.Arg | None],
    expected: Type | None,
) -> Node:
    """The typed call, or struct; `args` stand in the order of the parameters."""
    signature = target.signature
    marked = _fresh(target)
    for generic in signature.generics:
        marked.bind(generic.name, _unknown(generic))
    unifier = Unifier(ctx.facts)
    _bind_written(ctx, expr, target, unifier)
    nodes = [
        None if arg is None else _argument(ctx, arg, param, target, unifier, marked)
        for param, arg in zip(signature.params, args, strict=True)
    ]
    unifier.finish(frozenset(g.name + MARK for g in signature.generics if g.kind == "Dim"))
    if expected is not None and signature.result is not None:
        _from_result(unifier, marked.type(signature.result), expected, signature.generics)
    generics = _settle(ctx, expr, target, unifier, _number_dtypes(target, nodes))
    final = _fresh(target)
    for name, value in generics:
        final.bind(name, value)
    values = tuple(_fit(ctx, target, nodes, final))
    for fact, span in signature.where:
        prove(ctx, fact, final, f"`{target.name}`", expr.span, span)
    if signature.result is None:
        raise ctx.fail(
            "E2101",
            f"`{target.name}` gives nothing back",
            expr.span,
            notes=[target.declared],
        )
    result = final.type(signature.result)
    if target.entity.kind == "struct":
        assert isinstance(result, typed.StructT)
        return typed.MakeTuple(values, result, expr.span)
    ctx.calls.setdefault(target.entity.key, expr.span)
    return typed.Call(target.entity.key, target.block, generics, values, result, expr.span)


def _fresh(target: Target) -> Binding:
    given = target.given
    return Binding(dict(given.dims), dict(given.dtypes), dict(given.packs))


def _unknown(generic: GenericParam) -> GenericValue:
    name = generic.name + MARK
    if generic.kind == "Dim":
        return Dim.var(name)
    return (Pack(name),) if generic.kind == "Shape" else DTypeVar(name, generic.kind)


def _bind_written(ctx: Context, expr: ast.Call, target: Target, unifier: Unifier) -> None:
    if expr.generics is None:
        return
    params = target.signature.generics
    if len(expr.generics) > len(params):
        raise ctx.fail(
            "E2111",
            f"`{target.name}` takes {plural(len(params), 'generic argument')}, "
            f"found {len(expr.generics)}",
            expr.span,
            notes=[target.declared],
        )
    for param, arg in zip(params, expr.generics, strict=False):
        unifier.binding.bind(param.name + MARK, generic_value(ctx, arg, param))


def _argument(
    ctx: Context,
    arg: ast.Arg,
    param: typed.Param,
    target: Target,
    unifier: Unifier,
    marked: Binding,
) -> Node:
    """An argument's node; what its type tells about the generics goes to the unifier."""
    pattern = unifier.binding.type(marked.type(param.type))
    node = check(ctx, arg.value, unmarked(pattern))
    if isinstance(node, Flex):
        return node
    if is_marked(node.type):
        # An argument's own `none` may wait for its type until all is settled; nothing else can.
        if isinstance(node, typed.NoneValue):
            return node
        raise ctx.fail(
            "E2113",
            "which type this `none` has is not known here",
            node.span,
            help="name it with its type: `let x: Tensor[…; T]? = …`",
        )
    if not unifier.unify(pattern, node.type):
        _require_fit(ctx, node, unifier.binding.type(pattern), param.name, target)
    return node


def _from_result(
    unifier: Unifier, result: Type, expected: Type, generics: tuple[GenericParam, ...]
) -> None:
    """What is still unknown may follow from where the result goes; a misfit is found later."""
    result = unifier.binding.type(result)
    dtype = dtype_of_hint(expected)
    if is_dtype_only(expected) and isinstance(result, TensorT):
        expected = TensorT(result.shape, dtype) if dtype else result
    trial = Unifier(unifier.facts)
    if not trial.unify(result, expected):
        return
    names = frozenset(g.name + MARK for g in generics if g.kind == "Dim")
    trial.finish(names - unifier.binding.dims.keys())
    for generic in generics:
        name = generic.name + MARK
        value = trial.binding.get(name)
        if value is not None and unifier.binding.get(name) is None and not _has_mark(value):
            unifier.binding.bind(name, value)


def _has_mark(value: GenericValue) -> bool:
    return MARK in show_generic(value)


def _number_dtypes(target: Target, nodes: list[Node | None]) -> dict[str, typed.AnyDType]:
    """For a dtype generic of a parameter that is given a number: that number's default dtype."""
    found: dict[str, typed.AnyDType] = {}
    for param, node in zip(target.signature.params, nodes, strict=True):
        if isinstance(node, Flex) and isinstance(param.type, TensorT):
            dtype = param.type.dtype
            if isinstance(dtype, DTypeVar):
                found.setdefault(dtype.name, default_dtype(node))
    return found


# --- settling -------------------------------------------------------------------------------


def _settle(
    ctx: Context,
    expr: ast.Call,
    target: Target,
    unifier: Unifier,
    numbers: dict[str, typed.AnyDType],
) -> typed.GenericArgs:
    settled: list[tuple[str, GenericValue]] = []
    so_far = _fresh(target)
    for generic in target.signature.generics:
        value = unifier.binding.get(generic.name + MARK)
        if value is None and generic.default is not None:
            value = so_far.generic(generic.default)
        if value is None:
            value = numbers.get(generic.name)
        if value is None:
            raise ctx.fail(
                "E2110",
                f"`{generic.name}` of `{target.name}` can't be inferred from the arguments",
                expr.span,
                notes=[target.declared],
                help=f"write it: `{target.name}<{_written(target, unifier)}>(…)`",
            )
        _require_kind(ctx, generic, value, target, expr.span)
        settled.append((generic.name, value))
        so_far.bind(generic.name, value)
    return tuple(settled)


def _require_kind(
    ctx: Context, generic: GenericParam, value: GenericValue, target: Target, span: Span
) -> None:
    if isinstance(value, Dim):
        if ctx.facts.negative(value):
            raise ctx.fail(
                "E2208",
                f"`{generic.name}` of `{target.name}` would be negative: `{value}`",
                span,
                notes=[target.declared],
            )
    elif not isinstance(value, tuple) and not dtypes_of(value) <= KINDS[generic.kind]:
        raise ctx.fail(
            "E2112",
            f"`{generic.name}` of `{target.name}` must be of kind `{generic.kind}`, "
            f"found {describe_dtype(value)}",
            span,
            notes=[target.declared],
            help=f"it can be {', '.join(f'`{d}`' for d in sorted(KINDS[generic.kind]))}",
        )


def _written(target: Target, unifier: Unifier) -> str:
    parts = []
    for generic in target.signature.generics:
        value = unifier.binding.get(generic.name + MARK)
        parts.append(generic.name if value is None else show_generic(value))
    return ", ".join(parts)


# --- fitting --------------------------------------------------------------------------------


def _fit(
    ctx: Context, target: Target, nodes: list[Node | None], final: Binding
) -> list[typed.Expr]:
    """The arguments as values of just their parameters' types, defaults filled in."""
    values: list[typed.Expr] = []
    for param, node in zip(target.signature.params, nodes, strict=True):
        if node is None:
            assert param.default is not None
            values.append(final.constant(param.default))
            continue
        expected = final.type(param.type)
        if isinstance(node, Flex):
            node = typed_as(ctx, node, dtype_of_hint(expected) or default_dtype(node))
        if isinstance(node, typed.NoneValue) and isinstance(expected, OptionalT):
            node = typed.NoneValue(expected, node.span)
        _require_fit(ctx, node, expected, param.name, target)
        values.append(node)
    return values


def _require_fit(ctx: Context, node: typed.Expr, expected: Type, name: str, target: Target) -> None:
    """Like `require`, with where the callee is declared and its generics under their own names."""
    what = f"the argument `{name}` of `{target.name}`"
    if not is_marked(expected):
        require(ctx, node, expected, what, (target.declared,))
    elif not types_equal(node.type, expected, ctx.facts):
        shown = show(expected).replace(MARK, "")
        raise ctx.fail(
            mismatch(expected, node.type),
            f"{what} must be `{shown}`, found `{show(node.type)}`",
            node.span,
            notes=[*axis_notes(ctx, expected, node.type), target.declared],
        )


# --- where clauses --------------------------------------------------------------------------


def prove(
    ctx: Context, fact: typed.Fact, binding: Binding, who: str, span: Span, required: Span
) -> None:
    """A `where` of what is used at `span`, or E2206 that says whether it is false or not known."""
    left, right = binding.dim(fact.left), binding.dim(fact.right)
    if ctx.facts.proves(fact.op, left, right):
        return
    why = unproven(ctx, fact.op, left, right)
    here = f"{left} {fact.op} {right}"
    as_here = "" if here == f"{fact.left} {fact.op} {fact.right}" else f", here `{here}`"
    raise ctx.fail(
        "E2206",
        f"{who} requires `{short(required)}`{as_here}, which is {why.words('false', 'not proven')}",
        span,
        notes=[Note("it is required here", required)],
        help=why.help,
    )
