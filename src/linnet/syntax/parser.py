"""Parsing a file: items, members and statements, and how parsing goes on after a mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from linnet.diagnostics import Diagnostics, Note, SourceFile, Span
from linnet.syntax import ast
from linnet.syntax.cursor import OTHER_WORDS, Cursor, Stop
from linnet.syntax.expressions import (
    BELOW_COMPARISON,
    no_self,
    parse_binary,
    parse_dimension,
    parse_expression,
    parse_pattern,
    parse_type,
    separated,
)
from linnet.syntax.tokens import RESERVED, tokenize

ITEMS = ("const", "type", "struct", "enum", "fn", "op", "entry", "block")
MEMBERS = ("param", "buffer", "state", "sub")
STATEMENTS = ("let", "var", "return", "static", "while", "for")
DECLARATIONS = frozenset(("pub", *ITEMS, *MEMBERS))
"""What no statement starts with, but what follows a body may."""
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")

T = TypeVar("T")


def parse(source: SourceFile, diagnostics: Diagnostics) -> ast.File:
    """The syntax tree of a file; whatever could be read where there are mistakes."""
    c = Cursor(source, tokenize(source, diagnostics), diagnostics)
    start = c.token.span
    resume_at = ("module", "use", "pub", "extern", *ITEMS, *RESERVED)
    module: list[ast.Name] = []
    uses: list[ast.Use] = []
    items: list[ast.Item] = []

    def header() -> None:
        if not c.at("module"):
            help = "put `module name` first, as in `module tiny_lm`"
            stop = c.fail("E1102", "a file starts with its `module` line", c.token.span, help)
            if c.at(*resume_at):
                return
            raise stop
        c.advance()
        module.extend(_path(c))

    def use_or_item() -> None:
        if c.at("use"):
            if items:
                c.report("E1101", "imports stand before all else", c.token.span)
            uses.append(_use(c))
        elif c.at("module") and not module:
            header()
        else:
            items.append(_item(c))

    _recovering(c, header, resume_at)
    while not c.at_end:
        before = c.position
        _recovering(c, use_or_item, resume_at)
        c.pass_semicolons()
        if c.position == before:
            c.advance()
    return ast.File(tuple(module), tuple(uses), tuple(items), c.since(start))


def _recovering(c: Cursor, action: Callable[[], object], resume_at: tuple[str, ...]) -> None:
    """Runs the action; after a mistake in it, skips to a word where parsing can go on."""
    nesting = c.nesting
    start = c.position
    try:
        action()
    except Stop:
        c.nesting = nesting
        if c.position == start and not c.at("}"):
            c.advance()
        _skip(c, start, resume_at)


def _skip(c: Cursor, start: int, resume_at: tuple[str, ...]) -> None:
    """From a mistake in what started at `start`, to a word to go on at, or the enclosing `}`.

    Braces opened there or on the way are passed whole. Where they don't match, lines tell: a word
    no further in than the start goes on, and a `}` further out closes what is around.
    """
    enclosed = "use" not in resume_at
    indent = c.indent(c.tokens[min(start, len(c.tokens) - 1)].span)
    opened = 0
    for token in c.tokens[start : c.position]:
        opened += (token.kind == "{") - (token.kind == "}")
    inner = 0
    while not c.at_end:
        if c.at("}"):
            starts_line = c.starts_line()
            if inner:
                inner -= 1
            elif opened > 0 and not (starts_line and c.indent(c.token.span) < indent):
                opened -= 1
            elif enclosed:
                return
        elif c.at("{"):
            inner += 1
        elif not inner and c.token.kind in ("keyword", "reserved"):
            starts_line = c.starts_line()
            word = c.token.text
            if starts_line and (word in resume_at or word in DECLARATIONS):
                if c.indent(c.token.span) <= indent or (opened <= 0 and word in resume_at):
                    return
            elif opened <= 0 and word in resume_at and c.previous.text in ("{", "}", "pub"):
                return
        c.advance()


def _open(c: Cursor, where: str, inside: tuple[str, ...]) -> Span:
    """Takes a `{`; where the next line starts with what belongs inside, it is as good as there."""
    if not c.at("{"):
        stop = c.unexpected(f"`{{` {where}")
        if not (c.at(*inside) and c.starts_line()):
            raise stop
        return c.previous.span
    return c.advance().span


def _misses_brace(c: Cursor, opening: Span) -> bool:
    """Whether a body was left open: what can't stand in it starts a line no further in than it."""
    return (
        c.token.text in DECLARATIONS
        and c.peek().kind != "="
        and c.starts_line()
        and c.indent(c.token.span) <= c.indent(opening)
    )


# --- the file -------------------------------------------------------------------------------


def _path(c: Cursor) -> tuple[ast.Name, ...]:
    names = [_path_name(c)]
    while c.take("."):
        names.append(_path_name(c))
    return tuple(names)


