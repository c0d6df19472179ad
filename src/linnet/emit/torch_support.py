"""Functions that generated PyTorch calls and PyTorch does not have, as source text.

`support` gives those that a source uses, each with what it uses itself. They are written at the top
of the source, so that it stands alone. Where the language defines a result at the edges (a divisor
of zero, a shift too far, a float too large for an integer), these give that result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SOURCES = '''
def divide(a, b):
    """Integer division toward zero; 0 where the divisor is 0."""
    return torch.where(b == 0, 0, torch.div(a, b + (b == 0), rounding_mode="trunc"))


def remainder(a, b):
    """What is left of `divide`; 0 where the divisor is 0."""
    return torch.where(b == 0, 0, torch.fmod(a, b + (b == 0)))


def shift_left(x, by, bits):
    """Shifts to the left; 0 by the width or more."""
    inside = (by >= 0) & (by < bits)
    return torch.where(inside, x << torch.where(inside, by, 0), 0)


def shift_right(x, by, bits):
    """Shifts to the right; 0, or -1 for a negative value, by the width or more."""
    inside = (by >= 0) & (by < bits)
    return torch.where(inside, x >> torch.where(inside, by, 0), -(x < 0).to(x.dtype))


def shift_right_u64(x, by):
    """Shifts an unsigned 64-bit integer, held in two's complement, to the right."""
    inside = (by >= 0) & (by < 64)
    shifted = ((x >> 1) & 0x7FFFFFFFFFFFFFFF) >> torch.where(inside & (by > 0), by - 1, 0)
    return torch.where(by == 0, x, torch.where(inside, shifted, 0))


def to_integer(x, dtype, low, high):
    """Truncates toward zero; beyond low … high the nearest of them, 0 for NaN."""
    whole = torch.nan_to_num(x.double(), nan=0.0, posinf=float("inf"), neginf=float("-inf")).trunc()
    inside = torch.where(whole >= float(high), 0.0, whole.clamp(min=float(low)))
    return torch.where(whole >= float(high), high, inside.to(dtype))


def few_rows(weight, x):
    """The weight times a few rows, as products and sums in f32: compiled, one loop that reads the
    weight once for all rows, and at several places at a time, since a core waits for memory less
    that way. `as_strided` has the rows put in memory first; else what they are computed from would
    be computed again for every row of the weight."""
    x = x.reshape(-1, x.shape[-1]).float()
    x = x.as_strided(x.shape, (x.shape[1], 1))
    most = min(16 // len(x), 8)
    parts = weight.chunk(max(n for n in range(1, most + 1) if len(weight) % n == 0))
    return torch.stack([torch.cat([(part.float() * row).sum(-1) for part in parts]) for row in x])


def causal_mask(queries, keys):
    """Query `q` of the last `queries` positions sees the keys up to its own."""
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


def attention_bias(mask, query):
    """What is added to scores: nothing where the mask is true, and else so little that the score
    is lost; a query that sees no key gets the mean of the values."""
    dtype = query.dtype if query.is_cuda else torch.promote_types(query.dtype, torch.float32)
    return torch.where(mask, 0.0, max(-1e30, torch.finfo(dtype).min)).to(dtype)


def position_bias(at, length, query):
    """The bias that lets queries at positions `at` see the keys up to their own."""
    return attention_bias(torch.arange(length, device=at.device) <= at, query)


def cached_attention(query, key, value, scale, at):
    """Queries at positions `at`, `at + 1`, … over a cache, read only as far as they see."""
    batch, heads, count, size = query.shape
    groups, at = key.shape[1], int(at)
    end = min(at + count, key.shape[2])
    if end < count:
        span = torch.arange(at, at + count, device=query.device)[:, None]
        bias = position_bias(span, key.shape[2], query)
        return F.scaled_dot_product_attention(
            query, key, value, bias, scale=scale, enable_gqa=True
        )
    key, value = key[:, :, :end], value[:, :, :end]
    if count == 1:
        grouped = query.reshape(batch, groups, heads // groups, size)
        found = F.scaled_dot_product_attention(grouped, key, value, scale=scale)
        return found.reshape(batch, heads, 1, size)
    if at == 0:
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scale, enable_gqa=True
        )
    mask = torch.ones(count, end, dtype=torch.bool, device=query.device).tril(at)
    return F.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=True)


def cached_attention_rows(query, key, value, scale, at):
    """One query a row, each at a position of its own, over a cache that is read only as far as
    any of them sees. A query before the first position sees no key: it gets the mean of all."""
    first, last = (int(position) for position in at.aminmax())
    end = min(last + 1, key.shape[2]) if first >= 0 else key.shape[2]
    key, value = key[:, :, :end], value[:, :, :end]
    batch, heads, _, size = query.shape
    grouped = query.reshape(batch, key.shape[1], -1, size)
    bias = position_bias(at[:, None, None, None], end, query)
    found = F.scaled_dot_product_attention(grouped, key, value, bias, scale=scale)
    return found.reshape(batch, heads, 1, size)


