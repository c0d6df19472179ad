"""Typed program to Core IR: one function for each use that differs, called wherever it is used.

A function is lowered once for each combination of its block's form (bound generics, optional
members present), its own generics, and the form of its arguments (which optionals are given, which
enum variants); all layers of a model share one. Weights and states become slots with paths
relative to the function's block, and a caller takes its callee's slots up under the callee's path,
so that the entry ends with every weight it reads, by its full path.

This file holds functions and statements; `expressions.py` the expressions, `index.py` index
notation, `control.py` loops and branches. What is checked but not lowered yet is refused with
`E2190`; nothing is ignored.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from linnet.check import typed
from linnet.ir import core
from linnet.ir.build import named
from linnet.ir.control import lower_for, lower_while
from linnet.ir.expressions import lower_expression
from linnet.ir.frame import Frame
from linnet.ir.generics import Bound, bound_tensor
from linnet.ir.instantiate import Argument, BlockInstance, find_entry
from linnet.ir.statics import (
    Form,
    Present,
    Static,
    Variant,
    fill,
    form_of,
    leaves,
)


def lower(
    instance: BlockInstance,
    entry: str,
    generics: Mapping[str, Bound],
    arguments: Sequence[Argument] | None = None,
) -> core.Module:
    """One entry of a root block as Core IR, with its own generics as `bind_entry` gives them.

    `arguments` (as given to `bind_entry`) tells which optional inputs there are and which variant
    an enum has; without it, every optional input is given. Raises `ValueError` for an unknown
    entry, and `LinnetError` with `E2190` for what can't be lowered.
    """
    function = find_entry(instance, entry).function
    owner = instance if function.block is not None else None
    binding = {**(owner.generics if owner is not None else {}), **generics}
    given = arguments if arguments is not None else [_everything] * len(function.params)
    forms = tuple(
        _entry_form(param.name, param.type, argument, binding)
        for param, argument in zip(function.params, given, strict=True)
    )
    lowering = Lowering(instance.program)
    with _deep_calls():
        main = lowering.specialise(function.key, owner, dict(generics), forms, kind="entry")
    return core.Module(lowering.functions, main.function.name)


@contextmanager
def _deep_calls() -> Iterator[None]:
    """Room for functions that call one another many levels deep.

    A callee is lowered where its first call is, some ten Python frames further down. Python's limit
    is there for recursion without end, which the checker rules out.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 100_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


_everything = object()
"""Stands for an argument that is given whole."""


def _entry_form(name: str, type_: typed.Type, given: object, binding: Mapping[str, Bound]) -> Form:
    match type_:
        case typed.TensorT():
            return bound_tensor(type_, binding)
        case typed.OptionalT(inner):
            return None if given is None else Present(_entry_form(name, inner, given, binding))
        case typed.TupleT(items):
            parts = given if isinstance(given, tuple) else (given,) * len(items)
            return tuple(
                _entry_form(name, item, part, binding)
                for item, part in zip(items, parts, strict=True)
            )
        case typed.StructT(_, fields):
            whole = typed.TupleT(tuple(item for _, item in fields))
            return _entry_form(name, whole, given, binding)
        case typed.EnumT(_, variants) if given in variants:
            return Variant(variants.index(str(given)))
        case _:
            raise ValueError(f"the input `{name}` needs a variant: it decides what is compiled")


@dataclass(frozen=True, slots=True)
class Specialised:
    """A lowered function and the form of what it returns."""

    function: core.Function
    result: Form


