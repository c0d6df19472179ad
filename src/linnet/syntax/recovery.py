"""How parsing goes on after a mistake.

A mistake unwinds to the statement, member or item it is in, and what is left of that is skipped.
Where brackets no longer match, lines and how far in they start say what the person meant: so one
cause gives one message, and the mistakes after it are still found.
"""

from __future__ import annotations

from collections.abc import Callable

from linnet.diagnostics import Span
from linnet.syntax.cursor import Cursor, Stop

ITEMS = ("const", "type", "struct", "enum", "fn", "op", "entry", "block")
MEMBERS = ("param", "buffer", "state", "sub")
STATEMENTS = ("let", "var", "return", "static", "while", "for")
DECLARATIONS = frozenset(("pub", *ITEMS, *MEMBERS))
"""What no statement starts with, but what follows a body may."""


def recovering(c: Cursor, action: Callable[[], object], resume_at: tuple[str, ...]) -> None:
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


def open_brace(c: Cursor, where: str, inside: tuple[str, ...]) -> Span:
    """Takes a `{`; where the next line starts with what belongs inside, it is as good as there."""
    if not c.at("{"):
        stop = c.unexpected(f"`{{` {where}")
        if not (c.at(*inside) and c.starts_line()):
            raise stop
        return c.previous.span
    return c.advance().span


def misses_brace(c: Cursor, opening: Span) -> bool:
    """Whether a body was left open: what can't stand in it starts a line no further in than it."""
    return (
        c.token.text in DECLARATIONS
        and c.peek().kind != "="
        and c.starts_line()
        and c.indent(c.token.span) <= c.indent(opening)
    )
