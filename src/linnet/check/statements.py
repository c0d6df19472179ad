"""Statements and bodies: bindings, assignments, loops, and what a function must end in."""

from __future__ import annotations

from collections.abc import Callable

from linnet.check import typed
from linnet.check.dims import Dim
from linnet.check.expressions import (
    check,
    check_as,
    check_dim,
    check_value,
    condition,
    default_dtype,
    resolve_block,
    typed_as,
)
from linnet.check.indexing import check_comprehension
from linnet.check.scope import Context, Failed, Flex, LocalName
from linnet.check.typed import BindName, BindTuple, TensorT, TupleT, Type
from linnet.check.types import I64, show, types_equal
from linnet.diagnostics import Note
from linnet.syntax import ast


def check_body(
    ctx: Context, body: ast.Body, result: Type | None, *, what: str
) -> tuple[typed.Stmt, ...] | None:
    """A function's body, which ends in its one `return`; None if it has mistakes."""
    before = len(ctx.diagnostics.errors)
    statements = _block(ctx, body, result)
    last = body.statements[-1] if body.statements else None
    if not isinstance(last, ast.Return):
        ctx.diagnostics.error(
            "E2120",
            f"{what} does not end in `return`",
            body.span,
            help="end it with `return …`" if result is not None else "end it with `return`",
        )
    for level in ctx.locals:
        ctx.warn_unused(level)
    return statements if len(ctx.diagnostics.errors) == before else None


def _block(
    ctx: Context, body: ast.Body, result: Type | None
) -> tuple[typed.Stmt, ...]:
    statements: list[typed.Stmt] = []
    for position, statement in enumerate(body.statements):
        is_last = position == len(body.statements) - 1
        try:
            if isinstance(statement, ast.Return):
                statements.append(_return(ctx, statement, result, is_last))
            elif isinstance(statement, ast.Yield):
                raise ctx.fail(
                    "E2120", "`yield` stands last in a scan: `let ys = for i in 0..N { … }`",
                    statement.span,
                )  # fmt: skip
            else:
                checked = _STATEMENT[type(statement)](ctx, statement)
                if checked is not None:
                    statements.append(checked)
        except Failed:
            _declare_failed(ctx, statement)
    return tuple(statements)


def _declare_failed(ctx: Context, statement: ast.Stmt) -> None:
    """Declares what a bad statement would have, so that its uses are no further mistakes."""
    names: list[ast.Name] = []
    match statement:
        case ast.Let(pattern=pattern):
            names = _pattern_names(pattern)
        case ast.LetIndexed(name=name) | ast.Var(name=name):
            names = [name]
        case ast.For(result=result) if result is not None:
            names = [result]
    for name in names:
        if ctx.local(name.text) is None or name.text not in ctx.locals[-1]:
            ctx.locals[-1][name.text] = LocalName(name, None, mutable=True)


def _pattern_names(pattern: ast.Pattern) -> list[ast.Name]:
    match pattern:
        case ast.NamePattern(name):
            return [name]
        case ast.TuplePattern(items, _):
            return [name for item in items for name in _pattern_names(item)]
        case ast.SomePattern(inner, _):
            return _pattern_names(inner)
    return []


# --- bindings -------------------------------------------------------------------------------


def bind_pattern(
    ctx: Context, pattern: ast.Pattern, type_: Type, *, warn: bool, mutable: bool = False
) -> typed.Pattern:
    """Declares a pattern's names with their types; E2117 where it can't match."""
    match pattern:
        case ast.NamePattern(name):
            if name.text == "_":
                return BindName(None)
            unique = ctx.unique(name.text)
            node = typed.Local(unique, type_, name.span)
            ctx.declare(LocalName(name, node, mutable, warn=warn))
            return BindName(unique)
        case ast.TuplePattern(items, span):
            if not isinstance(type_, TupleT) or len(type_.items) != len(items):
                raise ctx.fail(
                    "E2117",
                    f"a pattern of {len(items)} can't match `{show(type_)}`",
                    span,
                )
            names = [name.text for name in _pattern_names(pattern) if name.text != "_"]
            for name in names:
                if names.count(name) > 1:
                    raise ctx.fail("E1205", f"`{name}` is bound twice", span)
            parts = zip(items, type_.items, strict=True)
            return BindTuple(tuple(bind_pattern(ctx, p, t, warn=warn) for p, t in parts))
    raise ctx.fail(
        "E2117",
        "a `let` takes names and tuples of names",
        pattern.span,
        help="take an optional apart by `match`",
    )


