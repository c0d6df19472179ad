"""What every operation means, in NumPy: the reference that each backend is tested against.

Arrays have the dtype of their values; `bf16`, which NumPy lacks, is held in f32, rounded after each
operation. With `wide=True` every float is an f64 and nothing is rounded: the meaning of a program
without its dtypes' error, to measure that error from.

Where the language leaves a choice, this is the one taken: an integer divided by zero gives 0, a
shift by the width or more gives 0 (or -1, for a negative signed value shifted right), a cast of a
float to an integer saturates and makes NaN 0, an index out of range is clamped to its axis, and a
reduction over nothing gives its identity (the dtype's extreme for `max` and `min`). Sums and
products of f16 and bf16 are accumulated in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from linnet.dtypes import DType
from linnet.ir.core import Function, Module, Op, Value

Array = np.ndarray


def run(
    module: Module,
    inputs: Sequence[Array],
    weights: Mapping[str, Array],
    states: Mapping[str, Array] | None = None,
    *,
    wide: bool = False,
) -> tuple[list[Array], dict[str, Array]]:
    """Runs the entry; gives its results and the states it touched, by path.

    `inputs` are the entry's, flattened, `weights` and `states` go by parameter path; a state that
    isn't given starts at zero. Raises `ValueError` for what is missing or of another shape.
    """
    machine = _Machine(module, wide)
    main = module.main
    if len(inputs) != len(main.inputs):
        raise ValueError(f"{len(inputs)} inputs given, {len(main.inputs)} needed")
    operands = [machine.given(v, x, v.name) for v, x in zip(main.inputs, inputs, strict=True)]
    derived = _prepare(machine, weights)
    for slot in main.weights:
        found = derived.get(slot.path, weights.get(slot.path))
        operands.append(machine.given(slot.value, found, slot.path))
    for slot in main.states:
        found = (states or {}).get(slot.path, np.zeros(slot.value.type.shape))
        operands.append(machine.given(slot.value, found, slot.path))
    found = machine.call(main, operands)
    count = len(main.results)
    new = {slot.path: x for slot, x in zip(main.states, found[count:], strict=True)}
    return found[:count], new


def _prepare(machine: _Machine, weights: Mapping[str, Array]) -> dict[str, Array]:
    prepare = machine.module.prepare
    if prepare is None:
        return {}
    operands = [machine.given(s.value, weights.get(s.path), s.path) for s in prepare.weights]
    return dict(zip(machine.module.derived, machine.call(prepare, operands), strict=True))


_NUMPY = {dtype: np.dtype(name) for dtype, name in [
    (DType.BOOL, "bool"), (DType.I8, "int8"), (DType.I16, "int16"), (DType.I32, "int32"),
    (DType.I64, "int64"), (DType.U8, "uint8"), (DType.U16, "uint16"), (DType.U32, "uint32"),
    (DType.U64, "uint64"), (DType.F16, "float16"), (DType.BF16, "float32"),
    (DType.F32, "float32"), (DType.F64, "float64"),
]}  # fmt: skip


@dataclass(slots=True)
class _Machine:
    module: Module
    wide: bool

    def numpy_dtype(self, dtype: DType) -> np.dtype:
        """How values of a dtype are held."""
        return np.dtype("float64") if self.wide and dtype.is_float else _NUMPY[dtype]

    def hold(self, array: object, dtype: DType) -> Array:
        """An array as values of a dtype, rounded to what the dtype can hold."""
        found = np.asarray(array).astype(self.numpy_dtype(dtype), copy=False)
        return round_bf16(found) if dtype == DType.BF16 and not self.wide else found

    def given(self, value: Value, array: object, name: str) -> Array:
        if array is None:
            raise ValueError(f"`{name}` is not given; it is {value.type}")
        found = np.asarray(array)
        if found.shape != value.type.shape:
            raise ValueError(f"`{name}` must be {value.type}, not of shape {list(found.shape)}")
        return self.hold(found, value.type.dtype)

    def call(self, function: Function, operands: Sequence[Array]) -> list[Array]:
        """Runs a function on its operands; gives its results and new states."""
        values = dict(zip(function.operands, operands, strict=True))
        with np.errstate(all="ignore"):
            for op in function.ops:
                inputs = [values[value] for value in op.inputs]
                if op.kind in _STRUCTURE:
                    outputs = _STRUCTURE[op.kind](self, op, inputs)
                else:
                    outputs = [self.hold(_RULES[op.kind](self, op, inputs), op.output.type.dtype)]
                values.update(zip(op.outputs, outputs, strict=True))
        return [values[value] for value in function.returns]

    def function(self, op: Op, attr: str) -> Function:
        return self.module.functions[op.text(attr)]


def round_bf16(array: Array) -> Array:
    """f32 values rounded to the nearest that bf16 can hold, ties to even."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)
    kept = np.where(np.isnan(array), bits | 0x400000, rounded) & np.uint32(0xFFFF0000)
    return kept.astype(np.uint32).view(np.float32).reshape(np.shape(array))


