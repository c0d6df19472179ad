"""Inputs of a call as torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from linnet.dtypes import DType

_TORCH = {
    torch.bool: DType.BOOL, torch.int8: DType.I8, torch.int16: DType.I16, torch.int32: DType.I32,
    torch.int64: DType.I64, torch.uint8: DType.U8, torch.uint16: DType.U16,
    torch.uint32: DType.U32, torch.uint64: DType.U64, torch.float16: DType.F16,
    torch.bfloat16: DType.BF16, torch.float32: DType.F32, torch.float64: DType.F64,
}  # fmt: skip
_WIDE = (DType.U16, DType.U32, DType.U64)
_BY_DTYPE = {dtype: found for found, dtype in _TORCH.items()}


def read_tensor(what: str, value: Any, declared: DType | None) -> tuple[torch.Tensor, DType]:
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
