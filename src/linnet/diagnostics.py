"""Source text, places in it, and what the front end says about them.

Every complaint of the front end is a `Diagnostic`: a stable code, a span, what is wrong there,
notes that give the other side, and a `help` line that names the fix. The parser and the checker
collect them in a `Diagnostics` list; `render` prints them for a terminal, `to_json` for tools.
"""

from __future__ import annotations

import bisect
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, eq=False)
class SourceFile:
    """One file's name, as shown to the user, and its text."""

    name: str
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(i + 1 for i, char in enumerate(self.text) if char == "\n")]

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1; the column counts characters."""
        line = bisect.bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line, from 1, without its end."""
        start = self._line_starts[number - 1]
        end = self._line_starts[number] - 1 if number < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r")


@dataclass(slots=True, unsafe_hash=True)  # Never changed; not frozen, as that halves its speed.
class Span:
    """The characters `start` to `end` (exclusive) of one file."""

    source: SourceFile
    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of another."""
        return Span(self.source, self.start, max(self.end, other.end))

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def location(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"


@dataclass(frozen=True, slots=True)
class Note:
    """A second thing to know; with a span, it is shown in the source."""

    message: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error (`E…`) or warning (`W…`)."""

    code: str
    message: str
    span: Span | None
    label: str = ""
    """What stands under the caret; may be empty."""
    notes: tuple[Note, ...] = ()
    help: str | None = None

    @property
    def is_error(self) -> bool:
        return self.code.startswith("E")


MAX_ERRORS = 100
"""How many errors one run keeps: past that nobody reads on, and the text may be no source."""


@dataclass(slots=True)
class Diagnostics:
    """What one run has found so far, each place and code once, up to `MAX_ERRORS` errors."""

    items: list[Diagnostic] = field(default_factory=list)
    _seen: set[tuple[str, str, int, int]] = field(default_factory=set)
    _errors: int = 0

    @property
    def is_full(self) -> bool:
        """Whether further errors would be dropped, so that nobody need look for their help."""
        return self._errors >= MAX_ERRORS

    def add(self, diagnostic: Diagnostic) -> None:
        if self.is_full:
            return
        span = diagnostic.span
        if span is not None:
            key = (diagnostic.code, span.source.name, span.start, span.end)
            if key in self._seen:
                return
            self._seen.add(key)
        self._errors += diagnostic.is_error
        self.items.append(diagnostic)

    def error(
        self,
        code: str,
        message: str,
        span: Span | None,
        *,
        label: str = "",
        notes: Iterable[Note] = (),
        help: str | None = None,
    ) -> None:
        self.add(Diagnostic(code, message, span, label, tuple(notes), help))

    @property
    def errors(self) -> list[Diagnostic]:
        return [item for item in self.items if item.is_error]

    @property
    def has_errors(self) -> bool:
        return self._errors > 0

    def final(self) -> list[Diagnostic]:
        """What to show, in source order: warnings only where there are no errors."""
        shown = self.errors or self.items
        return sorted(
            shown, key=lambda d: (d.span.source.name, d.span.start) if d.span else ("", -1)
        )

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.items)


class LinnetError(ValueError):
    """A source that can't be used; carries the diagnostics that say why."""

    def __init__(self, diagnostics: Iterable[Diagnostic]):
        self.diagnostics = list(diagnostics)
        super().__init__(render(self.diagnostics))


def render(diagnostics: Iterable[Diagnostic]) -> str:
    """Diagnostics as text: code, message, source line and caret, notes, help."""
    return "\n\n".join(_render_one(d) for d in diagnostics)


def _render_one(d: Diagnostic) -> str:
    kind = "error" if d.is_error else "warning"
    lines = [f"{kind}[{d.code}]: {d.message}"]
    gutter = _gutter_width(d)
    if d.span is not None:
        lines += _excerpt(d.span, d.label, gutter, "^")
    for note in d.notes:
        lines.append(f"{' ' * gutter} = note: {note.message}")
        if note.span is not None:
            lines += _excerpt(note.span, "", gutter, "-")
    if d.help is not None:
        lines.append(f"{' ' * gutter} = help: {d.help}")
    return "\n".join(lines)


def _gutter_width(d: Diagnostic) -> int:
    spans = [d.span, *(note.span for note in d.notes)]
    numbers = [s.source.position(s.start)[0] for s in spans if s is not None]
    return len(str(max(numbers, default=1)))


_MAX_LINE = 160


def _excerpt(span: Span, label: str, gutter: int, mark: str) -> list[str]:
    line, column = span.source.position(span.start)
    text = span.source.line(line)
    width = max(1, min(span.end - span.start, len(text) - column + 1))
    cut = max(0, column - _MAX_LINE // 2) if len(text) > _MAX_LINE else 0
    shown = printable(text[cut : cut + _MAX_LINE])
    indent = _columns(printable(text[cut : column - 1]))
    under = _columns(printable(text[column - 1 : column - 1 + width])) or 1
    pad = " " * gutter
    carets = f"{' ' * indent}{mark * min(under, _MAX_LINE)}"
    return [
        f"{pad}--> {span.source.name}:{line}:{column}",
        f"{pad} |",
        f"{line:>{gutter}} | {shown}".rstrip(),
        f"{pad} | {carets} {label}".rstrip(),
    ]


def printable(text: str) -> str:
    """Text safe for a terminal: tabs as four spaces, what can't be seen as `\\u{…}`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        "    " if c == "\t" else c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text
    )


def _columns(text: str) -> int:
    """How many columns of a terminal a text takes: wide characters two, accents none."""
    if text.isascii():
        return len(text)
    marks = sum(unicodedata.combining(c) > 0 for c in text)
    return len(text) - marks + sum(unicodedata.east_asian_width(c) in "WF" for c in text)


def to_json(diagnostics: Iterable[Diagnostic]) -> list[dict[str, object]]:
    """Diagnostics as plain data, one object each, positions from 1 and offsets from 0."""
    return [
        {
            "code": d.code,
            "severity": "error" if d.is_error else "warning",
            "message": d.message,
            "label": d.label or None,
            "span": _span_json(d.span),
            "notes": [{"message": n.message, "span": _span_json(n.span)} for n in d.notes],
            "help": d.help,
        }
        for d in diagnostics
    ]


def _span_json(span: Span | None) -> dict[str, object] | None:
    if span is None:
        return None
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    return {
        "file": span.source.name,
        "start": span.start,
        "end": span.end,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
    }
