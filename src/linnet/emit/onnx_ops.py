"""Each core operation as ONNX nodes.

`RULES` maps an operation's kind to a function from its operands to an operand. An `Operand` is a
name together with the shape it has when it runs, which may be smaller than its IR type as long as
it broadcasts to it: ONNX broadcasts elementwise operators by itself, so a `broadcast` costs nothing
until something needs the whole tensor (`Context.whole`).

Where ONNX leaves open what the language defines (an index or shift out of range, an integer divided
by zero, a float that no integer holds), the operands are made safe first, unless they are known to
be.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from linnet.dtypes import DType
from linnet.emit.onnx_graph import Builder, Tensor
from linnet.emit.onnx_target import MS, OnnxTarget, Part
from linnet.emit.onnx_types import compute_dtype
from linnet.emit.ranges import Bounds, bounds
from linnet.ir.core import Op, TensorType, Value

MAX_CONSTANT = 1 << 12
"""Positions that are written out as a constant; more are counted when they are needed."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A name that stands for an IR value."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    """What it has when it runs; it broadcasts to `type.shape`."""
    number: int | float | bool | None = None
    """The value, where it is a constant in every element."""


@dataclass(slots=True)
class Context:
    """What rules write to, and what they know."""

    builder: Builder
    target: OnnxTarget
    makers: Mapping[Value, Op]
    """The operation that makes each value, calls' outputs left out."""
    known: dict[Value, Bounds] = field(default_factory=dict)
    """Bounds of loop counters, and of inputs that are trusted."""
    inputs: Mapping[Value, int] = field(default_factory=dict)
    """The entry's inputs with their positions."""
    packed: dict[str, Part] = field(default_factory=dict)
    """The parts of packed weights that were used, by name."""
    requires: dict[int, Bounds] = field(default_factory=dict)
    """What inputs are taken to be, by position: at least and at most."""
    widened: Counter[tuple[str, DType, DType]] = field(default_factory=Counter)
    """Operators that had no kernel for a dtype, and what they were computed in."""
    wider: dict[str, str] = field(default_factory=dict)
    """Names of f16 and bf16 values whose very values another name holds in f32."""
    narrower: dict[str, tuple[str, DType]] = field(default_factory=dict)
    """Names made by a widening cast, with what was cast and its dtype."""
    views: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """Names made by a reshape, with what was reshaped and its shape."""
    turned: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """Names made by a transpose, with what was transposed and the order of its axes."""

    def bounds(self, value: Value) -> Bounds:
        return bounds(value, self.makers, self.known)

    def one(self, op: str, inputs: Sequence[str], name: str = "", **more) -> str:
        return self.builder.one(op, inputs, name, **more)

    def within(self, value: Value, low: int, high: int) -> bool:
        """Whether integers are within bounds: proven, or taken so of an input that is trusted."""
        least, most = self.bounds(value)
        if low <= least and most <= high:
            return True
        if not self.target.trusted or value not in self.inputs or low > high:
            return False
        self.known[value] = max(least, low), min(most, high)
        self.requires[self.inputs[value]] = self.known[value]
        return True

    def cast(self, name: str, source: DType, dtype: DType) -> str:
        """A conversion that keeps every value, wraps an integer or rounds a float."""
        if source == dtype:
            return name
        widens = source in (DType.F16, DType.BF16) and dtype == DType.F32
        if widens and name in self.wider:
            return self.wider[name]
        origin, narrow = self.narrower.get(name, ("", source))
        if origin and narrow == dtype:
            return origin
        found = self.one("Cast", [name], to=dtype)
        if widens:
            self.narrower[found] = name, source
        return found

    def scalar(self, value: int | float | bool, dtype: DType) -> str:
        if dtype in (DType.F16, DType.BF16):
            return self.cast(self.builder.constant([value], (), DType.F32), DType.F32, dtype)
        return self.builder.constant([value], (), dtype)

    def computed(self, op: str, names: Sequence[str], dtype: DType, name: str = "", **attrs) -> str:
        """An elementwise operator on operands of one dtype, with the result in that dtype."""
        wide = self.wide(op, dtype)
        found = self.one(op, [self.cast(n, dtype, wide) for n in names], name, **attrs)
        return self.cast(found, wide, dtype)

    def wide(self, op: str, dtype: DType) -> DType:
        """What an operator is computed in; kept for `explain`."""
        found = compute_dtype(op, dtype, self.target.on_cpu)
        if found != dtype:
            self.widened[op, dtype, found] += 1
        return found

    def shaped(self, name: str, old: tuple[int, ...], new: tuple[int, ...]) -> str:
        """The same elements in another shape."""
        name, old = self.views.get(name, (name, old))
        if old == new:
            return name
        extra = int(0 in new)
        found = self.one("Reshape", [name, self.builder.integers(new)], allowzero=extra)
        self.views[found] = name, old
        return found

    def permuted(self, name: str, shape: tuple[int, ...], axes: Sequence[int]) -> str:
        """Axes in another order; where only axes of one element move, nothing is copied."""
        if list(axes) == sorted(axes):
            return name
        longer = [axis for axis in axes if shape[axis] != 1]
        if longer == sorted(longer):
            return self.shaped(name, shape, tuple(shape[axis] for axis in axes))
        source, turned = self.turned.get(name, (name, tuple(range(len(shape)))))
        perm = tuple(turned[axis] for axis in axes)
        if perm == tuple(range(len(perm))):
            return source
        found = self.one("Transpose", [source], perm=perm)
        self.turned[found] = source, perm
        return found

    def whole(self, x: Operand) -> str:
        """All elements of an operand's type."""
        if x.shape == x.type.shape:
            return x.name
        dtype = x.type.dtype
        wide = self.wide("Expand", dtype)
        name = self.cast(x.name, dtype, wide)
        name = self.one("Expand", [name, self.builder.integers(x.type.shape)])
        return self.cast(name, wide, dtype)

    def sliced(
        self, name: str, axes: Sequence[int], start: Sequence[int], stop: Sequence[int],
        step: Sequence[int] | None = None,
    ) -> str:  # fmt: skip
        given = [start, stop, axes] + ([step] if step and set(step) != {1} else [])
        return self.one("Slice", [name, *map(self.builder.integers, given)])


