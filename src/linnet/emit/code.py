"""Python source as text: expressions that know how tightly they bind, literals, long lines.

What a target's emitter builds its statements from. Nothing here knows a framework.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from linnet.dtypes import DType

WIDTH = 100
"""How long a line of generated code may be."""


class Level(IntEnum):
    """How tightly an expression binds, loosest first, as in Python's grammar."""

    CONDITIONAL = 0
    COMPARE = 4
    OR = 5
    XOR = 6
    AND = 7
    SHIFT = 8
    ADD = 9
    MUL = 10
    UNARY = 11
    ATOM = 13


@dataclass(frozen=True, slots=True)
class Code:
    """An expression; `level` says which operators around it need parentheses."""

    text: str
    level: int = Level.ATOM

    def at(self, level: int) -> str:
        """The text where an operand of at least this level is needed."""
        return self.text if self.level >= level else f"({self.text})"

    @property
    def atom(self) -> str:
        """The text where `.name`, `[…]` or `(…)` follows."""
        return self.at(Level.ATOM)


_BINARY = {
    "+": Level.ADD, "-": Level.ADD, "*": Level.MUL, "/": Level.MUL, "//": Level.MUL,
    "%": Level.MUL, "@": Level.MUL, "<<": Level.SHIFT, ">>": Level.SHIFT, "&": Level.AND,
    "^": Level.XOR, "|": Level.OR, "==": Level.COMPARE, "!=": Level.COMPARE,
    "<": Level.COMPARE, "<=": Level.COMPARE, ">": Level.COMPARE, ">=": Level.COMPARE,
}  # fmt: skip


_BITWISE = (Level.OR, Level.XOR, Level.AND, Level.SHIFT)


def binary(symbol: str, left: Code, right: Code) -> Code:
    """`left symbol right`, left-associative; comparisons don't chain, and operators on bits get
    parentheses where a reader would have to know how they bind."""
    level = _BINARY[symbol]
    outer = level + 1 if level == Level.COMPARE else level
    inner = level + 1
    if level in _BITWISE:
        outer = level if left.level == level and level != Level.SHIFT else Level.UNARY
        inner = Level.UNARY
    return Code(f"{left.at(outer)} {symbol} {right.at(inner)}", level)


def unary(symbol: str, operand: Code) -> Code:
    return Code(f"{symbol}{operand.at(Level.UNARY)}", Level.UNARY)


def call(function: str, *arguments: str) -> Code:
    return Code(f"{function}({', '.join(arguments)})")


def method(operand: Code, name: str, *arguments: str) -> Code:
    return call(f"{operand.atom}.{name}", *arguments)


def index(operand: Code, items: Sequence[str]) -> Code:
    """`x[…]`: a run of `:` in front becomes `...`, those at the end are left out."""
    found = list(items)
    while found and found[-1] == ":":
        found.pop()
    if not found:
        return operand
    whole = next(i for i, item in enumerate(found) if item != ":")
    if whole > 1 and len(found) == len(items):
        found = ["...", *found[whole:]]
    return Code(f"{operand.atom}[{', '.join(found)}]")


def shape_text(shape: Sequence[int]) -> str:
    """A shape as a tuple."""
    return f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(map(str, shape))})"


def literal(value: int | float | bool) -> Code:
    """A number as Python writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return Code(f'float("{value}")')
    text = repr(value)
    return Code(text, Level.UNARY if text.startswith("-") else Level.ATOM)


def rounded(value: int | float | bool, dtype: DType) -> int | float | bool:
    """A constant as its dtype holds it, written as short as its f32 (or f64) value allows."""
    if not dtype.is_float:
        return value
    exact = round_float(float(value), dtype)
    if dtype == DType.F64 or not math.isfinite(exact):
        return exact
    for digits in range(1, 17):
        short = float(f"{exact:.{digits}g}")
        if round_float(short, DType.F32) == exact:
            return short
    return exact


def round_float(value: float, dtype: DType) -> float:
    """The nearest number of a float dtype, ties to even."""
    if dtype == DType.F64 or not math.isfinite(value):
        return value
    if dtype == DType.BF16:
        (bits,) = struct.unpack("<I", struct.pack("<f", round_float(value, DType.F32)))
        bits += 0x7FFF + ((bits >> 16) & 1)
        return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]
    form = "<f" if dtype == DType.F32 else "<e"
    try:
        return struct.unpack(form, struct.pack(form, value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


# --- lines ----------------------------------------------------------------------------------


def fit(text: str, indent: int = 0, suffix: str = "") -> list[str]:
    """A statement as lines of at most `WIDTH` characters where brackets allow a break."""
    line = " " * indent + text + suffix
    if len(line) <= WIDTH:
        return [line]
    found = _widest_bracket(text)
    if found is None:
        return [line]
    start, end = found
    head, body, tail = text[: start + 1], text[start + 1 : end], text[end:]
    lines = [" " * indent + head]
    parts = list(_split(body))
    for i, part in enumerate(parts):
        comma = "," if len(parts) > 1 or i < len(parts) - 1 else ""
        lines += fit(part, indent + 4, comma)
    return [*lines, " " * indent + tail + suffix]


def _widest_bracket(text: str) -> tuple[int, int] | None:
    """Where the outermost bracket that holds the most text opens and closes."""
    best: tuple[int, int] | None = None
    depth = start = 0
    for i, character in _outside_strings(text):
        if character in "([{":
            if depth == 0:
                start = i
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0 and i - start > 1 and (best is None or i - start > best[1] - best[0]):
                best = start, i
    return best


def _split(text: str) -> Iterator[str]:
    """The parts of a text between its outermost commas."""
    depth = start = 0
    for i, character in _outside_strings(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()


def _outside_strings(text: str) -> Iterator[tuple[int, str]]:
    quote = ""
    for i, character in enumerate(text):
        if quote:
            if character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        else:
            yield i, character
