"""Weights in memory: read into buffers laid out so that joining projections costs no memory.

The weights of one name in a block's children (`q.weight`, `k.weight`, `v.weight`) lie one after the
other in one buffer, in the order that the block declares its children. Each parameter is a view of
its part; `joined` gives a run of them as one tensor, which is a view too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from linnet.dtypes import DType
from linnet.ir.instantiate import ParameterSpec
from linnet.ir.join import sibling_weights
from linnet.torch.tree import DTYPES
from linnet.weights.floats import NUMPY


class Weights:
    """A model's parameters and buffers, by path."""

    def __init__(self, specs: Sequence[ParameterSpec], device: torch.device):
        self.specs = {spec.path: spec for spec in specs if spec.kind != "state"}
        self.device = device
        self.tensors: dict[str, torch.Tensor] = {}
        for group in sibling_weights(list(self.specs.values())):
            sizes = [math.prod(spec.shape) for spec in group]
            dtype = DTYPES[group[0].dtype.value]
            buffer = torch.empty(sum(sizes), dtype=dtype, device=device)
            for spec, part in zip(group, buffer.split(sizes), strict=True):
                self.tensors[spec.path] = part.view(spec.shape)

    def fill(self, read: Callable[[str, np.ndarray], None]) -> None:
        """Reads every weight; `read` writes a path's values into an array that holds its dtype as
        `weights.floats.NUMPY` says."""
        for path, spec in self.specs.items():
            tensor = self.tensors[path]
            direct = tensor.device.type == "cpu" and DTYPES[spec.dtype.value] == _exact(spec.dtype)
            if direct:
                read(path, _array(tensor))
                continue
            array = np.empty(spec.shape, NUMPY[spec.dtype])
            read(path, array)
            tensor.copy_(_tensor(array, spec.dtype))

    def joined(self, paths: Sequence[str]) -> torch.Tensor | None:
        """Some weights one after the other along their first axis, as a view of the buffer that
        they share; `None` where they don't lie so."""
        parts = [self.tensors[path] for path in paths]
        first, end = parts[0], parts[0].storage_offset()
        for part in parts:
            same = part.dtype == first.dtype and part.shape[1:] == first.shape[1:]
            shared = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
            if not (same and shared and part.is_contiguous() and part.storage_offset() == end):
                return None
            end += part.numel()
        shape = (sum(part.shape[0] for part in parts), *first.shape[1:])
        return first.as_strided(shape, _strides(shape), first.storage_offset())

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _exact(dtype: DType) -> torch.dtype | None:
    """The torch dtype of the same bits; `None` for unsigned integers, which are held wider."""
    return None if dtype in (DType.U16, DType.U32, DType.U64) else DTYPES[dtype.value]


def _array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's own memory as an array; bf16 as its bits."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def _tensor(array: np.ndarray, dtype: DType) -> torch.Tensor:
    if dtype == DType.BF16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if _exact(dtype) is None:
        return torch.from_numpy(array.astype(np.int64))
    return torch.from_numpy(array)
