"""Files as memory: mapped rather than read, and copied out in pieces by a few threads.

A mapped page costs nothing until it is touched, and goes back once its values were copied; pieces
are small enough that what is computed on the way stays in the processor's cache.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from linnet.weights.checkpoint import CheckpointError

PIECE = 1 << 16
"""Values converted at a time: a quarter of a MiB in f32, where decoding is fastest."""
SHARE = 1 << 18
"""Values from which a thread of its own is worth its start."""


class MappedFile:
    """A regular file's bytes in memory, read-only; pages come in when they are touched."""

    def __init__(self, path: Path):
        if not path.is_file():
            raise CheckpointError(f"{path} is no regular file")
        with path.open("rb") as handle:
            try:
                self._mapping = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:  # Nothing can be mapped of an empty file.
                raise CheckpointError(f"{path} is empty") from error
        self.data = np.frombuffer(self._mapping, np.uint8)

    def release(self, first: int, last: int) -> None:
        """Gives the pages wholly within these bytes back: they were read, and would count as the
        process's memory beside the copy that was made of them."""
        page = mmap.PAGESIZE
        start = -(-first // page) * page
        length = last // page * page - start
        if length > 0 and hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED, start, length)

    def close(self) -> None:
        """Unmaps the file; arrays that show its memory keep it until they go."""
        self.data = np.empty(0, np.uint8)
        with suppress(BufferError):
            self._mapping.close()


def fill_rows(out: np.ndarray, rows: int, values: Callable[[slice], np.ndarray]) -> None:
    """Fills a contiguous array, seen as that many rows, with what `values` gives for runs of rows.

    Several threads call `values` at once, each for runs of about `PIECE` values.
    """
    if not out.size:
        return
    flat = out.reshape(rows, -1)
    step = max(1, PIECE // flat.shape[1])

    def fill(run: range) -> None:
        for at in run:
            piece = slice(at, min(at + step, rows))
            flat[piece] = values(piece)

    starts = range(0, rows, step)
    threads = min(_cores(), max(1, out.size // SHARE), len(starts))
    if threads == 1:
        fill(starts)
        return
    share = -(-len(starts) // threads)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill, (starts[i : i + share] for i in range(0, len(starts), share))))


def _cores() -> int:
    """The cores that this process may use, up to as many as memory keeps busy."""
    allowed = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    return min(len(allowed), 8)
