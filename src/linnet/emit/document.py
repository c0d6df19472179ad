"""A generated function as text, with the docstring that says where it comes from."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from linnet.dtypes import DType
from linnet.emit.code import WIDTH
from linnet.emit.lines import Line, Statement, Suite, render
from linnet.ir.core import Function
from linnet.ir.lower import snake_case


@dataclass(slots=True)
class FunctionText:
    """A function's text, and the functions of the IR that it is: two that differ only by types
    that the text does not mention are written once."""

    name: str
    origin: str
    types: list[str]
    parameters: Sequence[str]
    statements: Sequence[Statement]

    def lines(self) -> str:
        doc = textwrap.wrap(self.origin, WIDTH - 8)
        for types in self.types:
            doc += ["", *textwrap.wrap(types, WIDTH - 4)]
        doc[0] = f'"""{doc[0]}'
        doc = [*doc, '"""'] if len(doc) > 1 else [f'{doc[0]}"""']
        suite = Suite(
            f"def {self.name}({', '.join(self.parameters)}):",
            (*map(Line, doc), *self.statements),
        )
        return "\n".join(render([suite])) + "\n"


def origin(function: Function) -> str:
    """Where a function comes from; what was inlined first may come from the library."""
    places = [op.location.rsplit("/", 1)[-1] for op in function.ops if op.location]
    own = [op.location for op in function.ops if op.location]
    if not function.source.startswith("std."):
        places = [p for p, o in zip(places, own, strict=True) if not o.startswith("<std>")]
    where = places[0].rsplit(":", 1)[0] if places else ""
    return f"`{display(function.source)}`" + (f", {where}" if where else "")


def types_line(function: Function, constants: Collection[int]) -> str:
    """What a function takes and gives; inputs that are constants are left out."""
    takes = [
        f"{value.name}: {value.type}"
        for i, value in enumerate(function.inputs)
        if i not in constants
    ]
    gives = ", ".join(str(value.type) for value in function.results) or "nothing"
    return f"{', '.join(takes)} -> {gives}" if takes else f"-> {gives}"


def last_word(source: str, otherwise: str, taken: Collection[str]) -> str:
    """An entry's own name: `decode` of `crate::Llama.decode`."""
    name = source.rsplit("::", 1)[-1].rsplit(".", 1)[-1]
    return name if name.isidentifier() and name not in taken else otherwise


def display(source: str) -> str:
    """What a source's key is called in text."""
    return source.removeprefix("crate::")


def bound_text(value: int | DType | tuple[int, ...]) -> str:
    """What a generic is bound to, as text."""
    return str(list(value)) if isinstance(value, tuple) else str(value)


def block_name(function: Function, root: bool) -> str:
    """What a function calls the block it belongs to."""
    owner = function.source.rsplit("::", 1)[-1]
    name = "model" if root or "." not in owner else snake_case(owner.split(".")[0])
    taken = {value.name for value in function.inputs}
    return f"{name}_block" if name in taken else name


def bound_lines(function: Function) -> list[str]:
    """The lines that tell what an entry's generics are bound to, after an empty one."""
    bound = ", ".join(f"{name} = {bound_text(value)}" for name, value in function.generics)
    return ["", *textwrap.wrap(f"Bound: {bound}.", WIDTH)] if bound else []
