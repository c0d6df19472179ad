"""StableHLO as text: values, types, and one method for each operation the emitter writes.

A `Body` collects the lines of one function or region. Every method takes values, works out the type
of what it gives, and writes one operation in StableHLO's own syntax; names are unique in a whole
function, since a region sees the names around it. Nothing here imports JAX.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from linnet.dtypes import DType
from linnet.ir.core import TensorType
from linnet.ir.verify import dot_shape

ELEMENTS: dict[DType, str] = {
    DType.BOOL: "i1", DType.I8: "i8", DType.I16: "i16", DType.I32: "i32", DType.I64: "i64",
    DType.U8: "ui8", DType.U16: "ui16", DType.U32: "ui32", DType.U64: "ui64", DType.F16: "f16",
    DType.BF16: "bf16", DType.F32: "f32", DType.F64: "f64",
}  # fmt: skip
NARROW = (DType.F16, DType.BF16)
"""Floats whose sums and products are accumulated in f32."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A value as it is written: `%name`, and its type."""

    name: str
    type: TensorType

    def __str__(self) -> str:
        return self.name


def type_text(type_: TensorType) -> str:
    """`tensor<2x3xf32>`."""
    return f"tensor<{'x'.join([*map(str, type_.shape), ELEMENTS[type_.dtype]])}>"


def types_text(values: Sequence[Ref]) -> str:
    return f"({', '.join(type_text(value.type) for value in values)})"


def integers(numbers: Sequence[int]) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def literal(value: int | float | bool, dtype: DType) -> str:
    """A number as MLIR writes it in `dense<…>`; what is not finite goes by its bits."""
    if dtype == DType.BOOL:
        return "true" if value else "false"
    if dtype.is_integer:
        return str(int(value))
    if not math.isfinite(value) or abs(value) > _LARGEST[dtype]:
        return _bits(float(value), dtype)
    text = repr(float(value))
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}{e}{exponent}"


_LARGEST = {DType.F16: 65504.0, DType.BF16: 3.38e38, DType.F32: 3.4e38, DType.F64: math.inf}


def _bits(value: float, dtype: DType) -> str:
    sign = math.copysign(1.0, value) < 0
    if math.isnan(value):
        bits = {DType.F16: 0x7E00, DType.BF16: 0x7FC0, DType.F32: 0x7FC00000,
                DType.F64: 0x7FF8000000000000}[dtype]  # fmt: skip
    elif dtype == DType.F32 and math.isfinite(value):
        try:
            (bits,) = struct.unpack("<I", struct.pack("<f", abs(value)))
        except OverflowError:
            bits = 0x7F800000
    else:
        bits = {DType.F16: 0x7C00, DType.BF16: 0x7F80, DType.F32: 0x7F800000,
                DType.F64: 0x7FF0000000000000}[dtype]  # fmt: skip
    if sign and not math.isnan(value):
        bits |= 1 << (dtype.bits - 1)
    return f"0x{bits:0{dtype.bits // 4}X}"


