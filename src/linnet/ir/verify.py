"""Checks a module against the rules of Core IR.

A pass that breaks a rule is a defect of the compiler; `verify` finds it at once, and names the
function and the operation. Tests run it after every pass. What is checked: every name defined once
and before its use, the inputs and attributes each operation takes (`core.OPS`), the types of its
outputs, and that calls and regions agree with the functions they name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from linnet.dtypes import DType
from linnet.ir.core import (
    OPS,
    Function,
    Module,
    Op,
    TensorType,
    Value,
    VerifyError,
    referenced,
)

KINDS = ("entry", "method", "fn", "op", "region")
WEIGHT_KINDS = ("param", "buffer", "derived")
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all")


def verify(module: Module) -> None:
    """Raises `VerifyError` where a module breaks a rule of the IR."""
    if module.entry not in module.functions:
        raise VerifyError(f"the entry `{module.entry}` is no function of the module")
    known: dict[str, Function] = {}
    for name, function in module.functions.items():
        if name != function.name:
            raise VerifyError(f"`{function.name}` is listed as `{name}`")
        _verify_function(function, known)
        known[name] = function
    _verify_prepare(module, known)


def _verify_prepare(module: Module, known: Mapping[str, Function]) -> None:
    slots = {slot.path: slot.value.type for slot in module.main.weights if slot.kind == "derived"}
    if set(slots) != set(module.derived) or len(module.derived) != len(slots):
        raise VerifyError(
            f"the entry uses the derived weights {sorted(slots)}, prepared are {module.derived}"
        )
    if module.prepare is None:
        if module.derived:
            raise VerifyError("derived weights without a `prepare` function")
        return
    prepare = module.prepare
    _verify_function(prepare, known)
    if prepare.inputs or prepare.states or any(s.kind == "derived" for s in prepare.weights):
        raise VerifyError("`prepare` takes weights alone")
    found = {p: v.type for p, v in zip(module.derived, prepare.results, strict=False)}
    if len(prepare.results) != len(module.derived) or found != slots:
        raise VerifyError(f"`prepare` gives {found}, the entry needs {slots}")


def _verify_function(function: Function, known: Mapping[str, Function]) -> None:
    where = f"in `{function.name}`"
    if not function.name.isidentifier():
        raise VerifyError(f"{where}: the name is no identifier")
    if function.kind not in KINDS:
        raise VerifyError(f"{where}: unknown kind `{function.kind}`")
    if function.arguments and len(function.arguments) != len(function.inputs):
        raise VerifyError(f"{where}: `arguments` must name each input")
    if function.kind == "region" and (function.weights or function.states):
        raise VerifyError(f"{where}: a region takes weights and states as inputs")
    _verify_slots(function, where)
    defined: set[Value] = set()
    names: set[str] = set()

    def define(value: Value, here: str) -> None:
        if value in defined or value.name in names:
            raise VerifyError(f"{here}: `%{value.name}` is defined twice")
        if any(extent < 0 for extent in value.type.shape):
            raise VerifyError(f"{here}: {value!r} has a negative extent")
        defined.add(value)
        names.add(value.name)

    for value in function.operands:
        define(value, where)
    for index, op in enumerate(function.ops):
        here = f"{where}, operation {index} (`{op.kind}`)"
        for value in op.inputs:
            if value not in defined:
                raise VerifyError(f"{here}: `%{value.name}` is not defined before its use")
        _verify_op(op, known, here)
        for value in op.outputs:
            define(value, here)
    for value in function.returns:
        if value not in defined:
            raise VerifyError(f"{where}: returns `%{value.name}`, which is not defined")
    if len(function.new_states) != len(function.states):
        raise VerifyError(f"{where}: {len(function.states)} states, {len(function.new_states)} new")
    for slot, value in zip(function.states, function.new_states, strict=True):
        if slot.value.type != value.type:
            raise VerifyError(f"{where}: the state `{slot.path}` becomes {value!r}")


def _verify_slots(function: Function, where: str) -> None:
    paths: set[str] = set()
    for slot in (*function.weights, *function.states):
        if slot.path in paths:
            raise VerifyError(f"{where}: two slots for `{slot.path}`")
        paths.add(slot.path)
        if (slot.kind == "derived") != slot.path.startswith("@"):
            raise VerifyError(f"{where}: `{slot.path}` is no path of a {slot.kind}")
    if any(slot.kind not in WEIGHT_KINDS for slot in function.weights):
        raise VerifyError(f"{where}: a weight must be one of {', '.join(WEIGHT_KINDS)}")
    if any(slot.kind != "state" for slot in function.states):
        raise VerifyError(f"{where}: a state must be of kind state")


# --- operations -----------------------------------------------------------------------------


def _verify_op(op: Op, known: Mapping[str, Function], here: str) -> None:
    rule = OPS.get(op.kind)
    if rule is None:
        raise VerifyError(f"{here}: unknown operation")
    if rule.arity >= 0 and len(op.inputs) != rule.arity:
        raise VerifyError(f"{here}: {len(op.inputs)} inputs, {rule.arity} needed")
    if set(op.attrs) != set(rule.attrs):
        raise VerifyError(f"{here}: attributes {sorted(op.attrs)}, {sorted(rule.attrs)} needed")
    for name in referenced(op):
        if name not in known:
            raise VerifyError(f"{here}: `{name}` is not defined before its use")

    def require(condition: bool, message: str) -> None:
        if not condition:
            types = ", ".join(str(v.type) for v in op.inputs)
            results = ", ".join(str(v.type) for v in op.outputs)
            raise VerifyError(f"{here}: {message} ({types} -> {results}, {dict(op.attrs)})")

    if not referenced(op):
        require(len(op.outputs) == 1, "one output needed")
    _CHECKS[op.kind if op.kind in _CHECKS else rule.group](op, known, require)


Require = Callable[[bool, str], None]
Check = Callable[[Op, Mapping[str, Function], Require], None]


def _types(op: Op) -> tuple[TensorType, ...]:
    return tuple(value.type for value in op.inputs)


def _unary(op: Op, known: Mapping[str, Function], require: Require) -> None:
    (x,), out = _types(op), op.output.type
    require(x.shape == out.shape, "shapes differ")
    if op.kind != "cast":
        require(x.dtype == out.dtype, "dtypes differ")


def _binary(op: Op, known: Mapping[str, Function], require: Require) -> None:
    (a, b), out = _types(op), op.output.type
    require(a == b, "operand types differ")
    expected = DType.BOOL if op.kind in ("eq", "ne", "lt", "le", "gt", "ge") else a.dtype
    require(out == TensorType(a.shape, expected), "wrong output type")


def _select(op: Op, known: Mapping[str, Function], require: Require) -> None:
    (c, a, b), out = _types(op), op.output.type
    require(c.dtype == DType.BOOL and c.shape == out.shape, "the condition is a bool of that shape")
    require(a == b == out, "operand types differ")


def _constant(op: Op, known: Mapping[str, Function], require: Require) -> None:
    value, dtype = op.attrs["value"], op.output.type.dtype
    if dtype == DType.BOOL:
        require(isinstance(value, bool), "a bool constant holds a bool")
    elif dtype.is_float:
        require(isinstance(value, float), "a float constant holds a float")
    else:
        low, high = dtype.integer_range
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        require(fits, f"an {dtype} constant holds an integer in its range")


def _iota(op: Op, known: Mapping[str, Function], require: Require) -> None:
    axis, out = op.attrs["axis"], op.output.type
    require(isinstance(axis, int) and 0 <= axis < len(out.shape), "no such axis")
    require(out.dtype != DType.BOOL, "numbers, not bools")


def _reshape(op: Op, known: Mapping[str, Function], require: Require) -> None:
    (x,), out = _types(op), op.output.type
    require(x.size == out.size and x.dtype == out.dtype, "element counts or dtypes differ")


def _permute(op: Op, known: Mapping[str, Function], require: Require) -> None:
    (x,), axes = _types(op), _ints(op, "axes", require)
    require(sorted(axes) == list(range(len(x.shape))), "no permutation")
    expected = TensorType(tuple(x.shape[axis] for axis in axes), x.dtype)
    require(op.output.type == expected, f"gives {expected}")


def _broadcast(op: Op, known: Mapping[str, Function], require: Require) -> None:
    (x,), axes, out = _types(op), _ints(op, "axes", require), op.output.type
    require(x.dtype == out.dtype and len(axes) == len(x.shape), "one output axis for each input's")
    require(list(axes) == sorted(set(axes)), "axes must ascend")
    require(all(0 <= axis < len(out.shape) for axis in axes), "no such axis")
    for extent, axis in zip(x.shape, axes, strict=True):
        require(extent in (1, out.shape[axis]), "only an axis of extent 1 stretches")


def _slice(op: Op, known: Mapping[str, Function], require: Require) -> None:
    (x,) = _types(op)
    bounds = [_ints(op, name, require) for name in ("start", "stop", "step")]
    require(all(len(b) == len(x.shape) for b in bounds), "one start, stop and step for each axis")
    shape = []
    for extent, start, stop, step in zip(x.shape, *bounds, strict=True):
        require(0 <= start <= stop <= extent and step > 0, "out of range")
        shape.append(-(-(stop - start) // step))
    expected = TensorType(tuple(shape), x.dtype)
    require(op.output.type == expected, f"gives {expected}")


def _concat(op: Op, known: Mapping[str, Function], require: Require) -> None:
    axis, types = op.attrs["axis"], _types(op)
    require(len(types) > 0, "inputs needed")
    first = types[0]
    require(isinstance(axis, int) and 0 <= axis < len(first.shape), "no such axis")
    assert isinstance(axis, int)
    total = 0
    for t in types:
        same = t.dtype == first.dtype and len(t.shape) == len(first.shape)
        require(same and _without(t.shape, axis) == _without(first.shape, axis), "types differ")
        total += t.shape[axis]
    expected = TensorType((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)
    require(op.output.type == expected, f"gives {expected}")


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _dot(op: Op, known: Mapping[str, Function], require: Require) -> None:
    (a, b), out = _types(op), op.output.type
    batch, contract = _axis_pairs(op, "batch", require), _axis_pairs(op, "contract", require)
    for pairs in (batch, contract):
        require(len(pairs[0]) == len(pairs[1]), "as many axes on the left as on the right")
    for side, t in ((0, a), (1, b)):
        used = [*batch[side], *contract[side]]
        require(len(set(used)) == len(used), "an axis used twice")
        require(all(0 <= axis < len(t.shape) for axis in used), "no such axis")
    for left, right in zip((*batch[0], *contract[0]), (*batch[1], *contract[1]), strict=True):
        require(a.shape[left] == b.shape[right], "extents differ")
    require(out.dtype != DType.BOOL, "numbers, not bools")
    require(out.shape == dot_shape(a.shape, b.shape, batch, contract), "wrong output shape")


AxisPairs = tuple[tuple[int, ...], tuple[int, ...]]


def dot_shape(
    a: tuple[int, ...], b: tuple[int, ...], batch: AxisPairs, contract: AxisPairs
) -> tuple[int, ...]:
    """The shape a `dot` gives: batch axes, then the free axes of the left, of the right."""
    left = [n for i, n in enumerate(a) if i not in batch[0] and i not in contract[0]]
    right = [n for i, n in enumerate(b) if i not in batch[1] and i not in contract[1]]
    return (*(a[i] for i in batch[0]), *left, *right)


def _reduce(op: Op, known: Mapping[str, Function], require: Require) -> None:
    (x,), axes, out = _types(op), _ints(op, "axes", require), op.output.type
    require(op.attrs["op"] in REDUCTIONS, f"one of {', '.join(REDUCTIONS)}")
    require(len(set(axes)) == len(axes), "an axis reduced twice")
    require(all(0 <= axis < len(x.shape) for axis in axes), "no such axis")
    logical = op.attrs["op"] in ("any", "all")
    require(logical == (x.dtype == DType.BOOL), "any and all take bools, the others numbers")
    shape = tuple(n for axis, n in enumerate(x.shape) if axis not in axes)
    require(out == TensorType(shape, x.dtype), "wrong output type")


def _gather(op: Op, known: Mapping[str, Function], require: Require) -> None:
    x, *indices = _types(op)
    axes, out = _ints(op, "axes", require), op.output.type
    require(len(axes) == len(indices) > 0, "one index tensor for each axis")
    require(list(axes) == sorted(set(axes)), "axes must ascend")
    require(all(0 <= axis < len(x.shape) for axis in axes), "no such axis")
    require(len({t.shape for t in indices}) == 1, "the index tensors have one shape")
    require(all(t.dtype.is_integer for t in indices), "indices are integers")
    rest = tuple(n for axis, n in enumerate(x.shape) if axis not in axes)
    require(out == TensorType((*indices[0].shape, *rest), x.dtype), "wrong output type")


def _update_slice(op: Op, known: Mapping[str, Function], require: Require) -> None:
    x, value, *starts = _types(op)
    axes = _ints(op, "axes", require)
    require(len(axes) == len(starts), "one start for each axis")
    require(list(axes) == sorted(set(axes)), "axes must ascend")
    require(all(0 <= axis < len(x.shape) for axis in axes), "no such axis")
    require(all(t.shape == () and t.dtype.is_integer for t in starts), "starts are integer scalars")
    same = x.dtype == value.dtype and len(x.shape) == len(value.shape)
    require(same and all(v <= n for v, n in zip(value.shape, x.shape, strict=True)), "doesn't fit")
    require(op.output.type == x, "wrong output type")


def _ints(op: Op, name: str, require: Require) -> tuple[int, ...]:
    found = op.attrs[name]
    require(isinstance(found, tuple) and all(type(i) is int for i in found), f"`{name}`: integers")
    return found  # type: ignore[return-value]


def _axis_pairs(op: Op, name: str, require: Require) -> AxisPairs:
    found = op.attrs[name]
    require(
        isinstance(found, tuple)
        and len(found) == 2
        and all(isinstance(side, tuple) for side in found),
        f"`{name}`: left and right axes",
    )
    return found  # type: ignore[return-value]


# --- structure ------------------------------------------------------------------------------


def _call(op: Op, known: Mapping[str, Function], require: Require) -> None:
    callee = known[op.text("callee")]
    require(isinstance(op.attrs["at"], str), "`at` is a path")
    require(callee.kind != "region", "a region is not called")
    _agree(op, op.inputs, op.outputs, callee, require)


def _agree(
    op: Op,
    inputs: tuple[Value, ...],
    outputs: tuple[Value, ...],
    callee: Function,
    require: Require,
) -> None:
    takes = [value.type for value in callee.operands]
    gives = [value.type for value in callee.returns]
    require([v.type for v in inputs] == takes, f"`{callee.name}` takes {_list(takes)}")
    require([v.type for v in outputs] == gives, f"`{callee.name}` gives {_list(gives)}")


def _while(op: Op, known: Mapping[str, Function], require: Require) -> None:
    condition, body = (known[name] for name in referenced(op))
    carried, trips = op.attrs["carried"], op.attrs["trips"]
    require(condition.kind == body.kind == "region", "condition and body are regions")
    require(isinstance(carried, int) and 0 <= carried <= len(op.inputs), "too many carried")
    require(isinstance(trips, int) and trips >= -1, "`trips` is a count or -1")
    assert isinstance(carried, int)
    truth = [value.type for value in condition.results]
    require([v.type for v in op.inputs] == [v.type for v in condition.inputs], "condition's inputs")
    require(truth == [TensorType((), DType.BOOL)], "the condition gives one bool")
    _agree(op, op.inputs, op.outputs, body, require)
    require([v.type for v in op.inputs[:carried]] == [v.type for v in op.outputs], "carried types")
    if trips != -1:
        counter = carried > 0 and op.inputs[0].type == TensorType((), DType.I64)
        require(counter, "with `trips` known, the first carried value is an i64 counter")


def _if(op: Op, known: Mapping[str, Function], require: Require) -> None:
    require(len(op.inputs) > 0, "a condition needed")
    require(op.inputs[0].type == TensorType((), DType.BOOL), "the condition is a bool scalar")
    for name in referenced(op):
        require(known[name].kind == "region", f"`{name}` is no region")
        _agree(op, op.inputs[1:], op.outputs, known[name], require)


def _list(types: list[TensorType]) -> str:
    return f"({', '.join(map(str, types))})"


_CHECKS: dict[str, Check] = {
    "unary": _unary,
    "binary": _binary,
    "compare": _binary,
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
    "call": _call,
    "while": _while,
    "if": _if,
}
