"""A place in the token list, and what every part of the parser does there.

A mistake is reported once, then `Stop` unwinds to the nearest statement, member or item, which
skips to where the next one starts: so one cause gives one message and the rest is still read.
"""

from __future__ import annotations

from collections.abc import Iterable

from linnet.diagnostics import Diagnostics, Note, SourceFile, Span
from linnet.syntax.ast import Expr, GenericArg, Name
from linnet.syntax.tokens import Token

MAX_DEPTH = 100
"""How deep an expression's tree may be; keeps every pass over it inside Python's own stack."""
MAX_NESTING = 48
"""How many brackets, blocks and types may stand inside one another."""


_NAME_ENDS = frozenset([":", "=", ",", ")", ">", "[", "]", "}", "in"])
_DECLARES = frozenset(["fn", "op", "entry", "block", "struct", "enum", "type"])
OTHER_WORDS = {
    "and": "`and` is `&&`",
    "or": "`or` is `||`",
    "not": "`not` is `!`",
    "elif": "`elif` is `else if`",
}
"""Words of other languages, where something else was expected."""


class Stop(Exception):
    """Unwinds after a mistake that was reported (or need not be: see `Cursor.speculating`)."""


class Cursor:
    """The tokens of one file and the position among them."""

    def __init__(self, source: SourceFile, tokens: list[Token], diagnostics: Diagnostics):
        self.source = source
        # Documentation is looked up from the token it stands before, and never in the way.
        self.docs: dict[int, list[str]] = {}
        self.tokens: list[Token] = []
        for token in tokens:
            if token.kind == "doc":
                self.docs.setdefault(len(self.tokens), []).append(str(token.value))
            else:
                self.tokens.append(token)
        self.position = 0
        self.diagnostics = diagnostics
        self.misnamed: set[str] = set()
        """Words refused as names: where one stands for a value, that is no second mistake."""
        self.knows_semicolons = False
        self.speculating = 0
        self.nesting = 0
        self.depths: dict[int, int] = {}
        self.kept: list[Expr] = []
        self.generic_calls: dict[int, tuple[tuple[GenericArg, ...], int] | None] = {}

    # Looking.

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.position + ahead, len(self.tokens) - 1)]

    @property
    def previous(self) -> Token:
        return self.tokens[max(self.position - 1, 0)]

    def at(self, *texts: str) -> bool:
        """Whether the next token is one of these marks or keywords."""
        token = self.token
        return token.text in texts and token.kind not in ("string", "end")

    @property
    def at_end(self) -> bool:
        return self.token.kind == "end"

    def doc(self) -> str | None:
        """The documentation that stands right before the next token."""
        lines = self.docs.get(self.position)
        return "\n".join(lines) if lines else None

    def since(self, start: Span) -> Span:
        """From the start of a span to the end of the token before the next."""
        return start.to(self.previous.span) if self.position else start

    # Taking.

    def advance(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.position += 1
        return token

    def take(self, text: str) -> Token | None:
        return self.advance() if self.at(text) else None

    def expect(self, text: str, where: str, help: str | None = None) -> Token:
        """Takes a mark or keyword; `where` says what it belongs to (`after the parameters`)."""
        if self.at(text):
            return self.advance()
        raise self.unexpected(f"`{text}` {where}", help)

    def name(self, what: str) -> Name:
        """Takes a name; `what` says of what. Another word used as one is reported and taken."""
        token = self.token
        if token.kind != "name":
            if not self._is_used_as_name():
                raise self.unexpected(what)
            why = "is a keyword" if token.kind == "keyword" else "is reserved"
            self.report("E1004", f"`{token.text}` {why} and can't name {what}", token.span)
            self.misnamed.add(token.text)
        self.advance()
        return Name(token.text, token.span)

    def _is_used_as_name(self) -> bool:
        """Whether a word that is no name stands where one is meant, by what is around it."""
        if self.token.kind != "keyword":
            return self.token.kind == "reserved"
        before, after = self.previous, self.peek().text
        if before.kind == "." and before.span.end == self.token.span.start:
            return True
        return after in _NAME_ENDS or (after in ("(", "<", "{") and before.text in _DECLARES)

    def pass_semicolons(self) -> None:
        """Past semicolons, which no statement needs; a file is told so once."""
        while self.at(";") and self._ends_here():
            if not self.knows_semicolons:
                self.knows_semicolons = True
                self.report(
                    "E1101",
                    "there are no semicolons",
                    self.token.span,
                    "leave them out: statements delimit themselves",
                )
            self.advance()

    def _ends_here(self) -> bool:
        """Whether something new follows the next token, as after a semicolon between statements."""
        after = self.peek()
        if after.kind in ("keyword", "}", ";", "end") or self.peek(2).kind == "=":
            return True
        return "\n" in self.source.text[self.token.span.end : after.span.start]

    # Complaining.

    def report(
        self,
        code: str,
        message: str,
        span: Span,
        help: str | None = None,
        notes: Iterable[Note] = (),
    ) -> None:
        if self.speculating:
            raise Stop
        at_error = self.token.kind == "error" or (self.at_end and self.previous.kind == "error")
        if at_error and code != "E1004":
            return  # The tokeniser reported it.
        self.diagnostics.error(code, message, span, help=help, notes=notes)

    def fail(
        self,
        code: str,
        message: str,
        span: Span,
        help: str | None = None,
        notes: Iterable[Note] = (),
    ) -> Stop:
        """Reports; to be raised by the caller."""
        self.report(code, message, span, help, notes)
        return Stop()

    def unexpected(
        self, expected: str, help: str | None = None, opening: Span | None = None
    ) -> Stop:
        """What was expected and what is there; `opening` is the bracket that waits to be closed."""
        token = self.token
        if token.kind == "reserved" or token.text == "extern":
            message = f"`{token.text}` is reserved syntax that this version doesn't support"
            return self.fail("E1103", message, token.span)
        notes = []
        if opening is not None and self._line(opening) != self._line(token.span):
            notes.append(Note("it opens here", opening))
        message = f"expected {expected}, found {token}"
        return self.fail("E1101", message, token.span, help or OTHER_WORDS.get(token.text), notes)

    # Lines, which say what a person meant where brackets don't match.

    def _line(self, span: Span) -> int:
        return self.source.position(span.start)[0]

    def starts_line(self) -> bool:
        """Whether the next token is the first on its line: where a person starts a new thing."""
        start = self.previous.span.end if self.position else 0
        return not self.position or "\n" in self.source.text[start : self.token.span.start]

    def indent(self, span: Span) -> int:
        """How far in the line starts on which a span starts."""
        _, column = self.source.position(span.start)
        start = span.start - column + 1
        line = self.source.text[start : span.start]
        return len(line) - len(line.lstrip())

    # Depth.

    def enter(self) -> None:
        """One bracket, block or type further in; `leave` goes with it."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise self.fail(
                "E1101",
                f"nested more than {MAX_NESTING} deep",
                self.token.span,
                help="name the inner parts with `let`",
            )

    def leave(self) -> None:
        self.nesting -= 1

    def built(self, node: Expr, *children: Expr | None) -> Expr:
        """The node itself, once its tree is known not to be too deep."""
        depth = 1 + max((self.depths.get(id(c), 1) for c in children if c is not None), default=0)
        if depth > MAX_DEPTH:
            raise self.fail(
                "E1101",
                f"an expression nested more than {MAX_DEPTH} deep",
                node.span,
                help="name the inner parts with `let`",
            )
        self.depths[id(node)] = depth
        self.kept.append(node)  # An id is only a key while its node lives.
        return node
