"""What stands for the bodies of library ops in StableHLO, where a body would cost more.

The bodies of cache writes rewrite a whole cache; these write what is new, so that XLA, which holds
the only copy, does so in place. The body of `cached_attention` reads a whole cache; its kernel
reads the part that is filled, in a few sizes. Everything else is left to XLA's own fusion.

Numerics as in `passes.NUMERICS`: a kernel is taken where the target allows its level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from linnet.dtypes import DType
from linnet.emit.stablehlo_text import Body, Ref
from linnet.ir.core import Function, TensorType
from linnet.ir.passes import NUMERICS


@dataclass(frozen=True, slots=True)
class Use:
    """A library op's function, and its arguments as they are written."""

    function: Function
    arguments: Sequence[Ref]

    def __getitem__(self, name: str) -> Ref:
        return self.arguments[self.function.arguments.index(name)]

    def dim(self, name: str) -> int:
        """What a `Dim` generic is bound to."""
        found = self.function.bound(name)
        assert isinstance(found, int)
        return found


@dataclass(frozen=True, slots=True)
class Kernel:
    numerics: str
    why: str
    write: Callable[[Body, Use], Ref]
    fits: Callable[[Callable[[str], int]], bool] = lambda dim: True
    """Whether it is for these sizes, by generic."""


def choose(function: Function, numerics: str) -> Kernel | None:
    """The kernel for a library op's function, or `None` for its body."""
    kernel = KERNELS.get(function.source) if function.kind == "op" else None
    if kernel is None or NUMERICS.index(kernel.numerics) > NUMERICS.index(numerics):
        return None
    return kernel if kernel.fits(lambda name: Use(function, ()).dim(name)) else None


# --- cache writes ---------------------------------------------------------------------------


def _write_span(body: Body, use: Use) -> Ref:
    cache = use["cache"]
    zero = body.scalar(0, DType.I32)
    return _span(body, cache, use["value"], use["at"], zero, None)


def _write_slot(body: Body, use: Use) -> Ref:
    return _row_span(body, use["cache"], use["value"], use["slot"], use["at"])


def _write_slots(body: Body, use: Use) -> Ref:
    """One row after the other: where two are the same, the later stands."""
    value, slots, at = use["value"], use["slots"], use["at"]
    count = slots.type.shape[0]
    one = (1, *value.type.shape[1:])

    def more(inner: Body, carried: list[Ref]) -> Ref:
        return inner.compare("LT", carried[0], inner.scalar(count, DType.I32))

    def step(inner: Body, carried: list[Ref]) -> list[Ref]:
        row, cache = carried
        zero = inner.scalar(0, DType.I32)
        part = inner.dynamic_slice(value, [row, zero, zero, zero], one)
        slot = inner.reshape(inner.dynamic_slice(slots, [row], [1]), ())
        written = _row_span(inner, cache, part, slot, at)
        return [inner.binary("add", row, inner.scalar(1, DType.I32)), written]

    first = body.scalar(0, DType.I32)
    return body.loop([first, use["cache"]], ["row", "cache_at_row"], more, step)[1]


def _row_span(body: Body, cache: Ref, value: Ref, slot: Ref, at: Ref) -> Ref:
    """A span of one row, if there is such a row."""
    last = body.scalar(cache.type.shape[0] - 1, DType.I32)
    row = _clamped(body, slot, body.scalar(0, DType.I32), last)
    return _span(body, cache, value, at, row, body.compare("EQ", row, slot))


