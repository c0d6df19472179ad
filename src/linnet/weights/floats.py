"""Float formats as numpy arrays: what numpy lacks is bfloat16, kept as its `uint16` bits."""

from __future__ import annotations

import numpy as np

from linnet.dtypes import DType

NUMPY: dict[DType, np.dtype] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.I8: np.dtype(np.int8),
    DType.I16: np.dtype(np.int16),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.U8: np.dtype(np.uint8),
    DType.U16: np.dtype(np.uint16),
    DType.U32: np.dtype(np.uint32),
    DType.U64: np.dtype(np.uint64),
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(np.uint16),
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
}
"""The numpy dtype that holds each element type; bf16 by its bits."""


def to_bf16(values: np.ndarray) -> np.ndarray:
    """f32 values as the bits of bf16, rounded to nearest, ties to even; NaN stays NaN."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    if is_nan.any():
        rounded = np.where(is_nan, (bits >> 16) | 0x40, rounded)
    return rounded.astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """The bits of bf16 as f32 values, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def convert(values: np.ndarray, source: DType, target: DType) -> np.ndarray:
    """Values of one element type as another's, each held as `NUMPY` says.

    Floats convert to floats, rounded to nearest even; every other pair must be equal.
    """
    if source == target:
        return values
    if not (source.is_float and target.is_float):
        raise ValueError(f"{source} is not converted to {target}")
    wide = from_bf16(values) if source == DType.BF16 else values
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if target != DType.BF16:
            return wide.astype(NUMPY[target])
        return to_bf16(_to_odd(wide) if source == DType.F64 else wide)


def _to_odd(values: np.ndarray) -> np.ndarray:
    """f64 as f32 such that rounding once more, to fewer bits, gives what rounding once would:
    a value between two f32 becomes the one whose last bit is set (rounding to odd: Boldo and
    Melquiond, "When double rounding is odd", 2005)."""
    nearest = values.astype(np.float32)
    bits = nearest.view(np.uint32)
    inexact = nearest.astype(np.float64) != values
    too_large = np.abs(nearest) > np.abs(values)
    even = inexact & ((bits & 1) == 0)
    return np.where(even, np.where(too_large, bits - 1, bits + 1), bits).view(np.float32)
