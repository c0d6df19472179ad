"""Each core operation as a `jax.numpy` expression.

`EXPRESSIONS` maps an operation's kind to a function from its operands to an operand. JAX broadcasts
by itself, so a `broadcast` costs nothing until something needs the whole array (`Context.whole`),
and constants stay Python numbers, which take the dtype of the array beside them. Every array that
is made has its dtype written out: what JAX would choose depends on whether 64-bit types are on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from linnet.dtypes import DType
from linnet.emit.code import Code, binary, call, index, literal, method, rounded, shape_text, unary
from linnet.emit.operands import (
    Operand,
    axis_text,
    broadcast_shape,
    cast_number,
    drop_axis,
    dropped_axis,
    einsum_terms,
    identity,
    insertions,
    kept_reduction,
)
from linnet.emit.ranges import Bounds, bounds
from linnet.ir.core import Op, TensorType, Value

DTYPES = {
    DType.BOOL: "jnp.bool_", DType.I8: "jnp.int8", DType.I16: "jnp.int16", DType.I32: "jnp.int32",
    DType.I64: "jnp.int64", DType.U8: "jnp.uint8", DType.U16: "jnp.uint16",
    DType.U32: "jnp.uint32", DType.U64: "jnp.uint64", DType.F16: "jnp.float16",
    DType.BF16: "jnp.bfloat16", DType.F32: "jnp.float32", DType.F64: "jnp.float64",
}  # fmt: skip
NARROW = (DType.F16, DType.BF16)


@dataclass(slots=True)
class Context:
    """What expressions of one function need to know, and the support functions they use."""

    definitions: Mapping[Value, Op]
    known: dict[Value, Bounds] = field(default_factory=dict)
    """Bounds of loop counters."""
    support: set[str] = field(default_factory=set)

    def bounds(self, value: Value) -> Bounds:
        return bounds(value, self.definitions, self.known)

    def helper(self, name: str) -> str:
        """The name of a support function, which is then written at the top of the source."""
        self.support.add(name)
        return name

    def arange(self, extent: int, dtype: DType) -> Code:
        if dtype.is_integer and extent - 1 > dtype.integer_range[1]:
            return _astype(self.arange(extent, DType.I32), dtype)
        return call("jnp.arange", str(extent), f"dtype={DTYPES[dtype]}")

    def array(self, x: Operand) -> Operand:
        """An operand as an array, maybe of a smaller shape."""
        if not x.number:
            return x
        return Operand(call(DTYPES[x.type.dtype], x.code.text), x.type, ())

    def whole(self, x: Operand) -> Code:
        """An operand as an array of its full shape."""
        shape = x.type.shape
        if x.number:
            if not shape:
                return self.array(x).code
            dtype = DTYPES[x.type.dtype]
            if x.value == 0:
                return call("jnp.zeros", shape_text(shape), dtype)
            return call("jnp.full", shape_text(shape), x.code.text, dtype)
        if x.shape == shape:
            return x.code
        return call("jnp.broadcast_to", x.code.text, shape_text(shape))


Rule = Callable[[Context, Op, Sequence[Operand]], Operand]


def express(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    """The expression of an operation."""
    return EXPRESSIONS[op.kind](context, op, operands)


def _astype(code: Code, dtype: DType) -> Code:
    return method(code, "astype", DTYPES[dtype])


def _dtype(op: Op) -> DType:
    return op.output.type.dtype


# --- elementwise ----------------------------------------------------------------------------


def _elementwise(op: Op, code: Code, operands: Sequence[Operand]) -> Operand:
    return Operand(code, op.output.type, broadcast_shape([x.shape for x in operands]))


def _some_array(context: Context, operands: Sequence[Operand]) -> list[Operand]:
    """Operands of which at least one is an array, so that JAX computes, in its dtype."""
    found = list(operands)
    if all(x.number for x in found):
        found[0] = context.array(found[0])
    return found


def _arithmetic(symbol: str) -> Rule:
    def rule(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
        left, right = _some_array(context, operands)
        if symbol == "+" and _dtype(op).is_integer and 0 in (left.value, right.value):
            return replace(right if left.value == 0 else left, type=op.output.type)
        return _elementwise(op, binary(symbol, left.code, right.code), (left, right))

    return rule


def _div(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    if _dtype(op).is_float:
        return _arithmetic("/")(context, op, operands)
    return _whole_division(context, op, operands, "//", "divide")


def _rem(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    if not _dtype(op).is_float:
        return _whole_division(context, op, operands, "%", "remainder")
    a, b = _some_array(context, operands)
    return _elementwise(op, call("jnp.fmod", a.code.text, b.code.text), (a, b))


def _whole_division(
    context: Context, op: Op, operands: Sequence[Operand], symbol: str, helper: str
) -> Operand:
    """Truncates toward zero, and gives 0 for a divisor of 0."""
    if context.bounds(op.inputs[1])[0] > 0 and context.bounds(op.inputs[0])[0] >= 0:
        return _arithmetic(symbol)(context, op, operands)
    a, b = (context.array(x) for x in operands)
    return _elementwise(op, call(context.helper(helper), a.code.text, b.code.text), (a, b))


def _function(name: str) -> Rule:
    def rule(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
        found = _some_array(context, operands)
        return _elementwise(op, call(name, *(x.code.text for x in found)), found)

    return rule


def _unary(symbol: str) -> Rule:
    def rule(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
        x = context.array(operands[0])
        return _elementwise(op, unary(symbol, x.code), (x,))

    return rule


def _cast(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    """JAX truncates, saturates and makes NaN 0, as the language has it."""
    (x,), dtype = operands, _dtype(op)
    if x.value is not None:
        return constant(op.output.type, cast_number(x.value, dtype))
    return _elementwise(op, _astype(x.code, dtype), (x,))


def _select(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    condition, a, b = operands
    if a.number and b.number:
        a = context.array(a)
    texts = (x.code.text for x in (condition, a, b))
    return _elementwise(op, call("jnp.where", *texts), (condition, a, b))


# --- creation -------------------------------------------------------------------------------


def constant(type_: TensorType, value: int | float | bool) -> Operand:
    number = rounded(value, type_.dtype)
    text = literal(number)
    if isinstance(number, float) and not math.isfinite(number):
        text = unary("-", Code("jnp.inf")) if number < 0 else Code(f"jnp.{number}")
    if isinstance(number, int) and number > DType.I64.integer_range[1]:
        # JAX reads a Python integer as a signed one.
        text = call(DTYPES[type_.dtype], text.text)
    return Operand(text, type_, (), True, number)


def _constant(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    value = op.attrs["value"]
    assert isinstance(value, (int, float))
    return constant(op.output.type, value)


def _iota(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    type_, axis = op.output.type, op.integer("axis")
    behind = len(type_.shape) - axis - 1
    code = context.arange(type_.shape[axis], type_.dtype)
    if behind:
        code = index(code, [":", *["None"] * behind])
    return Operand(code, type_, (type_.shape[axis], *(1,) * behind))


# --- shape ----------------------------------------------------------------------------------


def _reshape(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_ = operands, op.output.type
    if x.number:
        return replace(x, type=type_)
    old, new = x.type.shape, type_.shape
    if x.shape == old:
        kept = kept_reduction(x, new)
        if kept is not None:
            return Operand(kept, type_, new)
        items = insertions(old, new)
        if items is not None:
            return Operand(index(x.code, items), type_, new)
        dropped = dropped_axis(old, new)
        if dropped is not None:
            return Operand(drop_axis(x, dropped), type_, new)
    texts = [str(n) for n in new] if new else ["()"]
    return Operand(method(context.whole(x), "reshape", *texts), type_, new)


def _permute(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_, axes = operands, op.output.type, op.integers("axes")
    if x.number:
        return replace(x, type=type_)
    rank = len(axes)
    lazy = len(x.shape) == rank
    shape = tuple(x.shape[axis] for axis in axes) if lazy else type_.shape
    code = x.code if lazy else context.whole(x)
    moved = [i for i, axis in enumerate(axes) if i != axis]
    if rank == 2 and moved:
        return Operand(Code(f"{code.atom}.T"), type_, shape)
    if len(moved) == 2:
        first, second = (axis_text(i, rank) if i == rank - 1 else str(i) for i in moved)
        return Operand(method(code, "swapaxes", first, second), type_, shape)
    return Operand(method(code, "transpose", *map(str, axes)), type_, shape)


def _broadcast(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_, axes = operands, op.output.type, op.integers("axes")
    if x.number or not x.shape:
        return replace(x, type=type_, keepdim=None, picked=None)
    rank = len(type_.shape)
    missing = len(axes) - len(x.shape)
    placed = dict(zip(axes[missing:], x.shape, strict=True))
    first = min(placed)
    shape = tuple(placed.get(axis, 1) for axis in range(first, rank))
    items = [":" if axis in placed else "None" for axis in range(first, rank)]
    if "None" not in items:
        return replace(x, type=type_, keepdim=None, picked=None)
    if x.keepdim is not None and not missing:
        code, reduced = x.keepdim
        if sorted((*axes, *reduced)) == list(range(len(axes) + len(reduced))) and (
            len(axes) + len(reduced) == rank
        ):
            kept = tuple(placed.get(axis, 1) for axis in range(rank))
            return Operand(code, type_, kept)
    return Operand(index(x.code, items), type_, shape)


def _slice(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_ = operands, op.output.type
    if x.number:
        return replace(x, type=type_)
    bounds_ = [op.integers(name) for name in ("start", "stop", "step")]
    missing = len(type_.shape) - len(x.shape)
    items, shape = [], []
    for axis, (start, stop, step) in enumerate(zip(*bounds_, strict=True)):
        if axis < missing:
            continue
        extent, actual = x.type.shape[axis], x.shape[axis - missing]
        if actual != extent and stop > start:
            items.append(":")
            shape.append(actual)
            continue
        text = f"{start or ''}:{stop if stop != extent else ''}"
        items.append(text if step == 1 else f"{text}:{step}")
        shape.append(type_.shape[axis])
    exact = [f"{start or ''}:{stop}" if step == 1 else f"{start}:{stop}:{step}"
             for start, stop, step in zip(*bounds_, strict=True)]  # fmt: skip
    picked = None
    if not missing and x.shape == x.type.shape:
        whole = [item == ":" for item in items]
        picked = (x.code, tuple(":" if w else e for w, e in zip(whole, exact, strict=True)))
    return Operand(index(x.code, items), type_, tuple(shape), picked=picked)


def _concat(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    type_ = op.output.type
    parts = ", ".join(context.whole(x).text for x in operands)
    axis = op.integer("axis")
    where = [] if axis == 0 else [f"axis={axis_text(axis, len(type_.shape))}"]
    return Operand(call("jnp.concatenate", f"[{parts}]", *where), type_, type_.shape)


# --- contraction and reduction --------------------------------------------------------------


def _dot(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    """Narrow floats are multiplied as they are and accumulated in f32, which is exact."""
    type_ = op.output.type
    dtypes = {x.type.dtype for x in operands}
    narrow = len(dtypes) == 1 and dtypes <= set(NARROW)
    accumulated = DType.F32 if type_.dtype in NARROW else type_.dtype
    widens = narrow and accumulated == DType.F32
    left, right = (
        context.whole(x)
        if widens or x.type.dtype == type_.dtype
        else _astype(context.whole(x), type_.dtype)
        for x in operands
    )
    prefer = [f"preferred_element_type={DTYPES[accumulated]}"]
    code = _product(left, right, op, prefer if widens or type_.dtype in NARROW else [])
    if accumulated != type_.dtype:
        code = _astype(code, type_.dtype)
    return Operand(code, type_, type_.shape)


def _product(left: Code, right: Code, op: Op, prefer: list[str]) -> Code:
    """`@` where it fits, else `einsum`."""
    ranks = tuple(len(value.type.shape) for value in op.inputs)
    batch, contract = op.axis_pairs("batch"), op.axis_pairs("contract")
    lead = len(batch[0])
    matrices = ranks == (lead + 2, lead + 2) and batch == (tuple(range(lead)),) * 2
    if len(contract[0]) == 1:
        (a,), (b,) = contract
        if not lead and ranks[1] == 2 and ranks[0] and a == ranks[0] - 1:
            return _matmul(left, Code(f"{right.atom}.T") if b == 1 else right, prefer)
        if ranks == (1, 1) and not lead:
            return _matmul(left, right, prefer)
        if matrices:
            turned = "T" if not lead else "mT"
            left = left if a == lead + 1 else Code(f"{left.atom}.{turned}")
            right = right if b == lead else Code(f"{right.atom}.{turned}")
            return _matmul(left, right, prefer)
    terms = einsum_terms(ranks, batch, contract)
    return call("jnp.einsum", f'"{terms}"', left.text, right.text, *prefer)


def _matmul(left: Code, right: Code, prefer: list[str]) -> Code:
    if prefer:
        return call("jnp.matmul", left.text, right.text, *prefer)
    return binary("@", left, right)


def _reduce(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_ = operands, op.output.type
    name, axes = op.text("op"), op.integers("axes")
    if not axes:
        return replace(x, type=type_)
    if 0 in (x.type.shape[axis] for axis in axes):
        return constant(type_, identity(name, type_.dtype))
    missing = len(x.type.shape) - len(x.shape)
    smaller = any(a < missing or x.shape[a - missing] != x.type.shape[a] for a in axes)
    code, shape = (context.whole(x), x.type.shape) if smaller or x.number else (x.code, x.shape)
    dropped = len(x.type.shape) - len(shape)
    at = [axis - dropped for axis in axes]
    found = Operand(
        _reduction(code, name, at, len(shape), type_.dtype, []),
        type_,
        tuple(n for axis, n in enumerate(shape) if axis not in at),
    )
    if dropped:
        return found
    kept = _reduction(code, name, at, len(shape), type_.dtype, ["keepdims=True"])
    return replace(found, keepdim=(kept, axes))


def _reduction(
    code: Code, name: str, axes: Sequence[int], rank: int, dtype: DType, extra: list[str]
) -> Code:
    if name in ("sum", "prod") and dtype.is_integer:
        extra = [f"dtype={DTYPES[dtype]}", *extra]
    texts = [axis_text(axis, rank) for axis in axes]
    where = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
    return method(code, name, where, *extra)


# --- indexing by runtime integers -----------------------------------------------------------


def _gather(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    """`take` for one axis, else indexing; both clamp."""
    x, *indices = operands
    type_, axes = op.output.type, op.integers("axes")
    code, shape = context.whole(x), x.type.shape
    if all(i.value is not None for i in indices) and not op.inputs[1].type.shape:
        items = [":"] * len(shape)
        for axis, i in zip(axes, indices, strict=True):
            assert i.value is not None
            items[axis] = str(min(max(int(i.value), 0), max(shape[axis] - 1, 0)))
        return Operand(index(code, items), type_, type_.shape)
    codes = [context.whole(i).text for i in indices]
    if len(axes) == 1:
        (axis,) = axes
        if axis and op.inputs[1].type.shape:  # `take` puts the indices' axes there
            code, axis = call("jnp.moveaxis", code.text, str(axis), "0"), 0
        taken = call("jnp.take", code.text, codes[0], f"axis={axis}", 'mode="clip"')
        return Operand(taken, type_, type_.shape)
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    if axes != tuple(range(len(axes))):
        code = method(code, "transpose", *map(str, (*axes, *rest)))
    where = index(Code(f"{code.atom}.at"), codes)
    return Operand(method(where, "get", *CLAMPED), type_, type_.shape)


CLAMPED = ('mode="clip"', "wrap_negative_indices=False")
"""How JAX is told that an index out of range is moved to the nearest that is not."""


def _update_slice(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    x, value, *starts = operands
    type_, lengths = op.output.type, op.inputs[1].type.shape
    code = context.whole(x)
    given = dict(zip(op.integers("axes"), zip(starts, op.inputs[2:], strict=True), strict=True))
    if all(start.value is not None for start, _ in given.values()):
        items = []
        for axis, (extent, length) in enumerate(zip(type_.shape, lengths, strict=True)):
            first = 0
            if axis in given:
                first = min(max(int(given[axis][0].value or 0), 0), extent - length)
            items.append(":" if length == extent else f"{first or ''}:{first + length}")
        if any(item != ":" for item in items):
            where = index(Code(f"{code.atom}.at"), items)
            number = value.code.text if value.number else context.whole(value).text
            return Operand(method(where, "set", number), type_, type_.shape)
        return Operand(context.whole(value), type_, type_.shape)
    if lengths == type_.shape:
        return Operand(context.whole(value), type_, type_.shape)
    return Operand(_dynamic(context, op, code, context.whole(value), given), type_, type_.shape)


def _dynamic(
    context: Context, op: Op, code: Code, value: Code, given: Mapping[int, tuple[Operand, Value]]
) -> Code:
    """An update that starts at arrays, which JAX wants all of one dtype."""
    extents, lengths = op.output.type.shape, op.inputs[1].type.shape
    fixed = dict.fromkeys(range(len(extents)), 0)
    moving: dict[int, tuple[Operand, Value]] = {}
    for axis, (start, source) in given.items():
        if start.value is not None:
            fixed[axis] = min(max(int(start.value), 0), extents[axis] - lengths[axis])
        elif lengths[axis] != extents[axis]:
            moving[axis] = start, source
            del fixed[axis]
    if len(moving) == 1 and not any(fixed.values()):
        ((axis, (start, source)),) = moving.items()
        where = [_start(context, start, source).text, f"axis={axis}"]
        return call("lax.dynamic_update_slice_in_dim", code.text, value.text, *where)
    dtypes = {source.type.dtype for _, source in moving.values()}
    dtype = dtypes.pop() if len(dtypes) == 1 else DType.I64
    texts = []
    for axis in range(len(extents)):
        if axis in fixed:
            texts.append(call(DTYPES[dtype], str(fixed[axis])).text)
            continue
        start, source = moving[axis]
        found = _start(context, start, source)
        texts.append((found if source.type.dtype == dtype else _astype(found, dtype)).text)
    return call("lax.dynamic_update_slice", code.text, value.text, f"({', '.join(texts)})")


def _start(context: Context, start: Operand, value: Value) -> Code:
    """Where an update begins: JAX clamps it, but counts what is negative from the end."""
    if context.bounds(value)[0] >= 0:
        return start.code
    return call("jnp.maximum", start.code.text, "0")


EXPRESSIONS: dict[str, Rule] = {
    "neg": _unary("-"),
    "not": _unary("~"),
    **{n: _function(f"jnp.{n}") for n in ("abs", "exp", "log", "sqrt", "sin", "cos", "tanh")},
    "rsqrt": _function("lax.rsqrt"),
    "add": _arithmetic("+"),
    "sub": _arithmetic("-"),
    "mul": _arithmetic("*"),
    "div": _div,
    "rem": _rem,
    "min": _function("jnp.minimum"),
    "max": _function("jnp.maximum"),
    "and": _arithmetic("&"),
    "or": _arithmetic("|"),
    "xor": _arithmetic("^"),
    "shl": _arithmetic("<<"),
    "shr": _arithmetic(">>"),
    "eq": _arithmetic("=="),
    "ne": _arithmetic("!="),
    "lt": _arithmetic("<"),
    "le": _arithmetic("<="),
    "gt": _arithmetic(">"),
    "ge": _arithmetic(">="),
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
