"""Common subexpressions, constants and identities: what can be said shorter in one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from linnet.ir.core import Attr, Function, Module, Op, TensorType, Value
from linnet.ir.fold import Scalar, fold_scalar
from linnet.ir.rewrite import map_functions, substituted, with_ops


def cse(module: Module) -> Module:
    """Computes each thing once in a function: calls too, for nothing has an effect."""
    return _each(module, _shared)


def fold_constants(module: Module) -> Module:
    """Computes what is known, and drops operations that change nothing.

    A tensor is known where it holds one scalar in every element. Float identities are limited to
    those that hold for every value: `x * 1`, `x / 1`, `x - 0`, but not `x + 0` (`-0.0`).
    """
    return _each(module, _folded)


def _each(module: Module, rewrite: Callable[[Function], Function]) -> Module:
    functions = {name: rewrite(f) for name, f in module.functions.items()}
    prepare = rewrite(module.prepare) if module.prepare is not None else None
    return map_functions(replace(module, prepare=prepare), functions)


# --- common subexpressions ------------------------------------------------------------------


def _shared(function: Function) -> Function:
    seen: dict[object, Op] = {}
    by: dict[Value, Value] = {}
    ops: list[Op] = []
    for op in function.ops:
        op = replace(op, inputs=substituted(op.inputs, by))
        attrs = tuple((name, _exact(value)) for name, value in sorted(op.attrs.items()))
        key = (op.kind, op.inputs, attrs, tuple(value.type for value in op.outputs))
        first = seen.setdefault(key, op)
        if first is op:
            ops.append(op)
        else:
            by.update(zip(op.outputs, first.outputs, strict=True))
    return with_ops(function, ops, by)


def _exact(value: Attr) -> object:
    """Tells 0.0 from -0.0, and a NaN from none."""
    return repr(value) if isinstance(value, float) else value


# --- constants ------------------------------------------------------------------------------


def _folded(function: Function) -> Function:
    known: dict[Value, Scalar] = {}
    made: dict[Value, Op] = {}
    by: dict[Value, Value] = {}
    ops: list[Op] = []
    for op in function.ops:
        op = replace(op, inputs=substituted(op.inputs, by))
        if len(op.outputs) == 1:
            scalar = _scalar(op, known)
            if scalar is not None:
                op = Op("constant", (), op.outputs, {"value": scalar}, op.location)
                known[op.output] = scalar
            op = _merged(op, made)
            same = _identity(op, known)
            if same is not None:
                by[op.output] = same
                continue
            made[op.output] = op
        ops.append(op)
    return with_ops(function, ops, by)


_SPREAD = ("reshape", "permute", "broadcast", "slice")


def _scalar(op: Op, known: dict[Value, Scalar]) -> Scalar | None:
    """The scalar that every element of the result is, if it is known."""
    type_ = op.output.type
    if op.kind == "constant":
        return op.attrs["value"]  # type: ignore[return-value]
    if op.kind == "iota":
        zero = 0.0 if type_.dtype.is_float else 0
        return zero if type_.shape[op.integer("axis")] == 1 else None
    if op.kind == "gather" and op.inputs[0] in known:
        return known[op.inputs[0]]
    if not op.inputs or any(value not in known for value in op.inputs):
        return None
    inputs = [known[value] for value in op.inputs]
    if op.kind in _SPREAD:
        return inputs[0]
    if op.kind == "concat":
        return inputs[0] if len(set(map(repr, inputs))) == 1 else None
    if op.kind in ("dot", "reduce", "gather", "update_slice", "call", "while", "if"):
        return None
    return fold_scalar(op.kind, inputs, op.inputs[-1].type.dtype, type_.dtype)


def _merged(op: Op, made: dict[Value, Op]) -> Op:
    """Two reshapes, or two permutations, in a row as one."""
    if op.kind not in ("reshape", "permute"):
        return op
    before = made.get(op.inputs[0])
    if before is None or before.kind != op.kind:
        return op
    if op.kind == "reshape":
        return replace(op, inputs=before.inputs)
    inner = before.integers("axes")
    axes = tuple(inner[axis] for axis in op.integers("axes"))
    return replace(op, inputs=before.inputs, attrs={"axes": axes})


def _identity(op: Op, known: dict[Value, Scalar]) -> Value | None:
    """The operand that an operation gives back unchanged, if it does."""
    if not op.inputs:
        return None
    x, out = op.inputs[0], op.output.type
    if x.type == out:
        if op.kind in ("reshape", "cast"):
            return x
        if op.kind in ("permute", "broadcast"):
            return x if op.attrs["axes"] == tuple(range(len(out.shape))) else None
        if op.kind == "slice":
            return x
    if op.kind == "concat" and len(op.inputs) == 1:
        return x
    if op.kind == "reduce" and op.attrs["axes"] == ():
        return x
    if op.kind == "select":
        if op.inputs[0] in known:
            return op.inputs[1] if known[op.inputs[0]] else op.inputs[2]
        return op.inputs[1] if op.inputs[1] is op.inputs[2] else None
    if len(op.inputs) == 2 and op.kind in _NEUTRAL:
        return _without_neutral(op, known, out)
    return None


_NEUTRAL: dict[str, tuple[Scalar | None, Scalar]] = {
    "add": (0, 0),
    "sub": (None, 0),
    "mul": (1, 1),
    "div": (None, 1),
    "and": (True, True),
    "or": (False, False),
    "shl": (None, 0),
    "shr": (None, 0),
}
"""What leaves the other operand as it is, on the left and on the right; logic on bools only."""


def _without_neutral(op: Op, known: dict[Value, Scalar], out: TensorType) -> Value | None:
    if op.kind in ("add", "sub") and out.dtype.is_float:
        return None
    if op.kind in ("and", "or") and out.dtype.is_integer:
        return None
    for side, neutral in enumerate(_NEUTRAL[op.kind]):
        scalar = known.get(op.inputs[side])
        if neutral is not None and scalar is not None and scalar == neutral:
            return op.inputs[1 - side]
    return None
