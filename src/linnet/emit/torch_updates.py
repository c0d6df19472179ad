"""`update_slice` as statements that write into a tensor in place."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.dtypes import DType
from linnet.emit.code import Code, binary, call, index, literal, method
from linnet.emit.torch_ops import Context, Operand, clamped, clamped_number
from linnet.ir.core import Op, Value


def write_slice(context: Context, op: Op, where: Code, operands: Sequence[Operand]) -> list[str]:
    """Statements that write a value over a part of `where`; `operands` are those after it."""
    value, *starts = operands
    extents, lengths = op.inputs[0].type.shape, op.inputs[1].type.shape
    given = dict(zip(op.integers("axes"), zip(starts, op.inputs[2:], strict=True), strict=True))
    items, moving = [], []
    for axis, (extent, length) in enumerate(zip(extents, lengths, strict=True)):
        start = given.get(axis)
        if length == extent:
            items.append(":")
        elif start is None:
            items.append(f":{length}")
        elif start[0].number:
            first = clamped_number(context, *start, extent - length)
            items.append(_span(first, length))
        else:
            items.append(":")
            moving.append((axis, *start))
    part = index(where, items)
    if not moving:
        source = value.code.text if value.number else context.whole(value).text
        target = part.text if part is not where else f"{where.atom}[...]"
        return [f"{target} = {source}"]
    return list(_write(context, part, context.whole(value), moving, extents, lengths))


def _span(first: Code, length: int) -> str:
    if first.text.isdigit():
        return f"{first.text}:{int(first.text) + length}"
    return f"{first.text}:{binary('+', first, literal(length)).text}"


def _write(
    context: Context,
    where: Code,
    value: Code,
    moving: Sequence[tuple[int, Operand, Value]],
    extents: tuple[int, ...],
    lengths: tuple[int, ...],
) -> Sequence[str]:
    """Writes where the starts are tensors: one axis by `index_copy_`, of several the outer ones
    taken out, written, and put back."""
    (axis, start, source), *rest = moving
    positions = _positions(context, start, source, extents[axis], lengths[axis])
    if not rest:
        return [method(where, "index_copy_", str(axis), positions.text, value.text).text]
    lines = [f"positions_{axis} = {positions.text}"]
    part = Code(f"part_{axis}")
    lines.append(f"{part.text} = {where.atom}.index_select({axis}, positions_{axis})")
    lines += _write(context, part, value, rest, extents, lengths)
    lines.append(f"{where.atom}.index_copy_({axis}, positions_{axis}, {part.text})")
    return lines


def _positions(context: Context, start: Operand, source: Value, extent: int, length: int) -> Code:
    """The positions written on one axis, as an `int64` vector."""
    code = clamped(context, start.code, source, extent - length)
    code = context.convert(code, source.type.dtype, DType.I64)
    if length == 1:
        return method(code, "reshape", "1")
    return binary("+", code, call("torch.arange", str(length), *context.placed))