Rule = Callable[[Context, Op, Sequence[Operand]], Operand]


def spread(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that operands broadcast to."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((n for n in column if n != 1), 1) for column in zip(*padded, strict=True))


def full_rank(x: Operand) -> tuple[int, ...]:
    """An operand's shape with the rank of its type."""
    return (1,) * (len(x.type.shape) - len(x.shape)) + x.shape


# --- elementwise ----------------------------------------------------------------------------


def _elementwise(name: str) -> Rule:
    def rule(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
        type_ = op.output.type
        found = context.computed(name, [x.name for x in operands], type_.dtype)
        return Operand(found, type_, spread([x.shape for x in operands]))

    return rule


def _neg(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_ = operands, op.output.type
    if type_.dtype.is_signed:
        return _elementwise("Neg")(context, op, operands)
    zero = context.scalar(0, type_.dtype)
    return Operand(context.computed("Sub", [zero, x.name], type_.dtype), type_, x.shape)


def _rsqrt(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_ = operands, op.output.type
    wide = context.wide("Sqrt", type_.dtype)
    root = context.one("Sqrt", [context.cast(x.name, type_.dtype, wide)])
    found = context.cast(context.one("Reciprocal", [root]), wide, type_.dtype)
    return Operand(found, type_, x.shape)


def _logical(boolean: str, bitwise: str) -> Rule:
    def rule(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
        name = boolean if op.output.type.dtype == DType.BOOL else bitwise
        return _elementwise(name)(context, op, operands)

    return rule


def _compare(name: str, inverted: bool = False) -> Rule:
    def rule(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
        dtype = op.inputs[0].type.dtype
        wide = context.wide(name, dtype)
        found = context.one(name, [context.cast(x.name, dtype, wide) for x in operands])
        if inverted:
            found = context.one("Not", [found])
        return Operand(found, op.output.type, spread([x.shape for x in operands]))

    return rule


def _div(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    dtype = op.output.type.dtype
    if dtype.is_float:
        return _elementwise("Div")(context, op, operands)
    found = _quotient(context, op, operands)
    return Operand(found, op.output.type, spread([x.shape for x in operands]))


def _quotient(context: Context, op: Op, operands: Sequence[Operand]) -> str:
    """Integer division toward zero; by zero it is 0, and the least value by -1 wraps."""
    dtype = op.output.type.dtype
    a, b = (x.name for x in operands)
    low, high = context.bounds(op.inputs[1])
    if low > 0 or high < -1:
        return context.computed("Div", [a, b], dtype)
    zero, one = (context.scalar(n, dtype) for n in (0, 1))
    none = context.one("Equal", [b, zero])
    unsafe = none
    if low <= -1 <= high:
        minus = context.one("Equal", [b, context.scalar(-1, dtype)])
        unsafe = context.one("Or", [none, minus])
    divisor = _where(context, unsafe, one, b, dtype)
    found = context.computed("Div", [a, divisor], dtype)
    if low <= -1 <= high:
        negated = context.computed("Neg", [a], dtype)
        found = _where(context, minus, negated, found, dtype)
    return _where(context, none, zero, found, dtype)


def _rem(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    dtype, shape = op.output.type.dtype, spread([x.shape for x in operands])
    a, b = (x.name for x in operands)
    if dtype.is_float:
        return Operand(context.computed("Mod", [a, b], dtype, fmod=1), op.output.type, shape)
    product = context.computed("Mul", [_quotient(context, op, operands), b], dtype)
    found = context.computed("Sub", [a, product], dtype)
    low, high = context.bounds(op.inputs[1])
    if low <= 0 <= high:
        zero = context.scalar(0, dtype)
        found = _where(context, context.one("Equal", [b, zero]), zero, found, dtype)
    return Operand(found, op.output.type, shape)


def _shift(direction: str) -> Rule:
    def rule(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
        type_, shape = op.output.type, spread([x.shape for x in operands])
        dtype = type_.dtype
        value, by = (x.name for x in operands)
        low, high = context.bounds(op.inputs[1])
        if low >= 0 and high < dtype.bits:
            return Operand(_shifted(context, value, by, direction, dtype), type_, shape)
        zero = context.scalar(0, dtype)
        inside = context.one("Less", [by, context.scalar(dtype.bits, dtype)])
        if low < 0:
            inside = context.one("And", [inside, context.one("GreaterOrEqual", [by, zero])])
        safe = _where(context, inside, by, zero, dtype)
        found = _shifted(context, value, safe, direction, dtype)
        beyond = zero
        if direction == "RIGHT" and dtype.is_signed:
            negative = context.one("Less", [value, zero])
            beyond = _where(context, negative, context.scalar(-1, dtype), zero, dtype)
        return Operand(_where(context, inside, found, beyond, dtype), type_, shape)

    return rule


def _shifted(context: Context, value: str, by: str, direction: str, dtype: DType) -> str:
    return context.computed("BitShift", [value, by], dtype, direction=direction)


def _where(context: Context, condition: str, a: str, b: str, dtype: DType) -> str:
    wide = context.wide("Where", dtype)
    sides = [context.cast(x, dtype, wide) for x in (a, b)]
    return context.cast(context.one("Where", [condition, *sides]), wide, dtype)


def _select(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    condition, a, b = operands
    found = _where(context, condition.name, a.name, b.name, op.output.type.dtype)
    return Operand(found, op.output.type, spread([x.shape for x in operands]))


def _cast(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_ = operands, op.output.type
    source, dtype = x.type.dtype, type_.dtype
    if source.is_float and dtype.is_integer:
        found = _to_integer(context, x.name, source, dtype)
    else:
        found = context.cast(x.name, source, dtype)
    number = x.number if dtype.is_integer and isinstance(x.number, int) else None
    return Operand(found, type_, x.shape, number)


def _to_integer(context: Context, x: str, source: DType, dtype: DType) -> str:
    """Truncates; what the integer can't hold becomes its extreme, and NaN 0."""
    wide = DType.F64 if source == DType.F64 else DType.F32
    x = context.cast(x, source, wide)
    low, high = dtype.integer_range
    above = context.one("GreaterOrEqual", [x, context.scalar(float(high + 1), wide)])
    below = context.one("Less", [x, context.scalar(float(low), wide)])
    outside = context.one("Or", [context.one("Or", [above, below]), context.one("IsNaN", [x])])
    safe = context.one("Where", [outside, context.scalar(0.0, wide), x])
    found = context.one("Cast", [safe], to=dtype)
    found = _where(context, below, context.scalar(low, dtype), found, dtype)
    return _where(context, above, context.scalar(high, dtype), found, dtype)


# --- shape and creation ---------------------------------------------------------------------


def _constant(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    return number(context, op.output.type, op.attrs["value"])  # type: ignore[arg-type]


def number(context: Context, type_: TensorType, value: int | float | bool) -> Operand:
    """One value in every element."""
    held = float(value) if type_.dtype.is_float else value
    return Operand(context.scalar(held, type_.dtype), type_, (), value)


def _iota(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    type_, axis = op.output.type, op.integer("axis")
    extent = type_.shape[axis]
    shape = (extent, *(1,) * (len(type_.shape) - axis - 1))
    dtype = type_.dtype
    held = dtype if dtype in (DType.I32, DType.I64) and extent <= MAX_CONSTANT else DType.I64
    return Operand(context.cast(positions(context, extent, shape, held), held, dtype), type_, shape)


def positions(context: Context, extent: int, shape: tuple[int, ...], dtype: DType) -> str:
    """0, 1, … in a shape that has no other axes longer than one."""
    if extent <= MAX_CONSTANT:
        return context.builder.constant(range(extent), shape, dtype)
    bounds_ = [context.scalar(n, dtype) for n in (0, extent, 1)]
    return context.shaped(context.one("Range", bounds_), (extent,), shape)


def _reshape(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_ = operands, op.output.type
    if x.shape == ():
        return Operand(x.name, type_, (), x.number)
    if math.prod(x.shape) == 1:
        return Operand(context.shaped(x.name, x.shape, ()), type_, ())
    found = context.shaped(context.whole(x), x.type.shape, type_.shape)
    return Operand(found, type_, type_.shape)


def _permute(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_, axes = operands, op.output.type, op.integers("axes")
    if x.shape == ():
        return Operand(x.name, type_, (), x.number)
    shape = full_rank(x)
    name = context.shaped(x.name, x.shape, shape)
    turned = tuple(shape[axis] for axis in axes)
    return Operand(context.permuted(name, shape, axes), type_, turned)


def _broadcast(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_, axes = operands, op.output.type, op.integers("axes")
    if x.shape == ():
        return Operand(x.name, type_, (), x.number)
    placed = dict(zip(axes, full_rank(x), strict=True))
    shape = tuple(placed.get(axis, 1) for axis in range(len(type_.shape)))
    while shape and shape[0] == 1 and len(shape) > len(x.shape):
        shape = shape[1:]
    return Operand(context.shaped(x.name, x.shape, shape), type_, shape)


def _slice(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_ = operands, op.output.type
    if x.shape == () and type_.size:
        return Operand(x.name, type_, (), x.number)
    missing = len(type_.shape) - len(x.shape)
    axes, bounds_, shape = [], [], list(x.shape)
    starts, stops, steps = (op.integers(name) for name in ("start", "stop", "step"))
    for axis, extent in enumerate(x.shape):
        whole = x.type.shape[axis + missing]
        start, stop, step = (b[axis + missing] for b in (starts, stops, steps))
        if (start, stop, step) == (0, whole, 1) or (extent == 1 != whole and stop > start):
            continue
        axes.append(axis)
        bounds_.append((start, stop, step))
        shape[axis] = type_.shape[axis + missing]
    if not type_.size and 0 not in shape:
        return Operand(context.whole(number(context, type_, 0)), type_, type_.shape)
    if not axes:
        return Operand(x.name, type_, x.shape)
    found = context.sliced(x.name, axes, *zip(*bounds_, strict=True))
    return Operand(found, type_, tuple(shape))


def _concat(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    type_ = op.output.type
    parts = [context.whole(x) for x in operands]
    found = parts[0]
    if len(parts) > 1:
        found = context.one("Concat", parts, axis=op.integer("axis"))
    return Operand(found, type_, type_.shape)


# --- contraction and reduction --------------------------------------------------------------


def _dot(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    type_ = op.output.type
    batch, contract = op.axis_pairs("batch"), op.axis_pairs("contract")
    wide = context.wide("MatMul", type_.dtype)
    left, right = (
        context.cast(_converted(context, x, type_.dtype), type_.dtype, wide) for x in operands
    )
    a, b = (x.type.shape for x in operands)
    fuses = context.target.contrib and wide in (DType.F32, DType.F64)
    if fuses and len(b) == 2 and not batch[0] and contract == ((len(a) - 1,), (1,)) and a[:-1]:
        found = context.one("FusedMatMul", [left, right], domain=MS, transB=1)
        context.builder.types.setdefault(found, Tensor(type_.shape, wide))
        return Operand(context.cast(found, wide, type_.dtype), type_, type_.shape)
    left = _matrix(context, left, a, batch[0], contract[0], last=True)
    right = _matrix(context, right, b, batch[1], contract[1], last=False)
    found = context.one("MatMul", [left, right])
    lead = [a[axis] for axis in batch[0]]
    free = [
        math.prod(n for i, n in enumerate(shape) if i not in (*batch[side], *contract[side]))
        for side, shape in ((0, a), (1, b))
    ]
    found = context.shaped(found, (*(lead and [math.prod(lead)]), *free), type_.shape)
    return Operand(context.cast(found, wide, type_.dtype), type_, type_.shape)


def _converted(context: Context, x: Operand, dtype: DType) -> str:
    if x.type.dtype.is_float and dtype.is_integer:
        return _to_integer(context, context.whole(x), x.type.dtype, dtype)
    return context.cast(context.whole(x), x.type.dtype, dtype)


def _matrix(
    context: Context, x: str, shape: tuple[int, ...], batch: tuple[int, ...],
    contract: tuple[int, ...], *, last: bool,
) -> str:  # fmt: skip
    """`[batch, free, contract]`, or with the last two the other way round; no axis for no batch."""
    free = tuple(axis for axis in range(len(shape)) if axis not in batch and axis not in contract)
    groups = (batch, free, contract) if last else (batch, contract, free)
    order = [axis for group in groups for axis in group]
    turned = context.permuted(x, shape, order)
    flat = [math.prod(shape[axis] for axis in group) for group in groups]
    return context.shaped(
        turned, tuple(shape[axis] for axis in order), tuple(flat if batch else flat[1:])
    )


_REDUCE = {"sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin",
           "any": "ReduceMax", "all": "ReduceMin"}  # fmt: skip


def _reduce(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_ = operands, op.output.type
    name, axes = op.text("op"), op.integers("axes")
    if not axes:
        return Operand(x.name, type_, x.shape, x.number)
    if 0 in (x.type.shape[axis] for axis in axes):
        return number(context, type_, _identity(name, type_.dtype))
    dtype, kernel = type_.dtype, _REDUCE[name]
    shape = full_rank(x)
    source = context.shaped(x.name, x.shape, shape)
    if any(shape[axis] != x.type.shape[axis] for axis in axes):
        source, shape = context.whole(x), x.type.shape
    wide = context.wide(kernel, dtype) if dtype != DType.BOOL else DType.I32
    flips = dtype == DType.U64 and name in ("max", "min")
    where = context.builder.integers(axes)
    if name in ("sum", "prod") and dtype.is_integer:
        found = _exact(context, source, shape, axes, dtype, name)
        kept = tuple(n for axis, n in enumerate(shape) if axis not in axes)
        return Operand(found, type_, kept)
    if flips:  # As i64, with the top bit turned, unsigned order is signed order.
        source = _flipped(context, context.cast(source, dtype, wide))
    else:
        source = context.cast(source, dtype, wide)
    found = context.one(kernel, [source, where], keepdims=0)
    if name in ("max", "min") and wide.is_float:
        found = _or_nan(context, source, where, found, wide)
    if flips:
        found = _flipped(context, found)
    kept = tuple(n for axis, n in enumerate(shape) if axis not in axes)
    return Operand(context.cast(found, wide, dtype), type_, kept)


def _exact(
    context: Context, x: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: DType, name: str
) -> str:
    """A sum or product of integers, which wraps; the kernels of reductions go by way of floats. A
    sum is a matrix product with ones, a product multiplies halves."""
    free = [axis for axis in range(len(shape)) if axis not in axes]
    kept = tuple(shape[axis] for axis in free)
    count = math.prod(shape[axis] for axis in axes)
    turned = tuple(shape[axis] for axis in (*free, *axes))
    x = context.permuted(x, shape, (*free, *axes))
    x = context.shaped(x, turned, (math.prod(kept), count))
    if name == "sum":
        wide = context.wide("MatMul", dtype)
        ones = context.builder.constant([1] * count, (count,), wide)
        found = context.cast(
            context.one("MatMul", [context.cast(x, dtype, wide), ones]), wide, dtype
        )
        return context.shaped(found, (math.prod(kept),), kept)
    while count > 1:
        half = count // 2
        sides = [context.sliced(x, [1], [at], [at + half]) for at in (0, half)]
        product = context.computed("Mul", sides, dtype)
        if count % 2:
            last = context.sliced(x, [1], [count - 1], [count])
            product = context.one("Concat", [product, last], axis=1)
        x, count = product, half + count % 2
    return context.shaped(x, (math.prod(kept), 1), kept)


def _or_nan(context: Context, source: str, axes: str, found: str, dtype: DType) -> str:
    """An extreme that is NaN where any value is: the kernels look past NaN, depending on where it
    stands."""
    nan = context.one("Cast", [context.one("IsNaN", [source])], to=DType.I32)
    some = context.one("ReduceMax", [nan, axes], keepdims=0)
    none = context.one("Equal", [some, context.scalar(0, DType.I32)])
    return context.one("Where", [none, found, context.scalar(math.nan, dtype)])


def _flipped(context: Context, x: str) -> str:
    return context.one("BitwiseXor", [x, context.scalar(-(1 << 63), DType.I64)])


def _identity(name: str, dtype: DType) -> int | float | bool:
    if name in ("max", "min"):
        if dtype.is_float:
            return -math.inf if name == "max" else math.inf
        return dtype.integer_range[0 if name == "max" else 1]
    return {"sum": 0, "prod": 1, "any": False, "all": True}[name]


# --- indexing by runtime integers -----------------------------------------------------------


def _gather(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    x, *indices = operands
    type_, axes = op.output.type, op.integers("axes")
    shape, lead = x.type.shape, len(op.inputs[1].type.shape)
    names = [
        clamped(context, i, value, shape[axis] - 1)
        for axis, i, value in zip(axes, indices, op.inputs[1:], strict=True)
    ]
    source = context.whole(x)
    if len(axes) == 1:
        (axis,) = axes
        index = context.whole(Operand(names[0], _index_type(op), indices[0].shape))
        found = context.one("Gather", [source, index], axis=axis)
        made = (*shape[:axis], *op.inputs[1].type.shape, *shape[axis + 1 :])
        order = [*range(axis, axis + lead), *range(axis), *range(axis + lead, len(made))]
        return Operand(context.permuted(found, made, order), type_, type_.shape)
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    source = context.permuted(source, shape, (*axes, *rest))
    columns = []
    for name, i in zip(names, indices, strict=True):
        whole = context.whole(Operand(name, _index_type(op), i.shape))
        extents = op.inputs[1].type.shape
        columns.append(context.shaped(whole, extents, (*extents, 1)))
    found = context.one("GatherND", [source, context.one("Concat", columns, axis=lead)])
    return Operand(found, type_, type_.shape)


def _index_type(op: Op) -> TensorType:
    return TensorType(op.inputs[1].type.shape, DType.I64)


def clamped(context: Context, x: Operand, value: Value, last: int) -> str:
    """Positions as i64, moved into 0 … last where they may lie outside."""
    dtype = x.type.dtype
    low, high = context.bounds(value)
    if low >= 0 and high <= max(last, 0):
        return context.cast(x.name, dtype, DType.I64)
    most = min(max(last, 0), dtype.integer_range[1])
    wide = context.wide("Clip", dtype)
    limits = [context.scalar(n, wide) for n in (0, most)]
    found = context.one("Clip", [context.cast(x.name, dtype, wide), *limits])
    return context.cast(found, wide, DType.I64)


def _update_slice(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    x, value, *starts = operands
    extents, sizes = x.type.shape, value.type.shape
    at = {
        axis: clamped(context, start, given, extents[axis] - sizes[axis])
        for axis, start, given in zip(op.integers("axes"), starts, op.inputs[2:], strict=True)
        if sizes[axis] < extents[axis]
    }
    name = write(context, context.whole(x), context.whole(value), extents, sizes, at)
    return Operand(name, op.output.type, op.output.type.shape)


def write(
    context: Context, x: str, value: str, extents: tuple[int, ...], sizes: tuple[int, ...],
    at: Mapping[int, str],
) -> str:  # fmt: skip
    """`x` with a value written over from scalar positions on, which have to fit. One axis is
    `TensorScatter`, several are `ScatterND`: a runtime that owns `x` writes the value alone."""
    if 0 in sizes:
        return x
    partial = [axis for axis in range(len(extents)) if sizes[axis] != extents[axis]]
    if not partial:
        return value
    one = context.builder.integers([1])
    if len(partial) == 1 and partial[0] > 0:
        (axis,) = partial
        start = context.shaped(at[axis], (), (1,)) if axis in at else context.builder.integers([0])
        if extents[0] != 1:
            start = context.one("Expand", [start, context.builder.integers([extents[0]])])
        return context.one("TensorScatter", [x, value, start], axis=axis)
    depth = partial[-1] + 1
    count = math.prod(sizes[:depth])
    grid = [n for flat in range(count) for n in _position(flat, sizes[:depth])]
    indices = context.builder.constant(grid, (*sizes[:depth], depth), DType.I64, "i")
    if at:
        zero = context.builder.integers([0])
        parts = [
            context.one("Reshape", [at[axis], one]) if axis in at else zero for axis in range(depth)
        ]
        offset = context.one("Concat", parts, axis=0) if depth > 1 else parts[0]
        indices = context.one("Add", [indices, offset])
    return context.one("ScatterND", [x, indices, value])


def _position(flat: int, shape: tuple[int, ...]) -> list[int]:
    found = []
    for extent in reversed(shape):
        found.append(flat % extent)
        flat //= extent
    return found[::-1]


RULES: dict[str, Rule] = {
    "neg": _neg,
    "not": _logical("Not", "BitwiseNot"),
    "rsqrt": _rsqrt,
    **{name: _elementwise(name.capitalize())
       for name in ("abs", "exp", "log", "sqrt", "sin", "cos", "tanh", "add", "sub", "mul", "min",
                    "max")},
    "div": _div,
    "rem": _rem,
    "and": _logical("And", "BitwiseAnd"),
    "or": _logical("Or", "BitwiseOr"),
    "xor": _logical("Xor", "BitwiseXor"),
    "shl": _shift("LEFT"),
    "shr": _shift("RIGHT"),
    "eq": _compare("Equal"),
    "ne": _compare("Equal", inverted=True),
    "lt": _compare("Less"),
    "le": _compare("LessOrEqual"),
    "gt": _compare("Greater"),
    "ge": _compare("GreaterOrEqual"),
    "cast": _cast,
    "select": _select,
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
}  # fmt: skip
