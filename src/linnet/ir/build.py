"""Writing one function's operations: names, constants, broadcasting, and what a region captures.

A `Builder` is one function or region being written. Operations that would do nothing (a reshape to
the same shape, a permutation of nothing) are not written, and scalars that are known are folded at
once, so that a condition over dimensions is a constant when control flow looks at it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from linnet.dtypes import DType
from linnet.ir.core import Attr, Function, Op, Slot, TensorType, Value
from linnet.ir.fold import Scalar, fold_scalar
from linnet.ir.verify import AxisPairs, dot_shape


class Builder:
    """One function or region being written."""

    def __init__(self, parent: Builder | None = None):
        self.parent = parent
        self.root: Builder = parent.root if parent is not None else self
        self.inputs: list[Value] = []
        self.slots: dict[str, Slot] = {}
        self.captured: dict[Value, Value] = {}
        """Of a region: values of the function around it, by what stands for them here."""
        self.ops: list[Op] = []
        self.location = parent.location if parent is not None else ""
        self.scalars: dict[Value, Scalar] = parent.scalars if parent is not None else {}
        """What is known of values at compile time; shared by a function and its regions."""
        self.names: dict[Value, str] = parent.names if parent is not None else {}
        """What values are called in the source."""
        self._constants: dict[tuple[TensorType, str], Value] = {}

    # Values.

    def suggest(self, value: Value, name: str) -> None:
        """Names a value, if nothing has named it before."""
        self.names.setdefault(value, name.replace(".", "_"))

    def input(self, type_: TensorType) -> Value:
        value = Value("", type_)
        self.inputs.append(value)
        self.captured[value] = value
        return value

    def slot(self, path: str, kind: str, type_: TensorType) -> Value:
        """The function's slot for a weight or state, made on first use."""
        found = self.root.slots.get(path)
        if found is None:
            value = Value("", type_)
            self.suggest(value, path)
            self.root.captured[value] = value
            found = self.root.slots[path] = Slot(path, kind, value)
        return found.value

    def use(self, value: Value) -> Value:
        """A value as it is known here: itself, or in a region what it was captured as."""
        found = self.captured.get(value)
        if found is not None:
            return found
        if self.parent is None:
            raise AssertionError(f"{value!r} is of another function")
        if value in self.scalars:
            return self.constant(self.scalars[value], value.type)
        self.parent.use(value)
        local = Value("", value.type)
        if value in self.names:
            self.suggest(local, self.names[value])
        self.captured[value] = local
        return local

    @property
    def captures(self) -> list[Value]:
        """What a region has taken from around it, in order of first use."""
        return [outer for outer, local in self.captured.items() if outer is not local]

    # Operations.

    def emit(
        self,
        kind: str,
        inputs: Sequence[Value],
        type_: TensorType,
        **attrs: Attr,
    ) -> Value:
        """Writes an operation with one output."""
        return self.emit_many(kind, inputs, [type_], **attrs)[0]

    def emit_many(
        self,
        kind: str,
        inputs: Sequence[Value],
        types: Sequence[TensorType],
        **attrs: Attr,
    ) -> tuple[Value, ...]:
        used = tuple(self.use(value) for value in inputs)
        outputs = tuple(Value("", type_) for type_ in types)
        self.captured.update((value, value) for value in outputs)
        self.ops.append(Op(kind, used, outputs, attrs, self.location))
        return outputs

    def constant(self, value: Scalar, type_: TensorType) -> Value:
        """The scalar in every element; one value for each constant of a function."""
        if type_.dtype.is_float:
            value = float(value)
        key = (type_, repr(value))
        if key not in self._constants:
            made = self.emit("constant", (), type_, value=value)
            self._constants[key] = made
            self.scalars[made] = value
        return self._constants[key]

    def elementwise(
        self,
        kind: str,
        inputs: Sequence[Value],
        dtype: DType,
    ) -> Value:
        """An elementwise operation on values of one shape."""
        known = [self.scalars[value] for value in inputs if value in self.scalars]
        if len(known) == len(inputs):
            folded = fold_scalar(kind, known, inputs[-1].type.dtype, dtype)
            if folded is not None:
                return self.constant(folded, TensorType(inputs[0].type.shape, dtype))
        return self.emit(kind, inputs, TensorType(inputs[0].type.shape, dtype))

    def cast(self, value: Value, dtype: DType) -> Value:
        if value.type.dtype == dtype:
            return value
        return self.elementwise("cast", [value], dtype)

    def reshape(self, value: Value, shape: tuple[int, ...]) -> Value:
        if value.type.shape == shape:
            return value
        if value in self.scalars:
            return self.constant(self.scalars[value], TensorType(shape, value.type.dtype))
        return self.emit("reshape", [value], TensorType(shape, value.type.dtype))

    def permute(self, value: Value, axes: Sequence[int]) -> Value:
        if list(axes) == list(range(len(axes))):
            return value
        shape = tuple(value.type.shape[axis] for axis in axes)
        if value in self.scalars:
            return self.constant(self.scalars[value], TensorType(shape, value.type.dtype))
        type_ = TensorType(shape, value.type.dtype)
        return self.emit("permute", [value], type_, axes=tuple(axes))

    def broadcast(self, value: Value, axes: Sequence[int], shape: tuple[int, ...]) -> Value:
        """Input axis i becomes output axis `axes[i]`, stretched where its extent is 1."""
        if value.type.shape == shape and list(axes) == list(range(len(shape))):
            return value
        type_ = TensorType(shape, value.type.dtype)
        if value in self.scalars:
            return self.constant(self.scalars[value], type_)
        return self.emit("broadcast", [value], type_, axes=tuple(axes))

    def broadcast_right(self, value: Value, shape: tuple[int, ...]) -> Value:
        """Broadcasts as operators do: shapes aligned at the right."""
        first = len(shape) - len(value.type.shape)
        return self.broadcast(value, range(first, len(shape)), shape)

    def slice(
        self,
        value: Value,
        bounds: Sequence[tuple[int, int, int]],
    ) -> Value:
        """`start:stop:step` on each axis."""
        extents = value.type.shape
        if all(b == (0, n, 1) for b, n in zip(bounds, extents, strict=True)):
            return value
        shape = tuple(math.ceil((stop - start) / step) for start, stop, step in bounds)
        start, stop, step = (tuple(part) for part in zip(*bounds, strict=True))
        type_ = TensorType(shape, value.type.dtype)
        if value in self.scalars:
            return self.constant(self.scalars[value], type_)
        return self.emit("slice", [value], type_, start=start, stop=stop, step=step)

    def dot(
        self,
        left: Value,
        right: Value,
        batch: AxisPairs,
        contract: AxisPairs,
        dtype: DType,
    ) -> Value:
        shape = dot_shape(left.type.shape, right.type.shape, batch, contract)
        type_ = TensorType(shape, dtype)
        return self.emit("dot", [left, right], type_, batch=batch, contract=contract)

    def reduce(self, op: str, value: Value, axes: Sequence[int]) -> Value:
        if not axes:
            return value
        shape = tuple(n for axis, n in enumerate(value.type.shape) if axis not in axes)
        type_ = TensorType(shape, value.type.dtype)
        return self.emit("reduce", [value], type_, op=op, axes=tuple(axes))

    def gather(self, value: Value, axes: Sequence[int], indices: Sequence[Value]) -> Value:
        rest = tuple(n for axis, n in enumerate(value.type.shape) if axis not in axes)
        type_ = TensorType((*indices[0].type.shape, *rest), value.type.dtype)
        return self.emit("gather", [value, *indices], type_, axes=tuple(axes))

    def take(
        self,
        value: Value,
        bounds: Sequence[tuple[int, int, int]],
        dropped: Collection[int],
        positions: Mapping[int, Value],
    ) -> Value:
        """`value[start:stop:step, …]`, without the dropped axes (of extent 1 by then), then
        gathered at runtime positions, whose axes come first."""
        value = self.slice(value, bounds)
        kept = [axis for axis in range(len(bounds)) if axis not in dropped]
        value = self.reshape(value, tuple(value.type.shape[axis] for axis in kept))
        if not positions:
            return value
        axes = sorted(positions)
        return self.gather(value, [kept.index(axis) for axis in axes], [positions[a] for a in axes])


def named(function: Function, names: Mapping[Value, str]) -> Function:
    """A function whose values bear the names suggested, made unique, or `t0`, `t1`, …"""
    taken: set[str] = set()
    renamed: dict[Value, Value] = {}
    counts: dict[str, int] = {}

    def rename(value: Value) -> Value:
        if value not in renamed:
            base = names.get(value)
            name = base or ""
            while not name or name in taken:
                count = counts.get(base or "t", 0 if base is None else 1)
                counts[base or "t"] = count + 1
                name = f"t{count}" if base is None else f"{base}_{count}"
            taken.add(name)
            renamed[value] = Value(name, value.type)
        return renamed[value]

    def slots(of: tuple[Slot, ...]) -> tuple[Slot, ...]:
        return tuple(Slot(slot.path, slot.kind, rename(slot.value)) for slot in of)

    return replace(
        function,
        inputs=tuple(map(rename, function.inputs)),
        weights=slots(function.weights),
        states=slots(function.states),
        ops=tuple(
            replace(
                op, inputs=tuple(map(rename, op.inputs)), outputs=tuple(map(rename, op.outputs))
            )
            for op in function.ops
        ),
        results=tuple(map(rename, function.results)),
        new_states=tuple(map(rename, function.new_states)),
    )
