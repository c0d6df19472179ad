"""What a call of an entry is given: arrays, whatever the runtime's are, and their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from linnet.check.typed import EnumT, OptionalT, StructT, TensorT, TupleT, Type
from linnet.dtypes import DType
from linnet.ir.core import TensorType
from linnet.ir.generics import partly_bound
from linnet.ir.instantiate import Argument, Entry

ReadTensor = Callable[[str, Any, DType | None], tuple[Any, DType]]
"""What is read, for an error's message, its value, and the dtype that a number takes; gives the
runtime's own array and its dtype. Raises `ValueError`."""


@dataclass(slots=True)
class Inputs:
    """`arguments` one for each parameter, with their types alone; `tensors` flattened."""

    arguments: Sequence[Argument]
    tensors: list[Any]
    form: object
    """Equal for calls with inputs of the same types."""

    @property
    def presence(self) -> object:
        """Which optional inputs are given and which variants enums have."""
        return _presence(tuple(self.arguments))


def read_inputs(entry: Entry, inputs: Sequence[Any], read_tensor: ReadTensor) -> Inputs:
    """Reads the inputs of a call: `None` for an optional input left out, a variant's name for an
    enum, tuples for tuples and structs. Raises `ValueError` that names the argument."""
    if len(inputs) != len(entry.inputs):
        names = ", ".join(name for name, _ in entry.inputs) or "none"
        raise ValueError(
            f"`{entry.name}` takes {len(entry.inputs)} inputs ({names}), {len(inputs)} given"
        )
    tensors: list[Any] = []
    arguments = [
        _read(f"`{entry.name}`: `{name}`", type_, value, tensors, read_tensor)
        for (name, type_), value in zip(entry.inputs, inputs, strict=True)
    ]
    return Inputs(arguments, tensors, tuple(arguments))


def _read(
    what: str, type_: Type, value: Any, tensors: list[Any], read_tensor: ReadTensor
) -> Argument:
    if isinstance(type_, TensorT):
        declared = type_.dtype if isinstance(type_.dtype, DType) else None
        tensor, dtype = read_tensor(what, value, declared)
        tensors.append(tensor)
        return TensorType(tuple(tensor.shape), dtype)
    if isinstance(type_, OptionalT):
        return None if value is None else _read(what, type_.inner, value, tensors, read_tensor)
    if isinstance(type_, EnumT):
        if value not in type_.variants:
            choices = ", ".join(type_.variants)
            raise ValueError(f"{what} must be one of {choices}, not {value!r}")
        return str(value)
    if isinstance(type_, (TupleT, StructT)):
        items = type_.items if isinstance(type_, TupleT) else tuple(t for _, t in type_.fields)
        if not isinstance(value, (tuple, list)) or len(value) != len(items):
            raise ValueError(f"{what} must be a tuple of {len(items)} values")
        return tuple(
            _read(f"{what}.{i}", item, part, tensors, read_tensor)
            for i, (item, part) in enumerate(zip(items, value, strict=True))
        )
    raise ValueError(f"{what} can't be given from outside")


def _presence(argument: Argument) -> object:
    if isinstance(argument, tuple):
        return tuple(map(_presence, argument))
    return "given" if isinstance(argument, TensorType) else argument


def declared_inputs(entry: Entry, generics: Mapping[str, int] | None = None) -> Inputs:
    """An entry's inputs by their declared types, which its generics must settle."""
    arguments = []
    for name, type_ in entry.inputs:
        bound = partly_bound(type_, generics or {})
        extents = [getattr(item, "constant", None) for item in getattr(bound, "shape", ())]
        dtype = getattr(bound, "dtype", None)
        if not isinstance(bound, TensorT) or None in extents or not isinstance(dtype, DType):
            wanted = ", ".join(generic.name for generic in entry.generics)
            raise ValueError(
                f"`{entry.name}`: the type of `{name}` is not settled; give its generics ({wanted})"
            )
        arguments.append(TensorType(tuple(extents), dtype))  # type: ignore[arg-type]
    return Inputs(arguments, [], ())
