"""Expressions that stand for IR values, in any framework that broadcasts as NumPy does.

An `Operand` is an expression together with the shape it has when it runs, which may be smaller than
its IR type as long as it broadcasts to it. Here too is what reshapes, slices and contractions are
in the notation that NumPy, PyTorch and JAX share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from linnet.dtypes import DType
from linnet.emit.code import Code, index, method, rounded
from linnet.ir.core import TensorType

Pairs = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Operand:
    """An expression that stands for an IR value."""

    code: Code
    type: TensorType
    shape: tuple[int, ...]
    """What the expression's shape is; it broadcasts to `type.shape`."""
    number: bool = False
    """A Python number: a constant, or what is computed from loop counters."""
    value: int | float | bool | None = None
    """Of a constant."""
    keepdim: tuple[Code, tuple[int, ...]] | None = None
    """Of a reduction: the same with its axes kept at extent 1, and which these are."""
    picked: tuple[Code, tuple[str, ...]] | None = None
    """Of a slice: what it is taken from, and the index of each axis."""


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that these broadcast to."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(
        next((extent for extent in extents if extent != 1), 1)
        for extents in zip(*padded, strict=True)
    )


def cast_number(value: int | float | bool, dtype: DType) -> int | float | bool:
    if dtype == DType.BOOL:
        return bool(value)
    if dtype.is_float:
        return rounded(float(value), dtype)
    low, high = dtype.integer_range
    if isinstance(value, float):
        return 0 if math.isnan(value) else int(min(max(value, low), high))
    return (int(value) - low) % (1 << dtype.bits) + low


def kept_reduction(x: Operand, new: tuple[int, ...]) -> Code | None:
    """A reduction whose axes come back with extent 1: `keepdim`."""
    if x.keepdim is None:
        return None
    code, axes = x.keepdim
    extents = list(x.type.shape)
    for axis in sorted(axes):
        extents.insert(axis, 1)
    return code if tuple(extents) == new else None


def insertions(old: tuple[int, ...], new: tuple[int, ...]) -> list[str] | None:
    """The index that makes one shape the other by inserting axes of extent 1."""
    items: list[str] = []
    rest = list(old)
    for extent in new:
        if rest and rest[0] == extent and not (extent == 1 and len(new) - len(items) > len(rest)):
            items.append(":")
            rest.pop(0)
        elif extent == 1:
            items.append("None")
        else:
            return None
    if rest or "None" not in items:
        return None
    return items


def dropped_axis(old: tuple[int, ...], new: tuple[int, ...]) -> int | None:
    """The one axis of extent 1 that is in the first shape and not in the other."""
    if len(new) != len(old) - 1:
        return None
    for axis in reversed(range(len(old))):
        if old[axis] == 1 and (*old[:axis], *old[axis + 1 :]) == new:
            return axis
    return None


def drop_axis(x: Operand, axis: int) -> Code:
    if x.picked is not None:
        base, items = x.picked
        candidates = [i for i, item in enumerate(items) if _single(item) is not None]
        chosen = [i for i in candidates if x.type.shape[i] == 1 and _same_drop(x, i, axis)]
        if chosen:
            at = chosen[0]
            single = _single(items[at])
            assert single is not None
            return index(base, [*items[:at], single, *items[at + 1 :]])
    return method(x.code, "squeeze", axis_text(axis, len(x.type.shape)))


def _same_drop(x: Operand, axis: int, other: int) -> bool:
    shape = x.type.shape
    return (*shape[:axis], *shape[axis + 1 :]) == (*shape[:other], *shape[other + 1 :])


def _single(item: str) -> str | None:
    """The position that an index of one element picks: `3:4` picks 3."""
    start, colon, stop = item.partition(":")
    if not colon or ":" in stop or not stop.isdigit():
        return None
    first = int(start or 0)
    return str(first) if int(stop) == first + 1 else None


def axis_text(axis: int, rank: int) -> str:
    return "-1" if axis == rank - 1 and rank > 1 else str(axis)


def einsum_terms(ranks: tuple[int, ...], batch: Pairs, contract: Pairs) -> str:
    """A `dot` as `einsum` writes it, as `abc,dc->abd`."""
    names = iter("abcdefghijklmnopqrstuvwxyz")
    shared = dict(zip((*batch[1], *contract[1]), (*batch[0], *contract[0]), strict=True))
    first = {axis: next(names) for axis in range(ranks[0])}
    second = {
        axis: first[shared[axis]] if axis in shared else next(names) for axis in range(ranks[1])
    }
    out = [first[axis] for axis in batch[0]]
    out += [name for axis, name in first.items() if axis not in (*batch[0], *contract[0])]
    out += [name for axis, name in second.items() if axis not in shared]
    return f"{''.join(first.values())},{''.join(second.values())}->{''.join(out)}"


def identity(name: str, dtype: DType) -> int | float | bool:
    if name in ("max", "min"):
        if dtype.is_float:
            return -math.inf if name == "max" else math.inf
        return dtype.integer_range[0 if name == "max" else 1]
    return {"sum": 0, "prod": 1, "any": False, "all": True}[name]