# --- structure ------------------------------------------------------------------------------


def _call(machine: _Machine, op: Op, inputs: list[Array]) -> list[Array]:
    return machine.call(machine.function(op, "callee"), inputs)


def _if(machine: _Machine, op: Op, inputs: list[Array]) -> list[Array]:
    return machine.call(machine.function(op, "then" if inputs[0] else "otherwise"), inputs[1:])


def _while(machine: _Machine, op: Op, inputs: list[Array]) -> list[Array]:
    condition, body = machine.function(op, "condition"), machine.function(op, "body")
    count = len(op.outputs)
    carried, rest = inputs[:count], inputs[count:]
    while machine.call(condition, [*carried, *rest])[0]:
        carried = machine.call(body, [*carried, *rest])
    return carried


_STRUCTURE = {"call": _call, "if": _if, "while": _while}


# --- elementwise ----------------------------------------------------------------------------


def _not(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    return np.invert(inputs[0])


def _rsqrt(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    return 1 / np.sqrt(_f32(machine, op, inputs[0]))


def _f32(machine: _Machine, op: Op, array: Array) -> Array:
    """f16 as f32, so that a function of two steps is rounded once."""
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _div(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    a, b = inputs
    if op.output.type.dtype.is_float:
        return a / b
    return _quotient(a, b)


def _quotient(a: Array, b: Array) -> Array:
    """Integer division toward zero."""
    floor = np.floor_divide(a, np.where(b == 0, np.ones_like(b), b))
    inexact = (floor * b != a) & ((a < 0) != (b < 0))
    return np.where(b == 0, np.zeros_like(a), floor + inexact.astype(a.dtype))


def _rem(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    a, b = inputs
    if op.output.type.dtype.is_float:
        return np.fmod(a, b)
    return np.where(b == 0, np.zeros_like(a), a - _quotient(a, b) * b)


def _shift(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    value, by = inputs
    dtype = op.output.type.dtype
    inside = (by >= 0) & (by < dtype.bits)
    if op.kind == "shl":
        shift, beyond = np.left_shift, np.zeros_like(value)
    else:
        zeros = np.zeros_like(value)
        shift, beyond = np.right_shift, np.where(value < 0, ~zeros, zeros)
    return np.where(inside, shift(value, np.where(inside, by, np.zeros_like(by))), beyond)


def _cast(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    source, dtype = op.inputs[0].type.dtype, op.output.type.dtype
    return cast(inputs[0], source, dtype)


def cast(array: Array, source: DType, dtype: DType) -> Array:
    """Values of one dtype as another; float to integer truncates and saturates."""
    if dtype == DType.BOOL:
        return array != 0
    if not (source.is_float and dtype.is_integer):
        return array
    low, high = dtype.integer_range
    whole = np.trunc(
        np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    )
    inside = (whole >= float(low)) & (whole < float(high + 1))
    found = np.where(inside, whole, 0).astype(_NUMPY[dtype])
    found = np.where(whole >= float(high + 1), np.array(high, _NUMPY[dtype]), found)
    return np.where(whole < float(low), np.array(low, _NUMPY[dtype]), found)


def _plain(function: Callable[..., Array]) -> Callable[[_Machine, Op, list[Array]], Array]:
    return lambda machine, op, inputs: function(*inputs)


# --- shape and creation ---------------------------------------------------------------------


def _constant(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    type_ = op.output.type
    return np.full(type_.shape, op.attrs["value"], machine.numpy_dtype(type_.dtype))


def _iota(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    type_, axis = op.output.type, op.integer("axis")
    shape = [1] * len(type_.shape)
    shape[axis] = type_.shape[axis]
    return np.broadcast_to(np.arange(type_.shape[axis]).reshape(shape), type_.shape)


def _reshape(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    return inputs[0].reshape(op.output.type.shape)


def _permute(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    return np.transpose(inputs[0], op.integers("axes"))


def _broadcast(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    shape = [1] * len(op.output.type.shape)
    for axis, extent in zip(op.integers("axes"), inputs[0].shape, strict=True):
        shape[axis] = extent
    return np.broadcast_to(inputs[0].reshape(shape), op.output.type.shape)


def _slice(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    bounds = (op.integers(name) for name in ("start", "stop", "step"))
    return inputs[0][tuple(slice(*b) for b in zip(*bounds, strict=True))]


def _concat(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    return np.concatenate(inputs, axis=op.integer("axis"))


# --- contraction, reduction, indexing -------------------------------------------------------


def _dot(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    dtype = op.output.type.dtype
    batch, contract = op.axis_pairs("batch"), op.axis_pairs("contract")
    sides = [
        machine.hold(cast(x, value.type.dtype, dtype), dtype)
        for x, value in zip(inputs, op.inputs, strict=True)
    ]
    left = _matrix(_f32(machine, op, sides[0]), batch[0], contract[0], last=True)
    right = _matrix(_f32(machine, op, sides[1]), batch[1], contract[1], last=False)
    return np.matmul(left, right).reshape(op.output.type.shape)


def _matrix(x: Array, batch: tuple[int, ...], contract: tuple[int, ...], *, last: bool) -> Array:
    """`[batch, free, contract]`, or with the last two the other way round."""
    free = [axis for axis in range(x.ndim) if axis not in batch and axis not in contract]
    groups = [batch, free, contract] if last else [batch, contract, free]
    shape = [int(np.prod([x.shape[axis] for axis in group], dtype=int)) for group in groups]
    return np.transpose(x, [axis for group in groups for axis in group]).reshape(shape)


_REDUCE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
           "any": np.logical_or, "all": np.logical_and}  # fmt: skip


def _reduce(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    x, name = _f32(machine, op, inputs[0]), str(op.attrs["op"])
    first = _extreme(op.output.type.dtype, name) if name in ("max", "min") else None
    axes = op.integers("axes")
    kept = {} if first is None else {"initial": np.array(first, x.dtype)}
    return _REDUCE[name].reduce(x, axis=axes, dtype=x.dtype, **kept)


def _extreme(dtype: DType, name: str) -> float | int:
    if dtype.is_float:
        return -np.inf if name == "max" else np.inf
    return dtype.integer_range[0 if name == "max" else 1]


def _gather(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    x, *indices = inputs
    axes = op.integers("axes")
    clamped = tuple(
        np.clip(index, 0, max(x.shape[axis] - 1, 0)).astype(np.intp)
        for axis, index in zip(axes, indices, strict=True)
    )
    return np.moveaxis(x, axes, range(len(axes)))[clamped]


def _update_slice(machine: _Machine, op: Op, inputs: list[Array]) -> Array:
    x, value, *starts = inputs
    at = dict(zip(op.integers("axes"), starts, strict=True))
    where = []
    for axis, (extent, length) in enumerate(zip(x.shape, value.shape, strict=True)):
        start = min(max(int(at.get(axis, 0)), 0), extent - length)
        where.append(slice(start, start + length))
    found = x.copy()
    found[tuple(where)] = value
    return found


_RULES: dict[str, Callable[[_Machine, Op, list[Array]], Array]] = {
    "neg": _plain(np.negative),
    "not": _not,
    "exp": _plain(np.exp),
    "log": _plain(np.log),
    "sqrt": _plain(np.sqrt),
    "rsqrt": _rsqrt,
    "sin": _plain(np.sin),
    "cos": _plain(np.cos),
    "tanh": _plain(np.tanh),
    "abs": _plain(np.abs),
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _plain(np.multiply),
    "div": _div,
    "rem": _rem,
    "min": _plain(np.minimum),
    "max": _plain(np.maximum),
    "and": _plain(np.bitwise_and),
    "or": _plain(np.bitwise_or),
    "xor": _plain(np.bitwise_xor),
    "shl": _shift,
    "shr": _shift,
    "eq": _plain(np.equal),
    "ne": _plain(np.not_equal),
    "lt": _plain(np.less),
    "le": _plain(np.less_equal),
    "gt": _plain(np.greater),
    "ge": _plain(np.greater_equal),
    "cast": _cast,
    "select": _plain(np.where),
    "constant": _constant,
    "iota": _iota,
    "reshape": _reshape,
    "permute": _permute,
    "broadcast": _broadcast,
    "slice": _slice,
    "concat": _concat,
    "dot": _dot,
    "reduce": _reduce,
    "gather": _gather,
    "update_slice": _update_slice,
}
