"""Text to tokens.

One regular expression finds the next token; what it can't match is reported and skipped, so that
any text gives a token list that ends in `end`. White space and plain comments leave no token;
a documentation comment does (`doc`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from linnet.diagnostics import Diagnostics, SourceFile, Span, printable

KEYWORDS = frozenset(
    "module use pub crate self super as const type struct enum fn op block entry param buffer "
    "state sub let var return if else match static for in while where true false none some "
    "extern".split()
)
RESERVED = frozenset(
    "async await effect unsafe macro trait impl derive random rng mut ref yield kernel "
    "device".split()
)

MAX_BYTES = 4 << 20
"""The largest source file read: far more than any model, little enough to stay quick."""


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """`name`, `keyword`, `reserved`, `int`, `float`, `string`, `doc`, `end`, or the mark itself."""
    text: str
    span: Span
    value: int | float | str | None = None
    """What a literal or documentation comment says."""

    def __str__(self) -> str:
        return "the end of the file" if self.kind == "end" else f"`{printable(self.text[:40])}`"


_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
  | (?P<doc>///(?!/)[^\n]*|/\*\*(?![*/]))
  | (?P<comment>//[^\n]*)
  | (?P<open>/\*)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>0[xXbB][A-Za-z0-9_]*|[0-9](?:[eE][+-][0-9]|\.(?!\.)[0-9]|[A-Za-z0-9_])*(?:\.(?![.A-Za-z_]))?)
  | (?P<string>")
  | (?P<mark>\.\.\.|\.\.|::|->|=>|==|!=|<=|>=|&&|\|\||[-+*/%<>=!&|^()\[\]{},;:.?])
    """,
    re.VERBOSE,
)
_INT = re.compile(r"0x[0-9a-fA-F_]*[0-9a-fA-F][0-9a-fA-F_]*|0b[01_]*[01][01_]*|[0-9][0-9_]*")
_FLOAT = re.compile(r"[0-9][0-9_]*(?:\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9][0-9_]*)?")
_STRING = re.compile(r'(?:[^"\\\n]|\\[^\n])*')
_NESTED = re.compile(r"/\*|\*/")
_ESCAPE = re.compile(r"\\(u\{[0-9a-fA-F]{1,6}\}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"'}


def read_source(path: Path, diagnostics: Diagnostics, name: str | None = None) -> SourceFile:
    """A file as text; what can't be read or decoded is reported and replaced."""
    shown = name or str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        diagnostics.error("E1202", f"cannot read {shown}: {error.strerror}", None)
        return SourceFile(shown, "")
    return decode_source(data, shown, diagnostics)


def decode_source(data: bytes, name: str, diagnostics: Diagnostics) -> SourceFile:
    """Bytes as a source; a byte that is no UTF-8 is reported where it stands."""
    if len(data) > MAX_BYTES:
        diagnostics.error(
            "E1001", f"{name} is larger than {MAX_BYTES >> 20} MiB, the most a source may be", None
        )
        return SourceFile(name, "")
    try:
        return SourceFile(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8-sig")
        source = SourceFile(name, data.decode("utf-8-sig", "replace"))
        diagnostics.error(
            "E1001",
            f"this byte is not UTF-8: 0x{data[error.start]:02x}",
            Span(source, len(good), len(good) + 1),
            help="save the file as UTF-8",
        )
        return source


def tokenize(source: SourceFile, diagnostics: Diagnostics) -> list[Token]:
    """All tokens of a source, the last one `end`; reports E1001 to E1003 and E1005."""
    text = source.text
    tokens: list[Token] = []
    position = 0
    match_token = _TOKEN.match
    while position < len(text):
        match = match_token(text, position)
        if match is None:
            position = _skip_invalid(source, position, diagnostics)
            continue
        kind, start, end = match.lastgroup or "", position, match.end()
        position = end
        if kind == "space" or kind == "comment":
            continue
        word = match.group()
        if kind == "name":
            kind = "keyword" if word in KEYWORDS else "reserved" if word in RESERVED else "name"
            tokens.append(Token(kind, word, Span(source, start, end)))
        elif kind == "mark":
            tokens.append(Token(word, word, Span(source, start, end)))
        elif kind == "number":
            tokens.append(_number(word, Span(source, start, end), diagnostics))
        elif kind == "string":
            token = _string(source, start, diagnostics)
            tokens.append(token)
            position = token.span.end
        elif word.startswith("///"):
            span = Span(source, start, end)
            tokens.append(Token("doc", word, span, word[3:].removeprefix(" ").rstrip()))
        else:
            position = _comment_end(source, start, diagnostics)
            if kind == "doc":
                span = Span(source, start, position)
                tokens.append(Token("doc", span.text, span, _block_doc(span.text)))
    tokens.append(Token("end", "", Span(source, len(text), len(text))))
    return tokens


def _skip_invalid(source: SourceFile, start: int, diagnostics: Diagnostics) -> int:
    """Past a run of characters that begin no token; a run is one mistake, not many."""
    text, end = source.text, start + 1
    while end < len(text) and not text[end].isspace() and _TOKEN.match(text, end) is None:
        end += 1
    char = text[start]
    shown = printable(char)
    help = None
    if char == "'":
        help = 'text stands between double quotes: "…"'
    elif char.isalpha():
        help = "names use the letters A to Z, digits and `_` alone"
    elif char == "@":
        help = "there are no decorators; a matrix product is `matmul` of `std.linalg`"
    diagnostics.error(
        "E1001",
        f"`{shown}` (U+{ord(char):04X}) cannot stand in a source",
        Span(source, start, end),
        help=help,
    )
    return end


def _comment_end(source: SourceFile, start: int, diagnostics: Diagnostics) -> int:
    depth, position = 1, start + 2
    while depth:
        match = _NESTED.search(source.text, position)
        if match is None:
            diagnostics.error(
                "E1002",
                "this block comment is never closed",
                Span(source, start, start + 2),
                help="close it with `*/`; comments nest, so each `/*` needs its own",
            )
            return len(source.text)
        depth += 1 if match.group() == "/*" else -1
        position = match.end()
    return position


def _block_doc(text: str) -> str:
    lines = text[3:].removesuffix("*/").splitlines()
    return "\n".join(line.strip().removeprefix("*").strip() for line in lines).strip()


def _number(word: str, span: Span, diagnostics: Diagnostics) -> Token:
    if _INT.fullmatch(word):
        digits = word.replace("_", "")
        base = {"0x": 16, "0b": 2}.get(digits[:2], 10)
        if len(digits) > 100:
            diagnostics.error("E1005", "a number of more than 100 digits", span)
            return Token("int", word, span, 0)
        return Token("int", word, span, int(digits, base))
    if _FLOAT.fullmatch(word):
        value = float(word.replace("_", ""))
        if value == float("inf"):
            diagnostics.error("E1005", f"`{word}` is beyond the range of f64", span)
        return Token("float", word, span, value)
    diagnostics.error(
        "E1005",
        f"`{printable(word[:40])}` is no number",
        span,
        help=_number_help(word),
    )
    is_float = "." in word or ("e" in word.lower() and not word.startswith("0x"))
    return Token("float", word, span, 0.0) if is_float else Token("int", word, span, 0)


def _number_help(word: str) -> str:
    if word.endswith("."):
        return f"write `{word}0`"
    if word[:2] in ("0x", "0b"):
        return "hexadecimal is 0xff, binary 0b1010"
    return "integers are 42, 1_000, 0xff, 0b1010; floats 1.5, 1e-5"


def _string(source: SourceFile, start: int, diagnostics: Diagnostics) -> Token:
    match = _STRING.match(source.text, start + 1)
    end = match.end() if match else start + 1
    closed = source.text[end : end + 1] == '"'
    span = Span(source, start, end + 1 if closed else end)
    if not closed:
        diagnostics.error(
            "E1003", "this text is never closed", span, help='close it with `"` on the same line'
        )
    value: list[str] = []
    position = start + 1
    for escape in _ESCAPE.finditer(source.text, start + 1, end):
        value.append(source.text[position : escape.start()])
        position = escape.end()
        code = escape.group(1)
        if code in _ESCAPES:
            value.append(_ESCAPES[code])
            continue
        point = int(code[2:-1], 16) if code.startswith("u{") else -1
        if 0 <= point <= 0x10FFFF and not 0xD800 <= point <= 0xDFFF:
            value.append(chr(point))
            continue
        diagnostics.error(
            "E1003",
            f"`{printable(escape.group())}` is no escape",
            Span(source, escape.start(), escape.end()),
            help=r"the escapes are \n \t \r \0 \\ \" and \u{1F600}",
        )
    value.append(source.text[position:end])
    return Token("string", span.text, span, "".join(value))
