"""The rows of the cache: which are free, what each holds, and which can be used again.

A row keeps the tokens whose keys and values it holds, also after its request has ended: a new
prompt that begins with the same tokens takes the row over, or has them copied from a row in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True)
class Row:
    """One row of the cache."""

    index: int
    held: list[int] = field(default_factory=list)
    """The tokens at its positions, from the first on."""
    used: bool = False
    freed_at: int = 0
    """When it was freed, by the count of frees: the longest ago is overwritten first."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A row for a prompt, and how much of the prompt it will hold at once."""

    row: Row
    cached: int
    copy_from: int | None = None
    """The row to copy first."""


class Rows:
    """All rows. `min_reuse`: shared tokens fewer than this are computed again, which is cheaper."""

    def __init__(self, count: int, min_reuse: int):
        self.rows = [Row(index) for index in range(count)]
        self.min_reuse = min_reuse
        self._frees = 0

    @property
    def free(self) -> list[Row]:
        return [row for row in self.rows if not row.used]

    @property
    def used(self) -> int:
        return sum(row.used for row in self.rows)

    def take(self, prompt: Sequence[int]) -> Placed | None:
        """A row for a prompt, or None where all are in use. At least one token is left to compute:
        its logits are wanted."""
        if not self.free:
            return None
        wanted = np.asarray(prompt[:-1], np.int64)
        shared = {row.index: common_prefix(wanted, row.held) for row in self.rows}
        best = max(self.rows, key=lambda row: (shared[row.index], not row.used))
        cached = shared[best.index]
        if cached < self.min_reuse:
            row = self.least_missed()
            row.used, row.held = True, []
            return Placed(row, 0)
        if not best.used:
            best.used, best.held = True, best.held[:cached]
            return Placed(best, cached)
        row = self.least_missed()
        row.used, row.held = True, best.held[:cached]
        return Placed(row, cached, copy_from=best.index)

    def give_back(self, row: Row) -> None:
        self._frees += 1
        row.used, row.freed_at = False, self._frees

    def forget(self) -> None:
        """What the rows hold is not known any more."""
        for row in self.rows:
            row.held = []

    def least_missed(self) -> Row:
        """The free row to write over: an empty one, the lowest, since few rows in use should be the
        first ones; else the one freed longest ago."""
        return min(
            self.free, key=lambda row: (bool(row.held), row.freed_at if row.held else row.index)
        )


def common_prefix(wanted: np.ndarray, held: Sequence[int]) -> int:
    """How many tokens two sequences begin with in common."""
    count = min(len(wanted), len(held))
    if not count or wanted[0] != held[0]:
        return 0
    differs = np.flatnonzero(wanted[:count] != np.asarray(held[:count], np.int64))
    return int(differs[0]) if differs.size else count