def _path_name(c: Cursor) -> ast.Name:
    """A part of a module's path, where the reserved words are allowed (`std.random`)."""
    token = c.token
    if token.kind == "name" or token.kind == "reserved" or c.at("crate", "super", "self"):
        c.advance()
        return ast.Name(token.text, token.span)
    raise c.unexpected("a module's name")


def _use(c: Cursor) -> ast.Use:
    start = c.advance().span
    path = _path(c)
    names: tuple[ast.UseName, ...] = ()
    if c.take("::"):
        if c.take("{"):
            names = separated(c, "}", _use_name, "to close the imported names", "an imported name")
        else:
            names = (_use_name(c),)
    return ast.Use(path, names, c.since(start))


def _use_name(c: Cursor) -> ast.UseName:
    name = c.name("an imported name")
    if c.take("as"):
        return ast.UseName(name, c.name("an alias"))
    return ast.UseName(name, None)


# --- items ----------------------------------------------------------------------------------


def _item(c: Cursor) -> ast.Item:
    doc = c.doc()
    start = c.token.span
    public = c.take("pub") is not None
    parse_item = _ITEM.get(c.token.text) if c.token.kind == "keyword" else None
    if parse_item is None:
        raise c.unexpected(
            "`const`, `type`, `struct`, `enum`, `fn`, `op`, `entry` or `block`", _item_help(c)
        )
    return parse_item(c, public, doc, start)


def _item_help(c: Cursor) -> str | None:
    hints = {
        "def": "a function is `fn name(…) -> Type { … }`",
        "func": "a function is `fn name(…) -> Type { … }`",
        "class": "a part of a model is a `block`",
        "import": "imports are `use std.nn.linear::{linear}`",
        "from": "imports are `use std.nn.linear::{linear}`",
        "let": "outside a function a value is a `const`",
        "param": "weights are declared inside a `block`",
        "sub": "children are declared inside a `block`",
        "state": "states are declared inside a `block`",
        "module": "one file is one module",
    }
    return hints.get(c.token.text)


def _const(c: Cursor, public: bool, doc: str | None, start: Span) -> ast.Const:
    c.advance()
    name = c.name("a constant")
    kind = parse_type(c) if c.take(":") else None
    c.expect("=", "after the constant's name")
    value = parse_expression(c)
    return ast.Const(public, name, kind, value, doc, c.since(start))


def _alias(c: Cursor, public: bool, doc: str | None, start: Span) -> ast.Alias:
    c.advance()
    name = c.name("a type")
    generics = _generics(c)
    c.expect("=", "after the type's name")
    return ast.Alias(public, name, generics, parse_type(c), doc, c.since(start))


def _struct(c: Cursor, public: bool, doc: str | None, start: Span) -> ast.Struct:
    c.advance()
    name = c.name("a struct")
    generics = _generics(c)
    c.expect("{", "before the fields")
    fields: list[ast.StructField] = []
    while not c.at("}"):
        field_start = c.token.span
        field_name = c.name("a field")
        c.expect(":", "after the field's name")
        kind = parse_type(c)
        fields.append(ast.StructField(field_name, kind, c.since(field_start)))
        c.take(",")  # Fields delimit themselves; a comma is allowed.
    c.advance()
    return ast.Struct(public, name, generics, tuple(fields), doc, c.since(start))


def _enum(c: Cursor, public: bool, doc: str | None, start: Span) -> ast.Enum:
    c.advance()
    name = c.name("an enum")
    c.expect("{", "before the variants")
    variants = separated(c, "}", lambda c: c.name("a variant"), "to close the variants")
    return ast.Enum(public, name, variants, doc, c.since(start))


def _function(c: Cursor, public: bool, doc: str | None, start: Span) -> ast.Function:
    kind = c.advance().text
    name = c.name(f"an {kind}" if kind != "fn" else "a function")
    generics = _generics(c)
    c.expect("(", "before the parameters")
    params = separated(c, ")", _param, "to close the parameters")
    result = None
    if c.take("->"):
        result = parse_type(c)
    elif c.at(":", "(", "[") or c.token.kind == "name":
        raise c.unexpected("`->`, `where` or `{`", help="the result's type follows `->`")
    where = _where(c)
    body = _body(c)
    grad = None
    if c.token.text == "grad" and c.token.kind == "name":
        if kind != "op":
            raise c.fail("E1101", "only an `op` has a `grad`", c.token.span)
        grad = _grad(c)
    return ast.Function(
        public, kind, name, generics, params, result, where, body, grad, doc, c.since(start)
    )


def _grad(c: Cursor) -> ast.Grad:
    start = c.advance().span
    c.expect("(", "after `grad`")
    result = c.name("the op's result")
    c.expect(",", "between the result and its gradient")
    cotangent = c.name("the result's gradient")
    c.expect(")", "to close `grad(`")
    return ast.Grad(result, cotangent, _body(c), c.since(start))


