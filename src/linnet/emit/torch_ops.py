"""Each core operation as a PyTorch expression.

`EXPRESSIONS` maps an operation's kind to a function from its operands to an operand. An `Operand`
is an expression together with the shape it has when it runs, which may be smaller than its IR type
as long as it broadcasts to it: PyTorch broadcasts by itself, so a `broadcast` costs nothing until
something needs the whole tensor (`Context.whole`). Constants and loop counters stay Python numbers
for as long as they can.

Unsigned integers wider than a byte are held in `int64`, since PyTorch computes hardly anything in
their own dtypes: u16 and u32 as their values, u64 as its two's complement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from linnet.dtypes import DType
from linnet.emit.code import Code, Level, binary, call, index, literal, method, rounded, unary
from linnet.emit.operands import (
    Operand,
    Pairs,
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
    DType.BOOL: "torch.bool", DType.I8: "torch.int8", DType.I16: "torch.int16",
    DType.I32: "torch.int32", DType.I64: "torch.int64", DType.U8: "torch.uint8",
    DType.U16: "torch.int64", DType.U32: "torch.int64", DType.U64: "torch.int64",
    DType.F16: "torch.float16", DType.BF16: "torch.bfloat16", DType.F32: "torch.float32",
    DType.F64: "torch.float64",
}  # fmt: skip
"""The PyTorch dtype that holds values of each dtype."""

_CONVERSIONS = {
    "torch.bool": "bool", "torch.int16": "short", "torch.int32": "int", "torch.int64": "long",
    "torch.float16": "half", "torch.bfloat16": "bfloat16", "torch.float32": "float",
    "torch.float64": "double",
}  # fmt: skip
_WIDE_UNSIGNED = (DType.U16, DType.U32)


@dataclass(slots=True)
class Context:
    """What expressions of one function need to know, and the support functions they use."""

    device: str
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

    @property
    def placed(self) -> list[str]:
        """The argument that makes a tensor on the device, where it isn't the default one."""
        return [] if self.device == "cpu" else ["device=device"]

    def create(self, function: str, *arguments: str, dtype: DType) -> Code:
        """A call that makes a tensor."""
        return call(f"torch.{function}", *arguments, f"dtype={DTYPES[dtype]}", *self.placed)

    def arange(self, extent: int, dtype: DType = DType.I64) -> Code:
        if dtype.is_integer and extent - 1 > dtype.integer_range[1]:
            return self.convert(self.arange(extent), DType.I64, dtype)
        if DTYPES[dtype] == "torch.int64":
            return call("torch.arange", str(extent), *self.placed)
        return self.create("arange", str(extent), dtype=dtype)

    def convert(self, code: Code, source: DType, dtype: DType) -> Code:
        """A tensor as another dtype, by PyTorch's own rules."""
        name = DTYPES[dtype]
        if DTYPES[source] == name:
            return code
        if name in _CONVERSIONS:
            return method(code, _CONVERSIONS[name])
        return method(code, "to", name)

    def tensor(self, x: Operand) -> Operand:
        """An operand as a tensor, maybe of a smaller shape."""
        if not x.number:
            return x
        made = self.create("full", "()", x.code.text, dtype=x.type.dtype)
        return Operand(made, x.type, ())

    def whole(self, x: Operand) -> Code:
        """An operand as a tensor of its full shape; the memory may be shared or repeated."""
        shape = x.type.shape
        if x.number:
            text = f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
            if x.value == 0 and shape:
                return self.create("zeros", text, dtype=x.type.dtype)
            return self.create("full", text, x.code.text, dtype=x.type.dtype)
        if x.shape == shape:
            return x.code
        return method(x.code, "expand", *map(str, shape))


Rule = Callable[[Context, Op, Sequence[Operand]], Operand]


