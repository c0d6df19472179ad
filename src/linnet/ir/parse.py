"""Reads the text that `printer.py` writes, so that passes are tested text in, text out.

    module  = "module" name {function} ["prepare" path {"," path} function]
    function = kind name ["from" key] ["<" name "=" attr {"," …} ">"] {operand} {op} return [next]

One line holds one thing; a line without indentation starts a function. `parse_module` verifies
nothing: call `verify` on what it gives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from linnet.dtypes import DType
from linnet.ir.core import Attr, Function, Module, Op, Slot, TensorType, Value
from linnet.ir.verify import KINDS, WEIGHT_KINDS

_DTYPES = {dtype.value: dtype for dtype in DType}
_TOKEN = re.compile(
    r"\s*(?:(?P<string>\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<number>-inf\b|-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
    r"|(?P<name>[A-Za-z_@][\w.@]*(?:::[\w.]+)*)"
    r"|(?P<mark>[\[\]{}<>,=:]))"
)


class ParseError(ValueError):
    """Text that is no Core IR; names the line."""


def parse_module(text: str) -> Module:
    """The module that a text describes. Raises `ParseError`."""
    functions: dict[str, Function] = {}
    entry, prepare, derived = "", None, None
    for lines in _paragraphs(text):
        word, _, rest = lines[0][1].partition(" ")
        if word == "module":
            entry = rest.strip()
        elif word == "prepare":
            derived = tuple(path.strip() for path in rest.split(","))
        elif derived is not None:
            prepare = _Reader(lines).function()
        else:
            function = _Reader(lines).function()
            functions[function.name] = function
    if entry not in functions:
        raise ParseError(f"no function for the entry `{entry}`")
    return Module(functions, entry, prepare, derived or ())


def _paragraphs(text: str) -> Iterator[list[tuple[int, str]]]:
    """Groups of numbered lines, each starting with one that is not indented."""
    group: list[tuple[int, str]] = []
    margin = min((len(s) - len(s.lstrip()) for s in text.splitlines() if s.strip()), default=0)
    for number, line in enumerate(text.splitlines(), 1):
        line = line[margin:].rstrip()
        if not line:
            continue
        if group and not line.startswith(" "):
            yield group
            group = []
        group.append((number, line))
    if group:
        yield group


class _Reader:
    """Reads one function; `tokens` are those left of the current line."""

    def __init__(self, lines: list[tuple[int, str]]):
        self.lines = lines
        self.number = 0
        self.tokens: list[tuple[str, str]] = []
        self.values: dict[str, Value] = {}

    def function(self) -> Function:
        location = self.start(self.lines[0])
        kind, name = self.name(), self.name()
        if kind not in KINDS:
            raise self.error(f"`{kind}` is no kind of function")
        source = ""
        if self.peek() == "from":
            self.name()
            source = self.name()
        generics = self.attributes("<", ">") if self.peek() == "<" else {}
        inputs: list[Value] = []
        arguments: list[str] = []
        slots: list[Slot] = []
        ops: list[Op] = []
        results: tuple[Value, ...] = ()
        new_states: tuple[Value, ...] = ()
        for line in self.lines[1:]:
            place = self.start(line)
            word = self.peek()
            if len(self.tokens) > 1 and self.tokens[1][1] in (":", ",", "="):
                ops.append(self.op(place))
            elif word == "input":
                self.name()
                inputs.append(self.define())
                self.mark("=")
                arguments.append(self.name())
            elif word in (*WEIGHT_KINDS, "state"):
                self.name()
                value = self.define()
                self.mark("=")
                slots.append(Slot(self.name(), word, value))
            elif word == "return":
                self.name()
                results = self.uses()
            elif word == "next":
                self.name()
                new_states = self.uses()
            else:
                ops.append(self.op(place))
            if self.tokens:
                raise self.error(f"`{self.tokens[0][1]}` is too much")
        return Function(
            name=name,
            source=source,
            kind=kind,
            generics=tuple(generics.items()),  # type: ignore[arg-type]
            inputs=tuple(inputs),
            weights=tuple(s for s in slots if s.kind != "state"),
            states=tuple(s for s in slots if s.kind == "state"),
            ops=tuple(ops),
            results=results,
            new_states=new_states,
            arguments=tuple(arguments),
            location=location,
        )

    def op(self, location: str) -> Op:
        outputs: list[tuple[str, TensorType]] = []
        if len(self.tokens) > 1 and self.tokens[1][1] == ":":
            while True:
                name = self.name()
                self.mark(":")
                outputs.append((name, self.type()))
                if self.peek() != ",":
                    break
                self.mark(",")
            self.mark("=")
        kind = self.name()
        inputs = self.uses()
        attrs = self.attributes("{", "}") if self.peek() == "{" else {}
        defined = tuple(self.value(name, type_) for name, type_ in outputs)
        return Op(kind, inputs, defined, attrs, location)

    def define(self) -> Value:
        name = self.name()
        self.mark(":")
        return self.value(name, self.type())

    def value(self, name: str, type_: TensorType) -> Value:
        value = Value(name, type_)
        self.values.setdefault(name, value)
        return value

    def uses(self) -> tuple[Value, ...]:
        found: list[Value] = []
        while self.tokens and self.tokens[0][0] == "name":
            name = self.name()
            if name not in self.values:
                raise self.error(f"`{name}` is not defined")
            found.append(self.values[name])
            if self.peek() == ",":
                self.mark(",")
        return tuple(found)

    def type(self) -> TensorType:
        dtype = _DTYPES.get(name := self.name())
        shape = self.attribute()
        if dtype is None or not isinstance(shape, tuple):
            raise self.error(f"`{name}` starts no type")
        return TensorType(shape, dtype)  # type: ignore[arg-type]

    def attributes(self, opening: str, closing: str) -> dict[str, Attr]:
        found: dict[str, Attr] = {}
        self.mark(opening)
        while self.peek() != closing:
            name = self.name()
            self.mark("=")
            found[name] = self.attribute()
            if self.peek() == ",":
                self.mark(",")
        self.mark(closing)
        return found

    def attribute(self) -> Attr:
        kind, text = self.take()
        if kind == "string":
            return json.loads(text)
        if kind == "number":
            return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        if text == "[":
            items: list[Attr] = []
            while self.peek() != "]":
                items.append(self.attribute())
                if self.peek() == ",":
                    self.mark(",")
            self.mark("]")
            return tuple(items)  # type: ignore[return-value]
        if text in _DTYPES:
            return _DTYPES[text]
        named: dict[str, Attr] = {"true": True, "false": False, "inf": float("inf"),
                                  "nan": float("nan")}  # fmt: skip
        if text not in named:
            raise self.error(f"`{text}` is no attribute")
        return named[text]

    def start(self, line: tuple[int, str]) -> str:
        """Splits a line into tokens; returns the location that follows `//`."""
        self.number, text = line
        text, _, location = text.partition(" // ")
        self.tokens, at = [], 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.error(f"`{text[at:].strip()}` can't be read")
            at = match.end()
            assert match.lastgroup is not None
            self.tokens.append((match.lastgroup, match[match.lastgroup]))
        return location

    def peek(self) -> str:
        return self.tokens[0][1] if self.tokens else ""

    def take(self) -> tuple[str, str]:
        if not self.tokens:
            raise self.error("the line ends too early")
        return self.tokens.pop(0)

    def name(self) -> str:
        kind, text = self.take()
        if kind != "name":
            raise self.error(f"a name expected, found `{text}`")
        return text

    def mark(self, text: str) -> None:
        if self.take()[1] != text:
            raise self.error(f"`{text}` expected")

    def error(self, message: str) -> ParseError:
        return ParseError(f"line {self.number}: {message}")
