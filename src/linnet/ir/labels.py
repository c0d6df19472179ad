"""Tensors whose axes are labelled by the indices they vary with, and how labels line up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from linnet.dtypes import DType
from linnet.ir.core import Value
from linnet.ir.frame import Frame


@dataclass(frozen=True, slots=True)
class Labelled:
    """A tensor and a label for each of its axes, all different; a scalar varies with nothing."""

    value: Value
    labels: tuple[str, ...]

    def axes(self, labels: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.labels.index(label) for label in labels)


class Labels:
    """The labels of one comprehension, in order: outputs, then reductions as they are met."""

    def __init__(self, frame: Frame):
        self.frame = frame
        self.extents: dict[str, int] = {}

    def new(self, name: str, extent: int) -> str:
        """A label for an index; a name bound again, by a reduction elsewhere, gets another."""
        label, count = name, 1
        while label in self.extents:
            label = f"{name}'{count}"
            count += 1
        self.extents[label] = extent
        return label

    def ordered(self, parts: Sequence[Labelled]) -> list[str]:
        """All labels of some tensors, in an order that needs few of them permuted: that of a part
        which has all and agrees with the others, else the order they were bound in."""
        every = {label for part in parts for label in part.labels}
        for part in parts:
            if len(part.labels) == len(every) and all(_follows(p, part) for p in parts):
                return list(part.labels)
        return [label for label in self.extents if label in every]

    def shape(self, labels: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.extents[label] for label in labels)

    def permuted(self, part: Labelled, order: Sequence[str]) -> Labelled:
        """A tensor with its own labels in this order (which may have more)."""
        wanted = tuple(label for label in order if label in part.labels)
        value = self.frame.builder.permute(part.value, part.axes(wanted))
        return Labelled(value, wanted)

    def arranged(self, part: Labelled, order: Sequence[str]) -> Value:
        """The tensor over exactly these labels, in this order."""
        part = self.permuted(part, order)
        axes = [list(order).index(label) for label in part.labels]
        return self.frame.builder.broadcast(part.value, axes, self.shape(order))

    def covering(self, part: Labelled, labels: Sequence[str]) -> Labelled:
        """A tensor that varies with these labels too, by broadcasting over those it lacks."""
        missing = [label for label in labels if label not in part.labels]
        if not missing:
            return part
        order = (*part.labels, *missing)
        return Labelled(self.arranged(part, order), order)

    def elementwise(self, kind: str, parts: Sequence[Labelled], dtype: DType) -> Labelled:
        """An elementwise operation over all the labels of its parts."""
        order = self.ordered(parts)
        values = [self.arranged(part, order) for part in parts]
        builder = self.frame.builder
        if kind == "cast":
            return Labelled(builder.cast(values[0], dtype), tuple(order))
        return Labelled(builder.elementwise(kind, values, dtype), tuple(order))

    def reduced(self, op: str, part: Labelled, labels: Sequence[str]) -> Labelled:
        """A tensor with these labels reduced away."""
        rest = tuple(label for label in part.labels if label not in labels)
        value = self.frame.builder.reduce(op, part.value, sorted(part.axes(labels)))
        return Labelled(value, rest)


def _follows(part: Labelled, whole: Labelled) -> bool:
    """Whether a part's labels come in the order they have in the whole."""
    at = [whole.labels.index(label) for label in part.labels]
    return at == sorted(at)