class Lowering:
    """All functions lowered for one module."""

    def __init__(self, program: typed.Program):
        self.program = program
        self.functions: dict[str, core.Function] = {}
        self._specialised: dict[object, Specialised] = {}
        self._names: set[str] = set()

    def specialise(
        self,
        key: str,
        instance: BlockInstance | None,
        own: dict[str, Bound],
        forms: tuple[Form, ...],
        kind: str | None = None,
    ) -> Specialised:
        """The function for these generics and argument forms, lowered on first use."""
        identity = (key, instance and instance.form, tuple(own.items()), forms)
        found = self._specialised.get(identity)
        if found is None:
            found = self._lower(self.program.functions[key], instance, own, forms, kind)
            self._specialised[identity] = found
        return found

    def _lower(
        self,
        function: typed.Function,
        instance: BlockInstance | None,
        own: dict[str, Bound],
        forms: tuple[Form, ...],
        kind: str | None,
    ) -> Specialised:
        block = instance.generics if instance is not None else {}
        frame = Frame(self, function, self.name(_name(function, instance)), instance,
                      {**block, **own})  # fmt: skip
        arguments: list[str] = []

        for param, form in zip(function.params, forms, strict=True):
            given = fill(form, frame.builder.input)
            frame.assign(param.name, given)
            arguments += [param.name for _ in leaves(given)]
        frame.statements(function.body)
        slots = frame.builder.slots.values()
        states = tuple(slot for slot in slots if slot.kind == "state")
        default = {"op": "op", "fn": "fn", "entry": "fn"}[function.kind]
        lowered = core.Function(
            name=frame.name,
            source=function.key,
            kind=kind or ("method" if instance is not None and default == "fn" else default),
            generics=tuple(frame.binding.items()),
            inputs=tuple(frame.builder.inputs),
            weights=tuple(slot for slot in slots if slot.kind != "state"),
            states=states,
            ops=tuple(frame.builder.ops),
            results=tuple(leaves(frame.result)),
            new_states=tuple(frame.states.get(slot.path, slot.value) for slot in states),
            arguments=tuple(arguments),
            location=function.span.location,
        )
        lowered = named(lowered, frame.builder.names)
        self.functions[lowered.name] = lowered
        return Specialised(lowered, form_of(frame.result))

    def name(self, wanted: str) -> str:
        """A function name that is not taken: `linear`, `linear_2`, …"""
        name, count = wanted, 1
        while name in self._names:
            count += 1
            name = f"{wanted}_{count}"
        self._names.add(name)
        return name

    def add_region(self, frame: Frame, region: core.Function) -> None:
        self.functions[region.name] = region
        frame.regions.append(region.name)

    def forget_regions(self, frame: Frame, kept: int) -> None:
        """Takes back all but the first regions of a function, for another try."""
        for name in frame.regions[kept:]:
            del self.functions[name]
            self._names.discard(name)
        del frame.regions[kept:]

    def expression(self, frame: Frame, expr: typed.Expr) -> Static:
        return lower_expression(frame, expr)

    def statement(self, frame: Frame, statement: typed.Stmt) -> None:
        frame.builder.location = statement.span.location
        _STATEMENTS[type(statement)](frame, statement)


def _name(function: typed.Function, instance: BlockInstance | None) -> str:
    if instance is None or function.block is None:
        return function.name
    return f"{snake_case(instance.block.name)}_{function.name}"


def snake_case(name: str) -> str:
    """`RmsNorm` as `rms_norm`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# --- statements -----------------------------------------------------------------------------


def _let(frame: Frame, statement: typed.Let) -> None:
    frame.bind(statement.pattern, frame.expr(statement.value))


def _assign(frame: Frame, statement: typed.Assign) -> None:
    frame.assign(statement.name, frame.expr(statement.value))


def _assign_state(frame: Frame, statement: typed.AssignState) -> None:
    value = frame.value(statement.value)
    frame.builder.suggest(value, statement.name)
    frame.state(statement.name, value.type)
    frame.states[statement.name] = value


def _return(frame: Frame, statement: typed.Return) -> None:
    if statement.value is not None:
        frame.result = frame.expr(statement.value)


def _static_for_blocks(frame: Frame, statement: typed.StaticForBlocks) -> None:
    children, path = frame.child(statement.array)
    assert isinstance(children, tuple)
    for i, child in enumerate(children):
        frame.blocks[statement.name] = (child, f"{path}.{i}")
        frame.statements(statement.body)


def _static_for_range(frame: Frame, statement: typed.StaticForRange) -> None:
    for i in range(frame.dim(statement.start), frame.dim(statement.stop)):
        frame.binding[statement.name] = i
        frame.statements(statement.body)
    frame.binding.pop(statement.name, None)


def _yield(frame: Frame, statement: typed.Yield) -> None:
    frame.result = frame.expr(statement.value)


_STATEMENTS: dict[type, Callable[[Frame, object], None]] = {
    typed.Let: _let,
    typed.Assign: _assign,
    typed.AssignState: _assign_state,
    typed.Return: _return,
    typed.StaticForBlocks: _static_for_blocks,
    typed.StaticForRange: _static_for_range,
    typed.While: lower_while,
    typed.For: lower_for,
    typed.Yield: _yield,
}  # type: ignore[assignment]
