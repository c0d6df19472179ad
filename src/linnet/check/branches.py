"""`if` and `match`: what is known in each branch, and one type for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from linnet.check import typed
from linnet.check.context import Context, Flex, LocalName, Node
from linnet.check.dims import Facts
from linnet.check.expressions import check, check_value, rule, short, typed_as
from linnet.check.names import Found, resolve_block
from linnet.check.patterns import bind_pattern
from linnet.check.typed import OptionalT, TensorT, Type
from linnet.check.types import (
    BOOL,
    dtype_of_hint,
    is_dtype_only,
    is_marked,
    of_dtype,
    show,
    types_equal,
)
from linnet.diagnostics import Note, Span
from linnet.dtypes import DType
from linnet.syntax import ast

Branch = tuple[ast.Expr, Callable[[Type | None], Node]]
"""A branch, and how it is checked with a hint."""


def condition(ctx: Context, expr: ast.Expr, what: str) -> typed.Expr:
    """A scalar `bool` that doesn't vary with any index; E2114 for anything else."""
    with ctx.without_indices(f"the condition of {what}"):
        node = check_value(ctx, expr)
    if node.type != BOOL:
        is_tensor = isinstance(node.type, TensorT) and node.type.dtype == DType.BOOL
        raise ctx.fail(
            "E2114",
            f"the condition of {what} must be a scalar `bool`, found `{show(node.type)}`",
            node.span,
            help="element by element it is `select(c, a, b)`" if is_tensor else None,
        )
    return node


@rule(ast.IfExpr)
def _if(ctx: Context, expr: ast.IfExpr, expected: Type | None) -> Node:
    test = condition(ctx, expr.condition, "an `if`")

    def branch(value: ast.Expr, holds: bool) -> Branch:
        def work(hint: Type | None) -> Node:
            with ctx.assuming(_knowing(ctx.facts, test, holds)):
                return check(ctx, value, hint)

        return value, work

    branches = [branch(expr.then, True), branch(expr.otherwise, False)]
    then, otherwise = _unite(ctx, branches, expected, expr.span, "the branches of an `if`")
    return typed.If(test, then, otherwise, then.type, expr.span)


_NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _knowing(facts: Facts, test: typed.Expr, holds: bool) -> Facts:
    """What is known where a condition on dimensions holds, or doesn't."""
    match test:
        case typed.DimCompare(op, left, right):
            return facts.with_fact(op if holds else _NEGATED[op], left, right)
        case typed.Prim("not", (inner,)):
            return _knowing(facts, inner, not holds)
        case typed.Prim("and" | "or" as op, (left, right)) if (op == "and") == holds:
            return _knowing(_knowing(facts, left, holds), right, holds)
    return facts


def _unite(
    ctx: Context, branches: Sequence[Branch], expected: Type | None, span: Span, what: str
) -> list[typed.Expr]:
    """The branches brought to one type: what lacks one takes the others', else the expected.

    A bare `none` is looked at last, since it says least.
    """
    nodes: dict[int, Node] = {}
    hint = expected
    order = sorted(range(len(branches)), key=lambda i: isinstance(branches[i][0], ast.NoneExpr))
    for i in order:
        nodes[i] = branches[i][1](hint)
        hint = _hint_for_next(nodes[i], hint)
    return _same_type(ctx, [nodes[i] for i in range(len(branches))], expected, span, what)


def _hint_for_next(node: Node, hint: Type | None) -> Type | None:
    if isinstance(node, Flex):
        return hint
    if isinstance(node.type, OptionalT) and not is_marked(node.type):
        return node.type
    if isinstance(node.type, TensorT) and (hint is None or is_dtype_only(hint)):
        return of_dtype(node.type.dtype)
    return hint if hint is not None else node.type


def _same_type(
    ctx: Context, nodes: list[Node], expected: Type | None, span: Span, what: str
) -> list[typed.Expr]:
    with_types = [n for n in nodes if not isinstance(n, Flex)]
    if with_types and isinstance(with_types[0].type, TensorT):
        dtype = with_types[0].type.dtype
    else:
        dtype = dtype_of_hint(expected)
    if dtype is None:
        is_float = any(isinstance(n, Flex) and isinstance(n.value, float) for n in nodes)
        dtype = DType.F64 if is_float else DType.I64
    result = [typed_as(ctx, n, dtype) if isinstance(n, Flex) else n for n in nodes]
    for node in result[1:]:
        if not types_equal(result[0].type, node.type, ctx.facts):
            raise ctx.fail(
                "E2115",
                f"{what} have different types, `{show(result[0].type)}` and `{show(node.type)}`",
                span,
                notes=[
                    Note(f"this is `{show(result[0].type)}`", result[0].span),
                    Note(f"this is `{show(node.type)}`", node.span),
                ],
            )
    return result


# --- match ----------------------------------------------------------------------------------