def _let(ctx: Context, statement: ast.Let) -> typed.Stmt | None:
    from linnet.check.declarations import resolve_type

    expected = resolve_type(ctx, statement.type) if statement.type else None
    if expected is not None:
        node = check_as(ctx, statement.value, expected, "the value")
    else:
        found = check(ctx, statement.value)
        if isinstance(found, Flex):
            name = statement.pattern
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
    pattern = bind_pattern(ctx, ast.NamePattern(statement.name), node.type, warn=True)
    return typed.Let(pattern, node, statement.span)


def _var(ctx: Context, statement: ast.Var) -> typed.Stmt:
    from linnet.check.declarations import resolve_type

    if statement.type:
        expected = resolve_type(ctx, statement.type)
        node = check_as(ctx, statement.value, expected, "the value")
    else:
        node = check_value(ctx, statement.value)
    pattern = bind_pattern(
        ctx, ast.NamePattern(statement.name), node.type, warn=True, mutable=True
    )
    return typed.Let(pattern, node, statement.span)


def _assign(ctx: Context, statement: ast.Assign) -> typed.Stmt:
    name = statement.name
    local = ctx.local(name.text)
    if local is not None:
        if not local.mutable:
            raise ctx.fail(
                "E2108",
                f"`{name.text}` is no `var`",
                name.span,
                notes=[Note("it is declared here", local.name.span)],
                help=f"declare it with `var {name.text}`" if not local.block else None,
            )
        if local.node is None:
            raise Failed
        assert isinstance(local.node, typed.Local)
        node = _new_value(ctx, statement, local.node.type, local.name)
        return typed.Assign(local.node.name, node, statement.span)
    member = ctx.block.members.get(name.text) if ctx.block else None
    if member is not None:
        ctx.used_members.add(name.text)
        if member.kind != "state":
            raise ctx.fail(
                "E2108",
                f"`{name.text}` is a {member.kind}: only a `state` is assigned",
                name.span,
                notes=[Note("it is declared here", member.span)],
            )
        node = _new_value(ctx, statement, member.type, None)
        return typed.AssignState(name.text, node, statement.span)
    if name.text in ctx.generics or ctx.scope.find(name.text) is not None:
        raise ctx.fail("E2108", f"`{name.text}` is no `var` or state", name.span)
    raise ctx.undeclared(name.text, name.span)


def _new_value(
    ctx: Context, statement: ast.Assign, type_: Type, declared: ast.Name | None
) -> typed.Expr:
    node = check_value(ctx, statement.value, type_)
    if not types_equal(node.type, type_, ctx.facts):
        notes = [Note("it is declared here", declared.span)] if declared else []
        raise ctx.fail(
            "E2109",
            f"`{statement.name.text}` is `{show(type_)}` and can't become `{show(node.type)}`",
            statement.value.span,
            notes=notes,
        )
    return node


def _return(
    ctx: Context, statement: ast.Return, result: Type | None, is_last: bool
) -> typed.Stmt:
    if ctx.loop_depth:
        raise ctx.fail("E2120", "no `return` inside a loop", statement.span)
    if not is_last:
        raise ctx.fail("E2120", "`return` must be the last statement", statement.span)
    if statement.value is None:
        if result is not None:
            raise ctx.fail(
                "E2101", f"`return` must give back `{show(result)}`", statement.span
            )
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


# --- loops ----------------------------------------------------------------------------------


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
        return _static_range(ctx, statement, pattern.name)
    found = resolve_block(ctx, statement.iterable)
    if found is None or not isinstance(found[1], typed.ArrayT):
        raise ctx.fail(
            "E2121",
            "`static for` runs over an array of blocks or a compile-time range",
            statement.iterable.span,
            help="as in `static for layer in layers` or `static for i in 0..N`",
        )
    ref, array, _ = found
    assert isinstance(ref, typed.SubBlock)
    name = ctx.unique(pattern.name.text)
    ctx.push()
    try:
        bound = (typed.BoundBlock(name), array.item)
        ctx.declare(LocalName(pattern.name, None, block=bound, warn=True))
        body = _loop_body(ctx, statement.body)
    finally:
        ctx.pop()
    return typed.StaticForBlocks(name, ref, array.count, body, statement.span)


