"""Statements and bodies: bindings, assignments, loops, and what a function must end in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linnet.check import typed
from linnet.check.branches import condition
from linnet.check.context import Context, Flex, LocalName
from linnet.check.dims import Dim, DimTooLarge
from linnet.check.expressions import (
    check,
    check_as,
    check_value,
    default_dtype,
    typed_as,
)
from linnet.check.names import resolve_block
from linnet.check.notation import check_comprehension
from linnet.check.patterns import bind_name, bind_pattern, names_of
from linnet.check.resolve import resolve_type
from linnet.check.scope import Failed
from linnet.check.typed import TensorT, TupleT, Type
from linnet.check.types import I64, describe, show, types_equal
from linnet.diagnostics import Note
from linnet.syntax import ast


def check_body(
    ctx: Context, body: ast.Body, result: Type | None, what: str
) -> tuple[typed.Stmt, ...] | None:
    """A function's body, which ends in its one `return`; None if it has mistakes."""
    before = len(ctx.diagnostics.errors)
    statements = _block(ctx, body, result)
    errors = ctx.diagnostics.errors[before:]
    last = body.statements[-1] if body.statements else None
    misplaced = any(error.code == "E2120" for error in errors)
    if not isinstance(last, ast.Return) and not misplaced:
        ctx.diagnostics.error(
            "E2120",
            f"{what} does not end in `return`",
            body.span,
            help="end it with `return …`" if result is not None else "end it with `return`",
        )
        return None
    return None if errors else statements


def _block(ctx: Context, body: ast.Body, result: Type | None) -> tuple[typed.Stmt, ...]:
    statements: list[typed.Stmt] = []
    for position, statement in enumerate(body.statements):
        is_last = position == len(body.statements) - 1
        try:
            if isinstance(statement, ast.Return):
                checked: typed.Stmt | None = _return(ctx, statement, result, is_last)
            else:
                checked = _STATEMENT[type(statement)](ctx, statement)
            if checked is not None:
                statements.append(checked)
        except Failed:
            _declare_failed(ctx, statement)
        except DimTooLarge:
            ctx.diagnostics.error(
                "E2190",
                "a dimension here is too large an expression to reason about",
                statement.span,
                help="make it a generic of its own",
            )
            _declare_failed(ctx, statement)
    return tuple(statements)


def _declare_failed(ctx: Context, statement: ast.Stmt) -> None:
    """Declares what a bad statement would have, so that its uses are no further mistakes."""
    names: list[ast.Name] = []
    match statement:
        case ast.Let(pattern=pattern):
            names = names_of(pattern)
        case ast.LetIndexed(name=name) | ast.Var(name=name):
            names = [name]
        case ast.For(result=result) if result is not None:
            names = [result]
    for name in names:
        ctx.locals[-1][name.text] = LocalName(name, None, mutable=True)


# --- bindings -------------------------------------------------------------------------------


def _let(ctx: Context, statement: ast.Let) -> typed.Stmt | None:
    if statement.type is not None:
        expected = resolve_type(ctx, statement.type)
        node = check_as(ctx, statement.value, expected, "the value")
    else:
        found = check(ctx, statement.value)
        name = statement.pattern
        if isinstance(found, Flex):
            is_symbolic = isinstance(found.value, Dim) and found.value.constant is None
            if is_symbolic and isinstance(name, ast.NamePattern):
                # A compile-time integer: its uses hold the dimension itself.
                ctx.declare(LocalName(name.name, found, warn=True))
                return None
            found = typed_as(ctx, found, default_dtype(found))
        node = found
    pattern = bind_pattern(ctx, statement.pattern, node.type, warn=True)
    return typed.Let(pattern, node, statement.span)


def _let_indexed(ctx: Context, statement: ast.LetIndexed) -> typed.Stmt:
    node = check_comprehension(ctx, statement.indices, statement.value, statement.span, None)
    pattern = bind_name(ctx, statement.name, node.type, warn=True)
    return typed.Let(pattern, node, statement.span)


def _var(ctx: Context, statement: ast.Var) -> typed.Stmt:
    if statement.type is not None:
        expected = resolve_type(ctx, statement.type)
        node = check_as(ctx, statement.value, expected, "the value")
    else:
        node = check_value(ctx, statement.value)
    pattern = bind_name(ctx, statement.name, node.type, warn=True, mutable=True)
    return typed.Let(pattern, node, statement.span)