@rule(ast.MatchExpr)
def _match(ctx: Context, expr: ast.MatchExpr, expected: Type | None) -> Node:
    found = resolve_block(ctx, expr.subject)
    if found is not None:
        return _match_sub(ctx, expr, found, expected)
    with ctx.without_indices("what a `match` takes apart"):
        subject = check_value(ctx, expr.subject)
    match subject.type:
        case OptionalT(inner):
            return _match_optional(ctx, expr, subject, inner, expected)
        case typed.EnumT():
            return _match_enum(ctx, expr, subject, subject.type, expected)
    raise ctx.fail(
        "E2117",
        f"`{show(subject.type)}` can't be matched: only an optional or an enum can",
        expr.subject.span,
        help="choose by a condition with `if`" if isinstance(subject.type, TensorT) else None,
    )


_CASES = "the cases of a `match`"


def _match_optional(
    ctx: Context, expr: ast.MatchExpr, subject: typed.Expr, inner: Type, expected: Type | None
) -> Node:
    some, inner_pattern, none = _optional_arms(ctx, expr)
    patterns: list[typed.Pattern] = []

    def check_some(hint: Type | None) -> Node:
        with ctx.level():
            patterns.append(bind_pattern(ctx, inner_pattern, inner, warn=True))
            return check(ctx, some.value, hint)

    a, b = _unite(
        ctx,
        [(some.value, check_some), (none.value, lambda hint: check(ctx, none.value, hint))],
        expected,
        expr.span,
        _CASES,
    )
    return typed.MatchOptional(subject, patterns[0], a, b, a.type, expr.span)


def _optional_arms(ctx: Context, expr: ast.MatchExpr) -> tuple[ast.Arm, ast.Pattern, ast.Arm]:
    """The arm of `some`, its inner pattern, and the arm of `none`."""
    some: tuple[ast.Arm, ast.Pattern] | None = None
    none: ast.Arm | None = None
    for arm in expr.arms:
        if isinstance(arm.pattern, ast.SomePattern) and some is None:
            some = arm, arm.pattern.inner
        elif isinstance(arm.pattern, ast.NonePattern) and none is None:
            none = arm
        else:
            raise ctx.fail(
                "E2117",
                "this case can't match: the cases are `some(x)` and `none`, each once",
                arm.pattern.span,
            )
    if some is None or none is None:
        missing = "some(x)" if some is None else "none"
        raise ctx.fail(
            "E2118", f"the case `{missing}` is missing", expr.span, help=f"add `{missing} => …`"
        )
    return *some, none


def _match_sub(ctx: Context, expr: ast.MatchExpr, found: Found, expected: Type | None) -> Node:
    ref, type_, optional = found
    if not optional or isinstance(type_, typed.ArrayT) or not isinstance(ref, typed.SubBlock):
        raise ctx.fail(
            "E2117",
            f"the block `{short(expr.subject.span)}` is always there: nothing to match",
            expr.subject.span,
        )
    some, inner, none = _optional_arms(ctx, expr)
    if not isinstance(inner, ast.NamePattern):
        raise ctx.fail("E2117", "a block is bound to a name", inner.span)
    name = ctx.unique(inner.name.text)
    bound = LocalName(inner.name, None, block=(typed.BoundBlock(name), type_), warn=True)

    def check_some(hint: Type | None) -> Node:
        with ctx.level():
            ctx.declare(bound)
            return check(ctx, some.value, hint)

    a, b = _unite(
        ctx,
        [(some.value, check_some), (none.value, lambda hint: check(ctx, none.value, hint))],
        expected,
        expr.span,
        _CASES,
    )
    return typed.MatchSub(ref, name, a, b, a.type, expr.span)


def _match_enum(
    ctx: Context,
    expr: ast.MatchExpr,
    subject: typed.Expr,
    enum: typed.EnumT,
    expected: Type | None,
) -> Node:
    arms: dict[str, ast.Arm] = {}
    for arm in expr.arms:
        pattern = arm.pattern
        if not isinstance(pattern, ast.NamePattern) or pattern.name.text not in enum.variants:
            raise ctx.fail(
                "E2117",
                f"this case can't match `{show(enum)}`",
                pattern.span,
                help=f"its variants are {', '.join(f'`{v}`' for v in enum.variants)}",
            )
        if pattern.name.text in arms:
            raise ctx.fail(
                "E2117",
                f"`{pattern.name.text}` was matched before",
                pattern.span,
                notes=[Note("here", arms[pattern.name.text].pattern.span)],
            )
        arms[pattern.name.text] = arm
    missing = [v for v in enum.variants if v not in arms]
    if missing:
        listed = ", ".join(f"`{v}`" for v in missing)
        plural = "s" if len(missing) > 1 else ""
        raise ctx.fail(
            "E2118",
            f"the case{plural} {listed} {'are' if plural else 'is'} missing",
            expr.span,
            help=f"add {', '.join(f'`{v} => …`' for v in missing)}",
        )

    def branch(value: ast.Expr) -> Branch:
        return value, lambda hint: check(ctx, value, hint)

    branches = [branch(arms[v].value) for v in enum.variants]
    values = _unite(ctx, branches, expected, expr.span, _CASES)
    return typed.MatchEnum(subject, tuple(values), values[0].type, expr.span)