def _param(c: Cursor) -> ast.Param:
    start = c.token.span
    if c.at("self"):
        raise c.fail(
            "E1101",
            "a method takes no `self`",
            start,
            help="inside a block, its members and methods are bare names",
        )
    name = c.name("a parameter")
    c.expect(":", "after the parameter's name", help="every parameter has a type")
    kind = parse_type(c)
    default = parse_expression(c) if c.take("=") else None
    return ast.Param(name, kind, default, c.since(start))


def _generics(c: Cursor) -> tuple[ast.Generic, ...]:
    if not c.take("<"):
        return ()
    return separated(c, ">", _generic, "to close the generics", "a generic")


def _generic(c: Cursor) -> ast.Generic:
    start = c.token.span
    pack = c.take("*") is not None
    name = c.name("a generic")
    c.expect(":", "after the generic's name", help="say what it is, as in `H: Dim` or `T: Float`")
    kind = c.name("a generic's kind")
    default = parse_dimension(c) if c.take("=") else None
    return ast.Generic(name, pack, kind, default, c.since(start))


def _where(c: Cursor) -> tuple[ast.Fact, ...]:
    if not c.take("where"):
        return ()
    facts: list[ast.Fact] = []
    while not facts or not c.at("{"):
        left = parse_binary(c, BELOW_COMPARISON)
        if not c.at(*COMPARISONS):
            raise c.unexpected("a comparison", help="as in `where H % Heads == 0`")
        op = c.advance().text
        right = parse_binary(c, BELOW_COMPARISON)
        facts.append(ast.Fact(op, left, right, left.span.to(right.span)))
        if not c.take(","):
            break
    return tuple(facts)


def _block(c: Cursor, public: bool, doc: str | None, start: Span) -> ast.Block:
    c.advance()
    name = c.name("a block")
    generics = _generics(c)
    where = _where(c)
    opening = _open(c, "before the block's members", (*MEMBERS, *ITEMS, "pub"))
    c.enter()
    members: list[ast.Member] = []
    items: list[ast.Item] = []

    def member_or_item() -> None:
        if c.at(*MEMBERS):
            members.append(_member(c))
        elif c.at(*ITEMS, "pub"):
            items.append(_item(c))
        else:
            raise c.unexpected("a member, a method or `}`", _member_help(c))

    while not c.at("}") and not c.at_end:
        before = c.position
        _recovering(c, member_or_item, (*MEMBERS, *ITEMS, "pub"))
        c.pass_semicolons()
        if c.position == before:
            break
    c.leave()
    if not c.take("}"):
        raise c.unexpected("`}` to close the block", opening=opening)
    return ast.Block(
        public, name, generics, where, tuple(members), tuple(items), doc, c.since(start)
    )


def _member_help(c: Cursor) -> str | None:
    if c.at(","):
        return "members delimit themselves: leave the comma out"
    if c.token.kind == "name" and c.peek().text == ":":
        return f"say what `{c.token.text}` is: `param`, `buffer`, `state` or `sub`"
    return _item_help(c) if c.token.kind == "name" else None


def _member(c: Cursor) -> ast.Member:
    doc = c.doc()
    start = c.token.span
    kind = c.advance().text
    name = c.name(f"a {kind}")
    c.expect(":", f"after the {kind}'s name")
    type_ = parse_type(c)
    default = parse_expression(c) if c.take("=") else None
    return ast.Member(kind, name, type_, default, doc, c.since(start))


_ITEM: dict[str, Callable[[Cursor, bool, str | None, Span], ast.Item]] = {
    "const": _const,
    "type": _alias,
    "struct": _struct,
    "enum": _enum,
    "fn": _function,
    "op": _function,
    "entry": _function,
    "block": _block,
}

# --- statements -----------------------------------------------------------------------------


def _body(c: Cursor) -> ast.Body:
    start = _open(c, "before the body", STATEMENTS)
    c.enter()
    statements: list[ast.Stmt] = []

    def statement() -> None:
        statements.append(_statement(c))

    while not c.at("}") and not c.at_end:
        if _misses_brace(c, start):
            c.report(
                "E1101",
                f"expected `}}` to close the body, found {c.token}",
                c.token.span,
                notes=[Note("it opens here", start)],
            )
            c.leave()
            return ast.Body(tuple(statements), c.since(start))
        before = c.position
        _recovering(c, statement, (*STATEMENTS, "yield"))
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
    body = _body(c)
    return ast.StaticFor(pattern, iterable, stop, body, c.since(start))


def _while(c: Cursor) -> ast.While:
    start = c.advance().span
    condition = parse_expression(c)
    body = _body(c)
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
    body = _body(c)
    return ast.For(result, index, first, stop, body, c.since(start))


_STATEMENT: dict[str, Callable[[Cursor], ast.Stmt]] = {
    "let": _let,
    "var": _var,
    "return": _return,
    "static": _static_for,
    "while": _while,
    "for": _for_statement,
}