def express(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    """The expression of an operation; raises `ValueError` for what PyTorch can't compute."""
    return EXPRESSIONS[op.kind](context, op, operands)


def place_of(op: Op) -> str:
    return f" ({op.location})" if op.location else ""


# --- elementwise ----------------------------------------------------------------------------


def _elementwise(op: Op, code: Code, operands: Sequence[Operand]) -> Operand:
    shape = broadcast_shape([x.shape for x in operands])
    number = all(x.number for x in operands)
    return Operand(code, op.output.type, shape, number)


def _wrapped(code: Code, dtype: DType) -> Code:
    """A result in `int64` as a narrower unsigned integer."""
    if dtype not in _WIDE_UNSIGNED:
        return code
    return binary("&", code, Code(hex((1 << dtype.bits) - 1)))


def _some_tensor(
    context: Context, operands: Sequence[Operand], first: bool = False
) -> list[Operand]:
    """Operands of which at least one (or the first) is a tensor, so that PyTorch computes."""
    found = list(operands)
    if all(x.number for x in found) or (first and found[0].number):
        found[0] = context.tensor(found[0])
    return found


def _countable(operands: Sequence[Operand]) -> bool:
    """Whether operands are Python integers that Python itself may compute with."""
    return all(x.number and x.type.dtype.is_integer for x in operands)


def _arithmetic(symbol: str) -> Rule:
    def rule(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
        if not _countable(operands):
            operands = _some_tensor(context, operands)
        left, right = operands
        if symbol == "+" and _dtype(op).is_integer and 0 in (left.value, right.value):
            return replace(right if left.value == 0 else left, type=op.output.type)
        return _elementwise(
            op, _wrapped(binary(symbol, left.code, right.code), _dtype(op)), operands
        )

    return rule


def _dtype(op: Op) -> DType:
    return op.output.type.dtype


def _div(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    if _dtype(op).is_float:
        return _arithmetic("/")(context, op, operands)
    return _whole_division(context, op, operands, "//", "divide", 'rounding_mode="trunc"')


def _rem(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    operands = operands if _countable(operands) else _some_tensor(context, operands, first=True)
    if _dtype(op).is_float:
        a, b = operands
        b = context.tensor(b) if b.number else b
        return _elementwise(op, call("torch.fmod", a.code.text, b.code.text), operands)
    return _whole_division(context, op, operands, "%", "remainder", None)


def _whole_division(
    context: Context,
    op: Op,
    operands: Sequence[Operand],
    symbol: str,
    helper: str,
    mode: str | None,
) -> Operand:
    """Truncates toward zero, and gives 0 for a divisor of 0."""
    refuse_u64(op)
    low, high = context.bounds(op.inputs[1])
    nonzero = low > 0 or high < 0
    if nonzero and low > 0 and context.bounds(op.inputs[0])[0] >= 0:
        a, b = operands if _countable(operands) else _some_tensor(context, operands)
        return _elementwise(op, binary(symbol, a.code, b.code), (a, b))
    a, b = _some_tensor(context, operands, first=True)
    if not nonzero:
        b = context.tensor(b)
        function = context.helper(helper)
        return _elementwise(op, call(function, a.code.text, b.code.text), (a, b))
    if mode is not None:
        return _elementwise(op, call("torch.div", a.code.text, b.code.text, mode), (a, b))
    return _elementwise(op, call("torch.fmod", a.code.text, b.code.text), (a, b))


def _extremum(name: str, bound: str) -> Rule:
    def rule(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
        refuse_u64(op)
        if _countable(operands):
            return _elementwise(op, call(name[:3], *(x.code.text for x in operands)), operands)
        a, b = _some_tensor(context, operands)
        if a.number:
            a, b = b, a
        if b.number:
            code = method(a.code, "clamp", f"{bound}={b.code.text}")
        else:
            code = call(f"torch.{name}", a.code.text, b.code.text)
        return _elementwise(op, code, (a, b))

    return rule


def _shift(symbol: str, helper: str) -> Rule:
    def rule(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
        dtype = _dtype(op)
        low, high = context.bounds(op.inputs[1])
        inside = low >= 0 and high < dtype.bits
        x, by = _some_tensor(context, operands, first=True)
        if dtype == DType.U64 and symbol == ">>":
            code = call(
                context.helper("shift_right_u64"), x.code.text, context.tensor(by).code.text
            )
        elif inside:
            code = binary(symbol, x.code, by.code)
        else:
            by = context.tensor(by)
            code = call(context.helper(helper), x.code.text, by.code.text, str(dtype.bits))
        return _elementwise(op, _wrapped(code, dtype), (x, by))

    return rule


def _compare(symbol: str) -> Rule:
    def rule(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
        if not _countable(operands):
            operands = _some_tensor(context, operands)
        left, right = (x.code for x in operands)
        if op.inputs[0].type.dtype == DType.U64 and symbol not in ("==", "!="):
            flip = Code("-0x8000000000000000", Level.UNARY)
            left, right = binary("^", left, flip), binary("^", right, flip)
        return _elementwise(op, binary(symbol, left, right), operands)

    return rule


def _function(name: str) -> Rule:
    def rule(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
        (x,) = _some_tensor(context, operands)
        return _elementwise(op, call(f"torch.{name}", x.code.text), (x,))

    return rule


def _neg(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    if not _countable(operands):
        operands = _some_tensor(context, operands)
    return _elementwise(op, _wrapped(unary("-", operands[0].code), _dtype(op)), operands)


def _not(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,) = operands
    if x.number and _dtype(op) == DType.BOOL:
        return _elementwise(op, Code(f"not {x.code.at(Level.COMPARE)}", 3), operands)
    (x,) = _some_tensor(context, operands)
    return _elementwise(op, _wrapped(unary("~", x.code), _dtype(op)), (x,))


def _abs(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    if DTYPES[_dtype(op)] == "torch.int64" and not _dtype(op).is_signed:
        return operands[0]
    return _function("abs")(context, op, operands)


def _cast(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,) = operands
    source, dtype = x.type.dtype, _dtype(op)
    if x.value is not None:
        return constant(op.output.type, cast_number(x.value, dtype))
    if x.number and source.is_integer and (dtype.is_float or _holds(dtype, context, op.inputs[0])):
        return Operand(x.code, op.output.type, x.shape, True)
    (x,) = _some_tensor(context, operands)
    if dtype == DType.BOOL:
        return _elementwise(op, binary("!=", x.code, Code("0")), (x,))
    if DType.U64 in (source, dtype) and (source.is_float or dtype.is_float):
        raise ValueError(f"PyTorch can't convert between u64 and floats{place_of(op)}")
    if source.is_float and dtype.is_integer:
        low, high = dtype.integer_range
        function = context.helper("to_integer")
        code = call(function, x.code.text, DTYPES[dtype], str(low), str(high))
    else:
        code = context.convert(x.code, source, dtype)
        if dtype in _WIDE_UNSIGNED and source not in (DType.BOOL, DType.U8, DType.U16, dtype):
            code = _wrapped(code, dtype)
    return _elementwise(op, code, (x,))


def _holds(dtype: DType, context: Context, value: Value) -> bool:
    """Whether an integer dtype has every value that this one may have."""
    if not dtype.is_integer:
        return False
    low, high = context.bounds(value)
    return dtype.integer_range[0] <= low and high <= dtype.integer_range[1]


def _select(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    condition, a, b = operands
    if condition.number and a.number and b.number:
        text = f"{a.code.at(1)} if {condition.code.at(1)} else {b.code.at(1)}"
        return _elementwise(op, Code(text, Level.CONDITIONAL), operands)
    condition = context.tensor(condition)
    if a.number and b.number:
        a = context.tensor(a)
    texts = (x.code.text for x in (condition, a, b))
    return _elementwise(op, call("torch.where", *texts), (condition, a, b))


def refuse_u64(op: Op) -> None:
    if op.inputs[0].type.dtype == DType.U64:
        raise ValueError(f"PyTorch can't compute `{op.kind}` in u64{place_of(op)}")


# --- creation -------------------------------------------------------------------------------


def constant(type_: TensorType, value: int | float | bool) -> Operand:
    number = rounded(value, type_.dtype)
    if type_.dtype == DType.U64 and isinstance(number, int) and number >= 1 << 63:
        number -= 1 << 64
    return Operand(literal(number), type_, (), True, number)


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
    code = context.whole(x)
    texts = [str(n) for n in new] if new else ["()"]
    return Operand(method(code, "reshape", *texts), type_, new)


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
        return Operand(method(code, "transpose", first, second), type_, shape)
    return Operand(method(code, "permute", *map(str, axes)), type_, shape)


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
    where = [] if axis == 0 else [f"dim={axis_text(axis, len(type_.shape))}"]
    return Operand(call("torch.cat", f"[{parts}]", *where), type_, type_.shape)


# --- contraction and reduction --------------------------------------------------------------


def _dot(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    type_ = op.output.type
    left, right = (context.convert(context.whole(x), x.type.dtype, type_.dtype) for x in operands)
    shapes = tuple(x.type.shape for x in operands)
    batch, contract = op.axis_pairs("batch"), op.axis_pairs("contract")
    if type_.dtype.is_integer and context.device != "cpu":
        code = _products(op, left, right, shapes, batch, contract)
    else:
        code = _matrix_product(left, right, shapes, batch, contract)
    return Operand(_wrapped(code, type_.dtype), type_, type_.shape)


Shapes = tuple[tuple[int, ...], ...]


def _matrix_product(left: Code, right: Code, shapes: Shapes, batch: Pairs, contract: Pairs) -> Code:
    """`F.linear` or `@` where they fit, else `einsum`."""
    ranks = tuple(map(len, shapes))
    lead = len(batch[0])
    matrices = ranks == (lead + 2, lead + 2) and batch == (tuple(range(lead)),) * 2
    if len(contract[0]) == 1:
        (a,), (b,) = contract
        if not lead and ranks[1] == 2 and a == ranks[0] - 1:
            if b == 1:
                return call("F.linear", left.text, right.text)
            return binary("@", left, right)
        if ranks == (1, 1) and not lead:
            return binary("@", left, right)
        if matrices:
            turned = "T" if not lead else "mT"
            left = left if a == lead + 1 else Code(f"{left.atom}.{turned}")
            right = right if b == lead else Code(f"{right.atom}.{turned}")
            return binary("@", left, right)
    terms = einsum_terms(ranks, batch, contract)
    return call("torch.einsum", f'"{terms}"', left.text, right.text)


def _products(
    op: Op, left: Code, right: Code, shapes: Shapes, batch: Pairs, contract: Pairs
) -> Code:
    """The contraction as a sum of products, where no matrix product takes the dtype."""
    free = [
        [axis for axis in range(len(shapes[side])) if axis not in (*batch[side], *contract[side])]
        for side in (0, 1)
    ]
    sides = []
    for side, code in ((0, left), (1, right)):
        order = (*batch[side], *free[side], *contract[side])
        extents = [shapes[side][axis] for axis in order]
        gap = len(free[1 - side])
        at = len(batch[side]) + (len(free[0]) if side == 0 else 0)
        extents[at:at] = [1] * gap
        moved = method(code, "permute", *map(str, order)) if order else code
        sides.append(method(moved, "reshape", f"({', '.join(map(str, extents))},)"))
    count = len(contract[0])
    product = binary("*", *sides)
    if not count:
        return method(product, "reshape", f"({', '.join(map(str, op.output.type.shape))},)")
    axes = f"({', '.join(str(-i) for i in range(count, 0, -1))},)"
    return method(product, "sum", axes, f"dtype={DTYPES[_dtype(op)]}")


def _reduce(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    (x,), type_ = operands, op.output.type
    name, axes = str(op.attrs["op"]), op.integers("axes")
    if name in ("max", "min"):
        refuse_u64(op)
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
        _reduction(code, name, at, len(shape), type_.dtype, False),
        type_,
        tuple(n for axis, n in enumerate(shape) if axis not in at),
    )
    if dropped:
        return found
    return replace(found, keepdim=(_reduction(code, name, at, len(shape), type_.dtype, True), axes))


def _reduction(
    code: Code, name: str, axes: Sequence[int], rank: int, dtype: DType, keepdim: bool
) -> Code:
    extra = ["keepdim=True"] if keepdim else []
    if name in ("sum", "prod") and dtype.is_integer:
        extra.append(f"dtype={DTYPES[dtype]}")
    if name == "prod":
        for axis in sorted(axes, reverse=True):
            code = method(code, "prod", axis_text(axis, rank), *extra)
            rank -= not keepdim
        return _wrapped(code, dtype)
    torch_name = {"max": "amax", "min": "amin"}.get(name, name)
    texts = [axis_text(axis, rank) for axis in axes]
    where = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
    return _wrapped(method(code, torch_name, where, *extra), dtype)


# --- indexing by runtime integers -----------------------------------------------------------


def _gather(context: Context, op: Op, operands: Sequence[Operand]) -> Operand:
    x, *indices = operands
    type_, axes = op.output.type, op.integers("axes")
    code, shape = context.whole(x), x.type.shape
    if all(i.number for i in indices):
        items = [":"] * len(shape)
        for axis, i, value in zip(axes, indices, op.inputs[1:], strict=True):
            items[axis] = clamped_number(context, i, value, shape[axis] - 1).text
        if not op.inputs[1].type.shape:
            return Operand(index(code, items), type_, type_.shape)
    codes = [
        _index(context, i, value, shape[axis])
        for axis, i, value in zip(axes, indices, op.inputs[1:], strict=True)
    ]
    if not op.inputs[1].type.shape:
        return Operand(_gather_one(code, axes, codes, shape), type_, type_.shape)
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    if axes != tuple(range(len(axes))):
        code = method(code, "permute", *map(str, (*axes, *rest)))
    return Operand(index(code, [c.text for c in codes]), type_, type_.shape)


def _gather_one(
    code: Code, axes: Sequence[int], codes: Sequence[Code], shape: tuple[int, ...]
) -> Code:
    """One element of each axis. A plain index by a tensor would wait for its value."""
    rank = len(shape)
    for axis, at in sorted(zip(axes, codes, strict=True), key=lambda pair: -pair[0]):
        code = method(code, "index_select", str(axis), at.text)
        code = method(code, "squeeze", axis_text(axis, rank))
        rank -= 1
    return code


def _index(context: Context, i: Operand, value: Value, extent: int) -> Code:
    """An index tensor of a dtype that PyTorch indexes by, within its axis."""
    code = context.whole(i)
    if value.type.dtype not in (DType.I32, DType.I64):
        code = context.convert(code, value.type.dtype, DType.I64)
    return clamped(context, code, value, extent - 1)


def clamped(context: Context, code: Code, value: Value, last: int) -> Code:
    """A tensor of positions, moved into 0 … last where it may lie outside."""
    low, high = context.bounds(value)
    limits = []
    if low < 0:
        limits.append("min=0")
    if high > last:
        limits.append(f"max={max(last, 0)}")
    if len(limits) == 2:
        return method(code, "clamp", "0", str(max(last, 0)))
    return method(code, "clamp", *limits) if limits else code


def clamped_number(context: Context, x: Operand, value: Value, last: int) -> Code:
    """The same for a Python integer."""
    if isinstance(x.value, int):
        return literal(min(max(x.value, 0), max(last, 0)))
    low, high = context.bounds(value)
    code = x.code
    if high > last:
        code = call("min", code.text, str(max(last, 0)))
    return call("max", code.text, "0") if low < 0 else code


EXPRESSIONS: dict[str, Rule] = {
    "neg": _neg,
    "not": _not,
    "abs": _abs,
    **{name: _function(name) for name in ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh")},
    "add": _arithmetic("+"),
    "sub": _arithmetic("-"),
    "mul": _arithmetic("*"),
    "div": _div,
    "rem": _rem,
    "min": _extremum("minimum", "max"),
    "max": _extremum("maximum", "min"),
    "and": _arithmetic("&"),
    "or": _arithmetic("|"),
    "xor": _arithmetic("^"),
    "shl": _shift("<<", "shift_left"),
    "shr": _shift(">>", "shift_right"),
    "eq": _compare("=="),
    "ne": _compare("!="),
    "lt": _compare("<"),
    "le": _compare("<="),
    "gt": _compare(">"),
    "ge": _compare(">="),
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
}