def _assign(ctx: Context, statement: ast.Assign) -> typed.Stmt:
    name = statement.name
    local = ctx.local(name.text)
    if local is not None:
        if not local.mutable:
            raise _not_assignable(ctx, name, f"`{name.text}` is no `var`", local)
        if local.node is None:
            raise Failed
        assert isinstance(local.node, typed.Local)
        node = _new_value(ctx, statement, local.node.type, Note("declared here", local.name.span))
        return typed.Assign(local.node.name, node, statement.span)
    member = ctx.block.members.get(name.text) if ctx.block else None
    if member is not None:
        assert ctx.block is not None
        ctx.checker.used_members.setdefault(ctx.block.key, set()).add(name.text)
        declared = Note("it is declared here", member.span)
        if member.kind != "state":
            raise ctx.fail(
                "E2108",
                f"`{name.text}` is a {member.kind}: only a `state` is assigned",
                name.span,
                notes=[declared],
            )
        node = _new_value(ctx, statement, member.type, declared)
        return typed.AssignState(name.text, node, statement.span)
    if name.text in ctx.generics or ctx.scope.find(name.text) is not None:
        raise ctx.fail("E2108", f"`{name.text}` is no `var` or state", name.span)
    raise ctx.undeclared(name.text, name.span)


def _not_assignable(ctx: Context, name: ast.Name, message: str, local: LocalName) -> Failed:
    help = None
    if local.warn and local.block is None:
        help = f"declare it with `var {name.text}`"
    elif local.block is None and not isinstance(local.node, Flex):
        help = f"start a variable with its value: `var {name.text} = {name.text}`"
    return ctx.fail(
        "E2108",
        message,
        name.span,
        notes=[Note("it is declared here", local.name.span)],
        help=help,
    )


def _new_value(ctx: Context, statement: ast.Assign, type_: Type, declared: Note) -> typed.Expr:
    node = check_value(ctx, statement.value, type_)
    if not types_equal(node.type, type_, ctx.facts):
        raise ctx.fail(
            "E2109",
            f"`{statement.name.text}` is `{show(type_)}` and can't become `{show(node.type)}`",
            statement.value.span,
            notes=[declared],
            help="a variable keeps its type: give the new value a name of its own with `let`",
        )
    return node


def _return(ctx: Context, statement: ast.Return, result: Type | None, is_last: bool) -> typed.Stmt:
    if ctx.loop_depth:
        raise ctx.fail(
            "E2120",
            "no `return` inside a loop",
            statement.span,
            help="keep the result in a `var` and give it back after the loop",
        )
    if not is_last:
        raise ctx.fail("E2120", "`return` must be the last statement", statement.span)
    if statement.value is None:
        if result is not None:
            raise ctx.fail("E2101", f"`return` must give back `{show(result)}`", statement.span)
        return typed.Return(None, statement.span)
    if result is None:
        raise ctx.fail(
            "E2101",
            "a function without `->` gives nothing back",
            statement.value.span,
            help="add the result's type: `-> …`",
        )
    node = check_as(ctx, statement.value, result, "the result")
    return typed.Return(node, statement.span)


# --- unrolled loops -------------------------------------------------------------------------


def _loop_body(ctx: Context, body: ast.Body) -> tuple[typed.Stmt, ...]:
    ctx.loop_depth += 1
    try:
        return _block(ctx, body, None)
    finally:
        ctx.loop_depth -= 1


def _static_for(ctx: Context, statement: ast.StaticFor) -> typed.Stmt:
    pattern = statement.pattern
    if not isinstance(pattern, ast.NamePattern):
        raise ctx.fail("E2117", "`static for` binds one name", pattern.span)
    if statement.stop is not None:
        return _static_range(ctx, statement, statement.stop, pattern.name)
    found = resolve_block(ctx, statement.iterable)
    if found is None or not isinstance(found[1], typed.ArrayT):
        raise ctx.fail(
            "E2121",
            "`static for` runs over an array of blocks or a compile-time range",
            statement.iterable.span,
            help="as in `static for layer in layers` or `static for i in 0..N`",
        )
    ref, array = found[0], found[1]
    assert isinstance(ref, typed.SubBlock)
    name = ctx.unique(pattern.name.text)
    with ctx.level():
        bound = (typed.BoundBlock(name), array.item)
        ctx.declare(LocalName(pattern.name, None, block=bound, warn=True))
        body = _loop_body(ctx, statement.body)
    return typed.StaticForBlocks(name, ref, array.count, body, statement.span)


