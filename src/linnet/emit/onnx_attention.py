"""Attention and rotary positions as ONNX operators.

Attention over a cache that was just written becomes one `GroupQueryAttention`, which appends keys
and values to the cache, rotates queries and keys on the way where it can, and reads the cache only
as far as it is filled. It trusts positions to lie inside the cache; where that is neither proven
nor promised, keys are sliced to what is filled and attention is written out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from linnet.dtypes import DType
from linnet.emit.bodies import Step
from linnet.emit.onnx_caches import CACHES
from linnet.emit.onnx_kernels import KERNELS as PLAIN
from linnet.emit.onnx_kernels import Call, Facts, Kernel, Use
from linnet.emit.onnx_ops import Context, Operand, positions
from linnet.emit.onnx_target import MS
from linnet.ir.core import Op, TensorType, Value

_ROPE = ("std.nn.rope::rope", "std.nn.rope::rope_rows")
_SAME = ("cast", "neg", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "abs")
_HIDDEN = -1e30


# --- attention over a cache -----------------------------------------------------------------


def _cached(call: Call) -> Operand:
    fused = _fused(call, "std.nn.cache::write_span", "std.nn.cache::write_at")
    return fused if fused is not None else _over_filled(call)


def _cached_rows(call: Call) -> Operand:
    fused = _fused(call, "std.nn.cache::write_rows")
    return fused if fused is not None else _over_filled(call)


def _fused(call: Call, *writes: str) -> Operand | None:
    """`GroupQueryAttention`, where the cache was written at the same positions."""
    context, use = call.context, call.use
    at, size, queries = call.value("at"), use.dim("S"), _queries(use)
    if not use.target.contrib or use.computes != use.dtype or use.dim("D") % 8:
        return None
    steps = [_write_of(call, call.value(name), writes) for name in ("key", "value")]
    if any(step is None for step in steps):
        return None
    key, value = (step for step in steps if step is not None)
    if any(_argument(step, "at") is not at for step in (key, value)):
        return None
    if any(_argument(step, "value").type.shape[2] != queries for step in (key, value)):
        return None
    # For several rows of several positions the operator has to begin with an empty cache.
    many = queries > 1 and use.dim("B") > 1
    if not context.within(at, 0, 0 if many else size - queries):
        return None
    caches = [context.whole(call.values[_argument(step, "cache")]) for step in (key, value)]
    inputs, rotary = _queries_and_keys(call, key, value, at)
    filled = _filled(call, at, queries)
    scale = call.operands["scale"].number
    if scale is None:
        return None
    names = context.builder.node(
        "GroupQueryAttention",
        [*inputs, *caches, *filled, *rotary],
        domain=MS,
        outputs=3,
        num_heads=use.dim("H"),
        kv_num_heads=use.dim("Hk"),
        scale=float(scale),
        do_rotary=int(bool(rotary)),
    )
    rows, heads, depth = use.dim("B"), use.dim("H"), use.dim("D")
    flat = (rows, queries, heads * depth)
    call.typed(names[0], flat, use.dtype)
    for name, step in zip(names[1:], (key, value), strict=True):
        written = step.op.output
        call.typed(name, written.type.shape, use.dtype)
        call.values[written] = Operand(name, written.type, written.type.shape)
    split = context.shaped(names[0], flat, (rows, queries, heads, depth))
    found = context.permuted(split, (rows, queries, heads, depth), (0, 2, 1, 3))
    return Operand(found, use.result, use.result.shape)


def _queries(use: Use) -> int:
    return use.type("query").shape[2]


def _write_of(call: Call, value: Value, sources: Sequence[str]) -> Step | None:
    found = [call.maker(value, source) for source in sources]
    return next((step for step in found if step is not None), None)


def _argument(step: Step, name: str) -> Value:
    return step.op.inputs[step.names.index(name)]


def _filled(call: Call, at: Value, queries: int) -> list[str]:
    """The last position that each row has, and the number of positions of the longest."""
    context, rows = call.context, call.use.dim("B")
    last = context.whole(call.values[at])
    if queries != 1:
        last = context.one("Add", [last, context.scalar(queries - 1, DType.I32)])
    longest = last
    if at.type.shape:
        axes = context.builder.integers([0])
        longest = context.one("ReduceMax", [last, axes], keepdims=0)
    elif rows == 1:
        last = context.shaped(last, (), (1,))
    else:
        last = context.one("Expand", [last, context.builder.integers([rows])])
    return [last, context.one("Add", [longest, context.scalar(1, DType.I32)])]


def _queries_and_keys(call: Call, key: Step, value: Step, at: Value) -> tuple[list[str], list[str]]:
    """Queries, keys and values as `[rows, positions, heads · depth]`, before their rotation where
    the operator can do that; then the tables to rotate by. All three in one where they come from
    one projection."""
    query, new_key = call.value("query"), _argument(key, "value")
    rotates = query.type.shape[3] % 16 == 0
    rotated = [_rotation(call, x, at) if rotates else None for x in (query, new_key)]
    tables: list[str] = []
    if rotated[0] is not None and rotated[1] is not None and rotated[0][1] == rotated[1][1]:
        (query, tables), (new_key, _) = rotated  # type: ignore[misc]
    parts = [query, new_key, _argument(value, "value")]
    joined = _joined(call, parts)
    names = [joined, "", ""] if joined else [_merged(call, x) for x in parts]
    return names, tables


def _joined(call: Call, parts: Sequence[Value]) -> str | None:
    """The one projection that queries, keys and values are slices of, one after the other."""
    whole: Value | None = None
    end = 0
    for part in parts:
        op = call.context.makers.get(_before_split(call, part))
        if op is None or op.kind != "slice" or (whole is not None and op.inputs[0] is not whole):
            return None
        (whole,) = op.inputs
        rank = len(whole.type.shape)
        starts, stops, steps = (op.integers(name) for name in ("start", "stop", "step"))
        lead = starts[:-1] == (0,) * (rank - 1) and stops[:-1] == whole.type.shape[:-1]
        if rank != 3 or not lead or set(steps) != {1} or starts[-1] != end:
            return None
        end = stops[-1]
    if whole is None or end != whole.type.shape[-1]:
        return None
    return call.context.whole(call.values[whole])


def _before_split(call: Call, x: Value) -> Value:
    """`[rows, positions, heads · depth]` that a value of `[rows, heads, positions, depth]` is the
    split of; else the value itself."""
    rows, heads, count, depth = x.type.shape
    op = call.context.makers.get(x)
    if op is not None and op.kind == "permute" and op.integers("axes") == (0, 2, 1, 3):
        inner = call.context.makers.get(op.inputs[0])
        flat = (rows, count, heads * depth)
        if inner is not None and inner.kind == "reshape" and inner.inputs[0].type.shape == flat:
            return inner.inputs[0]
    return x


def _merged(call: Call, x: Value) -> str:
    """`[rows, heads, positions, depth]` as `[rows, positions, heads · depth]`."""
    context = call.context
    rows, heads, count, depth = x.type.shape
    source = _before_split(call, x)
    name = context.whole(call.values[source])
    if source is not x:
        return name
    turned = context.permuted(name, x.type.shape, (0, 2, 1, 3))
    return context.shaped(turned, (rows, count, heads, depth), (rows, count, heads * depth))


# --- rotary positions -----------------------------------------------------------------------


def _rotation(call: Call, x: Value, at: Value) -> tuple[Value, list[str]] | None:
    """What a value was before `rope` turned it by the tables' rows from `at` on, and the tables:
    `[positions, depth / 2]`."""
    step = next((s for s in (call.maker(x, source) for source in _ROPE) if s is not None), None)
    if step is None:
        return None
    tables = []
    for name in ("cos_table", "sin_table"):
        table = _table(call, _argument(step, name), at)
        if table is None or not halves_alike(call.facts, call.context.makers, table):
            return None
        tables.append(_half_of(call, table))
    return _argument(step, "x"), tables


def _table(call: Call, rows: Value, at: Value) -> Value | None:
    """The table whose rows at the positions from `at` on these are."""
    makers = call.context.makers
    op = makers.get(rows)
    while op is not None and op.kind == "reshape":
        (rows,) = op.inputs
        op = makers.get(rows)
    if op is None or op.kind != "gather" or op.integers("axes") != (0,):
        return None
    table, index = op.inputs
    return table if _counts_from(makers, index, at) and len(table.type.shape) == 2 else None


def _counts_from(makers: Mapping[Value, Op], index: Value, at: Value) -> bool:
    """Whether an index is `at`, or `at` plus 0, 1, …; and not by way of another dtype."""
    if index is at:
        return True
    op = makers.get(index)
    if op is None:
        return False
    if op.kind in ("broadcast", "reshape"):
        (inner,) = op.inputs
        return inner.type.size in (1, index.type.size) and _counts_from(makers, inner, at)
    if op.kind == "add" and not at.type.shape:
        steps = [makers.get(value) for value in op.inputs]
        counted = [i for i, step in enumerate(steps) if step is not None and step.kind == "iota"]
        return len(counted) == 1 and _counts_from(makers, op.inputs[1 - counted[0]], at)
    return False


def halves_alike(facts: Facts, makers: Mapping[Value, Op], table: Value) -> bool:
    """Whether the last axis holds the same values twice, one half after the other."""
    inner = facts.prepared(table)
    return _twice(makers, table) if inner is None else _twice(facts.makers, inner)


def _twice(makers: Mapping[Value, Op], value: Value) -> bool:
    op = makers.get(value)
    if op is None:
        return False
    last = len(value.type.shape) - 1
    if op.kind == "concat":
        return len(op.inputs) == 2 and op.inputs[0] is op.inputs[1] and op.attrs["axis"] == last
    if op.kind in _SAME:
        return _twice(makers, op.inputs[0])
    if op.kind == "gather":
        rank = len(op.inputs[0].type.shape)
        return rank - 1 not in op.integers("axes") and _twice(makers, op.inputs[0])
    if op.kind == "slice":
        whole = op.inputs[0].type.shape[-1]
        bounds = tuple(op.integers(name)[-1] for name in ("start", "stop", "step"))
        return bounds == (0, whole, 1) and _twice(makers, op.inputs[0])
    if op.kind == "reshape":
        kept = op.inputs[0].type.shape[-1:] == value.type.shape[-1:]
        return kept and _twice(makers, op.inputs[0])
    return False


def _half_of(call: Call, table: Value) -> str:
    """The first half of a table's rows; of a weight it is made once."""
    held = call.facts.half(table) if call.use.dtype == DType.F32 else None
    if held is not None:
        return held
    return _first_half(call.context, call.context.whole(call.values[table]), table.type)


