"""Weights: read once into host memory, and put on the device when an entry first needs them.

The weights of one name in a block's children lie one after the other in one buffer, so a joined
projection is a view of it. On a CPU the device's arrays share the buffer, and neither joining nor
placing costs memory; on another device what is placed is what entries use, the joined or the parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import numpy as np

from linnet.dtypes import DType
from linnet.ir.instantiate import ParameterSpec
from linnet.ir.join import sibling_weights
from linnet.jax.arrays import NUMPY, aligned, place
from linnet.jax.executable import Device
from linnet.weights.floats import NUMPY as HOST


class Weights:
    """A model's parameters and buffers, by path."""

    def __init__(self, specs: Sequence[ParameterSpec], device: Device):
        self.specs = {spec.path: spec for spec in specs if spec.kind != "state"}
        self.device = device
        self._host: dict[str, np.ndarray] = {}
        self._buffers: dict[str, tuple[np.ndarray, int]] = {}
        """For each path, the buffer it lies in, and where."""
        self._placed: dict[str | tuple[str, ...], jax.Array] = {}
        groups = sibling_weights(list(self.specs.values()))
        sizes = [sum(map(_nbytes, group)) for group in groups]
        starts = np.cumsum([0, *(-(-size // 64) * 64 for size in sizes)])
        # All in one piece, of which the system makes large pages: those are read faster.
        memory = aligned((int(starts[-1]),), np.dtype(np.uint8))
        for group, size, start in zip(groups, sizes, starts, strict=False):
            buffer = memory[start : start + size].view(HOST[group[0].dtype])
            at = 0
            for spec in group:
                count = math.prod(spec.shape)
                self._host[spec.path] = buffer[at : at + count].reshape(spec.shape)
                self._buffers[spec.path] = (buffer, at)
                at += count

    def fill(self, read: Callable[[str, np.ndarray], None]) -> None:
        """Reads every weight; `read` writes a path's values into an array that holds its dtype as
        `weights.floats.NUMPY` says."""
        for path, array in self._host.items():
            read(path, array)

    def array(self, path: str) -> jax.Array:
        """A weight on the device. Raises `KeyError`."""
        if path not in self._placed:
            self._placed[path] = self._place(self._host[path], self.specs[path].dtype)
        return self._placed[path]

    def joined(self, paths: Sequence[str]) -> jax.Array | None:
        """Some weights one after the other along their first axis, as an array that takes no memory
        beside theirs; `None` where they don't lie so."""
        key = tuple(paths)
        if key not in self._placed:
            first = self._host[paths[0]]
            buffer, start = self._buffers[paths[0]]
            end = start
            for path in paths:
                part, (same, at) = self._host[path], self._buffers[path]
                if same is not buffer or at != end or part.shape[1:] != first.shape[1:]:
                    return None
                end += part.size
            whole = buffer[start:end].reshape(-1, *first.shape[1:])
            self._placed[key] = self._place(whole, self.specs[paths[0]].dtype)
        return self._placed[key]

    def _place(self, array: np.ndarray, dtype: DType) -> jax.Array:
        return place(array.view(NUMPY[dtype]), self.device)

    def nbytes(self, path: str) -> int:
        return self._host[path].nbytes

    @property
    def total(self) -> int:
        """Bytes of all weights."""
        return sum(array.nbytes for array in self._host.values())


def _nbytes(spec: ParameterSpec) -> int:
    return math.prod(spec.shape) * spec.dtype.itemsize
