"""Patterns: the names that a `let`, a `match` or a scan declares, and their types."""

from __future__ import annotations

from linnet.check import typed
from linnet.check.context import Context, LocalName
from linnet.check.typed import BindName, BindTuple, TupleT, Type
from linnet.check.types import show
from linnet.diagnostics import Note
from linnet.syntax import ast


def bind_pattern(ctx: Context, pattern: ast.Pattern, type_: Type, *, warn: bool) -> typed.Pattern:
    """Declares a pattern's names with their types; E2117 where it can't match."""
    _refuse_twice(ctx, pattern)
    return _bind(ctx, pattern, type_, warn)


def _bind(ctx: Context, pattern: ast.Pattern, type_: Type, warn: bool) -> typed.Pattern:
    match pattern:
        case ast.NamePattern(name):
            return bind_name(ctx, name, type_, warn=warn)
        case ast.TuplePattern(items, span):
            if not isinstance(type_, TupleT) or len(type_.items) != len(items):
                raise ctx.fail(
                    "E2117", f"a pattern of {len(items)} can't match `{show(type_)}`", span
                )
            parts = zip(items, type_.items, strict=True)
            return BindTuple(tuple(_bind(ctx, p, t, warn) for p, t in parts))
    raise ctx.fail(
        "E2117",
        "only names and tuples of names stand here",
        pattern.span,
        help="take an optional apart by `match`",
    )


def bind_name(
    ctx: Context, name: ast.Name, type_: Type, *, warn: bool, mutable: bool = False
) -> BindName:
    """Declares one name, `_` excepted."""
    if name.text == "_":
        return BindName(None)
    unique = ctx.unique(name.text)
    local = typed.Local(unique, type_, name.span)
    ctx.declare(LocalName(name, local, mutable, warn=warn))
    return BindName(unique)


def _refuse_twice(ctx: Context, pattern: ast.Pattern) -> None:
    seen: dict[str, ast.Name] = {}
    for name in names_of(pattern):
        if name.text in seen and name.text != "_":
            raise ctx.fail(
                "E1205",
                f"`{name.text}` is bound twice",
                name.span,
                notes=[Note("first here", seen[name.text].span)],
            )
        seen[name.text] = name


def names_of(pattern: ast.Pattern) -> list[ast.Name]:
    """The names in a pattern, in source order."""
    match pattern:
        case ast.NamePattern(name):
            return [name]
        case ast.TuplePattern(items, _):
            return [name for item in items for name in names_of(item)]
        case ast.SomePattern(inner, _):
            return names_of(inner)
    return []
