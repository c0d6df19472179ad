"""Functions that generated JAX calls and JAX does not have, as source text.

`support` gives those that a source uses, each with what it uses itself. They are written at the top
of the source, so that it stands alone. Where the language defines a result at the edges (a divisor
of zero, a write beyond the cache), these give that result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SOURCES = '''
def divide(a, b):
    """Integer division toward zero; 0 where the divisor is 0."""
    a, b = jnp.broadcast_arrays(a, b)
    return jnp.where(b == 0, 0, lax.div(a, jnp.where(b == 0, 1, b)))


def remainder(a, b):
    """What is left of `divide`; 0 where the divisor is 0."""
    a, b = jnp.broadcast_arrays(a, b)
    return jnp.where(b == 0, 0, lax.rem(a, jnp.where(b == 0, 1, b)))


def linear_row(x, weight, bias=None):
    """A linear layer of one row, as a matrix times a vector: XLA reads the weight as it lies."""
    product = jnp.matmul(weight, x.reshape(-1), preferred_element_type=jnp.float32)
    if bias is not None:
        product = product + bias.astype(jnp.float32)
    return product.astype(x.dtype).reshape(*x.shape[:-1], -1)


def attend(query, key, value, scale, seen):
    """Attention, `seen` telling which keys each query sees, for groups of heads with one key head.
    Few queries stand on the right, so that the keys are read as they lie."""
    batch, heads, queries, width = query.shape
    groups, keys = key.shape[1:3]
    rows = query.reshape(batch, groups, -1, width)
    if rows.shape[2] < width:
        scores = jnp.matmul(key, rows.mT, preferred_element_type=jnp.float32).mT
    else:
        scores = jnp.matmul(rows, key.mT, preferred_element_type=jnp.float32)
    scores = scores.reshape(batch, groups, heads // groups, queries, keys) * scale
    share = jax.nn.softmax(jnp.where(seen, scores, -1e30), axis=-1).astype(query.dtype)
    share = share.reshape(batch, groups, -1, keys)
    mixed = jnp.matmul(share, value, preferred_element_type=jnp.float32)
    return mixed.astype(query.dtype).reshape(query.shape)


def cached_attention(query, key, value, scale, places):
    """Attention over a cache that each query sees up to its own place. Of a few sizes, the smallest
    is read that holds all places; each size is a branch, which also keeps XLA from computing the
    update of the cache again where it is read, on a copy."""
    queries, extent = query.shape[2], key.shape[2]
    sizes = [n for n in (extent // 8, extent // 4) if n >= max(128, queries)]
    if 1 < queries < extent:
        sizes.append(queries)
    sizes = sorted({*(sizes or [max(extent // 2, 1)]), extent})

    def over(size):
        seen = jnp.arange(size, dtype=jnp.int32) <= places[..., None]
        return lambda: attend(query, key[:, :, :size], value[:, :, :size], scale, seen)

    which = sum((places.max() >= size).astype(jnp.int32) for size in sizes[:-1])
    # A query before the cache sees no key: it gets the mean of all values.
    which = jnp.where(places.min() < 0, len(sizes) - 1, which)
    return lax.switch(which, [over(size) for size in sizes])


def write_span(cache, value, at):
    """Writes positions from `at` on, as far as they are in the cache."""
    length = value.shape[2]
    start = jnp.clip(at, 0, cache.shape[2] - length)
    old = lax.dynamic_slice_in_dim(cache, start, length, axis=2)
    if length == 1:
        new = jnp.where(start == at, value, old)
    else:
        source = start - at + jnp.arange(length, dtype=jnp.int32)
        inside = (source >= 0) & (source < length)
        new = jnp.where(inside[:, None], jnp.take(value, source, axis=2, mode="clip"), old)
    return lax.dynamic_update_slice_in_dim(cache, new, start, axis=2)


def write_rows(cache, value, at):
    """Writes one position of each row, `at[b]` in row `b`, where it is in the cache."""
    rows = jnp.arange(cache.shape[0], dtype=jnp.int32)
    where = cache.at[rows, :, at]
    return where.set(value[:, :, 0], mode="drop", wrap_negative_indices=False)


def last_writes(*places):
    """Which writes stand: those after which none goes to the same place."""
    order = jnp.arange(places[0].shape[0], dtype=jnp.int32)
    later = order[None, :] > order[:, None]
    for place in places:
        later = later & (place[None, :] == place[:, None])
    return ~later.any(1)


def write_slots(cache, value, slots, at):
    """Writes positions from `at` on of the rows `slots`, as far as they are in the cache."""
    slots = jnp.where(last_writes(slots), slots, -1)
    old = cache.at[slots].get(mode="clip", wrap_negative_indices=False)
    new = write_span(old, value, at)
    return cache.at[slots].set(new, mode="drop", wrap_negative_indices=False)


def write_tokens(cache, value, rows, positions):
    """Writes `positions[p]` of row `rows[p]` for each token whose place is in the cache."""
    rows = jnp.where(last_writes(rows, positions), rows, -1)
    where = cache.at[rows, :, positions]
    return where.set(value[0].swapaxes(0, 1), mode="drop", wrap_negative_indices=False)
'''

SUPPORT: dict[str, str] = {
    match[1]: match[0].rstrip() + "\n"
    for match in re.finditer(r"^def (\w+)\(.*?(?=^def |\Z)", _SOURCES, re.MULTILINE | re.DOTALL)
}
"""The source of each function, by its name."""


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