def _static_range(
    ctx: Context, statement: ast.StaticFor, last: ast.Expr, name: ast.Name
) -> typed.Stmt:
    """The variable is a dimension of its own: the body is checked once, for all its values."""
    start, stop = _bounds(ctx, statement.iterable, last, "E2121")
    variable = _dim_variable(ctx, name.text)
    dim = Dim.var(variable)
    facts = ctx.facts.with_fact(">=", dim, start).with_fact("<", dim, stop)
    ctx.loop_dims.append(variable)
    try:
        with ctx.assuming(facts), ctx.level():
            # Nothing is lost by a loop that only counts.
            ctx.declare(LocalName(name, Flex(dim, name.span)))
            body = _loop_body(ctx, statement.body)
    finally:
        ctx.loop_dims.pop()
    return typed.StaticForRange(variable, start, stop, body, statement.span)


def _dim_variable(ctx: Context, name: str) -> str:
    """The name of a loop's variable in dimensions: no generic's, no loop's around it."""
    taken = {*ctx.generics, *ctx.loop_dims}
    variable, number = name, 0
    while variable in taken:
        number += 1
        variable = f"{name}.{number}"
    return variable


def _bounds(ctx: Context, first: ast.Expr, last: ast.Expr, code: str) -> tuple[Dim, Dim]:
    bounds = []
    for expr in (first, last):
        node = check(ctx, expr)
        if not (isinstance(node, Flex) and isinstance(node.value, Dim)):
            raise ctx.fail(
                code,
                f"a loop's range must be known at compile time, found {describe(node.type)}",
                expr.span,
                help="count by `while` with a `var`",
            )
        if ctx.facts.negative(node.value):
            raise ctx.fail("E2208", f"a loop can't count from or to `{node.value}`", expr.span)
        bounds.append(node.value)
    return bounds[0], bounds[1]


# --- runtime loops --------------------------------------------------------------------------


def _while(ctx: Context, statement: ast.While) -> typed.Stmt:
    test = condition(ctx, statement.condition, "a `while`")
    with ctx.level():
        body = _loop_body(ctx, statement.body)
    return typed.While(test, body, statement.span)


def _for(ctx: Context, statement: ast.For) -> typed.Stmt:
    start, stop = _bounds(ctx, statement.start, statement.stop, "E2123")
    index = ctx.unique(statement.index.text)
    inside = statement.body
    final = inside.statements[-1] if inside.statements else None
    yielded: typed.Yield | None = None
    if statement.result is not None:
        if not isinstance(final, ast.Yield):
            raise ctx.fail(
                "E2120",
                "a scan's body ends in `yield`",
                inside.span,
                help="give what is stacked: `yield y`",
            )
        inside = ast.Body(inside.statements[:-1], inside.span)
    with ctx.level():
        # Nothing is lost by a loop that only counts.
        ctx.declare(LocalName(statement.index, typed.Local(index, I64, statement.index.span)))
        body = _loop_body(ctx, inside)
        if statement.result is not None:
            assert isinstance(final, ast.Yield)
            yielded = typed.Yield(check_value(ctx, final.value), final.span)
    if statement.result is None or yielded is None:
        return typed.For(index, start, stop, None, None, body, statement.span)
    type_ = _stacked(ctx, yielded.value, stop - start)
    pattern = bind_name(ctx, statement.result, type_, warn=True)
    return typed.For(index, start, stop, pattern.name, type_, (*body, yielded), statement.span)


def _stacked(ctx: Context, node: typed.Expr, length: Dim) -> TensorT | TupleT:
    def stack(type_: Type) -> TensorT:
        if not isinstance(type_, TensorT):
            raise ctx.fail(
                "E2101",
                f"a scan stacks tensors and tuples of tensors, found `{show(node.type)}`",
                node.span,
            )
        return TensorT((length, *type_.shape), type_.dtype)

    if ctx.facts.negative(length):
        raise ctx.fail("E2208", f"a scan of `{length}` steps", node.span)
    if isinstance(node.type, TupleT):
        return TupleT(tuple(map(stack, node.type.items)))
    return stack(node.type)


def _yield(ctx: Context, statement: ast.Yield) -> typed.Stmt:
    raise ctx.fail(
        "E2120",
        "`yield` stands last in a loop that has a name for what is stacked",
        statement.span,
        help="`let ys = for i in 0..N { … yield y }`",
    )


_STATEMENT: dict[type, Callable[[Context, Any], typed.Stmt | None]] = {
    ast.Let: _let,
    ast.LetIndexed: _let_indexed,
    ast.Var: _var,
    ast.Assign: _assign,
    ast.StaticFor: _static_for,
    ast.While: _while,
    ast.For: _for,
    ast.Yield: _yield,
}
