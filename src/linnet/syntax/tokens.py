"""Text to tokens.

One regular expression finds the next token, so any text gives a token list that ends in `end`.
What is no token is reported and leaves an `error`, over which the parser stumbles without a second
message. White space and plain comments leave nothing; a documentation comment does (`doc`).
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from dataclasses import dataclass
from pathlib import Path

from linnet.diagnostics import Diagnostics, SourceFile, Span, printable

KEYWORDS = frozenset((
    "module", "use", "pub", "crate", "self", "super", "as", "const", "type", "struct", "enum",
    "fn", "op", "block", "entry", "param", "buffer", "state", "sub", "let", "var", "return",
    "if", "else", "match", "static", "for", "in", "while", "where", "true", "false", "none",
    "some", "extern",
))  # fmt: skip
RESERVED = frozenset((
    "async", "await", "effect", "unsafe", "macro", "trait", "impl", "derive", "random", "rng",
    "mut", "ref", "yield", "kernel", "device",
))  # fmt: skip

MAX_BYTES = 1 << 20
"""The largest source file read: far more than any model, little enough to stay quick."""


@dataclass(slots=True, eq=False)  # Never changed; not frozen, as that halves its speed.
class Token:
    kind: str
    """`name`, `keyword`, `reserved`, `int`, `float`, `string`, `doc`, `error`, `end`, or the mark
    itself."""
    text: str
    span: Span
    value: int | float | str | None = None
    """What a literal or documentation comment says."""

    def __str__(self) -> str:
        return "the end of the file" if self.kind == "end" else f"`{printable(self.text[:40])}`"


_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
    (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<doc>///(?!/)[^\n]*|/\*\*(?![*/]))
  | (?P<comment>//[^\n]*)
  | (?P<open>/\*)
  | (?P<mark>\.\.\.|\.\.|::|->|=>|==|!=|<=|>=|&&|\|\||[-+*/%<>=!&|^()\[\]{},;:.?])
  | (?P<number>0[xXbB][A-Za-z0-9_]*
      |[0-9](?:[eE][+-][0-9]|\.(?!\.)[0-9]|[A-Za-z0-9_])*(?:\.(?![.A-Za-z_]))?)
  | (?P<string>")
  | (?P<end>\Z)
  | (?P<invalid>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_INT = re.compile(r"0x_*[0-9a-fA-F][0-9a-fA-F_]*|0b_*[01][01_]*|[0-9][0-9_]*")
_FLOAT = re.compile(r"[0-9][0-9_]*(?:\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9][0-9_]*)?")
_STRING = re.compile(r'(?:[^"\\\n]|\\.?)*')
_INVALID = re.compile(
    r"#[^\n]*|'[^'\n]*'|[“”][^“”\n]*[“”]|[^\W\d]\w*|.(?:[`$@~\\]|[^\s\x20-\x7e])*", re.DOTALL
)
"""As much as one mistake covers: a comment of another language, a text, a word, a run of signs."""
_NESTED = re.compile(r"/\*|\*/")
_ESCAPE = re.compile(r"\\(u\{[0-9a-fA-F]{1,6}\}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"'}


def read_source(path: Path, diagnostics: Diagnostics, name: str | None = None) -> SourceFile | None:
    """A file as text; None, and reported, where it can't be read or is too large."""
    shown = name or str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        diagnostics.error("E1202", f"cannot read {shown}: {error.strerror}", None)
        return None
    return decode_source(data, shown, diagnostics)


def decode_source(data: bytes, name: str, diagnostics: Diagnostics) -> SourceFile | None:
    """Bytes as a source; the first that is no UTF-8 is reported where it stands.

    None, and reported, where they are too many.
    """
    if len(data) > MAX_BYTES:
        diagnostics.error(
            "E1001", f"{name} is larger than {MAX_BYTES >> 20} MiB, the most a source may be", None
        )
        return None
    data = data.removeprefix(BOM_UTF8)
    try:
        return SourceFile(name, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8")
        source = SourceFile(name, data.decode("utf-8", "replace"))
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
    find = _TOKEN.match
    while True:
        match = find(text, position)
        assert match is not None and match.lastgroup is not None  # The last case takes anything.
        kind = match.lastgroup
        start, position = match.span(kind)
        if kind == "comment":
            continue
        word = text[start:position]
        if kind == "mark":
            tokens.append(Token(word, word, Span(source, start, position)))
        elif kind == "name":
            kind = "keyword" if word in KEYWORDS else "reserved" if word in RESERVED else "name"
            tokens.append(Token(kind, word, Span(source, start, position)))
        elif kind == "number":
            tokens.append(_number(word, Span(source, start, position), diagnostics))
        elif kind == "string":
            tokens += _string(source, start, diagnostics)
            position = tokens[-1].span.end
        elif kind == "end":
            tokens.append(Token("end", "", Span(source, start, position)))
            return tokens
        elif kind == "invalid":
            tokens.append(_invalid(source, start, diagnostics))
            position = tokens[-1].span.end
        elif word.startswith("///"):
            span = Span(source, start, position)
            tokens.append(Token("doc", word, span, word[3:].removeprefix(" ").rstrip()))
        else:
            position, closed = _comment_end(source, start, diagnostics)
            span = Span(source, start, position)
            if not closed:
                tokens.append(Token("error", "", span))
            elif kind == "doc":
                tokens.append(Token("doc", span.text, span, _block_doc(span.text)))


def _invalid(source: SourceFile, start: int, diagnostics: Diagnostics) -> Token:
    """What begins no token, as one mistake."""
    match = _INVALID.match(source.text, start)
    assert match is not None
    span = Span(source, start, match.end())
    char = source.text[start]
    if char == "\ufffd" and any(d.span and d.span.source is source for d in diagnostics):
        return Token("error", span.text, span)  # `decode_source` reported what it replaced.
    help = None
    if char in "'“”":
        help = 'text stands between double quotes: "…"'
    elif char == "#":
        help = "a comment starts with `//`"
    elif char == "@":
        help = "there are no decorators; a matrix product is `matmul` of `std.linalg`"
    elif char.isalpha():
        help = "names use the letters A to Z, digits and `_` alone"
    diagnostics.error(
        "E1001",
        f"`{printable(char)}` (U+{ord(char):04X}) cannot stand in a source",
        span,
        help=help,
    )
    return Token("error", span.text, span)


def _comment_end(source: SourceFile, start: int, diagnostics: Diagnostics) -> tuple[int, bool]:
    """Where the block comment ends, and whether it is closed there."""
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
            return len(source.text), False
        depth += 1 if match.group() == "/*" else -1
        position = match.end()
    return position, True


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


def _string(source: SourceFile, start: int, diagnostics: Diagnostics) -> list[Token]:
    """The string at a quote; an `error` after it where it is never closed."""
    match = _STRING.match(source.text, start + 1)
    assert match is not None
    end = match.end()
    closed = source.text[end : end + 1] == '"'
    span = Span(source, start, end + closed)
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
    token = Token("string", span.text, span, "".join(value))
    if closed:
        return [token]
    diagnostics.error(
        "E1003", "this text is never closed", span, help='close it with `"` on the same line'
    )
    return [token, Token("error", "", Span(source, end, end))]
