"""Lowering, from source: what the IR looks like, and what it computes."""

from __future__ import annotations

import numpy as np
import pytest

from linnet.diagnostics import LinnetError
from linnet.dtypes import DType
from linnet.ir.core import TensorType
from linnet.ir.instantiate import bind_entry, instantiate
from linnet.ir.lower import lower
from linnet.ir.passes import optimise
from linnet.ir.printer import print_function, print_module
from tests.ir.programs import BF16, Model, compiled, evaluate, f32, floats


def test_operators_broadcast_and_fold() -> None:
    out = evaluate(
        "pub entry f(x: Tensor[2, 3; f32], y: Tensor[3; f32]) -> Tensor[2, 3; f32] "
        "{ return x * 2 + y / (1 + 3) }",
        x := floats(2, 3),
        y := floats(3, seed=1),
    )
    np.testing.assert_allclose(out.result, x * 2 + y / 4, rtol=1e-6)
    assert print_function(out.module.main) == (
        "entry f from crate::f\n"
        "  input x: f32[2, 3] = x\n"
        "  input y: f32[3] = y\n"
        "  t0: f32[] = constant {value = 2.0}\n"
        "  t1: f32[2, 3] = constant {value = 2.0}\n"
        "  t2: f32[2, 3] = mul x, t1\n"
        "  t3: f32[] = constant {value = 4.0}\n"
        "  t4: f32[3] = constant {value = 4.0}\n"
        "  t5: f32[3] = div y, t4\n"
        "  t6: f32[2, 3] = broadcast t5 {axes = [1]}\n"
        "  t7: f32[2, 3] = add t2, t6\n"
        "  return t7\n"
    )


def test_slices_by_constants_and_runtime_integers() -> None:
    x = floats(4, 5, 6)
    out = evaluate(
        "pub entry f(x: Tensor[4, 5, 6; f32], i: i32, j: i64) -> "
        "(Tensor[5, 6; f32], Tensor[4, 2, 3; f32], Tensor[5; f32], f32, Tensor[5, 3; f32]) "
        "{ return (x[1], x[:, 1:3, 1::2], x[i, :, j], x[i, 2, j], x[i, ..., 0:3]) }",
        x,
        np.int32(2),
        np.int64(9),
    )
    expected = [x[1], x[:, 1:3, 1::2], x[2, :, 5], x[2, 2, 5], x[2, :, 0:3]]
    for found, wanted in zip(out.results, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_shape_functions() -> None:
    x = floats(2, 3, 4)
    out = evaluate(
        """
pub entry f(x: Tensor[2, 3, 4; f32]) -> (Tensor[4, 6; f32], Tensor[4, 2, 3; f32],
    Tensor[2, 3, 8; f32], Tensor[2, 2; i32], Tensor[5; f32], Tensor[3, 2, 3, 4; f32]) {
    return (reshape(x, [4, 6]), permute(x, [2, 0, 1]), concat(x, -x, axis = -1),
        fill<i32>([2, 2], 7), iota<f32>(5), broadcast_to(x, [3, 2, 3, 4]))
}""",
        x,
    )
    expected = [
        x.reshape(4, 6),
        x.transpose(2, 0, 1),
        np.concatenate([x, -x], -1),
        np.full((2, 2), 7, np.int32),
        np.arange(5, dtype=np.float32),
        np.broadcast_to(x, (3, 2, 3, 4)),
    ]
    for found, wanted in zip(out.results, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype


def test_packs_stand_for_any_number_of_axes() -> None:
    source = """
fn scaled<*S: Shape, N: Dim>(x: Tensor[*S, N; f32], w: Tensor[N; f32]) -> Tensor[*S, N; f32] {
    let y[*s, n] = x[*s, n] * w[n]
    return concat(y, y, axis = -1)[..., 0:N]
}
pub entry f<N: Dim>(x: Tensor[3, N; f32], w: Tensor[N; f32]) -> Tensor[3, N; f32] {
    return scaled(x, w)
}"""
    out = evaluate(source, x := floats(3, 4), w := floats(4, seed=1))
    np.testing.assert_allclose(out.result, x * w)


def test_structs_tuples_and_enums_leave_no_trace() -> None:
    source = """
enum Pooling { Mean, Max }
struct Pair { left: Tensor[3; f32] right: f32 }
fn pool(x: Tensor[3; f32], how: Pooling) -> f32 {
    let mean = sum[i] x[i] / 3
    let top = max[i] x[i]
    return match how { Mean => mean, Max => top }
}
fn both(x: Tensor[3; f32]) -> Pair { return Pair(left = x * 2, right = pool(x, Pooling.Max)) }
pub entry f(x: Tensor[3; f32], how: Pooling) -> (Tensor[3; f32], f32, f32) {
    let p = both(x)
    let (a, b) = (p.left, p.right)
    return (a, b, pool(x, how))
}"""
    x = floats(3)
    out = evaluate(source, x, "Mean")
    np.testing.assert_allclose(out.results[0], x * 2)
    np.testing.assert_allclose(out.results[1:], [x.max(), x.mean()], rtol=1e-6)
    names = list(out.module.functions)
    assert names == ["pool", "both", "pool_2", "f"]
    with pytest.raises(ValueError, match="`how` needs a variant"):
        instance = instantiate(compiled(source))
        lower(instance, "f", {})


def test_optionals_are_resolved_where_they_are_given() -> None:
    source = """
fn add(x: Tensor[2; f32], y: Tensor[2; f32]? = none) -> Tensor[2; f32] {
    return match y { some(v) => x + v, none => x }
}
pub entry f(x: Tensor[2; f32], y: Tensor[2; f32]?) -> (Tensor[2; f32], Tensor[2; f32]) {
    return (add(x, y), add(x))
}"""
    x, y = floats(2), floats(2, seed=1)
    given, absent = evaluate(source, x, y), evaluate(source, x, None)
    np.testing.assert_allclose(given.results, [x + y, x])
    np.testing.assert_allclose(absent.results, [x, x])
    assert given.module.functions["add"].arguments == ("x", "y")
    assert given.module.functions["add_2"].arguments == ("x",)
    assert list(absent.module.functions) == ["add", "f"]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("let y: f32? = if c { some(x) } else { none }", "an optional is given"),
        ("let p = if c { P.A } else { P.B }\n let y = match p { A => some(x), B => some(x) }",
         "which variant"),
        ("var y = some(x)\n var going = c\n while going { going = false y = none }", "a loop"),
    ],
)  # fmt: skip
def test_what_is_decided_at_run_time_is_refused(body: str, what: str) -> None:
    program = compiled(
        "enum P { A, B }\n"
        "pub entry f(x: f32, c: bool) -> f32 {\n"
        f"{body}\nreturn match y {{ some(v) => v, none => x }}\n}}"
    )
    with pytest.raises(LinnetError, match=r"E2190.*not implemented yet") as caught:
        lower(instantiate(program), "f", {})
    assert what in str(caught.value)


