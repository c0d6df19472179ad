"""Expressions to operations: literals, calls, operators, slices, structures.

Control flow is in `control.py`, index notation in `index.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from linnet.check import typed
from linnet.check.dims import Dim, compare
from linnet.diagnostics import Diagnostic, LinnetError, Span
from linnet.dtypes import DType
from linnet.ir.control import lower_if, lower_match_enum, lower_match_optional, lower_match_sub
from linnet.ir.core import OPS, TensorType, Value
from linnet.ir.fold import Scalar
from linnet.ir.frame import Frame
from linnet.ir.generics import bound_arguments, bound_pack
from linnet.ir.index import lower_comprehension, lower_reduction
from linnet.ir.statics import Present, Static, Variant

ELEMENTWISE = frozenset(
    kind for kind, rule in OPS.items() if rule.group in ("unary", "binary", "compare", "select")
)


def lower_expression(frame: Frame, expr: typed.Expr) -> Static:
    """What an expression gives."""
    frame.builder.location = expr.span.location
    return _EXPRESSIONS[type(expr)](frame, expr)


def constant(frame: Frame, value: Scalar, type_: TensorType, span: Span) -> Value:
    """A known scalar; an integer that its dtype can't hold is the user's error."""
    dtype = type_.dtype
    if dtype.is_integer:
        low, high = dtype.integer_range
        if not low <= value <= high:
            message = f"{value} does not fit {dtype}, which holds {low} to {high}"
            raise LinnetError([Diagnostic("E2105", message, span)])
    return frame.builder.constant(value, type_)


def _literal(frame: Frame, expr: typed.Literal) -> Static:
    return constant(frame, expr.value, frame.type(expr.type), expr.span)


def _dim_value(frame: Frame, expr: typed.DimValue) -> Static:
    return constant(frame, frame.dim(expr.dim), frame.type(expr.type), expr.span)


def _dim_compare(frame: Frame, expr: typed.DimCompare) -> Static:
    truth = compare(expr.op, frame.dim(expr.left), frame.dim(expr.right))
    return frame.builder.constant(truth, TensorType((), DType.BOOL))


def _local(frame: Frame, expr: typed.Local) -> Static:
    return frame.locals[expr.name]


def _member_read(frame: Frame, expr: typed.MemberRead) -> Static:
    return frame.member(expr.block, expr.name)


def _call(frame: Frame, expr: typed.Call) -> Static:
    own = bound_arguments(expr.generics, frame.binding)
    arguments = [frame.expr(argument) for argument in expr.args]
    callee, at = frame.specialised(expr.function, expr.block, own, arguments)
    frame.builder.location = expr.span.location
    return frame.call(callee, at, arguments)


def _some(frame: Frame, expr: typed.Some) -> Static:
    return Present(frame.expr(expr.value))


def _none(frame: Frame, expr: typed.NoneValue) -> Static:
    return None


def _enum_value(frame: Frame, expr: typed.EnumValue) -> Static:
    return Variant(expr.variant)


def _make_tuple(frame: Frame, expr: typed.MakeTuple) -> Static:
    return tuple(frame.expr(item) for item in expr.items)


def _get_field(frame: Frame, expr: typed.GetField) -> Static:
    whole = frame.expr(expr.base)
    assert isinstance(whole, tuple)
    return whole[expr.index]


# --- operators and prelude functions --------------------------------------------------------


def _prim(frame: Frame, expr: typed.Prim) -> Static:
    out = frame.type(expr.type)
    if expr.op == "iota":
        return frame.builder.emit("iota", (), out, axis=0)
    inputs = [frame.value(argument) for argument in expr.args]
    frame.builder.location = expr.span.location
    if expr.op in ELEMENTWISE:
        wide = [frame.builder.broadcast_right(value, out.shape) for value in inputs]
        if expr.op == "cast":
            return frame.builder.cast(wide[0], out.dtype)
        return frame.builder.elementwise(expr.op, wide, out.dtype)
    return _SHAPE[expr.op](frame, expr, inputs, out)


def _reshape(frame: Frame, expr: typed.Prim, inputs: list[Value], out: TensorType) -> Value:
    return frame.builder.reshape(inputs[0], out.shape)


def _broadcast_to(frame: Frame, expr: typed.Prim, inputs: list[Value], out: TensorType) -> Value:
    return frame.builder.broadcast_right(inputs[0], out.shape)


def _permute(frame: Frame, expr: typed.Prim, inputs: list[Value], out: TensorType) -> Value:
    groups = _axes_of_items(frame, expr.args[0])
    axes = [axis for position in expr.axes for axis in groups[position]]
    return frame.builder.permute(inputs[0], axes)


def _concat(frame: Frame, expr: typed.Prim, inputs: list[Value], out: TensorType) -> Value:
    (axis,) = _axes_of_items(frame, expr.args[0])[expr.axes[0]]
    return frame.builder.emit("concat", inputs, out, axis=axis)


_SHAPE: dict[str, Callable[[Frame, typed.Prim, list[Value], TensorType], Value]] = {
    "reshape": _reshape,
    "broadcast_to": _broadcast_to,
    "fill": _broadcast_to,
    "permute": _permute,
    "concat": _concat,
}


def _axes_of_items(frame: Frame, expr: typed.Expr) -> list[range]:
    """The axes that each item of an expression's shape stands for: one, or a pack's."""
    assert isinstance(expr.type, typed.TensorT)
    groups, at = [], 0
    for item in expr.type.shape:
        count = 1 if isinstance(item, Dim) else len(bound_pack(item, frame.binding))
        groups.append(range(at, at + count))
        at += count
    return groups


def _slice(frame: Frame, expr: typed.Slice) -> Static:
    """Compile-time bounds in one slice, then dropped axes, then runtime positions by a gather."""
    base = frame.value(expr.base)
    bounds = [(0, extent, 1) for extent in base.type.shape]
    dropped: set[int] = set()
    runtime: dict[int, Value] = {}
    for group, item in zip(_axes_of_items(frame, expr.base), expr.items, strict=True):
        if isinstance(item, typed.Range):
            (axis,) = group
            bounds[axis] = (frame.dim(item.start), frame.dim(item.stop), item.step)
        elif isinstance(item, typed.At):
            (axis,) = group
            if isinstance(item.index, Dim):
                index = frame.dim(item.index)
                bounds[axis] = (index, index + 1, 1)
                dropped.add(axis)
            else:
                runtime[axis] = frame.value(item.index)
    frame.builder.location = expr.span.location
    return frame.builder.take(base, bounds, dropped, runtime)


_EXPRESSIONS: dict[type, Callable[..., Static]] = {
    typed.Literal: _literal,
    typed.DimValue: _dim_value,
    typed.DimCompare: _dim_compare,
    typed.Local: _local,
    typed.MemberRead: _member_read,
    typed.Call: _call,
    typed.Prim: _prim,
    typed.Slice: _slice,
    typed.If: lower_if,
    typed.Some: _some,
    typed.NoneValue: _none,
    typed.MatchOptional: lower_match_optional,
    typed.MatchSub: lower_match_sub,
    typed.MatchEnum: lower_match_enum,
    typed.EnumValue: _enum_value,
    typed.MakeTuple: _make_tuple,
    typed.GetField: _get_field,
    typed.Reduce: lower_reduction,
    typed.Comprehension: lower_comprehension,
}
