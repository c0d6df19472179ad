"""What is known about the integers of a function: bounds that spare a clamp or a sign test."""

from __future__ import annotations

from collections.abc import Mapping

from linnet.ir.core import Op, Value

Bounds = tuple[int, int]
_SAME = ("broadcast", "reshape", "permute", "slice", "cast", "gather")


def bounds(value: Value, definitions: Mapping[Value, Op], known: Mapping[Value, Bounds]) -> Bounds:
    """The smallest and largest value an integer tensor may hold.

    `definitions` gives the operation that makes a value, `known` the bounds of loop counters.
    """
    low, high = value.type.dtype.integer_range
    found = known.get(value) or _of(value, definitions, known)
    if found is None or found[0] < low or found[1] > high:
        return low, high
    return found


def _of(
    value: Value, definitions: Mapping[Value, Op], known: Mapping[Value, Bounds]
) -> Bounds | None:
    op = definitions.get(value)
    if op is None or any(not v.type.dtype.is_integer for v in op.inputs):
        return None
    if op.kind == "constant":
        number = int(op.attrs["value"])  # type: ignore[arg-type]
        return number, number
    if op.kind == "iota":
        axis = op.attrs["axis"]
        return 0, max(value.type.shape[axis] - 1, 0)  # type: ignore[index]
    if op.kind in _SAME:
        return bounds(op.inputs[0], definitions, known)
    if op.kind not in ("add", "sub", "mul", "min", "max", "rem"):
        return None
    (a, b), (c, d) = (bounds(v, definitions, known) for v in op.inputs)
    if op.kind == "add":
        return a + c, b + d
    if op.kind == "sub":
        return a - d, b - c
    if op.kind == "mul":
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if op.kind == "min":
        return min(a, c), min(b, d)
    if op.kind == "max":
        return max(a, c), max(b, d)
    return (0, d - 1) if a >= 0 and c > 0 else None