# --- control flow ---------------------------------------------------------------------------


def test_known_conditions_take_their_branch() -> None:
    source = """
fn g<N: Dim>(x: f32) -> f32 { return if N > 2 && !(N == 5) { x + 1 } else { x - 1 } }
pub entry f(x: f32) -> (f32, f32) { return (g<3>(x), g<5>(x)) }"""
    out = evaluate(source, np.float32(1))
    np.testing.assert_allclose(out.results, [2, 0])
    assert "if " not in print_module(out.module)


def test_a_branch_captures_what_it_uses() -> None:
    source = """
pub entry f(x: Tensor[2; f32], y: Tensor[2; f32], c: bool) -> Tensor[2; f32] {
    let z = x * y
    let r = if c { z + 1 } else { if x[0] > 0 { y } else { z - y } }
    return r * 2
}"""
    x, y = f32(-1, 2), f32(3, 4)
    for c in (True, False):
        out = evaluate(source, x, y, np.bool_(c))
        np.testing.assert_allclose(out.result, (x * y + 1 if c else x * y - y) * 2)
    assert [f.kind for f in out.module.functions.values()].count("region") == 4


def test_a_while_carries_what_it_assigns() -> None:
    source = """
pub entry f(x: Tensor[3; f32], limit: f32) -> (Tensor[3; f32], i64) {
    var total = x
    var n = 0
    while n < 10 && total[0] < limit {
        let step = x + 1
        total = total + step
        n = n + 1
    }
    return (total, n)
}"""
    x = f32(1, 2, 3)
    out = evaluate(source, x, np.float32(6))
    np.testing.assert_allclose(out.results[0], x + 3 * (x + 1))
    assert out.results[1] == 3
    (loop,) = [op for op in out.module.main.ops if op.kind == "while"]
    assert loop.attrs["trips"] == -1 and loop.attrs["carried"] == 2
    assert [v.name for v in loop.outputs] == ["total", "n_1"]


def test_a_while_that_never_runs_leaves_nothing() -> None:
    source = """
pub entry f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] {
    var y = x
    while N > 5 { y = y + 1 }
    return y
}"""
    out = evaluate(source, x := floats(3))
    np.testing.assert_array_equal(out.result, x)
    assert not out.module.main.ops or "while" not in print_module(out.module)