def _span(body: Body, cache: Ref, value: Ref, at: Ref, row: Ref, wanted: Ref | None) -> Ref:
    """`value` at rows from `row` and positions from `at` on; what is outside is not written.

    The slice that is written lies inside the cache, as `dynamic_update_slice` would move it; where
    that moves it, the value moves the other way, and the old values stand around it.
    """
    count, extent = value.type.shape[2], cache.type.shape[2]
    i32 = DType.I32
    zero = body.scalar(0, i32)
    # Further out than this, nothing is written either way.
    at = _clamped(body, at, body.scalar(-count, i32), body.scalar(extent, i32))
    start = _clamped(body, at, zero, body.scalar(extent - count, i32))
    places = [row, zero, start, zero]
    old = body.dynamic_slice(cache, places, value.type.shape)
    shift = body.binary("subtract", start, at)
    if count == 1:
        keep = body.compare("EQ", start, at)
    else:
        value = _shifted(body, value, shift)
        line = TensorType((count,), i32)
        shift = body.broadcast(shift, (), (count,))
        source = body.binary("add", body.iota(line, 0), shift)
        low = body.compare("GE", source, body.constant(0, line))
        keep = body.binary("and", low, body.compare("LT", source, body.constant(count, line)))
    if wanted is not None:
        keep = body.binary("and", keep, body.broadcast(wanted, (), keep.type.shape))
    if keep.type.shape:
        keep = body.broadcast(keep, (2,), value.type.shape)
    new = body.select(keep, value, old)
    return body.dynamic_update_slice(cache, new, places)


def _shifted(body: Body, value: Ref, shift: Ref) -> Ref:
    """`value[…, n + shift, :]`, with anything where that is outside of it."""
    shape, i32 = value.type.shape, DType.I32
    count = shape[2]
    padded = body.pad(value, 2, count, count)
    zero = body.scalar(0, i32)
    start = body.binary("add", shift, body.scalar(count, i32))
    return body.dynamic_slice(padded, [zero, zero, start, zero], shape)


def _clamped(body: Body, x: Ref, low: Ref, high: Ref) -> Ref:
    return body.binary("minimum", body.binary("maximum", x, low), high)


def _write_rows(body: Body, use: Use) -> Ref:
    at = use["at"]
    rows = body.iota(at.type, 0)
    value = body.reshape(use["value"], (use.dim("B"), use.dim("H"), use.dim("D")))
    return body.scatter(use["cache"], _pairs(body, rows, at), value, (0, 2))


def _write_tokens(body: Body, use: Use) -> Ref:
    """Each token's place is written once, by the last that has it: a scatter has no order."""
    rows, positions = use["rows"], use["positions"]
    count = use.dim("P")
    square = (count, count)
    grid = TensorType(square, DType.I32)
    same = body.compare("LT", body.iota(grid, 0), body.iota(grid, 1))
    for index in (rows, positions):
        own, other = (body.broadcast(index, (axis,), square) for axis in (0, 1))
        same = body.binary("and", same, body.compare("EQ", own, other))
    later = body.reduce("or", same, body.scalar(False, DType.BOOL), (1,))
    rows = body.select(later, body.constant(-1, rows.type), rows)
    value = body.transpose(use["value"], (0, 2, 1, 3))
    value = body.reshape(value, (count, use.dim("H"), use.dim("D")))
    return body.scatter(use["cache"], _pairs(body, rows, positions), value, (0, 2))


def _pairs(body: Body, first: Ref, second: Ref) -> Ref:
    shape = (*first.type.shape, 1)
    return body.concatenate([body.reshape(first, shape), body.reshape(second, shape)], 1)


KERNELS: dict[str, Kernel] = {
    "std.nn.cache::write_at": Kernel("exact", "writes one position in place", _write_span),
    "std.nn.cache::write_span": Kernel(
        "exact", "writes the span in place", _write_span, lambda dim: dim("N") <= dim("S")
    ),
    "std.nn.cache::write_slot": Kernel(
        "exact", "writes the span of one row in place", _write_slot,
        lambda dim: dim("N") <= dim("S") and dim("B") > 0,
    ),
    "std.nn.cache::write_slots": Kernel(
        "exact", "writes the span of each row in place", _write_slots,
        lambda dim: dim("N") <= dim("S") and dim("B") > 0,
    ),
    "std.nn.cache::write_rows": Kernel(
        "exact", "writes one position a row in place", _write_rows
    ),
    "std.nn.cache::write_tokens": Kernel(
        "exact", "writes each token's position in place", _write_tokens
    ),
}  # fmt: skip