def write_span(cache, value, at):
    """Writes positions from `at` on, as far as they are in the cache."""
    at = int(at)
    start, stop = max(at, 0), min(at + value.shape[2], cache.shape[2])
    if start < stop:
        cache[:, :, start:stop] = value[:, :, start - at : stop - at]


def write_position(cache, value, at):
    """Writes one position where it is in the cache."""
    position = at.clamp(0, cache.shape[2] - 1).reshape(1).long()
    old = cache.index_select(2, position)
    cache.index_copy_(2, position, torch.where(position == at, value, old))


def write_positions(cache, value, at):
    """`write_span` without waiting for where it starts."""
    length = value.shape[2]
    at = torch.as_tensor(at, device=cache.device)
    start = at.clamp(0, cache.shape[2] - length).long()
    positions = start + torch.arange(length, device=cache.device)
    source = positions - at
    inside = (source >= 0) & (source < length)
    moved = value.index_select(2, source.clamp(0, length - 1))
    old = cache.index_select(2, positions)
    cache.index_copy_(2, positions, torch.where(inside[:, None], moved, old))


def write_rows(cache, value, at):
    """Writes one position of each row where it is in the cache."""
    rows = torch.arange(cache.shape[0], device=cache.device)
    positions = at.clamp(0, cache.shape[2] - 1)
    inside = (positions == at)[:, None, None]
    cache[rows, :, positions] = torch.where(inside, value[:, :, 0], cache[rows, :, positions])


def latest(keys, inside, count):
    """For each write to one of `count` places the last write to the same place, so that all of them
    write the same; those outside repeat the last one inside."""
    order = torch.arange(keys.shape[0], device=keys.device)
    last = torch.full((count + 1,), -1, device=keys.device)
    places = torch.where(inside, keys.long(), count)
    last.scatter_reduce_(0, places, torch.where(inside, order, -1), "amax")
    return torch.where(inside, last[places], last.max()).clamp(min=0)


def write_slots_at_once(cache, value, slots, at):
    """`write_slots` without waiting for which they are."""
    inside = (slots >= 0) & (slots < cache.shape[0])
    source = latest(slots, inside, cache.shape[0])
    slots = slots[source].clamp(0, cache.shape[0] - 1)
    rows = cache.index_select(0, slots)
    written = rows.clone()
    write_positions(written, value.index_select(0, source), at)
    cache.index_copy_(0, slots.long(), torch.where(inside.any(), written, rows))


def write_tokens_at_once(cache, value, rows, positions):
    """`write_tokens` without waiting for which they are."""
    batch, _, length, _ = cache.shape
    inside = (rows >= 0) & (rows < batch) & (positions >= 0) & (positions < length)
    source = latest(rows * length + positions, inside, batch * length)
    rows = rows[source].clamp(0, batch - 1)
    positions = positions[source].clamp(0, length - 1)
    new = value[0].transpose(0, 1)[source]
    cache[rows, :, positions] = torch.where(inside.any(), new, cache[rows, :, positions])


def write_slots(cache, value, slots, at):
    """Writes positions from `at` on of some rows, as far as they are in the cache."""
    for slot, new in zip(slots.tolist(), value):
        if 0 <= slot < cache.shape[0]:
            write_span(cache[slot : slot + 1], new[None], at)


def write_tokens(cache, value, rows, positions):
    """Writes one position for each token whose row and position are in the cache."""
    inside = (rows >= 0) & (rows < cache.shape[0]) & (positions >= 0) & (positions < cache.shape[2])
    tokens = inside.nonzero()[:, 0]
    cache[rows[tokens], :, positions[tokens]] = value[0, :, tokens].transpose(0, 1)
'''

SUPPORT: dict[str, str] = {
    match[1]: match[0].rstrip() + "\n"
    for match in re.finditer(r"^def (\w+)\(.*?(?=^def |\Z)", _SOURCES, re.MULTILINE | re.DOTALL)
}
"""The source of each function, by its name."""

OPAQUE = ("cached_attention", "cached_attention_rows")
"""Those that compiled code on a CPU calls as they are, since they look at the values of tensors.
Each takes a query, keys, values, a scale and positions, and gives a tensor like the query."""


def support(names: Iterable[str]) -> list[str]:
    """The sources of some functions and of those that they use, in a stable order."""
    wanted, open_ = set(), list(names)
    while open_:
        name = open_.pop()
        if name not in wanted:
            wanted.add(name)
            called = set(re.findall(r"(?<![\w.])(\w+)\(", SUPPORT[name]))
            open_ += sorted((called & set(SUPPORT)) - wanted)
    return [source for name, source in SUPPORT.items() if name in wanted]
