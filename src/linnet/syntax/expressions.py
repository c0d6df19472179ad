"""Parsing expressions, types, patterns and generic arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from linnet.diagnostics import Span
from linnet.dtypes import DType
from linnet.syntax import ast
from linnet.syntax.cursor import Cursor, Stop
from linnet.syntax.tokens import Token

REDUCTIONS = frozenset({"sum", "prod", "max", "min", "any", "all"})
DTYPES = frozenset(str(dtype) for dtype in DType)

PRECEDENCE: dict[str, int] = {
    op: level
    for level, ops in enumerate(
        ["||", "&&", "== !=", "< <= > >=", "|", "^", "&", "+ -", "* / %"], start=1
    )
    for op in ops.split()
}
"""Binary operators, the loosest first; all group to the left."""
BELOW_COMPARISON = PRECEDENCE["|"]
"""Where dimensions and generic arguments start: a comparison there needs parentheses."""

T = TypeVar("T")


def separated(
    c: Cursor, close: str, item: Callable[[Cursor], T], where: str, first: str | None = None
) -> tuple[T, ...]:
    """Items between commas, a last comma allowed, up to and with the closing mark.

    The opening mark was just taken. `first` says what must be there, where none is a mistake.
    """
    opening = c.previous.span
    items: list[T] = []
    if first is not None and c.at(close):
        raise c.unexpected(first)
    while not c.at(close):
        items.append(item(c))
        if not c.take(","):
            break
    if not c.take(close):
        raise c.unexpected(f"`,` or `{close}` {where}", opening=opening)
    return tuple(items)


# --- expressions ----------------------------------------------------------------------------


def parse_expression(c: Cursor) -> ast.Expr:
    c.enter()
    try:
        if c.at("if"):
            return _if(c)
        if c.at("match"):
            return _match(c)
        return parse_binary(c, 1)
    finally:
        c.leave()


def parse_dimension(c: Cursor) -> ast.Expr:
    """A dimension or generic argument: an expression without bare comparisons, or `*S`."""
    if c.at("*"):
        return _spread(c)
    c.enter()
    try:
        return parse_binary(c, BELOW_COMPARISON)
    finally:
        c.leave()


def parse_binary(c: Cursor, loosest: int) -> ast.Expr:
    """Operators from `loosest` up: each waits until a looser or equal one, or the end, comes."""
    operands = [_unary(c)]
    waiting: list[tuple[int, Token]] = []
    while True:
        level = PRECEDENCE.get(c.token.kind, 0)
        ends = level < loosest
        while waiting and (ends or waiting[-1][0] >= level):
            _, op = waiting.pop()
            right = operands.pop()
            left = operands.pop()
            span = left.span.to(right.span)
            operands.append(c.built(ast.Binary(op.text, left, right, span, op.span), left, right))
        if ends:
            return operands[0]
        waiting.append((level, c.advance()))
        operands.append(_unary(c))


def _unary(c: Cursor) -> ast.Expr:
    marks = []
    while c.at("!", "-", "+"):
        marks.append(c.advance())
    operand = _postfix(c)
    for mark in reversed(marks):
        operand = c.built(ast.Unary(mark.text, operand, mark.span.to(operand.span)), operand)
    return operand


def _postfix(c: Cursor) -> ast.Expr:
    base = _primary(c)
    while True:
        if c.at("("):
            base = _call(c, base, None)
        elif c.at("<") and isinstance(base, ast.NameExpr | ast.Field) and c.previous.kind != ")":
            generics = _generic_call(c)
            if generics is None:
                return base
            base = _call(c, base, generics)
        elif c.at("["):
            c.advance()
            components = separated(c, "]", _component, "to close the index", "an index")
            span = c.since(base.span)
            base = c.built(ast.Index(base, components, span), base, *_operands(components))
        elif c.at("."):
            c.advance()
            name = c.name("a field or method")
            base = c.built(ast.Field(base, name, base.span.to(name.span)), base)
        else:
            return base


def _operands(components: tuple[object, ...]) -> list[ast.Expr]:
    plain: list[ast.Expr] = []
    for component in components:
        if isinstance(component, ast.SliceRange):
            parts = (component.start, component.stop, component.step)
            plain += [part for part in parts if part is not None]
        elif not isinstance(component, ast.EllipsisMark):
            plain.append(component)  # type: ignore[arg-type]
    return plain


def _call(c: Cursor, callee: ast.Expr, generics: tuple[ast.GenericArg, ...] | None) -> ast.Expr:
    c.expect("(", "to open the arguments")
    args = separated(c, ")", _argument, "to close the arguments")
    call = ast.Call(callee, generics, args, c.since(callee.span))
    return c.built(call, callee, *(arg.value for arg in args))


def _argument(c: Cursor) -> ast.Arg:
    start = c.token.span
    name = None
    if c.token.kind == "name" and c.peek().kind == "=":
        name = c.name("an argument")
        c.advance()
    value = parse_expression(c)
    return ast.Arg(name, value, start.to(value.span))


def _generic_call(c: Cursor) -> tuple[ast.GenericArg, ...] | None:
    """The generic arguments at `<`, where they are some: they parse, and `(` follows.

    Whether they do depends on the position alone, so each is tried once.
    """
    start = c.position
    if start not in c.generic_calls:
        c.speculating += 1
        nesting = c.nesting
        try:
            generics = parse_generic_args(c)
            found = (generics, c.position) if c.at("(") else None
        except Stop:
            if c.token.kind == "error":
                raise  # Neither reading goes past it, and it was reported.
            found = None
        finally:
            c.speculating -= 1
        c.nesting = nesting
        c.position = start
        c.generic_calls[start] = found
    known = c.generic_calls[start]
    if known is None:
        return None
    generics, c.position = known
    return generics


def parse_generic_args(c: Cursor) -> tuple[ast.GenericArg, ...]:
    c.expect("<", "to open the generic arguments")
    return separated(
        c, ">", parse_dimension, "to close the generic arguments", "a generic argument"
    )


def _component(c: Cursor) -> ast.Expr | ast.EllipsisMark | ast.SliceRange:
    start = c.token.span
    if c.take("..."):
        return ast.EllipsisMark(start)
    if c.at("*"):
        return _spread(c)
    # `0::2` reads as `0`, `:`, `:`, but its two colons are one token.
    first = None if c.at(":", "::") else parse_expression(c)
    if not c.at(":", "::"):
        if first is None:
            raise c.unexpected("an index")
        return first
    second = third = None
    if c.take("::"):
        third = None if c.at(",", "]") else parse_expression(c)
    else:
        c.advance()
        if not c.at(",", "]", ":"):
            second = parse_expression(c)
        if c.take(":") and not c.at(",", "]"):
            third = parse_expression(c)
    return ast.SliceRange(first, second, third, c.since(start))


def _spread(c: Cursor) -> ast.Spread:
    star = c.expect("*", "before a pack")
    name = c.name("a pack")
    return ast.Spread(name, star.span.to(name.span))


def _primary(c: Cursor) -> ast.Expr:
    token = c.token
    match token.kind:
        case "int" | "float" | "string":
            c.advance()
            literal = {
                "int": ast.IntLiteral,
                "float": ast.FloatLiteral,
                "string": ast.StringLiteral,
            }[token.kind]
            return literal(token.value, token.span)  # type: ignore[arg-type]
        case "name":
            if token.text in REDUCTIONS and _starts_reduction(c):
                return _reduction(c)
            c.advance()
            return ast.NameExpr(token.text, token.span)
        case "(":
            return _parenthesised(c)
        case "[":
            c.advance()
            items = separated(c, "]", parse_dimension_or_expression, "to close the list")
            return c.built(ast.ArrayExpr(items, c.since(token.span)), *items)
    match token.text if token.kind == "keyword" else "":
        case "true" | "false":
            c.advance()
            return ast.BoolLiteral(token.text == "true", token.span)
        case "none":
            c.advance()
            return ast.NoneExpr(token.span)
        case "some":
            c.advance()
            c.expect("(", "after `some`")
            value = parse_expression(c)
            c.expect(")", "to close `some(`")
            return c.built(ast.SomeExpr(value, c.since(token.span)), value)
        case "self":
            raise no_self(c)
    if token.text in c.misnamed and token.kind in ("keyword", "reserved"):
        c.advance()
        return ast.NameExpr(token.text, token.span)
    raise c.unexpected("a value", help=_value_help(c))


def no_self(c: Cursor) -> Stop:
    help = "inside a block, its members and methods are bare names"
    return c.fail("E1101", "there is no `self`", c.token.span, help)


def _value_help(c: Cursor) -> str | None:
    before = c.previous.text
    if c.at("if", "match"):
        return f"put the `{c.token.text}` in parentheses"
    if c.at("*") and before == "*":
        return "there is no `**`: write the product out"
    if c.at("=") and before in ("==", "!="):
        return f"comparison is `{before}`"
    if c.at("let", "var", "return", "for", "while", "static") and before in ("{", "=>"):
        return "a branch is one value: name its parts with `let` before it"
    if c.at("for"):
        return "a scan is bound to one name: `let ys = for i in 0..N { … yield y }`"
    return None


def parse_dimension_or_expression(c: Cursor) -> ast.Expr:
    return _spread(c) if c.at("*") else parse_expression(c)


def _parenthesised(c: Cursor) -> ast.Expr:
    start = c.advance().span
    if c.take(")"):
        return ast.TupleExpr((), c.since(start))
    first = parse_expression(c)
    if c.take(")"):
        return first
    c.expect(",", "or `)` after the value")
    rest = separated(c, ")", parse_expression, "to close the tuple")
    items = (first, *rest)
    return c.built(ast.TupleExpr(items, c.since(start)), *items)


def _starts_reduction(c: Cursor) -> bool:
    if c.peek().text == "[":
        return True
    return c.peek().text == "<" and c.peek(3).text == ">" and c.peek(4).text == "["


def _reduction(c: Cursor) -> ast.Expr:
    op = c.advance()
    dtype = None
    if c.take("<"):
        dtype = c.name("an accumulation dtype")
        c.expect(">", "after the accumulation dtype")
    c.expect("[", "before the reduced indices")
    indices = separated(c, "]", _reduced, "to close the reduced indices", "a reduced index")
    body = parse_expression(c)
    return c.built(ast.Reduction(op.text, dtype, indices, body, op.span.to(body.span)), body)


def _reduced(c: Cursor) -> ast.Name:
    return c.name("a reduced index")


def _if(c: Cursor) -> ast.Expr:
    start = c.advance().span
    condition = parse_expression(c)
    then = _braced(c, "after the condition")
    c.expect("else", "after the first branch", help="an `if` is a value, so it needs both branches")
    if c.at("if"):
        c.enter()
        otherwise = _if(c)
        c.leave()
    else:
        otherwise = _braced(c, "after `else`")
    node = ast.IfExpr(condition, then, otherwise, c.since(start))
    return c.built(node, condition, then, otherwise)


def _braced(c: Cursor, where: str) -> ast.Expr:
    opening = c.expect("{", where).span
    value = parse_expression(c)
    if not c.take("}"):
        help = None
        if c.at("="):
            help = "a branch is a value, not an assignment: `x = if c { a } else { x }`"
        raise c.unexpected("`}` after the branch's value", help, opening)
    return value


def _match(c: Cursor) -> ast.Expr:
    start = c.advance().span
    subject = parse_expression(c)
    if not c.take("{"):
        stop = c.unexpected("`{` after what is matched")
        if not c.at("some", "none") and c.peek().kind != "=>":
            raise stop  # Else the brace is as good as there.
    arms: list[ast.Arm] = []
    while not c.at("}"):
        arms.append(_arm(c))
        c.take(",")  # Cases delimit themselves; a comma is allowed.
    c.advance()
    node = ast.MatchExpr(subject, tuple(arms), c.since(start))
    return c.built(node, subject, *(arm.value for arm in arms))


def _arm(c: Cursor) -> ast.Arm:
    pattern = parse_pattern(c)
    c.expect("=>", "after the pattern")
    value = parse_expression(c)
    return ast.Arm(pattern, value, pattern.span.to(value.span))


# --- patterns -------------------------------------------------------------------------------


def parse_pattern(c: Cursor) -> ast.Pattern:
    c.enter()
    start = c.token.span
    pattern: ast.Pattern
    if c.take("("):
        items = separated(c, ")", parse_pattern, "to close the pattern")
        single = len(items) == 1 and c.tokens[c.position - 2].kind != ","
        pattern = items[0] if single else ast.TuplePattern(items, c.since(start))
    elif c.take("none"):
        pattern = ast.NonePattern(start)
    elif c.take("some"):
        c.expect("(", "after `some`")
        inner = parse_pattern(c)
        c.expect(")", "to close `some(`")
        pattern = ast.SomePattern(inner, c.since(start))
    else:
        name = c.name("a variable")
        if c.at(".") and c.peek().kind == "name":  # `Pooling.Mean`: the variant is what counts.
            c.advance()
            name = c.name("a variant")
        pattern = ast.NamePattern(name)
    c.leave()
    return pattern


# --- types ----------------------------------------------------------------------------------


def parse_type(c: Cursor) -> ast.Type:
    c.enter()
    start = c.token.span
    kind: ast.Type
    if c.token.text == "Tensor" and c.peek().text == "[":
        kind = _tensor(c)
    elif c.take("("):
        items = separated(c, ")", parse_type, "to close the tuple type")
        single = len(items) == 1 and c.tokens[c.position - 2].kind != ","
        kind = items[0] if single else ast.TupleType(items, c.since(start))
    elif c.take("["):
        item = parse_type(c)
        c.expect(";", "before the number of elements")
        count = parse_dimension(c)
        c.expect("]", "to close the array type")
        kind = ast.ArrayType(item, count, c.since(start))
    else:
        kind = _named(c, start)
    if c.take("?"):
        kind = ast.OptionalType(kind, c.since(start))
        if c.at("?"):
            raise c.fail("E1101", "a type is optional once", c.token.span, "leave out one `?`")
    c.leave()
    return kind


def _tensor(c: Cursor) -> ast.TensorType:
    start = c.advance().span
    c.advance()
    dims: list[ast.Expr] = []
    while not c.at(";", "]"):
        dims.append(parse_dimension(c))
        if not c.take(","):
            break
    c.expect(";", "before the tensor's dtype", help="as in `Tensor[B, S, H; bf16]`")
    dtype = c.name("a dtype")
    c.expect("]", "to close the tensor type")
    return ast.TensorType(tuple(dims), dtype, c.since(start))


def _named(c: Cursor, start: Span) -> ast.NamedType:
    path = [c.name("a type")]
    while c.at("."):
        c.advance()
        path.append(c.name("a type"))
    generics = parse_generic_args(c) if c.at("<") else None
    return ast.NamedType(tuple(path), generics, c.since(start))
