"""What stands for the bodies of library ops in StableHLO, where a body would cost more.

The bodies of cache writes rewrite a whole cache; these write what is new, so that XLA, which holds
the only copy, does so in place. The body of `cached_attention` reads a whole cache; its kernel
reads the part that is filled, in a few sizes. Everything else is left to XLA's own fusion.

Numerics as in `passes.NUMERICS`: a kernel is taken where the target allows its level.
"""

from __future__ import annotations

import math
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


# --- attention over a cache -----------------------------------------------------------------

HIDDEN = -1e30
"""The score of a key that a query may not see, as in the standard library."""
SMALLEST = 128
"""Positions of the smallest part of a cache that is read by itself."""


def _cached_attention(body: Body, use: Use) -> Ref:
    at, count = use["at"], use.dim("Q")
    places = body.binary(
        "add",
        body.broadcast(at, (), (count,)),
        body.iota(TensorType((count,), DType.I32), 0),
    )
    end = body.binary("add", at, body.scalar(count, DType.I32))
    return _over_filled(body, use, places, (3,), end, at)


def _cached_attention_rows(body: Body, use: Use) -> Ref:
    at = use["at"]
    low, high = (
        body.reduce(name, at, body.scalar(DType.I32.integer_range[which], DType.I32), (0,))
        for name, which in (("minimum", 1), ("maximum", 0))
    )
    end = body.binary("add", high, body.scalar(1, DType.I32))
    return _over_filled(body, use, at, (0,), end, low)


def _over_filled(
    body: Body, use: Use, places: Ref, axes: tuple[int, ...], end: Ref, low: Ref
) -> Ref:
    """Attention over the smallest part of the cache that holds positions up to `end`.

    `places` holds the position of each query, along `axes` of `[B, Hk, G, Q, S]`. A query before
    the cache (`low` below 0) sees no key and gets the mean of all values, so all is read. Parts are
    branches of their own for another reason too: what reads a cache inside of a branch is not fused
    with its update, which XLA would then compute twice, on copies.
    """
    sizes = _parts(use.dim("S"), use["query"].type.shape[2])
    with body.naming("part"):
        which = body.scalar(0, DType.I32)
        for size in sizes[:-1]:
            beyond = body.compare("GT", end, body.scalar(size, DType.I32))
            which = body.binary("add", which, body.convert(beyond, DType.I32))
        zero, last = (body.scalar(n, DType.I32) for n in (0, len(sizes) - 1))
        which = body.select(body.compare("LT", low, zero), last, which)

    def over(size: int) -> Callable[[Body], list[Ref]]:
        return lambda inner: [_attention(inner, use, size, places, axes)]

    with body.naming("mixed"):
        return body.case(which, [over(size) for size in sizes], [use["query"]])[0]


def _parts(extent: int, queries: int) -> list[int]:
    """The sizes in which a cache is read, ascending to its whole.

    A part is copied before it is read, the whole is not, so a part of more than a quarter gains
    nothing, but where it is just as long as the queries: a whole prompt from the start.
    """
    found = {extent, *(n for n in (extent // 4, extent // 8) if n >= max(SMALLEST, queries))}
    if 1 < queries < extent:
        found.add(queries)
    if len(found) == 1 and extent > 1:
        found.add(extent // 2)
    return sorted(found)


def _attention(body: Body, use: Use, size: int, places: Ref, axes: tuple[int, ...]) -> Ref:
    """The op's own sums over the first `size` positions of the cache."""
    query = use["query"]
    batch, heads, count, width = query.type.shape
    groups = use["key"].type.shape[1]
    group = heads // groups
    key, value = (
        body.slice(x, (0, 0, 0, 0), (batch, groups, size, width), (1, 1, 1, 1))
        if size < x.type.shape[2]
        else x
        for x in (use["key"], use["value"])
    )
    flat = body.reshape(query, (batch, groups, group * count, width))
    scores = _scores(body, flat, key)
    scores = body.reshape(scores, (batch, groups, group, count, size))
    shape = scores.type.shape
    scale = body.broadcast(use["scale"], (), shape)
    scores = body.binary("multiply", scores, scale)
    grid = (*(shape[axis] for axis in axes), size)
    lines = tuple(range(len(axes)))
    positions = body.iota(TensorType(grid, DType.I32), len(axes))
    seen = body.compare("LE", positions, body.broadcast(places, lines, grid))
    seen = body.broadcast(seen, (*axes, 4), shape)
    scores = body.select(seen, scores, body.constant(HIDDEN, scores.type))
    share = body.convert(softmax(body, scores), query.type.dtype)
    share = body.reshape(share, (batch, groups, group * count, size))
    pairs = ((0, 1), (0, 1))
    mixed = body.dot(share, value, pairs, ((3,), (2,)), DType.F32)
    return body.reshape(body.convert(mixed, query.type.dtype), query.type.shape)


def _scores(body: Body, query: Ref, key: Ref) -> Ref:
    """`[B, Hk, queries, keys]`; few queries go on the right, so that the keys stay as they are."""
    pairs, contract = ((0, 1), (0, 1)), ((3,), (3,))
    if query.type.shape[2] >= query.type.shape[3]:
        return body.dot(query, key, pairs, contract, DType.F32)
    return body.transpose(body.dot(key, query, pairs, contract, DType.F32), (0, 1, 3, 2))


def softmax(body: Body, x: Ref) -> Ref:
    """Over the last axis, in x's own dtype."""
    axis = len(x.type.shape) - 1
    lines = tuple(range(axis))
    dtype = x.type.dtype
    top = body.reduce("maximum", x, body.scalar(-math.inf, dtype), (axis,))
    weight = body.binary("subtract", x, body.broadcast(top, lines, x.type.shape))
    weight = body.unary("exponential", weight)
    total = body.reduce("add", weight, body.scalar(0.0, dtype), (axis,))
    return body.binary("divide", weight, body.broadcast(total, lines, x.type.shape))


KERNELS: dict[str, Kernel] = {
    "std.nn.attention::cached_attention": Kernel(
        "equivalent", "reads the part of the cache that is filled", _cached_attention
    ),
    "std.nn.attention::cached_attention_rows": Kernel(
        "equivalent", "reads the part of the cache that is filled", _cached_attention_rows
    ),
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