class Names:
    """Names that are unique in a function."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def fresh(self, wanted: str) -> str:
        stem = re.sub(r"[^A-Za-z0-9_]", "_", wanted) or "v"
        stem = f"v{stem}" if stem[0].isdigit() else stem
        name, count = stem, 1
        while name in self.taken:
            count += 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return f"%{name}"


class Body:
    """The operations of a function or region, in order."""

    def __init__(self, names: Names, indent: int = 2):
        self.names = names
        self.lines: list[str] = []
        self.indent = indent
        self.wanted = "t"
        """What the next value is called, if that is free."""
        self._constants: dict[tuple[object, TensorType], Ref] = {}

    def line(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    def value(self, text: str, type_: TensorType) -> Ref:
        """Writes an operation that gives one value."""
        ref = Ref(self.names.fresh(self.wanted), type_)
        self.line(f"{ref} = {text}")
        return ref

    @contextmanager
    def naming(self, wanted: str):
        """Calls the values that are written in here `wanted`."""
        before, self.wanted = self.wanted, wanted
        try:
            yield
        finally:
            self.wanted = before

    # Elementwise.

    def unary(self, name: str, x: Ref) -> Ref:
        return self.value(f"stablehlo.{name} {x} : {type_text(x.type)}", x.type)

    def binary(self, name: str, a: Ref, b: Ref) -> Ref:
        return self.value(f"stablehlo.{name} {a}, {b} : {type_text(a.type)}", a.type)

    def compare(self, direction: str, a: Ref, b: Ref) -> Ref:
        dtype = a.type.dtype
        kind = "FLOAT" if dtype.is_float else "SIGNED" if dtype.is_signed else "UNSIGNED"
        type_ = TensorType(a.type.shape, DType.BOOL)
        types = f"({type_text(a.type)}, {type_text(b.type)}) -> {type_text(type_)}"
        return self.value(f"stablehlo.compare {direction}, {a}, {b}, {kind} : {types}", type_)

    def select(self, condition: Ref, a: Ref, b: Ref) -> Ref:
        types = f"{type_text(condition.type)}, {type_text(a.type)}"
        return self.value(f"stablehlo.select {condition}, {a}, {b} : {types}", a.type)

    def convert(self, x: Ref, dtype: DType) -> Ref:
        if x.type.dtype == dtype:
            return x
        type_ = TensorType(x.type.shape, dtype)
        types = f"({type_text(x.type)}) -> {type_text(type_)}"
        return self.value(f"stablehlo.convert {x} : {types}", type_)

    # Creation and shape.

    def constant(self, value: int | float | bool, type_: TensorType) -> Ref:
        """The same value in every element; written once in a body."""
        key = (repr(value), type_)
        if key not in self._constants:
            with self.naming("c"):
                dense = f"dense<{literal(value, type_.dtype)}> : {type_text(type_)}"
                self._constants[key] = self.value(f"stablehlo.constant {dense}", type_)
        return self._constants[key]

    def scalar(self, value: int | float | bool, dtype: DType) -> Ref:
        return self.constant(value, TensorType((), dtype))

    def iota(self, type_: TensorType, axis: int) -> Ref:
        return self.value(f"stablehlo.iota dim = {axis} : {type_text(type_)}", type_)

    def _shape(self, text: str, x: Ref, shape: Sequence[int]) -> Ref:
        type_ = TensorType(tuple(shape), x.type.dtype)
        return self.value(f"{text} : ({type_text(x.type)}) -> {type_text(type_)}", type_)

    def reshape(self, x: Ref, shape: Sequence[int]) -> Ref:
        if x.type.shape == tuple(shape):
            return x
        return self._shape(f"stablehlo.reshape {x}", x, shape)

    def transpose(self, x: Ref, axes: Sequence[int]) -> Ref:
        shape = [x.type.shape[axis] for axis in axes]
        return self._shape(f"stablehlo.transpose {x}, dims = {integers(axes)}", x, shape)

    def broadcast(self, x: Ref, axes: Sequence[int], shape: Sequence[int]) -> Ref:
        if x.type.shape == tuple(shape) and tuple(axes) == tuple(range(len(shape))):
            return x
        return self._shape(f"stablehlo.broadcast_in_dim {x}, dims = {integers(axes)}", x, shape)

    def slice(self, x: Ref, start: Sequence[int], stop: Sequence[int], step: Sequence[int]) -> Ref:
        parts = [
            f"{a}:{b}" if s == 1 else f"{a}:{b}:{s}"
            for a, b, s in zip(start, stop, step, strict=True)
        ]
        shape = [-(-(b - a) // s) for a, b, s in zip(start, stop, step, strict=True)]
        return self._shape(f"stablehlo.slice {x} [{', '.join(parts)}]", x, shape)

    def pad(self, x: Ref, axis: int, low: int, high: int) -> Ref:
        """x with zeros before and after it on one axis."""
        rank = len(x.type.shape)
        zero = self.scalar(0.0 if x.type.dtype.is_float else 0, x.type.dtype)
        lows, highs, inside = ([n if i == axis else 0 for i in range(rank)] for n in (low, high, 0))
        shape = list(x.type.shape)
        shape[axis] += low + high
        type_ = TensorType(tuple(shape), x.type.dtype)
        text = f"low = {integers(lows)}, high = {integers(highs)}, interior = {integers(inside)}"
        types = f"{types_text([x, zero])} -> {type_text(type_)}"
        return self.value(f"stablehlo.pad {x}, {zero}, {text} : {types}", type_)

    def concatenate(self, parts: Sequence[Ref], axis: int) -> Ref:
        shape = list(parts[0].type.shape)
        shape[axis] = sum(part.type.shape[axis] for part in parts)
        type_ = TensorType(tuple(shape), parts[0].type.dtype)
        names = ", ".join(map(str, parts))
        types = f"{types_text(parts)} -> {type_text(type_)}"
        return self.value(f"stablehlo.concatenate {names}, dim = {axis} : {types}", type_)

    # Contraction and reduction.

    def dot(
        self,
        a: Ref,
        b: Ref,
        batch: tuple[tuple[int, ...], tuple[int, ...]],
        contract: tuple[tuple[int, ...], tuple[int, ...]],
        dtype: DType,
    ) -> Ref:
        """A product accumulated in `dtype`, in full precision on every device."""
        type_ = TensorType(dot_shape(a.type.shape, b.type.shape, batch, contract), dtype)
        dims = ""
        if batch[0]:
            dims += f", batching_dims = {integers(batch[0])} x {integers(batch[1])}"
        dims += f", contracting_dims = {integers(contract[0])} x {integers(contract[1])}"
        if dtype.is_float:
            dims += ", precision = [HIGHEST, HIGHEST]"
        types = f"{types_text([a, b])} -> {type_text(type_)}"
        return self.value(f"stablehlo.dot_general {a}, {b}{dims} : {types}", type_)

    def reduce(self, name: str, x: Ref, first: Ref, axes: Sequence[int]) -> Ref:
        shape = tuple(n for axis, n in enumerate(x.type.shape) if axis not in axes)
        type_ = TensorType(shape, x.type.dtype)
        how = f"applies stablehlo.{name} across dimensions = {integers(axes)}"
        types = f"{types_text([x, first])} -> {type_text(type_)}"
        return self.value(f"stablehlo.reduce({x} init: {first}) {how} : {types}", type_)

    # Indexing.

    def gather(self, x: Ref, positions: Ref, axes: Sequence[int]) -> Ref:
        """Elements of x along `axes` at `positions`, `[I…, len(axes)]`, clamped to x."""
        rank, outer = len(x.type.shape), positions.type.shape[:-1]
        sizes = [1 if axis in axes else n for axis, n in enumerate(x.type.shape)]
        rest = [n for axis, n in enumerate(x.type.shape) if axis not in axes]
        offset = [len(outer) + i for i in range(rank - len(axes))]
        type_ = TensorType((*outer, *rest), x.type.dtype)
        numbers = (
            f"offset_dims = {integers(offset)}, " if offset else ""
        ) + f"collapsed_slice_dims = {integers(axes)}, start_index_map = {integers(axes)}"
        text = (
            f'"stablehlo.gather"({x}, {positions}) <{{dimension_numbers = #stablehlo.gather<'
            f"{numbers}, index_vector_dim = {len(outer)}>, indices_are_sorted = false, "
            f"slice_sizes = array<i64{': ' if sizes else ''}{', '.join(map(str, sizes))}>}}>"
        )
        types = f"{types_text([x, positions])} -> {type_text(type_)}"
        return self.value(f"{text} : {types}", type_)

    def scatter(self, x: Ref, positions: Ref, value: Ref, axes: Sequence[int]) -> Ref:
        """x with `value`, `[P, …]`, written at `positions`, `[P, len(axes)]`: whole axes elsewhere.

        What stands outside of x is left out; no place is written twice.
        """
        window = list(range(1, len(value.type.shape)))
        numbers = f"update_window_dims = {integers(window)}, " if window else ""
        numbers += (
            f"inserted_window_dims = {integers(axes)}, "
            f"scatter_dims_to_operand_dims = {integers(axes)}, index_vector_dim = 1"
        )
        element = type_text(TensorType((), x.type.dtype))
        old, new = self.names.fresh("old"), self.names.fresh("new")
        text = (
            f'"stablehlo.scatter"({x}, {positions}, {value}) <{{indices_are_sorted = false, '
            f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, unique_indices = true}}> "
            f"({{ ^bb0({old}: {element}, {new}: {element}): stablehlo.return {new} : {element} }})"
        )
        types = f"{types_text([x, positions, value])} -> {type_text(x.type)}"
        return self.value(f"{text} : {types}", x.type)

    def dynamic_slice(self, x: Ref, starts: Sequence[Ref], sizes: Sequence[int]) -> Ref:
        type_ = TensorType(tuple(sizes), x.type.dtype)
        names = ", ".join(map(str, [x, *starts]))
        types = f"{types_text([x, *starts])} -> {type_text(type_)}"
        text = f"stablehlo.dynamic_slice {names}, sizes = {integers(sizes)} : {types}"
        return self.value(text, type_)

    def dynamic_update_slice(self, x: Ref, value: Ref, starts: Sequence[Ref]) -> Ref:
        operands = [x, value, *starts]
        types = f"{types_text(operands)} -> {type_text(x.type)}"
        names = ", ".join(map(str, operands))
        return self.value(f"stablehlo.dynamic_update_slice {names} : {types}", x.type)

    # Structure.

    def call(self, name: str, operands: Sequence[Ref], outputs: Sequence[tuple[str, TensorType]]):
        refs = [Ref(self.names.fresh(n), t) for n, t in outputs]
        left = f"{', '.join(map(str, refs))} = " if refs else ""
        types = f"{types_text(operands)} -> {types_text(refs)}"
        self.line(f"{left}func.call @{name}({', '.join(map(str, operands))}) : {types}")
        return refs

    def loop(
        self,
        initial: Sequence[Ref],
        names: Sequence[str],
        condition: Callable[[Body, list[Ref]], Ref],
        step: Callable[[Body, list[Ref]], Sequence[Ref]],
    ) -> list[Ref]:
        """A `while` over `initial`; both functions write a region from its carried values."""
        carried = [Ref(self.names.fresh(n), x.type) for n, x in zip(names, initial, strict=True)]
        outputs = self._several(initial)
        test, body = Body(self.names, self.indent + 1), Body(self.names, self.indent + 1)
        more = condition(test, carried)
        test.line(f"stablehlo.return {more} : {type_text(more.type)}")
        after = step(body, carried)
        types = ", ".join(type_text(x.type) for x in initial)
        body.line(f"stablehlo.return {', '.join(map(str, after))} : {types}")
        pairs = ", ".join(f"{c} = {x}" for c, x in zip(carried, initial, strict=True))
        self.line(f"{_left(outputs)} = stablehlo.while({pairs}) : {types}")
        self.lines += ["  " * self.indent + "cond {", *test.lines]
        self.lines += ["  " * self.indent + "} do {", *body.lines, "  " * self.indent + "}"]
        return outputs

    def case(
        self, which: Ref, branches: Sequence[Callable[[Body], Sequence[Ref]]], like: Sequence[Ref]
    ) -> list[Ref]:
        """The branch numbered `which`, an i32, clamped; each gives values of the types of `like`.
        A bool takes the first where it is true."""
        outputs = self._several(like)
        parts: list[str] = []
        for i, branch in enumerate(branches):
            body = Body(self.names, self.indent + 1)
            results = branch(body)
            types = ", ".join(type_text(x.type) for x in results)
            body.line(f"stablehlo.return {', '.join(map(str, results))} : {types}")
            parts += body.lines
            parts.append("  " * self.indent + ("}, {" if i + 1 < len(branches) else "})"))
        kind = "if" if which.type.dtype == DType.BOOL else "case"
        parts[-1] += f" : ({type_text(which.type)}) -> {types_text(like)}"
        self.line(f'{_left(outputs)} = "stablehlo.{kind}"({which}) ({{')
        self.lines += parts
        return outputs

    def _several(self, like: Sequence[Ref]) -> list[Ref]:
        """Names for the values of an operation that may give several."""
        name = self.names.fresh(self.wanted)
        if len(like) == 1:
            return [Ref(name, like[0].type)]
        return [Ref(f"{name}#{i}", x.type) for i, x in enumerate(like)]


def _left(outputs: Sequence[Ref]) -> str:
    if len(outputs) == 1:
        return outputs[0].name
    return f"{outputs[0].name.partition('#')[0]}:{len(outputs)}"