def _first_half(context: Context, name: str, type_: TensorType) -> str:
    axis = len(type_.shape) - 1
    return context.sliced(name, [axis], [0], [type_.shape[axis] // 2])


def _rope(call: Call) -> Operand:
    """`RotaryEmbedding`, where both halves of the tables are alike; else as the body has it."""
    context, use = call.context, call.use
    alike = all(
        halves_alike(call.facts, context.makers, call.value(name))
        for name in ("cos_table", "sin_table")
    )
    x, dtype, shape = call.wide("x"), use.computes, use.type("x").shape
    rows, _, count, depth = shape
    tables = [_rows(call, name, (rows, count, depth)) for name in ("cos_table", "sin_table")]
    if alike:
        halves = [_first_half(context, t, TensorType((rows, count, depth), dtype)) for t in tables]
        return call.rounded(context.one("RotaryEmbedding", [x, *halves]))
    parts = [
        context.sliced(x, [3], [start], [stop])
        for start, stop in ((depth // 2, depth), (0, depth // 2))
    ]
    turned = context.one("Concat", [context.one("Neg", parts[:1]), parts[1]], axis=3)
    cosine, sine = (
        context.shaped(t, (rows, count, depth), (rows, 1, count, depth)) for t in tables
    )
    sides = [context.one("Mul", pair) for pair in ([x, cosine], [turned, sine])]
    return call.rounded(context.one("Add", sides))


def _rows(call: Call, name: str, shape: tuple[int, ...]) -> str:
    """A table of positions as one for each row of the batch."""
    context, given = call.context, call.use.type(name).shape
    found = call.wide(name)
    if len(given) == 3:
        return found
    found = context.shaped(found, given, (1, *given))
    if shape[0] == 1:
        return found
    return context.one("Expand", [found, context.builder.integers(shape)])


# --- attention written out ------------------------------------------------------------------


def _over_filled(call: Call) -> Operand:
    """Attention over the part of a cache that some query sees."""
    context, use = call.context, call.use
    at, size, queries = call.value("at"), use.dim("S"), _queries(use)
    given = context.cast(context.whole(call.values[at]), DType.I32, DType.I64)
    first = given
    last = given
    if at.type.shape:
        axes = context.builder.integers([0])
        first, last = (
            context.one(f"Reduce{end}", [given, axes], keepdims=0) for end in ("Min", "Max")
        )
    # A query that sees nothing gets the mean of all values, so it takes all.
    one, all_ = (context.scalar(n, DType.I64) for n in (1, size))
    count = context.one("Add", [last, context.scalar(queries, DType.I64)])
    count = context.one("Clip", [count, one, all_])
    seen = context.one(
        "Where", [context.one("Less", [first, context.scalar(0, DType.I64)]), all_, count]
    )
    bound = context.shaped(seen, (), (1,))
    zero, axis = context.builder.integers([0]), context.builder.integers([2])
    key, value = (
        context.cast(
            context.one("Slice", [call.name(name), zero, bound, axis]), use.dtype, use.computes
        )
        for name in ("key", "value")
    )
    stands = context.one("Range", [context.scalar(0, DType.I64), seen, one])
    if at.type.shape:
        limits = context.shaped(given, at.type.shape, (use.dim("B"), 1, 1, 1, 1))
    elif queries == 1:
        limits = given
    else:
        own = positions(context, queries, (queries, 1), DType.I64)
        limits = context.one("Add", [given, own])
    mask = context.one("LessOrEqual", [stands, limits])
    return _written_out(call, key, value, mask)


def _masked(call: Call) -> Operand:
    """Attention with a mask, or with none."""
    use = call.use
    mask = None
    if use.given("mask"):
        mask = call.name("mask")
        if len(use.type("mask").shape) == 3:
            rows, queries, keys = use.type("mask").shape
            mask = call.context.shaped(mask, (rows, queries, keys), (rows, 1, 1, queries, keys))
    return _written_out(call, call.wide("key"), call.wide("value"), mask)


def _written_out(call: Call, key: str, value: str, mask: str | None) -> Operand:
    """Scores of every group of heads, their softmax, and the sums; all f32."""
    context, use = call.context, call.use
    rows, heads, queries, depth = use.type("query").shape
    shared = use.type("key").shape[1]
    group = heads // shared
    query = context.shaped(call.wide("query"), (rows, heads, queries, depth),
                           (rows, shared, group * queries, depth))  # fmt: skip
    scale = context.cast(call.name("scale"), DType.F32, use.computes)
    query = context.one("Mul", [query, scale]) if _scales_exactly(call) else query
    if use.target.contrib:
        scores = context.one("FusedMatMul", [query, key], domain=MS, transB=1)
    else:
        turned = context.one("Transpose", [key], perm=(0, 1, 3, 2))
        scores = context.one("MatMul", [query, turned])
    if not _scales_exactly(call):
        scores = context.one("Mul", [scores, scale])
    if mask is not None:
        scores = _reshaped(context, scores, (rows, shared, group, queries, -1))
        hidden = context.scalar(_HIDDEN, use.computes)
        scores = context.one("Where", [mask, scores, hidden])
        scores = _reshaped(context, scores, (rows, shared, group * queries, -1))
    share = context.one("Softmax", [scores], axis=-1)
    if use.computes != use.dtype:
        share = context.cast(context.cast(share, use.computes, use.dtype), use.dtype, use.computes)
    mixed = context.one("MatMul", [share, value])
    return call.rounded(_reshaped(context, mixed, (rows, heads, queries, depth)))


def _scales_exactly(call: Call) -> bool:
    """Whether multiplying queries by the scale rounds nothing: it is a power of two."""
    scale = call.operands["scale"].number
    return isinstance(scale, float) and scale > 0 and math.frexp(scale)[0] == 0.5


def _reshaped(context: Context, name: str, shape: tuple[int, ...]) -> str:
    return context.one("Reshape", [name, context.builder.integers(shape)])


def _causal(call: Call) -> Operand:
    """`Attention` of a whole sequence, each position seeing those before it."""
    use = call.use
    scale = call.operands["scale"].number
    assert scale is not None
    made = call.maker(call.value("mask"), "std.nn.attention::causal_mask")
    if made is None or use.type("query").shape[2] != use.type("key").shape[2]:
        return _masked(call)
    names = [call.wide(name) for name in ("query", "key", "value")]
    return call.rounded(call.context.one("Attention", names, is_causal=1, scale=float(scale)))


def _attention(call: Call) -> Operand:
    given = call.use.given("mask") and call.operands["scale"].number is not None
    return _causal(call) if given else _masked(call)


def _causal_mask(call: Call) -> Operand:
    context, type_ = call.context, call.use.result
    queries, keys = type_.shape
    own = positions(context, queries, (queries, 1), DType.I64)
    last = context.one("Add", [own, context.scalar(keys - queries, DType.I64)])
    stands = positions(context, keys, (keys,), DType.I64)
    return Operand(context.one("LessOrEqual", [stands, last]), type_, type_.shape)


# --- table ----------------------------------------------------------------------------------


def _f32(use: Use) -> bool:
    return use.computes == DType.F32


_OUT = "scores, softmax and sums as matrix products, f32 inside"
_CACHED = Kernel(
    "GroupQueryAttention",
    "equivalent",
    "writes the cache, rotates and attends at once, reading what is filled; or, where positions "
    "aren't known to be inside the cache or it isn't f32, matrix products over what is filled",
    _cached,
    _f32,
)

KERNELS: dict[str, tuple[Kernel, ...]] = {
    **PLAIN,
    **CACHES,
    "std.nn.attention::causal_mask": (
        Kernel("LessOrEqual", "exact", "the same, made at once", _causal_mask),
    ),
    **{
        f"std.nn.attention::{name}": (Kernel("Attention", "equivalent", _OUT, _attention, _f32),)
        for name in ("attention", "grouped_attention")
    },
    **{
        f"std.nn.attention::{name}": (Kernel("MatMul", "equivalent", _OUT, _masked, _f32),)
        for name in ("attention_rows", "grouped_attention_rows")
    },
    "std.nn.attention::cached_attention": (_CACHED,),
    "std.nn.attention::cached_attention_rows": (
        Kernel(_CACHED.name, _CACHED.numerics, _CACHED.why, _cached_rows, _f32),
    ),
    **{
        source: (Kernel("RotaryEmbedding", "equivalent", "one operator", _rope, _f32),)
        for source in _ROPE
    },
}
