"""Accesses in index notation: `a[m, 2 * i + 1, labels[b], *s]`.

An axis is *kept*, whole or in steps of one index; *picked* at a constant; or *gathered* at
positions that are computed: runtime integers, sums of indices, falling ones. An index that shows
up twice makes its axes gathered too, at its own positions: a diagonal, or the `b` in
`logits[b, labels[b]]`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from linnet.check import typed
from linnet.dtypes import DType
from linnet.ir.core import TensorType
from linnet.ir.labels import Labelled

if TYPE_CHECKING:
    from linnet.ir.index import Notation


@dataclass(frozen=True, slots=True)
class _Kept:
    label: str
    start: int = 0
    step: int = 1


@dataclass(frozen=True, slots=True)
class _Picked:
    position: int


@dataclass(frozen=True, slots=True)
class _Gathered:
    positions: Labelled


_Axis = _Kept | _Picked | _Gathered


def lower_access(notation: Notation, expr: typed.Access) -> Labelled:
    """The tensor accessed, with a label for each index it is accessed by."""
    frame, extents = notation.frame, notation.labels.extents
    base = frame.value(expr.base)
    axes: list[_Axis] = []
    for subscript in expr.subscripts:
        if isinstance(subscript, typed.PackSubscript):
            axes += [_Kept(label) for label in notation.scope[subscript.name]]
        elif isinstance(subscript, typed.Affine):
            axes.append(_affine(notation, subscript))
        else:
            axes.append(_Gathered(notation.lower(subscript)))
    frame.builder.location = expr.span.location
    axes = _gather_shared(notation, axes)

    bounds, dropped, gathered, kept = [], [], {}, []
    for i, (axis, extent) in enumerate(zip(axes, base.type.shape, strict=True)):
        match axis:
            case _Kept(label, start, step):
                count = extents[label]
                # Of no elements even the first may be beyond the end.
                whole = (start, start + step * (count - 1) + 1, step)
                bounds.append(whole if count else (0, 0, 1))
                kept.append(label)
            case _Picked(position):
                bounds.append((position, position + 1, 1))
                dropped.append(i)
            case _Gathered(positions):
                bounds.append((0, extent, 1))
                gathered[i] = positions
    order = notation.labels.ordered(list(gathered.values()))
    positions = {i: notation.labels.arranged(part, order) for i, part in gathered.items()}
    value = frame.builder.take(base, bounds, dropped, positions)
    return Labelled(value, (*order, *kept))


def _affine(notation: Notation, subscript: typed.Affine) -> _Axis:
    frame = notation.frame
    offset = frame.dim(subscript.offset)
    terms = {index: frame.dim(coefficient) for index, coefficient in subscript.terms}
    steps = {notation.scope[index][0]: step for index, step in terms.items() if step}
    if not steps:
        return _Picked(offset)
    if len(steps) == 1:
        ((label, step),) = steps.items()
        if step > 0:
            return _Kept(label, offset, step)
    parts = [_positions(notation, label, 0, step) for label, step in steps.items()]
    total = parts[0]
    for part in parts[1:]:
        total = notation.labels.elementwise("add", [total, part], DType.I64)
    return _Gathered(_shifted(notation, total, offset))


def _gather_shared(notation: Notation, axes: list[_Axis]) -> list[_Axis]:
    """Turns kept axes whose index shows up elsewhere in the access into gathered ones."""
    uses = Counter(axis.label for axis in axes if isinstance(axis, _Kept))
    for axis in axes:
        if isinstance(axis, _Gathered):
            uses.update(dict.fromkeys(axis.positions.labels, 2))
    return [
        _Gathered(_positions(notation, axis.label, axis.start, axis.step))
        if isinstance(axis, _Kept) and uses[axis.label] > 1
        else axis
        for axis in axes
    ]


def _positions(notation: Notation, label: str, start: int, step: int) -> Labelled:
    """`start + step * i` for each value of an index."""
    builder = notation.frame.builder
    shape = notation.labels.shape([label])
    found = Labelled(builder.emit("iota", (), TensorType(shape, DType.I64), axis=0), (label,))
    if step != 1:
        factor = Labelled(builder.constant(step, TensorType((), DType.I64)), ())
        found = notation.labels.elementwise("mul", [found, factor], DType.I64)
    return _shifted(notation, found, start)


def _shifted(notation: Notation, part: Labelled, offset: int) -> Labelled:
    if offset == 0:
        return part
    constant = notation.frame.builder.constant(offset, TensorType((), DType.I64))
    return notation.labels.elementwise("add", [part, Labelled(constant, ())], DType.I64)
