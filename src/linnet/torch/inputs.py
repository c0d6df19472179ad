"""What a call of an entry is given, as tensors and their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from linnet.check.typed import EnumT, OptionalT, StructT, TensorT, TupleT, Type
from linnet.dtypes import DType
from linnet.ir.core import TensorType
from linnet.ir.instantiate import Argument, Entry


@dataclass(slots=True)
class Inputs:
    """`arguments` one for each parameter, with their types alone; `tensors` flattened."""

    arguments: Sequence[Argument]
    tensors: list[torch.Tensor]
    form: object
    """Equal for calls with inputs of the same types."""

    @property
    def presence(self) -> object:
        """Which optional inputs are given and which variants enums have."""
        return _presence(tuple(self.arguments))


def read_inputs(entry: Entry, inputs: Sequence[Any]) -> Inputs:
    """Reads the inputs of a call. Raises `ValueError` that names the argument."""
    if len(inputs) != len(entry.inputs):
        names = ", ".join(name for name, _ in entry.inputs) or "none"
        raise ValueError(
            f"`{entry.name}` takes {len(entry.inputs)} inputs ({names}), {len(inputs)} given"
        )
    tensors: list[torch.Tensor] = []
    arguments = [
        _read(f"`{entry.name}`: `{name}`", type_, value, tensors)
        for (name, type_), value in zip(entry.inputs, inputs, strict=True)
    ]
    return Inputs(arguments, tensors, tuple(arguments))


def _read(what: str, type_: Type, value: Any, tensors: list[torch.Tensor]) -> Argument:
    if isinstance(type_, TensorT):
        declared = type_.dtype if isinstance(type_.dtype, DType) else None
        tensor, dtype = _tensor(what, value, declared)
        tensors.append(tensor)
        return TensorType(tuple(tensor.shape), dtype)
    if isinstance(type_, OptionalT):
        return None if value is None else _read(what, type_.inner, value, tensors)
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
            _read(f"{what}.{i}", item, part, tensors)
            for i, (item, part) in enumerate(zip(items, value, strict=True))
        )
    raise ValueError(f"{what} can't be given from outside")


_TORCH = {
    torch.bool: DType.BOOL, torch.int8: DType.I8, torch.int16: DType.I16, torch.int32: DType.I32,
    torch.int64: DType.I64, torch.uint8: DType.U8, torch.uint16: DType.U16,
    torch.uint32: DType.U32, torch.uint64: DType.U64, torch.float16: DType.F16,
    torch.bfloat16: DType.BF16, torch.float32: DType.F32, torch.float64: DType.F64,
}  # fmt: skip
_WIDE = (DType.U16, DType.U32, DType.U64)
_BY_DTYPE = {dtype: found for found, dtype in _TORCH.items()}


def _tensor(what: str, value: Any, declared: DType | None) -> tuple[torch.Tensor, DType]:
    """A value as a tensor that holds it as generated source does, and its dtype. A number takes
    the declared dtype."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = torch.from_numpy(np.ascontiguousarray(value)) if value.shape else _scalar(value)
    elif not isinstance(value, torch.Tensor):
        value = _number(what, value, declared)
    dtype = _TORCH.get(value.dtype)
    if dtype is None:
        raise ValueError(f"{what} has dtype {value.dtype}, which the language does not have")
    return (value.to(torch.int64) if dtype in _WIDE else value), dtype


def _scalar(value: np.ndarray | np.generic) -> torch.Tensor:
    return torch.from_numpy(np.array(value))


def _number(what: str, value: Any, declared: DType | None) -> torch.Tensor:
    if not isinstance(value, (bool, int, float, list, tuple)):
        raise ValueError(f"{what} must be an array, a tensor or a number, not {value!r}")
    try:
        if declared is None:
            return torch.tensor(value)
        if declared.is_integer and not isinstance(value, (list, tuple)):
            low, high = declared.integer_range
            if isinstance(value, float) or not low <= value <= high:
                raise ValueError(f"{what} must be an integer that {declared} holds, not {value!r}")
        return torch.tensor(value, dtype=_BY_DTYPE[declared])
    except (TypeError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{what}: {value!r} can't be a tensor: {error}") from error


def _presence(argument: Argument) -> object:
    if isinstance(argument, tuple):
        return tuple(map(_presence, argument))
    return "given" if isinstance(argument, TensorType) else argument
