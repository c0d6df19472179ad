"""Parsing a body: statements, and what a person may have meant by what is none."""

from __future__ import annotations

from collections.abc import Callable

from linnet.diagnostics import Note, Span
from linnet.syntax import ast
from linnet.syntax.cursor import OTHER_WORDS, Cursor, Stop
from linnet.syntax.expressions import (
    no_self,
    parse_expression,
    parse_pattern,
    parse_type,
    separated,
)
from linnet.syntax.recovery import ITEMS, MEMBERS, STATEMENTS, misses_brace, open_brace, recovering


def parse_body(c: Cursor) -> ast.Body:
    start = open_brace(c, "before the body", STATEMENTS)
    c.enter()
    statements: list[ast.Stmt] = []

    def statement() -> None:
        statements.append(_statement(c))

    while not c.at("}") and not c.at_end:
        if misses_brace(c, start):
            c.report(
                "E1101",
                f"expected `}}` to close the body, found {c.token}",
                c.token.span,
                notes=[Note("it opens here", start)],
            )
            c.leave()
            return ast.Body(tuple(statements), c.since(start))
        before = c.position
        recovering(c, statement, (*STATEMENTS, "yield"))
        c.pass_semicolons()
        if c.position == before:
            break
    c.leave()
    if not c.take("}"):
        raise c.unexpected("`}` to close the body", opening=start)
    return ast.Body(tuple(statements), c.since(start))


def _statement(c: Cursor) -> ast.Stmt:
    token = c.token
    if c.peek().kind == "=" and (token.kind == "name" or token.text in c.misnamed):
        c.advance()
        c.advance()
        value = parse_expression(c)
        name = ast.Name(token.text, token.span)
        return ast.Assign(name, value, token.span.to(value.span))
    if token.kind == "keyword" and token.text in _STATEMENT:
        return _STATEMENT[token.text](c)
    if c.at("yield"):
        c.advance()
        value = parse_expression(c)
        return ast.Yield(value, token.span.to(value.span))
    if c.at("self"):
        raise no_self(c)
    if token.kind == "name" and c.peek(2).kind == "=":
        _refuse_compound(c)
    if token.kind in ("name", "int", "float", "string", "(", "[", "-", "!"):
        raise _stray_expression(c)
    raise c.unexpected("a statement", _statement_help(c))


def _refuse_compound(c: Cursor) -> None:
    """`x += 1`, `x := 1`: two marks that are one in other languages."""
    first, second = c.peek(), c.peek(2)
    if first.span.end != second.span.start or first.kind not in (":", *"+-*/%&|^"):
        return
    name = c.token.text
    help = f"write `{name} = {name} {first.kind} …`"
    if first.kind == ":":
        help = f"a new name is `let {name} = …`, a new value for a `var` is `{name} = …`"
    span = first.span.to(second.span)
    raise c.fail("E1101", f"there is no `{first.kind}=`", span, help)


def _statement_help(c: Cursor) -> str | None:
    if c.at("if", "match"):
        return f"`{c.token.text}` is a value: give it a name, as in `let x = {c.token.text} …`"
    if c.at(*MEMBERS):
        return "members are declared in the block, outside its methods"
    if c.at(*ITEMS, "pub"):
        return "functions are declared outside of one another"
    return None


def _stray_expression(c: Cursor) -> Stop:
    """Says why an expression is no statement."""
    before, start = c.previous.text, c.token
    expression = parse_expression(c)
    if c.at("=", ":"):
        if isinstance(expression, ast.Index):
            help = "a tensor is not changed in place: define a new one, `let y[i] = …`"
        elif c.at(":"):
            help = "declare it with `let` or `var`"
        else:
            help = "only a `var` or the block's own `state` is assigned, by its bare name"
        return c.fail("E1101", "this can't be assigned", expression.span, help)
    help = OTHER_WORDS.get(start.text) or OTHER_WORDS.get(before)
    help = help or "name it with `let`, or give it back with `return`"
    span = start.span.to(expression.span)
    return c.fail("E1101", "a bare expression is no statement", span, help)


def _let(c: Cursor) -> ast.Stmt:
    start = c.advance().span
    if c.at("mut"):
        help = "what changes is declared by `var`"
        c.report("E1103", "`mut` is reserved syntax that this version doesn't support",
                 c.token.span, help)  # fmt: skip
        c.advance()
    if c.token.kind in ("name", "reserved", "keyword") and c.peek().text == "[":
        name = c.name("a tensor")
        c.advance()
        indices = separated(c, "]", _let_index, "to close the indices", "an index")
        c.expect("=", "after the indices")
        value = parse_expression(c)
        return ast.LetIndexed(name, indices, value, c.since(start))
    pattern = parse_pattern(c)
    kind = parse_type(c) if c.take(":") else None
    c.expect("=", "after the name", help="a `let` has a value")
    if c.at("for") and isinstance(pattern, ast.NamePattern) and kind is None:
        return _for(c, pattern.name, start)
    value = parse_expression(c)
    return ast.Let(pattern, kind, value, c.since(start))


def _let_index(c: Cursor) -> ast.Name | ast.Spread:
    if star := c.take("*"):
        name = c.name("a pack of indices")
        return ast.Spread(name, star.span.to(name.span))
    return c.name("an index")


def _var(c: Cursor) -> ast.Var:
    start = c.advance().span
    name = c.name("a variable")
    kind = parse_type(c) if c.take(":") else None
    c.expect("=", "after the variable's name", help="a `var` has a first value")
    value = parse_expression(c)
    return ast.Var(name, kind, value, c.since(start))


def _return(c: Cursor) -> ast.Return:
    start = c.advance().span
    value = None if c.at("}", ";", *STATEMENTS) else parse_expression(c)
    return ast.Return(value, c.since(start))


def _static_for(c: Cursor) -> ast.StaticFor:
    start = c.advance().span
    c.expect("for", "after `static`")
    pattern = parse_pattern(c)
    c.expect("in", "after the loop's variable")
    iterable = parse_expression(c)
    stop = parse_expression(c) if c.take("..") else None
    body = parse_body(c)
    return ast.StaticFor(pattern, iterable, stop, body, c.since(start))


def _while(c: Cursor) -> ast.While:
    start = c.advance().span
    condition = parse_expression(c)
    body = parse_body(c)
    return ast.While(condition, body, c.since(start))


def _for_statement(c: Cursor) -> ast.For:
    return _for(c, None, c.token.span)


def _for(c: Cursor, result: ast.Name | None, start: Span) -> ast.For:
    c.expect("for", "to start the loop")
    index = c.name("the loop's index")
    c.expect("in", "after the loop's index")
    first = parse_expression(c)
    c.expect(
        "..", "after the first index", help="a runtime loop runs over a range, as in `0..N`; "
        "over an array of blocks it is `static for`"
    )  # fmt: skip
    stop = parse_expression(c)
    body = parse_body(c)
    return ast.For(result, index, first, stop, body, c.since(start))


_STATEMENT: dict[str, Callable[[Cursor], ast.Stmt]] = {
    "let": _let,
    "var": _var,
    "return": _return,
    "static": _static_for,
    "while": _while,
    "for": _for_statement,
}
