"""A place in the token list, and what every part of the parser does there.

A mistake is reported once, then `Stop` unwinds to the nearest statement, member or item, which
skips to where the next one starts: so one cause gives one message and the rest is still read.
"""

from __future__ import annotations

from linnet.diagnostics import Diagnostics, SourceFile, Span
from linnet.syntax.ast import Expr, GenericArg, Name
from linnet.syntax.tokens import Token

MAX_DEPTH = 100
"""How deep an expression's tree may be; keeps every pass over it inside Python's own stack."""
MAX_NESTING = 48
"""How many brackets, blocks and types may stand inside one another."""


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
        self.bad_lines = {source.position(d.span.start)[0] for d in diagnostics if d.span
                          and d.span.source is source}  # fmt: skip
        """Lines with a lexical mistake: what the parser stumbles over there is no second one."""
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
        """Takes a name; `what` says of what. A reserved word is reported and taken as one."""
        token = self.token
        if token.kind in ("reserved", "keyword") and self._is_used_as_name():
            if token.kind == "keyword" and token.text not in ("crate", "self", "super"):
                raise self.fail(
                    "E1004", f"`{token.text}` is a keyword and can't name {what}", token.span
                )
            self.report("E1004", f"`{token.text}` is reserved and can't name {what}", token.span)
        elif token.kind != "name":
            raise self.unexpected(what)
        self.advance()
        return Name(token.text, token.span)

    def _is_used_as_name(self) -> bool:
        follower = self.peek()
        return self.token.kind == "reserved" or follower.text in (
            ":", "=", ",", ")", "(", "<", "{", ">", "[", "]", "}", "in", ".",
        )  # fmt: skip

    # Complaining.

    def report(self, code: str, message: str, span: Span, help: str | None = None) -> None:
        if self.speculating:
            raise Stop
        if code == "E1101" and self.source.position(span.start)[0] in self.bad_lines:
            return
        self.diagnostics.error(code, message, span, help=help)

    def fail(self, code: str, message: str, span: Span, help: str | None = None) -> Stop:
        """Reports; to be raised by the caller."""
        self.report(code, message, span, help)
        return Stop()

    def unexpected(self, expected: str, help: str | None = None) -> Stop:
        token = self.token
        if token.kind == "reserved" or token.text == "extern":
            return self.fail(
                "E1103",
                f"`{token.text}` is reserved syntax that this version doesn't support",
                token.span,
            )
        return self.fail("E1101", f"expected {expected}, found {token}", token.span, help)

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
