"""The few sizes that entries are compiled for, and how a pass of prompts is put together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def round_up(count: int, sizes: Sequence[int]) -> int:
    """The smallest of ascending sizes that holds a count; the largest where none does."""
    return sizes[min(bisect_left(sizes, count), len(sizes) - 1)]


def row_sizes(rows: int) -> tuple[int, ...]:
    """How many rows a decode step runs for: powers of two, and all."""
    return tuple(sorted({1 << i for i in range(rows.bit_length()) if 1 << i < rows} | {rows}))


def prompt_sizes(budget: int) -> tuple[int, ...]:
    """How many tokens a prefill pass runs for: 16, 32, 64, 96, 128, 192, 256, 384, … and the
    budget. Each has to be compiled; between two, at most a third is padding."""
    steps = (16, 32, *(size for i in range(6, 31) for size in (1 << i, 3 << (i - 1))))
    return (*(size for size in steps if size < budget), budget)


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens of a prompt that one pass takes in: `tokens`, from position `start` on, into `row`."""

    row: int
    start: int
    tokens: Sequence[int]


def pack(parts: Sequence[Part], sizes: Sequence[int], ends: int) -> list[np.ndarray]:
    """The inputs of `prefill_packed`: prompts from their starts, end to end, one padding behind all
    of them.

    `ends` is how many logits the pass gives; those beyond the parts' repeat the first's.
    """
    total = sum(len(part.tokens) for part in parts)
    size = round_up(total, sizes)
    tokens = np.zeros((1, size), np.int32)
    rows, positions, segments = (np.full(size, -1, np.int32) for _ in range(3))
    last = np.zeros(ends, np.int32)
    at = 0
    for number, part in enumerate(parts):
        end = at + len(part.tokens)
        tokens[0, at:end] = part.tokens
        rows[at:end] = part.row
        positions[at:end] = np.arange(part.start, part.start + len(part.tokens))
        segments[at:end] = number
        last[number] = end - 1
        at = end
    last[len(parts) :] = last[0]
    return [tokens, rows, positions, segments, last]


def extend(part: Part, held: Sequence[int], sizes: Sequence[int], max_seq: int) -> list[object]:
    """The inputs of `prefill_slot` for a part behind what its row holds.

    Padding must not reach beyond the cache; near its end, some tokens before the part are taken in
    again instead, which writes what is there already.
    """
    size = min(round_up(len(part.tokens), sizes), max_seq)
    start = min(part.start, max_seq - size)
    tokens = np.zeros((1, size), np.int32)
    given = [*held[start : part.start], *part.tokens]
    tokens[0, : len(given)] = given
    return [tokens, part.row, start, len(given) - 1]
