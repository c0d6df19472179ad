"""Each core operation in StableHLO, with the meaning that the interpreter gives it.

`RULES` has one rule a kind of operation: it takes the body being written, the operation and its
operands, and gives the value. Where StableHLO leaves a choice that Core IR doesn't (a division by
zero, how a sum of f16 accumulates), the rule writes what makes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from linnet.dtypes import DType
from linnet.emit.stablehlo_text import NARROW, Body, Ref
from linnet.ir.core import Op, TensorType

Rule = Callable[[Body, Op, list[Ref]], Ref]

_UNARY = {
    "neg": "negate", "not": "not", "exp": "exponential", "log": "log", "sqrt": "sqrt",
    "rsqrt": "rsqrt", "sin": "sine", "cos": "cosine", "tanh": "tanh", "abs": "abs",
}  # fmt: skip
_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "min": "minimum", "max": "maximum",
    "and": "and", "or": "or", "xor": "xor", "shl": "shift_left",
}  # fmt: skip
_REDUCE = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "or",
           "all": "and"}  # fmt: skip


def _unary(name: str) -> Rule:
    return lambda body, op, inputs: body.unary(name, inputs[0])


def _binary(name: str) -> Rule:
    return lambda body, op, inputs: body.binary(name, *inputs)


def _compare(direction: str) -> Rule:
    return lambda body, op, inputs: body.compare(direction, *inputs)


def _divided(name: str) -> Rule:
    """Integers divided by zero give 0; StableHLO leaves it open."""

    def rule(body: Body, op: Op, inputs: list[Ref]) -> Ref:
        found = body.binary(name, *inputs)
        if op.output.type.dtype.is_float:
            return found
        zero = body.constant(0, inputs[1].type)
        return body.select(body.compare("EQ", inputs[1], zero), zero, found)

    return rule


def _shr(body: Body, op: Op, inputs: list[Ref]) -> Ref:
    kind = "arithmetic" if op.output.type.dtype.is_signed else "logical"
    return body.binary(f"shift_right_{kind}", *inputs)


def _cast(body: Body, op: Op, inputs: list[Ref]) -> Ref:
    x, dtype = inputs[0], op.output.type.dtype
    if x.type.dtype.is_float and dtype == DType.BOOL:
        return body.compare("NE", x, body.constant(0.0, x.type))
    return body.convert(x, dtype)


def _constant(body: Body, op: Op, inputs: list[Ref]) -> Ref:
    return body.constant(op.attrs["value"], op.output.type)  # type: ignore[arg-type]


def _dot(body: Body, op: Op, inputs: list[Ref]) -> Ref:
    dtype = op.output.type.dtype
    wide = DType.F32 if dtype in NARROW else dtype
    sides = [x if _exact_in(x.type.dtype, wide, dtype) else body.convert(x, dtype) for x in inputs]
    if sides[0].type.dtype != sides[1].type.dtype:
        sides = [body.convert(x, wide) for x in sides]
    found = body.dot(*sides, op.axis_pairs("batch"), op.axis_pairs("contract"), wide)
    return body.convert(found, dtype)


def _exact_in(source: DType, wide: DType, dtype: DType) -> bool:
    """Whether operands of a dtype can be multiplied as they are, their products in `wide`: a cast
    to `dtype` before would change nothing."""
    return source == dtype or (source in NARROW and wide == dtype == DType.F32)


def _reduce(body: Body, op: Op, inputs: list[Ref]) -> Ref:
    (x,), name, dtype = inputs, op.text("op"), op.output.type.dtype
    adds = name in ("sum", "prod")
    held = body.convert(x, DType.F32) if adds and dtype in NARROW else x
    first = body.scalar(_identity(name, held.type.dtype), held.type.dtype)
    return body.convert(body.reduce(_REDUCE[name], held, first, op.integers("axes")), dtype)


def _identity(name: str, dtype: DType) -> int | float | bool:
    if name in ("any", "all"):
        return name == "all"
    if name in ("sum", "prod"):
        return (0.0 if name == "sum" else 1.0) if dtype.is_float else int(name == "prod")
    if dtype.is_float:
        return -math.inf if name == "max" else math.inf
    return dtype.integer_range[0 if name == "max" else 1]


def _gather(body: Body, op: Op, inputs: list[Ref]) -> Ref:
    x, *indices = inputs
    return body.gather(x, index_vectors(body, indices), op.integers("axes"))


def index_vectors(body: Body, indices: list[Ref]) -> Ref:
    """Index tensors of one shape as vectors along a last axis, of 32 bits or more."""
    dtype = index_dtype(indices)
    shape = (*indices[0].type.shape, 1)
    parts = [body.reshape(body.convert(index, dtype), shape) for index in indices]
    return parts[0] if len(parts) == 1 else body.concatenate(parts, len(shape) - 1)


def index_dtype(indices: list[Ref]) -> DType:
    """One dtype for some indices: clamping is done in it, so it must hold any axis's extent."""
    dtypes = {index.type.dtype for index in indices}
    if dtypes == {DType.U64}:
        return DType.U64
    return DType.I64 if dtypes & {DType.I64, DType.U32, DType.U64} else DType.I32


def _update_slice(body: Body, op: Op, inputs: list[Ref]) -> Ref:
    x, value, *given = inputs
    if not x.type.shape:
        return value
    dtype = index_dtype(given)
    at = dict(zip(op.integers("axes"), given, strict=True))
    starts = [
        body.convert(at[axis], dtype) if axis in at else body.scalar(0, dtype)
        for axis in range(len(x.type.shape))
    ]
    return body.dynamic_update_slice(x, value, starts)


RULES: dict[str, Rule] = {
    **{kind: _unary(name) for kind, name in _UNARY.items()},
    **{kind: _binary(name) for kind, name in _BINARY.items()},
    **{kind: _compare(kind.upper()) for kind in ("eq", "ne", "lt", "le", "gt", "ge")},
    "div": _divided("divide"),
    "rem": _divided("remainder"),
    "shr": _shr,
    "cast": _cast,
    "select": lambda body, op, inputs: body.select(*inputs),
    "constant": _constant,
    "iota": lambda body, op, inputs: body.iota(op.output.type, op.integer("axis")),
    "reshape": lambda body, op, inputs: body.reshape(inputs[0], op.output.type.shape),
    "permute": lambda body, op, inputs: body.transpose(inputs[0], op.integers("axes")),
    "broadcast": lambda body, op, inputs: body.broadcast(
        inputs[0], op.integers("axes"), op.output.type.shape
    ),
    "slice": lambda body, op, inputs: body.slice(
        inputs[0], *(op.integers(name) for name in ("start", "stop", "step"))
    ),
    "concat": lambda body, op, inputs: body.concatenate(inputs, op.integer("axis")),
    "dot": _dot,
    "reduce": _reduce,
    "gather": _gather,
    "update_slice": _update_slice,
}

__all__ = ["RULES", "Rule", "TensorType", "index_dtype", "index_vectors"]
