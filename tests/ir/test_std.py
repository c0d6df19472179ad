"""The standard library's definitions, each against a formula of its own in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from linnet.ir.interpreter import round_bf16
from tests.ir.programs import BF16, Model, Outcome, compiled, floats

Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """A call of a library function in an entry, its inputs, and what it should give."""

    use: str
    params: str
    result: str
    body: str
    inputs: tuple[Array, ...]
    expected: Callable[..., Array]

    def source(self, dtype: str) -> str:
        params = self.params.replace("; T]", f"; {dtype}]")
        result = dtype if self.result == "T" else self.result.replace("; T]", f"; {dtype}]")
        return (
            f"module test\nuse {self.use}\n"
            f"pub entry f({params}) -> {result} {{ return {self.body} }}"
        )


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def rms(x: Array, w: Array) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w


def layer_norm(x: Array, w: Array, b: Array | float = 0.0) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w + b


def attention(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    scores = 0.3 * q @ k.swapaxes(-1, -2)
    if mask is not None:
        scores = np.where(mask, scores, -1e30)
    return softmax(scores) @ v


def sink_attention(q: Array, k: Array, v: Array, sink: Array) -> Array:
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    scores = 0.3 * q @ k.swapaxes(-1, -2)
    column = np.broadcast_to(sink[None, :, None, None], (*scores.shape[:3], 1))
    return softmax(np.concatenate([scores, column], -1))[..., :-1] @ v


def rotate_half(x: Array) -> Array:
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], -1)


def group_norm(x: Array, w: Array, b: Array) -> Array:
    flat = x.reshape(2, 2, -1)
    normal = (flat - flat.mean(-1, keepdims=True)) / np.sqrt(flat.var(-1, keepdims=True) + 1e-5)
    return normal.reshape(x.shape) * w[:, None, None] + b[:, None, None]


def swiglu(x: Array, gate: Array, up: Array, down: Array) -> Array:
    g = x @ gate.T
    return (g * sigmoid(g) * (x @ up.T)) @ down.T


X = floats(2, 3, 4)
Q, K, V = floats(2, 4, 3, 8), floats(2, 4, 5, 8, seed=1), floats(2, 4, 5, 8, seed=2)
KG, VG = K[:, :2], V[:, :2]
QKV = "q: Tensor[2, 4, 3, 8; T], k: Tensor[2, 4, 5, 8; T], v: Tensor[2, 4, 5, 8; T]"
QKG = "q: Tensor[2, 4, 3, 8; T], k: Tensor[2, 2, 5, 8; T], v: Tensor[2, 2, 5, 8; T]"
OUT = "Tensor[2, 4, 3, 8; T]"
CAUSAL = np.tril(np.ones((3, 5), bool), 2)
IMAGE, C4 = floats(2, 4, 3, 5), floats(4, seed=1)
IMAGES = "x: Tensor[2, 4, 3, 5; T], w: Tensor[4; T], b: Tensor[4; T]"
XS = "x: Tensor[2, 3, 4; T]"

CASES = {
    "dot": Case("std.linalg::{dot}", "a: Tensor[4; T], b: Tensor[4; T]", "T", "dot(a, b)",
                (floats(4), floats(4, seed=1)), lambda a, b: a @ b),
    "outer": Case("std.linalg::{outer}", "a: Tensor[4; T], b: Tensor[3; T]", "Tensor[4, 3; T]",
                  "outer(a, b)", (floats(4), floats(3, seed=1)), np.outer),
    "matmul": Case("std.linalg::{matmul}", "a: Tensor[4, 5; T], b: Tensor[5, 3; T]",
                   "Tensor[4, 3; T]", "matmul(a, b)", (floats(4, 5), floats(5, 3, seed=1)),
                   np.matmul),
    "batched_matmul": Case("std.linalg::{batched_matmul}",
                           "a: Tensor[2, 4, 5; T], b: Tensor[2, 5, 3; T]", "Tensor[2, 4, 3; T]",
                           "batched_matmul(a, b)", (floats(2, 4, 5), floats(2, 5, 3, seed=1)),
                           np.matmul),
    "transpose": Case("std.linalg::{transpose}", "a: Tensor[4, 5; T]", "Tensor[5, 4; T]",
                      "transpose(a)", (floats(4, 5),), np.transpose),
    "linear": Case("std.nn.linear::{linear}", f"{XS}, w: Tensor[5, 4; T]", "Tensor[2, 3, 5; T]",
                   "linear(x, w)", (X, floats(5, 4)), lambda x, w: x @ w.T),
    "linear_bias": Case("std.nn.linear::{linear}",
                        f"{XS}, w: Tensor[5, 4; T], b: Tensor[5; T]", "Tensor[2, 3, 5; T]",
                        "linear(x, w, some(b))", (X, floats(5, 4), floats(5)),
                        lambda x, w, b: x @ w.T + b),
    "rms_norm": Case("std.nn.norm::{rms_norm}", f"{XS}, w: Tensor[4; T]", "Tensor[2, 3, 4; T]",
                     "rms_norm(x, w)", (X, C4), rms),
    "layer_norm": Case("std.nn.norm::{layer_norm}", f"{XS}, w: Tensor[4; T]", "Tensor[2, 3, 4; T]",
                       "layer_norm(x, w)", (X, C4), layer_norm),
    "layer_norm_bias": Case("std.nn.norm::{layer_norm}",
                            f"{XS}, w: Tensor[4; T], b: Tensor[4; T]", "Tensor[2, 3, 4; T]",
                            "layer_norm(x, w, some(b), 1e-5)", (X, C4, floats(4, seed=3)),
                            layer_norm),
    "batch_norm": Case("std.nn.norm::{batch_norm}",
                       f"{IMAGES}, m: Tensor[4; T], v: Tensor[4; T]", "Tensor[2, 4, 3, 5; T]",
                       "batch_norm(x, w, b, m, v)",
                       (IMAGE, C4, floats(4, seed=2), floats(4, seed=3),
                        np.abs(floats(4, seed=4)) + 0.5),
                       lambda x, w, b, m, v: (x - m[:, None, None])
                       / np.sqrt(v[:, None, None] + 1e-5) * w[:, None, None] + b[:, None, None]),
    "group_norm": Case("std.nn.norm::{group_norm}", IMAGES, "Tensor[2, 4, 3, 5; T]",
                       "group_norm<2, 2, 4, 3, 5>(x, w, b)", (IMAGE, C4, floats(4, seed=2)),
                       group_norm),
    "relu": Case("std.nn.activations::{relu}", XS, "Tensor[2, 3, 4; T]", "relu(x)", (X,),
                 lambda x: np.maximum(x, 0)),
    "sigmoid": Case("std.nn.activations::{sigmoid}", XS, "Tensor[2, 3, 4; T]", "sigmoid(x)",
                    (X,), sigmoid),
    "silu": Case("std.nn.activations::{silu}", XS, "Tensor[2, 3, 4; T]", "silu(x)", (X,),
                 lambda x: x * sigmoid(x)),
    "gelu": Case("std.nn.activations::{gelu}", XS, "Tensor[2, 3, 4; T]", "gelu(x)", (X,),
                 lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "gelu_erf": Case("std.nn.activations::{gelu_erf}", XS, "Tensor[2, 3, 4; T]", "gelu_erf(x)",
                     (X,), lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))),
    "softmax": Case("std.nn.softmax::{softmax}", XS, "Tensor[2, 3, 4; T]", "softmax(x)", (X * 3,),
                    softmax),
    "attention": Case("std.nn.attention::{attention}", QKV, OUT, "attention(q, k, v, 0.3)",
                      (Q, K, V), attention),
    "attention_causal": Case("std.nn.attention::{attention, causal_mask}", QKV, OUT,
                             "attention(q, k, v, 0.3, some(causal_mask<3, 5>()))", (Q, K, V),
                             lambda q, k, v: attention(q, k, v, CAUSAL)),
    "grouped": Case("std.nn.attention::{grouped_attention, causal_mask}", QKG, OUT,
                    "grouped_attention(q, k, v, 0.3, some(causal_mask<3, 5>()))", (Q, KG, VG),
                    lambda q, k, v: attention(q, k, v, CAUSAL)),
    "sink": Case("std.nn.attention::{sink_attention}", f"{QKG}, s: Tensor[4; T]", OUT,
                 "sink_attention(q, k, v, s, 0.3)", (Q, KG, VG, C4), sink_attention),
    "rope": Case("std.nn.rope::{rope}",
                 "x: Tensor[2, 4, 3, 8; T], c: Tensor[3, 8; T], s: Tensor[3, 8; T]", OUT,
                 "rope(x, c, s)", (Q, floats(3, 8), floats(3, 8, seed=1)),
                 lambda x, c, s: x * c + rotate_half(x) * s),
    "rope_rows": Case("std.nn.rope::{rope_rows}",
                      "x: Tensor[2, 4, 3, 8; T], c: Tensor[2, 3, 8; T], s: Tensor[2, 3, 8; T]",
                      OUT, "rope_rows(x, c, s)", (Q, floats(2, 3, 8), floats(2, 3, 8, seed=1)),
                      lambda x, c, s: x * c[:, None] + rotate_half(x) * s[:, None]),
    "swiglu": Case("std.nn.mlp::{swiglu}",
                   f"{XS}, g: Tensor[6, 4; T], u: Tensor[6, 4; T], d: Tensor[4, 6; T]",
                   "Tensor[2, 3, 4; T]", "swiglu(x, g, u, d)",
                   (X, floats(6, 4), floats(6, 4, seed=1), floats(4, 6, seed=2)), swiglu),
    "all_reduce": Case("std.nn.parallel::{all_reduce, all_gather}", XS, "Tensor[2, 3, 4; T]",
                       "all_gather(all_reduce(x))", (X,), lambda x: x),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "bf16", "wide"])
@pytest.mark.parametrize("name", CASES)
def test_an_op_is_its_formula(name: str, dtype: str) -> None:
    case = CASES[name]
    model = Model.of(case.source("bf16" if dtype == "bf16" else "f32"))
    if dtype == "bf16":
        rounded = [round_bf16(x) for x in case.inputs]
        out = model.run("f", *map(BF16, rounded))
        inputs: Sequence[Array] = rounded
    else:
        out = model.run("f", *case.inputs, wide=dtype == "wide")
        inputs = case.inputs
    expected = case.expected(*(x.astype(np.float64) for x in inputs))
    # bf16 has 8 significant bits: a few roundings of 2^-9 each, relative to the largest value.
    tolerance = {"f32": 2e-6, "bf16": 3 * 2.0**-8, "wide": 3e-7}[dtype]
    scale = max(1.0, float(np.abs(expected).max()))
    assert out.result.shape == expected.shape
    np.testing.assert_allclose(out.result, expected, rtol=0, atol=tolerance * scale)


def f32(signature: str) -> str:
    return signature.replace("; T]", "; f32]")


def call(use: str, signature: str, body: str, *inputs: object) -> Outcome:
    source = f"module test\nuse {use}\npub entry f({signature} {{ return {body} }}"
    return Model.of(source).run("f", *inputs)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 3), (2, 5), (5, 2)])
def test_causal_mask(queries: int, keys: int) -> None:
    out = call("std.nn.attention::{causal_mask}", f") -> Tensor[{queries}, {keys}; bool]",
               f"causal_mask<{queries}, {keys}>()")  # fmt: skip
    expected = [[k <= q + keys - queries for k in range(keys)] for q in range(queries)]
    assert out.result.tolist() == expected


def test_a_query_that_sees_nothing_gets_the_mean() -> None:
    out = call("std.nn.attention::{attention}",
               f"{f32(QKV)}, m: Tensor[3, 5; bool]) -> {f32(OUT)}",
               "attention(q, k, v, 0.3, some(m))", Q, K, V, np.zeros((3, 5), bool))  # fmt: skip
    expected = np.broadcast_to(V.mean(2, keepdims=True), Q.shape)
    np.testing.assert_allclose(out.result, expected, atol=1e-6)


def test_masks_of_rows() -> None:
    mask = np.random.default_rng(0).random((2, 3, 5)) < 0.6
    for use, inputs, params in [
        ("attention_rows", (Q, K, V), QKV),
        ("grouped_attention_rows", (Q, KG, VG), QKG),
    ]:
        out = call(f"std.nn.attention::{{{use}}}",
                   f"{f32(params)}, m: Tensor[2, 3, 5; bool]) -> {f32(OUT)}",
                   f"{use}(q, k, v, 0.3, m)", *inputs, mask)  # fmt: skip
        expected = attention(*inputs, mask[:, None])
        np.testing.assert_allclose(out.result, expected, atol=2e-6)


def test_attention_over_a_cache() -> None:
    out = call("std.nn.attention::{cached_attention}",
               f"{f32(QKG)}, at: i32) -> {f32(OUT)}",
               "cached_attention(q, k, v, 0.3, at)", Q, KG, VG, np.int32(1))  # fmt: skip
    seen = np.arange(5)[None] <= 1 + np.arange(3)[:, None]
    np.testing.assert_allclose(out.result, attention(Q, KG, VG, seen), atol=2e-6)
    rows = call("std.nn.attention::{cached_attention_rows}",
                "q: Tensor[2, 4, 1, 8; f32], k: Tensor[2, 2, 5, 8; f32], "
                "v: Tensor[2, 2, 5, 8; f32], at: Tensor[2; i32]) -> Tensor[2, 4, 1, 8; f32]",
                "cached_attention_rows(q, k, v, 0.3, at)", Q[:, :, :1], KG, VG,
                np.array([0, 3], np.int32))  # fmt: skip
    seen = (np.arange(5) <= np.array([[0], [3]]))[:, None, None]
    np.testing.assert_allclose(rows.result, attention(Q[:, :, :1], KG, VG, seen), atol=2e-6)


def test_embedding_and_argmax() -> None:
    table, ids = floats(6, 3), np.array([[5, 0], [2, 2]], np.int32)
    out = call("std.nn.embedding::{embedding}",
               "i: Tensor[2, 2; i32], t: Tensor[6, 3; f32]) -> Tensor[2, 2, 3; f32]",
               "embedding(i, t)", ids, table)  # fmt: skip
    np.testing.assert_array_equal(out.result, table[ids])
    x = np.array([[1, 3, 3], [-1, -2, -1]], np.float32)
    out = call(
        "std.nn.decoding::{argmax}", "x: Tensor[2, 3; f32]) -> Tensor[2; i32]", "argmax(x)", x
    )
    assert out.result.tolist() == [1, 0] and out.result.dtype == np.int32


def test_rope_tables() -> None:
    out = call("std.nn.rope::{rope_tables}",
               ") -> (Tensor[5, 8; f32], Tensor[5, 8; f32])",
               "rope_tables<5, 8, f32>(10000.0)")  # fmt: skip
    angle = np.arange(5)[:, None] * 10000.0 ** (-np.arange(0, 8, 2) / 8)
    both = np.concatenate([angle, angle], -1)
    np.testing.assert_allclose(out.results[0], np.cos(both), atol=1e-6)
    np.testing.assert_allclose(out.results[1], np.sin(both), atol=1e-6)


# --- cache ----------------------------------------------------------------------------------

CACHE = floats(3, 2, 6, 4)


def write(name: str, value: Array, params: str, *where: object) -> Array:
    shape = ", ".join(map(str, value.shape))
    names = ", ".join(part.split(":")[0].strip() for part in params.split(",") if ":" in part)
    out = call(f"std.nn.cache::{{{name}}}",
               f"c: Tensor[3, 2, 6, 4; f32], v: Tensor[{shape}; f32], {params}) -> "
               "Tensor[3, 2, 6, 4; f32]",
               f"{name}(c, v, {names})", CACHE, value, *where)  # fmt: skip
    return out.result


def test_writes_at_one_position() -> None:
    value, expected = floats(3, 2, 1, 4, seed=1), CACHE.copy()
    expected[:, :, 4] = value[:, :, 0]
    np.testing.assert_array_equal(write("write_at", value, "at: i32", np.int32(4)), expected)
    np.testing.assert_array_equal(write("write_at", value, "at: i32", np.int32(-1)), CACHE)


@pytest.mark.parametrize("at", [0, 2, 4, 5, -1, 9])
def test_writes_of_a_span_stop_at_the_ends(at: int) -> None:
    value, expected = floats(3, 2, 3, 4, seed=1), CACHE.copy()
    for n in range(3):
        if 0 <= at + n < 6:
            expected[:, :, at + n] = value[:, :, n]
    np.testing.assert_array_equal(write("write_span", value, "at: i32", np.int32(at)), expected)


def test_writes_in_rows() -> None:
    value, expected = floats(3, 2, 1, 4, seed=1), CACHE.copy()
    at = np.array([5, -1, 0], np.int32)
    expected[0, :, 5], expected[2, :, 0] = value[0, :, 0], value[2, :, 0]
    np.testing.assert_array_equal(write("write_rows", value, "at: Tensor[3; i32]", at), expected)


def test_writes_in_one_slot() -> None:
    value, expected = floats(1, 2, 3, 4, seed=1), CACHE.copy()
    expected[1, :, 2:5] = value[0]
    found = write("write_slot", value, "slot: i32, at: i32", np.int32(1), np.int32(2))
    np.testing.assert_array_equal(found, expected)


def test_writes_in_some_slots() -> None:
    value, expected = floats(3, 2, 3, 4, seed=1), CACHE.copy()
    slots = np.array([2, -1, 0], np.int32)
    expected[2, :, 1:4], expected[0, :, 1:4] = value[0], value[2]
    found = write("write_slots", value, "slots: Tensor[3; i32], at: i32", slots, np.int32(1))
    np.testing.assert_array_equal(found, expected)


def test_writes_of_packed_tokens() -> None:
    value, expected = floats(1, 2, 4, 4, seed=1), CACHE.copy()
    rows, positions = np.array([1, 1, 2, -1], np.int32), np.array([0, 1, 5, 0], np.int32)
    for p in range(3):
        expected[rows[p], :, positions[p]] = value[0, :, p]
    found = write("write_tokens", value, "rows: Tensor[4; i32], positions: Tensor[4; i32]", rows,
                  positions)  # fmt: skip
    np.testing.assert_array_equal(found, expected)


# --- random ---------------------------------------------------------------------------------


def threefry(key: Sequence[int], counter: Sequence[int]) -> tuple[int, int]:
    """Threefry-2x32 with 20 rounds, one block, in plain integers."""
    word = 0xFFFFFFFF
    keys = [*key, key[0] ^ key[1] ^ 0x1BD11BDA]
    x = [(counter[0] + keys[0]) & word, (counter[1] + keys[1]) & word]
    rotations = [(13, 15, 26, 6), (17, 29, 16, 24)]
    for group in range(5):
        for by in rotations[group % 2]:
            x[0] = (x[0] + x[1]) & word
            x[1] = ((x[1] << by | x[1] >> (32 - by)) & word) ^ x[0]
        x[0] = (x[0] + keys[(group + 1) % 3]) & word
        x[1] = (x[1] + keys[(group + 2) % 3] + group + 1) & word
    return x[0], x[1]


def test_the_reference_threefry_gives_the_published_answers() -> None:
    # Random123's known answers (kat_vectors, threefry2x32, 20 rounds).
    ones = 0xFFFFFFFF
    assert threefry((0, 0), (0, 0)) == (0x6B200159, 0x99BA4EFE)
    assert threefry((ones, ones), (ones, ones)) == (0x1CB996FC, 0xBB002BE7)
    assert threefry((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)) == (0xC4923A9C, 0x483DF7A0)


KEY = np.array([0x13198A2E, 0x03707344], np.int64)


def random(name: str, result: str, body: str, *inputs: object, params: str = "") -> Array:
    return call(f"std.random::{{{name}}}", f"k: Tensor[2; i64]{params}) -> {result}", body, KEY,
                *inputs).result  # fmt: skip


def test_keys_are_split_and_folded_by_threefry() -> None:
    keys = random("split", "Tensor[5, 2; i64]", "split<5>(k)")
    assert keys.tolist() == [list(threefry(KEY.tolist(), (0, i))) for i in range(5)]
    folded = random("fold_in", "Tensor[2; i64]", "fold_in(k, d)", np.int64(77), params=", d: i64")
    assert folded.tolist() == list(threefry(KEY.tolist(), (0, 77)))


def words(count: int) -> Array:
    pairs = [threefry(KEY.tolist(), (0, i)) for i in range(count)]
    return np.array([high ^ low for high, low in pairs], np.int64)


def test_uniform_numbers_are_the_upper_bits() -> None:
    found = random("uniform", "Tensor[64; f32]", "uniform<64>(k)")
    np.testing.assert_array_equal(found, (words(64) >> 9) * 2.0**-23)


def test_normal_numbers_invert_the_distribution() -> None:
    found = random("normal", "Tensor[64; f32]", "normal<64>(k)")
    u = np.maximum((words(64) >> 9) * 2.0**-23 * 2 - 0.99999994, -0.99999994)
    back = np.vectorize(math.erf)(found.astype(np.float64) / math.sqrt(2))
    np.testing.assert_allclose(back, u, atol=3e-6)


def test_categorical_takes_the_largest_with_gumbel_noise() -> None:
    logits = floats(3, 7)
    found = random("categorical", "Tensor[3; i32]", "categorical(k, l)", logits,
                   params=", l: Tensor[3, 7; f32]")  # fmt: skip
    u = np.maximum((words(21) >> 9) * 2.0**-23, np.finfo(np.float32).tiny).reshape(3, 7)
    assert found.tolist() == (logits - np.log(-np.log(u))).argmax(-1).tolist()


def test_every_case_checks() -> None:
    for case in CASES.values():
        compiled(case.source("f16"))