def _static_range(ctx: Context, statement: ast.StaticFor, name: ast.Name) -> typed.Stmt:
    assert statement.stop is not None
    start, stop = _bounds(ctx, statement.iterable, statement.stop, "E2121")
    unique = ctx.unique(name.text)
    # The variable is a dimension of its own while the body is checked, once for all its values.
    variable = f"{unique}'"
    facts = ctx.facts
    ctx.facts = facts.with_fact(">=", Dim.var(variable), start).with_fact(
        "<", Dim.var(variable), stop
    )
    ctx.push()
    try:
        ctx.declare(LocalName(name, Flex(Dim.var(variable), name.span), warn=True))
        body = _loop_body(ctx, statement.body)
    finally:
        ctx.pop()
        ctx.facts = facts
    return typed.StaticForRange(variable, start, stop, body, statement.span)


def _bounds(ctx: Context, first: ast.Expr, last: ast.Expr, code: str) -> tuple[Dim, Dim]:
    bounds = []
    for expr in (first, last):
        node = check(ctx, expr)
        if not (isinstance(node, Flex) and isinstance(node.value, Dim)):
            raise ctx.fail(
                code,
                f"a loop's range must be known at compile time, found `{show(node.type)}`",
                expr.span,
                help="count by `while` with a `var`",
            )
        if not ctx.facts.nonnegative(node.value):
            raise ctx.fail(
                "E2208", f"`{node.value}` is not proven to be at least 0", expr.span
            )
        bounds.append(node.value)
    return bounds[0], bounds[1]


def _while(ctx: Context, statement: ast.While) -> typed.Stmt:
    test = condition(ctx, statement.condition, "a `while`")
    ctx.push()
    try:
        body = _loop_body(ctx, statement.body)
    finally:
        ctx.pop()
    return typed.While(test, body, statement.span)


def _for(ctx: Context, statement: ast.For) -> typed.Stmt:
    start, stop = _bounds(ctx, statement.start, statement.stop, "E2123")
    index = ctx.unique(statement.index.text)
    statements = statement.body.statements
    final = statements[-1] if statements else None
    yielded: typed.Expr | None = None
    ctx.push()
    try:
        node = typed.Local(index, I64, statement.index.span)
        ctx.declare(LocalName(statement.index, node, warn=True))
        if statement.result is not None:
            if not isinstance(final, ast.Yield):
                raise ctx.fail(
                    "E2120", "a scan's body ends in `yield`", statement.body.span,
                    help="give what is stacked: `yield y`",
                )  # fmt: skip
            body = _loop_body(ctx, ast.Body(statements[:-1], statement.body.span))
            yielded = check_value(ctx, final.value)
            body = (*body, typed.Yield(yielded, final.span))
        else:
            if isinstance(final, ast.Yield):
                raise ctx.fail(
                    "E2120", "`yield` needs a name for what is stacked", final.span,
                    help="`let ys = for i in 0..N { … }`",
                )  # fmt: skip
            body = _loop_body(ctx, statement.body)
    finally:
        ctx.pop()
    if statement.result is None or yielded is None:
        return typed.For(index, start, stop, None, None, body, statement.span)
    type_ = _stacked(ctx, yielded, stop - start)
    pattern = bind_pattern(ctx, ast.NamePattern(statement.result), type_, warn=True)
    assert isinstance(pattern, BindName)
    return typed.For(index, start, stop, pattern.name, type_, body, statement.span)


def _stacked(ctx: Context, node: typed.Expr, length: Dim) -> TensorT | TupleT:
    def stack(type_: Type) -> TensorT:
        if not isinstance(type_, TensorT):
            raise ctx.fail("E2101", f"`{show(type_)}` can't be stacked", node.span)
        return TensorT((length, *type_.shape), type_.dtype)

    if isinstance(node.type, TupleT):
        return TupleT(tuple(map(stack, node.type.items)))
    return stack(node.type)


_STATEMENT: dict[type, Callable[..., typed.Stmt | None]] = {
    ast.Let: _let,
    ast.LetIndexed: _let_indexed,
    ast.Var: _var,
    ast.Assign: _assign,
    ast.StaticFor: _static_for,
    ast.While: _while,
    ast.For: _for,
}
