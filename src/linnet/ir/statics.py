"""Values while a function is lowered: tensors in a structure that is known.

Optionals, enums, tuples and structs never reach the IR. While lowering, an optional is `None` or
`Present(value)`, an enum a `Variant`, a tuple or struct a Python tuple; their tensors are IR
values. The *form* of such a value has a `TensorType` in each tensor's place: it is part of what a
function is specialised by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from linnet.ir.core import TensorType, Value


@dataclass(frozen=True, slots=True)
class Present:
    """`some(value)`."""

    value: Static | Form


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant of an enum, by position."""

    index: int


Static = Value | Present | Variant | tuple["Static", ...] | None
Form = TensorType | Present | Variant | tuple["Form", ...] | None


def form_of(static: Static) -> Form:
    if isinstance(static, Value):
        return static.type
    if isinstance(static, Present):
        return Present(form_of(static.value))  # type: ignore[arg-type]
    if isinstance(static, tuple):
        return tuple(map(form_of, static))
    return static


def leaves(static: Static) -> Iterator[Value]:
    """Its tensors, in order."""
    if isinstance(static, Value):
        yield static
    elif isinstance(static, Present):
        yield from leaves(static.value)  # type: ignore[arg-type]
    elif isinstance(static, tuple):
        for item in static:
            yield from leaves(item)


def fill(form: Form, make: Callable[[TensorType], Value]) -> Static:
    """A value of a form, its tensors made in order from their types."""
    if isinstance(form, TensorType):
        return make(form)
    if isinstance(form, Present):
        return Present(fill(form.value, make))  # type: ignore[arg-type]
    if isinstance(form, tuple):
        return tuple(fill(item, make) for item in form)
    return form


def refill(form: Form, values: Iterator[Value]) -> Static:
    """A value of a form with these tensors."""
    return fill(form, lambda type_: next(values))