def test_a_scan_stacks_what_it_yields() -> None:
    source = """
pub entry f(x: Tensor[2; f32]) -> (Tensor[4, 2; f32], Tensor[4; i64], Tensor[2; f32]) {
    var last = x
    let steps = for i in 2..6 {
        last = last * 2
        let shifted = last + cast<f32>(i)
        yield (shifted, i * i)
    }
    let (rows, squares) = steps
    return (rows, squares, last)
}"""
    x = f32(1, 2)
    out = evaluate(source, x)
    expected = [x * 2 ** (i - 1) + i for i in range(2, 6)]
    np.testing.assert_allclose(out.results[0], expected)
    np.testing.assert_array_equal(out.results[1], [4, 9, 16, 25])
    np.testing.assert_allclose(out.results[2], x * 16)
    (loop,) = [op for op in out.module.main.ops if op.kind == "while"]
    assert loop.attrs["trips"] == 4


def test_a_scan_of_no_iterations_is_empty() -> None:
    source = """
pub entry f<N: Dim>(x: f32) -> (Tensor[N; f32], f32) {
    var y = x
    let rows = for i in 0..N { y = y + 1 yield y }
    return (rows, y)
}"""
    empty = evaluate(source, np.float32(1), N=0)
    assert empty.results[0].shape == (0,) and empty.results[1] == 1
    full = evaluate(source, np.float32(1), N=3)
    np.testing.assert_allclose(full.results[0], [2, 3, 4])


def test_loops_nest() -> None:
    source = """
pub entry f(x: f32) -> f32 {
    var total = x
    for i in 0..3 {
        var inner = total
        for j in 0..2 { inner = inner + cast<f32>(i * j) }
        total = if inner > 2 { inner * 2 } else { inner }
    }
    return total
}"""
    total = 0.5
    for i in range(3):
        inner = total + sum(i * j for j in range(2))
        total = inner * 2 if inner > 2 else inner
    assert evaluate(source, np.float32(0.5)).result == total


def test_static_for_unrolls() -> None:
    source = """
pub entry f(x: Tensor[4; f32]) -> Tensor[4; f32] {
    var y = x
    static for i in 1..4 { y = y + x[i] * cast<f32>(i) }
    return y
}"""
    out = evaluate(source, x := floats(4))
    np.testing.assert_allclose(out.result, x + sum(i * x[i] for i in range(1, 4)), rtol=1e-6)
    assert "while" not in print_module(out.module)


# --- blocks ---------------------------------------------------------------------------------

COUNTER = """
pub block Counter<N: Dim> {
    param step: Tensor[N; f32]
    state total: Tensor[N; f32]
    pub fn add(x: Tensor[N; f32]) -> Tensor[N; f32] {
        total = total + x * step
        return total
    }
    pub fn peek() -> Tensor[N; f32] { return total }
}
pub block Pair<N: Dim> {
    sub counters: [Counter<N>; 2]
    sub extra: Counter<N> = none
    state calls: i64
    pub entry f(x: Tensor[N; f32]) -> Tensor[N; f32] {
        calls = calls + 1
        var y = x
        static for counter in counters { y = counter.add(y) }
        return match extra { some(c) => c.add(y), none => y }
    }
    pub entry loop(x: Tensor[N; f32]) -> Tensor[N; f32] {
        var y = x
        for i in 0..3 { y = counters[1].add(y) }
        return y + counters[0].peek()
    }
    pub entry maybe(x: Tensor[N; f32], c: bool) -> Tensor[N; f32] {
        return if c { counters[0].add(x) } else { x }
    }
}
"""


def test_state_is_threaded_through_calls() -> None:
    model = Model.of(COUNTER, {"N": 2}, root="Pair", absent=["extra"])
    x = f32(1, 2)
    steps = [model.weights[f"counters.{i}.step"] for i in range(2)]
    totals = [np.zeros(2, np.float32)] * 2
    for n in range(1, 4):
        y = x
        for i in range(2):
            totals[i] = y = totals[i] + y * steps[i]
        out = model.run("f", x)
        np.testing.assert_allclose(out.result, y, rtol=1e-6)
        assert out.states["calls"] == n
    assert list(out.module.functions) == ["counter_add", "pair_f"]
    adds = [op for op in out.module.main.ops if op.kind == "call"]
    assert [op.attrs["at"] for op in adds] == ["counters.0", "counters.1"]
    assert [slot.path for slot in out.module.main.states] == [
        "calls",
        "counters.0.total",
        "counters.1.total",
    ]


