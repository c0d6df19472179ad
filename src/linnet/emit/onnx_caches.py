"""Writes into a cache as ONNX operators that touch what changes alone.

Positions outside of a cache are not written: those writes are sent to where another value is
written anyway, with that very value.
"""

from __future__ import annotations

from collections.abc import Callable

from linnet.dtypes import DType
from linnet.emit.onnx_kernels import Call, Kernel, Use
from linnet.emit.onnx_ops import Operand, positions
from linnet.ir.core import Value


def _write_span(call: Call) -> Operand:
    """`N` positions from a scalar on, the same for every row."""
    context, use = call.context, call.use
    at, (rows, _, size, _) = call.value("at"), use.result.shape
    count = use.type("value").shape[2]
    if count <= size and context.within(at, 0, size - count):
        return _scattered(call, _start_of_rows(call, at, rows))
    start = _as_i64(call, at)
    steps = positions(context, count, (1, count), DType.I64)
    places = context.one("Add", [start, steps])
    spread = context.builder.integers([rows, count])
    row = positions(context, rows, (rows, 1), DType.I64)
    row, places = (context.one("Expand", [x, spread]) for x in (row, places))
    return _points(call, row, places, (rows, count))


def _write_rows(call: Call) -> Operand:
    context, use = call.context, call.use
    at, (rows, _, size, _) = call.value("at"), use.result.shape
    if context.within(at, 0, size - 1):
        return _scattered(call, _as_i64(call, at))
    row = positions(context, rows, (rows, 1), DType.I64)
    return _points(call, row, context.shaped(_as_i64(call, at), (rows,), (rows, 1)), (rows, 1))


def _write_slot(call: Call) -> Operand:
    """`N` positions of one row, or of the rows `slots`."""
    context, use = call.context, call.use
    which = "slots" if "slots" in call.operands else "slot"
    lead, count = use.type("value").shape[0], use.type("value").shape[2]
    row = context.shaped(_as_i64(call, call.value(which)), (), (lead, 1))
    steps = positions(context, count, (1, count), DType.I64)
    places = context.one("Add", [_as_i64(call, call.value("at")), steps])
    spread = context.builder.integers([lead, count])
    row, places = (context.one("Expand", [x, spread]) for x in (row, places))
    return _points(call, row, places, (lead, count))


def _write_tokens(call: Call) -> Operand:
    count = call.use.type("rows").shape[0]
    row, place = (
        call.context.shaped(_as_i64(call, call.value(name)), (count,), (1, count))
        for name in ("rows", "positions")
    )
    return _points(call, row, place, (1, count))


def _as_i64(call: Call, value: Value) -> str:
    return call.context.cast(call.context.whole(call.values[value]), DType.I32, DType.I64)


def _start_of_rows(call: Call, at: Value, rows: int) -> str:
    context = call.context
    start = context.shaped(_as_i64(call, at), (), (1,))
    if rows == 1:
        return start
    return context.one("Expand", [start, context.builder.integers([rows])])


def _scattered(call: Call, start: str) -> Operand:
    names = [call.name("cache"), call.name("value"), start]
    found = call.context.one("TensorScatter", names, axis=2)
    return Operand(found, call.use.result, call.use.result.shape)


def _points(call: Call, row: str, place: str, lead: tuple[int, int]) -> Operand:
    """Writes the vectors of single positions, `[lead, positions]` of them. Where two meet, the
    later one stands: both write that one's value. One that falls outside writes what the first
    that falls inside does; where none does, the cache keeps what it has."""
    context, use = call.context, call.use
    rows, heads, size, depth = use.result.shape
    count = lead[0] * lead[1]
    row, place = (
        context.one("Reshape", [x, context.builder.integers([count])]) for x in (row, place)
    )
    zero, rows_, size_ = (context.scalar(n, DType.I64) for n in (0, rows, size))
    inside = [
        context.one(
            "And", [context.one("GreaterOrEqual", [x, zero]), context.one("Less", [x, end])]
        )
        for x, end in ((row, rows_), (place, size_))
    ]
    valid = context.one("And", inside)
    flat = context.one("Add", [context.one("Mul", [row, size_]), place])
    flat = context.one("Where", [valid, flat, context.scalar(-1, DType.I64)])
    columns = context.shaped(flat, (count,), (count, 1))
    same = context.one("Cast", [context.one("Equal", [columns, flat])], to=DType.I32)
    latest = context.one("ArgMax", [same], axis=1, keepdims=0, select_last_index=1)
    as_number = context.one("Cast", [valid], to=DType.I32)
    first = context.one("ArgMax", [as_number], axis=0, keepdims=1)
    chosen = context.one("Where", [valid, latest, context.one("Gather", [latest, first], axis=0)])
    row, place = (
        context.one("Where", [context.one("Gather", [valid, chosen], axis=0), x, zero])
        for x in (context.one("Gather", [v, chosen], axis=0) for v in (row, place))
    )
    head = positions(context, heads, (1, heads, 1), DType.I64)
    shape = context.builder.integers([count, heads, 1])
    index = [
        context.one("Expand", [x, shape])
        for x in (context.shaped(row, (count,), (count, 1, 1)), head,
                  context.shaped(place, (count,), (count, 1, 1)))
    ]  # fmt: skip
    indices = context.one("Concat", index, axis=2)
    cache, dtype = call.name("cache"), use.result.dtype
    given = context.permuted(call.name("value"), use.type("value").shape, (0, 2, 1, 3))
    given = context.one("Reshape", [given, context.builder.integers([count, heads, depth])])
    given = context.one("Gather", [given, chosen], axis=0)
    old = context.one("GatherND", [cache, indices])
    some = context.one("Gather", [valid, chosen], axis=0)
    some = context.shaped(some, (count,), (count, 1, 1))
    wide = context.wide("Where", dtype)
    sides = [context.cast(x, dtype, wide) for x in (given, old)]
    new = context.cast(context.one("Where", [some, *sides]), wide, dtype)
    return Operand(context.one("ScatterND", [cache, indices, new]), use.result, use.result.shape)


# --- table ---------------------------------------------------------------------------------


def _cache_kernel(use: Use) -> bool:
    return 0 not in (*use.result.shape, *use.type("value").shape)


_WRITES: dict[str, tuple[str, str, Callable[[Call], Operand]]] = {
    "write_at": ("TensorScatter", "writes one position", _write_span),
    "write_span": ("TensorScatter", "writes the span", _write_span),
    "write_rows": ("TensorScatter", "writes one position of each row", _write_rows),
    "write_slot": ("ScatterND", "writes the row's positions", _write_slot),
    "write_slots": ("ScatterND", "writes the rows' positions", _write_slot),
    "write_tokens": ("ScatterND", "writes the tokens' positions", _write_tokens),
}
CACHES: dict[str, tuple[Kernel, ...]] = {
    f"std.nn.cache::{name}": (Kernel(op, "exact", why, write, _cache_kernel),)
    for name, (op, why, write) in _WRITES.items()
}
