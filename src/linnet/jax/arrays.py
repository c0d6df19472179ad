"""Arrays on a device: numpy arrays and numbers put there with the dtype they have.

JAX narrows 64-bit types unless a whole process asks for them. Here they are kept for the moment of
each call alone, so that other code's arrays stay as they were.
"""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np

from linnet.dtypes import DType
from linnet.jax.executable import Device
from linnet.weights.floats import NUMPY as HOST

NUMPY: dict[DType, np.dtype] = {**HOST, DType.BF16: np.dtype(ml_dtypes.bfloat16)}
"""The numpy dtype of each element type, as JAX has it."""
_DTYPES = {dtype: name for name, dtype in NUMPY.items()}


def find_device(device: str | Device | None) -> Device:
    """`cpu`, `cuda`, `cuda:1`, a device of JAX's, or `None` for the one that JAX would choose.

    Raises `ValueError` where there is none.
    """
    if device is None:
        return jax.devices()[0]
    if not isinstance(device, str):
        return device
    platform, _, number = device.partition(":")
    try:
        found = jax.devices(platform)
    except RuntimeError as error:
        raise ValueError(f"no device {device!r}: {error}") from error
    if (number and not number.isdigit()) or int(number or 0) >= len(found):
        raise ValueError(f"no device {device!r}: there are {len(found)} of {platform!r}")
    return found[int(number or 0)]


def place(array: np.ndarray, device: Device) -> jax.Array:
    """An array on a device. On a CPU it shares the memory of one that is aligned to 64 bytes."""
    with jax.enable_x64(True):
        return jax.device_put(array, device)


def zeros(shape: tuple[int, ...], dtype: DType, device: Device) -> jax.Array:
    """Zeros in memory of the device's own, which a program may be given to write in."""
    with jax.enable_x64(True):
        return jax.numpy.zeros(shape, NUMPY[dtype], device=device)


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Memory for an array, from a multiple of 64 bytes on."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def read_tensor(what: str, value: Any, declared: DType | None) -> tuple[Any, DType]:
    """An input as an array of JAX's, as it is, or a copy in numpy, and its dtype. A number takes
    the declared dtype."""
    if not isinstance(value, (jax.Array, np.ndarray, np.generic)):
        value = _number(what, value, declared)
    dtype = _DTYPES.get(value.dtype)
    if dtype is None:
        raise ValueError(f"{what} has dtype {value.dtype}, which the language does not have")
    # The device may read an array's memory later, when its owner has changed it.
    return (value if isinstance(value, jax.Array) else np.array(value)), dtype


def _number(what: str, value: Any, declared: DType | None) -> np.ndarray:
    if not isinstance(value, (bool, int, float, list, tuple)):
        if hasattr(value, "__array__"):
            return np.asarray(value)
        raise ValueError(f"{what} must be an array or a number, not {value!r}")
    try:
        if declared is None:
            return np.array(value)
        if declared.is_integer and not isinstance(value, (list, tuple)):
            low, high = declared.integer_range
            if isinstance(value, float) or not low <= value <= high:
                raise ValueError(f"{what} must be an integer that {declared} holds, not {value!r}")
        return np.array(value, NUMPY[declared])
    except (TypeError, ValueError, OverflowError) as error:
        if str(error).startswith(what):
            raise
        raise ValueError(f"{what}: {value!r} can't be an array: {error}") from error
