"""Arithmetic on known scalars, as the dtype would do it.

Used where lowering decides a branch and by `fold_constants`. Integers wrap to their width; floats
are computed in f64 and rounded to their width after each operation, functions such as `rsqrt`
included, which is at least as exact as a backend's own.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from linnet.dtypes import DType

Scalar = int | float | bool

_COMPARE: dict[str, Callable[[Scalar, Scalar], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_LOGIC: dict[str, Callable[..., bool]] = {
    "not": lambda a: not a,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
}
_INTEGER: dict[str, Callable[..., int]] = {
    "neg": lambda a: -a,
    "not": lambda a: ~a,
    "abs": lambda a: abs(a),
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": lambda a, b: min(a, b),
    "max": lambda a, b: max(a, b),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}
_FLOAT: dict[str, Callable[..., float]] = {
    "neg": lambda a: -a,
    "abs": lambda a: abs(a),
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "min": lambda a, b: min(a, b),
    "max": lambda a, b: max(a, b),
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
}


def fold_scalar(kind: str, inputs: Sequence[Scalar], source: DType, dtype: DType) -> Scalar | None:
    """The result of an elementwise operation on known scalars, or `None` where it isn't folded.

    `source` is the dtype of the inputs (of the last, for `select`), `dtype` that of the result.
    """
    if kind == "cast":
        return _cast(inputs[0], source, dtype)
    if kind == "select":
        return inputs[1] if inputs[0] else inputs[2]
    if kind in _COMPARE:
        return _COMPARE[kind](*inputs)
    if source == DType.BOOL:
        return _LOGIC[kind](*inputs) if kind in _LOGIC else None
    if source.is_integer:
        if kind in ("div", "rem"):
            return _divide(kind, int(inputs[0]), int(inputs[1]), dtype)
        return wrap(_INTEGER[kind](*inputs), dtype) if kind in _INTEGER else None
    return _float(kind, [float(value) for value in inputs], dtype)


def _float(kind: str, inputs: list[float], dtype: DType) -> float | None:
    inputs = [round_float(value, dtype) for value in inputs]
    if kind not in _FLOAT or not all(map(math.isfinite, inputs)):
        return None
    try:
        return round_float(_FLOAT[kind](*inputs), dtype)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None


def _divide(kind: str, a: int, b: int, dtype: DType) -> int | None:
    if b == 0:
        return None
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return wrap(quotient if kind == "div" else a - quotient * b, dtype)


def _cast(value: Scalar, source: DType, dtype: DType) -> Scalar | None:
    if dtype == DType.BOOL:
        return bool(value)
    if dtype.is_float:
        return round_float(float(value), dtype)
    if source.is_float:
        if not math.isfinite(value):
            return None
        low, high = dtype.integer_range
        whole = int(value)
        return whole if low <= whole <= high else None
    return wrap(int(value), dtype)


def wrap(value: int, dtype: DType) -> int:
    """An integer modulo its dtype's width."""
    low, high = dtype.integer_range
    return (value - low) % (high - low + 1) + low


def round_float(value: float, dtype: DType) -> float:
    """The nearest value of a float dtype, ties to even; too large becomes infinite."""
    if dtype == DType.F64 or not math.isfinite(value):
        return value
    if dtype == DType.BF16:
        return _round_bf16(value)
    code = {DType.F16: "e", DType.F32: "f"}[dtype]
    try:
        return struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _round_bf16(value: float) -> float:
    """By way of f32, odd-rounded so that rounding twice gives what rounding once would."""
    single = round_float(value, DType.F32)
    if not math.isfinite(single):
        return single
    (bits,) = struct.unpack("<I", struct.pack("<f", single))
    if abs(single) > abs(value):
        bits -= 1
        bits |= 1
    elif abs(single) < abs(value):
        bits |= 1
    bits += 0x7FFF + ((bits >> 16) & 1)
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]
