"""Parsing a file: its imports, items and their members."""

from __future__ import annotations

from collections.abc import Callable

from linnet.diagnostics import Diagnostics, SourceFile, Span
from linnet.syntax import ast
from linnet.syntax.cursor import Cursor
from linnet.syntax.expressions import (
    BELOW_COMPARISON,
    parse_binary,
    parse_dimension,
    parse_expression,
    parse_type,
    separated,
)
from linnet.syntax.recovery import ITEMS, MEMBERS, open_brace, recovering
from linnet.syntax.statements import parse_body
from linnet.syntax.tokens import RESERVED, tokenize

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


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

    recovering(c, header, resume_at)
    while not c.at_end:
        before = c.position
        recovering(c, use_or_item, resume_at)
        c.pass_semicolons()
        if c.position == before:
            c.advance()
    return ast.File(tuple(module), tuple(uses), tuple(items), c.since(start))


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
    body = parse_body(c)
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
    return ast.Grad(result, cotangent, parse_body(c), c.since(start))


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
    opening = open_brace(c, "before the block's members", (*MEMBERS, *ITEMS, "pub"))
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
        recovering(c, member_or_item, (*MEMBERS, *ITEMS, "pub"))
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