def test_state_changed_in_a_loop_is_carried() -> None:
    model = Model.of(COUNTER, {"N": 2}, root="Pair", absent=["extra"])
    model.run("f", x := f32(1, 2))
    first, total = model.states["counters.0.total"], model.states["counters.1.total"]
    y = x
    for _ in range(3):
        total = y = total + y * model.weights["counters.1.step"]
    out = model.run("loop", x)
    np.testing.assert_allclose(out.result, y + first, rtol=1e-6)
    np.testing.assert_allclose(model.states["counters.1.total"], total, rtol=1e-6)
    np.testing.assert_allclose(model.states["counters.0.total"], first)


def test_state_changed_in_a_branch_comes_out_of_both() -> None:
    model = Model.of(COUNTER, {"N": 2}, root="Pair", absent=["extra"])
    x = f32(1, 2)
    np.testing.assert_allclose(model.run("maybe", x, np.bool_(False)).result, x)
    assert not model.states["counters.0.total"].any()
    out = model.run("maybe", x, np.bool_(True))
    np.testing.assert_allclose(out.result, x * model.weights["counters.0.step"])
    np.testing.assert_allclose(model.states["counters.0.total"], out.result)


def test_an_optional_child_is_there_when_its_weights_are() -> None:
    model = Model.of(COUNTER, {"N": 2}, root="Pair")
    out = model.run("f", f32(1, 2))
    assert "extra.step" in model.weights
    assert [op.attrs["at"] for op in out.module.main.ops if op.kind == "call"][-1] == "extra"


def test_layers_share_one_function_unless_their_weights_differ() -> None:
    source = """
use std.nn.linear::{Linear}
pub block Net<N: Dim, L: Dim> {
    sub layers: [Linear<N, N, f32>; L]
    pub entry f(x: Tensor[1, N; f32]) -> Tensor[1, N; f32] {
        var y = x
        static for layer in layers { y = layer.forward(y) }
        return y
    }
}"""
    program = compiled(source)
    same = instantiate(program, None, {"N": 2, "L": 40})
    module = lower(same, "f", {})
    assert list(module.functions) == ["linear", "linear_forward", "net_f"]
    assert len(module.main.ops) == 40 and len(module.main.weights) == 80
    mixed = instantiate(program, None, {"N": 2, "L": 3}, lambda path: path in ("layers.1.bias",))
    module = lower(mixed, "f", {})
    calls = [(op.attrs["callee"], op.attrs["at"]) for op in module.main.ops]
    assert calls == [
        ("linear_forward", "layers.0"),
        ("linear_forward_2", "layers.1"),
        ("linear_forward", "layers.2"),
    ]


def test_values_keep_the_names_of_the_source() -> None:
    source = """
pub entry f(x: Tensor[2; f32]) -> Tensor[2; f32] {
    let scaled = x * 2
    var acc = scaled
    acc = acc + 1
    acc = acc * acc
    return acc
}"""
    main = evaluate(source, floats(2)).module.main
    named = [v.name for op in main.ops for v in op.outputs if op.kind != "constant"]
    assert named == ["scaled", "acc", "acc_1"]


def test_operations_tell_where_they_come_from() -> None:
    program = compiled("module m\npub entry f(x: f32) -> f32 {\n    return x + x\n}")
    module = lower(instantiate(program), "f", {})
    assert module.main.ops[0].location == "<text>:3:12"
    assert module.main.location == "<text>:2:1"


def test_a_dimension_too_large_for_its_dtype_is_an_error() -> None:
    program = compiled("pub entry f<N: Dim>(x: Tensor[N; i8]) -> Tensor[N; i8] { return x + N }")
    instance = instantiate(program)
    generics = bind_entry(instance, "f", [TensorType((300,), DType.I8)])
    with pytest.raises(LinnetError, match=r"E2105.*300 does not fit i8"):
        lower(instance, "f", generics)


def test_bf16_rounds_after_each_operation() -> None:
    x = f32(1.0, 1.0078125)
    out = evaluate("pub entry f(x: Tensor[2; bf16]) -> Tensor[2; bf16] { return x * x }", BF16(x))
    np.testing.assert_array_equal(out.result, f32(1.0, 1.015625))


def test_calls_many_levels_deep_lower() -> None:
    depth = 400
    lines = [f"op g{i}(x: f32) -> f32 {{ return g{i + 1}(x + 1) }}" for i in range(depth)]
    text = "\n".join([*lines, f"op g{depth}(x: f32) -> f32 {{ return x }}",
                      "pub entry f(x: f32) -> f32 { return g0(x) }"])  # fmt: skip
    module = lower(instantiate(compiled(text)), "f", {})
    assert len(optimise(module).functions) == depth + 2
