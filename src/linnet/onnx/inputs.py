"""Inputs of a call as values of ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from linnet.dtypes import DType
from linnet.emit.onnx_graph import Tensor
from linnet.emit.onnx_types import ONNX
from linnet.onnx.session import on_host, to_array
from linnet.weights.floats import NUMPY, to_bf16

_BY_NAME = {
    "bool": DType.BOOL, "int8": DType.I8, "int16": DType.I16, "int32": DType.I32,
    "int64": DType.I64, "uint8": DType.U8, "uint16": DType.U16, "uint32": DType.U32,
    "uint64": DType.U64, "float16": DType.F16, "bfloat16": DType.BF16, "float32": DType.F32,
    "float64": DType.F64,
}  # fmt: skip
_BY_NUMBER = {number: dtype for dtype, number in ONNX.items()}


@dataclass(frozen=True, slots=True)
class Given:
    """One tensor of a call."""

    value: ort.OrtValue
    shape: tuple[int, ...]
    dtype: DType
    array: np.ndarray | None
    """Its elements, where they are on the host already."""

    def bounds(self) -> tuple[int, int]:
        """The least and the largest of integers."""
        array = to_array(self.value) if self.array is None else self.array
        if not array.size:
            return 0, 0
        return (int(array), int(array)) if array.ndim == 0 else (int(array.min()), int(array.max()))


def read_tensor(what: str, value: Any, declared: DType | None) -> tuple[Given, DType]:
    """A value and its dtype. A number takes the declared dtype."""
    if isinstance(value, ort.OrtValue):
        dtype = _BY_NUMBER.get(value.element_type())
        if dtype is None:
            raise ValueError(f"{what} has dtype {value.data_type()}, which the language lacks")
        return Given(value, tuple(value.shape()), dtype, None), dtype
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.array(value, order="C")
        dtype = _BY_NAME.get(array.dtype.name)
        if dtype is None:
            raise ValueError(f"{what} has dtype {array.dtype}, which the language does not have")
    else:
        array, dtype = _number(what, value, declared)
    if dtype == DType.BF16:
        array = array.view(np.uint16)
    return Given(on_host(array, Tensor(array.shape, dtype)), array.shape, dtype, array), dtype


def _number(what: str, value: Any, declared: DType | None) -> tuple[np.ndarray, DType]:
    if not isinstance(value, (bool, int, float, list, tuple)):
        raise ValueError(f"{what} must be an array or a number, not {value!r}")
    try:
        array = np.array(value)
        if array.dtype == object:
            raise ValueError("its parts differ in shape or kind")
        dtype = declared
        if dtype is None:
            dtype = {"b": DType.BOOL, "i": DType.I64, "f": DType.F32}[array.dtype.kind]
        if dtype.is_integer:
            low, high = dtype.integer_range
            if array.dtype.kind not in "iub" or (
                array.size and not low <= int(array.min()) <= int(array.max()) <= high
            ):
                raise ValueError(f"{dtype} can't hold it")
        if dtype == DType.BF16:
            return to_bf16(array.astype(np.float32)).view(np.uint16), dtype
        return array.astype(NUMPY[dtype]), dtype
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise ValueError(f"{what}: {value!r} can't be a tensor: {error}") from error
