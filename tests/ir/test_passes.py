"""The passes, text in and text out."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import numpy as np
import pytest

from linnet.ir.core import Module
from linnet.ir.interpreter import run
from linnet.ir.parse import parse_module
from linnet.ir.passes import (
    cse,
    dce,
    fold_constants,
    hoist,
    inline,
    join_linears,
    optimise,
)
from linnet.ir.printer import print_module
from linnet.ir.rewrite import fingerprints
from linnet.ir.verify import verify


def becomes(before: str, run_pass: Callable[[Module], Module], after: str) -> None:
    module = parse_module(dedent(before))
    verify(module)
    changed = run_pass(module)
    verify(changed)
    assert print_module(changed) == dedent(after).lstrip("\n")


def test_cse_shares_work_but_tells_zeros_apart() -> None:
    becomes(
        """
        module f

        entry f
          input x: f32[2] = x
          a: f32[2] = exp x
          b: f32[2] = exp x
          c: f32[2] = mul a, b
          d: f32[2] = mul b, a
          zero: f32[2] = constant {value = 0.0}
          minus: f32[2] = constant {value = -0.0}
          return c, d, zero, minus
        """,
        cse,
        """
        module f

        entry f
          input x: f32[2] = x
          a: f32[2] = exp x
          c: f32[2] = mul a, a
          zero: f32[2] = constant {value = 0.0}
          minus: f32[2] = constant {value = -0.0}
          return c, c, zero, minus
        """,
    )


def test_folding_computes_what_is_known_and_drops_what_changes_nothing() -> None:
    becomes(
        """
        module f

        entry f
          input x: f32[2, 3] = x
          two: i64[] = constant {value = 2}
          wide: f32[] = cast two
          root: f32[] = rsqrt wide
          spread: f32[2, 3] = broadcast root {axes = []}
          scaled: f32[2, 3] = mul x, spread
          one: f32[2, 3] = constant {value = 1.0}
          same: f32[2, 3] = mul one, scaled
          flat: f32[6] = reshape same
          tall: f32[3, 2] = reshape flat
          back: f32[2, 3] = permute tall {axes = [1, 0]}
          again: f32[3, 2] = permute back {axes = [1, 0]}
          kept: f32[3, 2] = cast again
          zero: f32[3, 2] = constant {value = 0.0}
          sum: f32[3, 2] = add kept, zero
          return sum
        """,
        lambda module: dce(fold_constants(module)),
        """
        module f

        entry f
          input x: f32[2, 3] = x
          spread: f32[2, 3] = constant {value = 0.7071067690849304}
          scaled: f32[2, 3] = mul x, spread
          tall: f32[3, 2] = reshape scaled
          zero: f32[3, 2] = constant {value = 0.0}
          sum: f32[3, 2] = add tall, zero
          return sum
        """,
    )


CALLS = """
module f

op gelu from std.nn.activations::gelu
  input x: f32[2] = x
  y: f32[2] = tanh x
  return y

fn helper from crate::helper
  input x: f32[2] = x
  big: f32[2] = exp x
  y: f32[2] = call big {callee = "gelu", at = ""}
  return y

method scale_forward from crate::Scale.forward
  input x: f32[2] = x
  param weight: f32[2] = weight
  t0: f32[2] = mul x, weight
  return t0

method layer_forward from crate::Layer.forward
  input x: f32[2] = x
  param scale_weight: f32[2] = scale.weight
  state total: f32[2] = total
  a: f32[2] = call x, scale_weight {callee = "scale_forward", at = "scale"}
  b: f32[2] = call a {callee = "helper", at = ""}
  c: f32[2] = call b {callee = "helper", at = ""}
  sum: f32[2] = add total, c
  d: f32[2] = mul c, c
  return d
  next sum

entry f from crate::Net.f
  input x: f32[2] = x
  param layers_0_scale_weight: f32[2] = layers.0.scale.weight
  param layers_1_scale_weight: f32[2] = layers.1.scale.weight
  state layers_0_total: f32[2] = layers.0.total
  state layers_1_total: f32[2] = layers.1.total
  y: f32[2], sum: f32[2] = call x, layers_0_scale_weight, layers_0_total {callee = \
"layer_forward", at = "layers.0"}
  y_1: f32[2], sum_1: f32[2] = call y, layers_1_scale_weight, layers_1_total {callee = \
"layer_forward", at = "layers.1"}
  return y_1
  next sum, sum_1
"""


def test_inlining_keeps_ops_and_layers() -> None:
    module = inline(parse_module(CALLS))
    verify(module)
    assert list(module.functions) == ["gelu", "layer_forward", "f"]
    text = print_module(module)
    assert (
        """\
method layer_forward from crate::Layer.forward
  input x: f32[2] = x
  param scale_weight: f32[2] = scale.weight
  state total: f32[2] = total
  a: f32[2] = mul x, scale_weight
  big: f32[2] = exp a
  b: f32[2] = call big {callee = "gelu", at = ""}
  big_1: f32[2] = exp b
  c: f32[2] = call big_1 {callee = "gelu", at = ""}
"""
        in text
    )


def test_inlining_expands_an_op_on_request() -> None:
    module = inline(parse_module(CALLS), expand=["std.nn.activations::gelu"])
    verify(module)
    assert list(module.functions) == ["layer_forward", "f"]


def test_inlining_puts_nested_calls_at_the_path_of_their_block() -> None:
    becomes(
        """
        module f

        method inner from crate::Inner.forward
          input x: f32[2] = x
          param w: f32[2] = w
          a: f32[2] = mul x, w
          b: f32[2] = exp a
          c: f32[2] = exp b
          d: f32[2] = exp c
          return d

        method outer from crate::Outer.forward
          input x: f32[2] = x
          param w: f32[2] = inner.w
          a: f32[2] = call x, w {callee = "inner", at = "inner"}
          return a

        entry f from crate::Net.f
          input x: f32[2] = x
          param w: f32[2] = outer.inner.w
          y: f32[2] = call x, w {callee = "outer", at = "outer"}
          return y
        """,
        inline,
        """
        module f

        method inner from crate::Inner.forward
          input x: f32[2] = x
          param w: f32[2] = w
          a: f32[2] = mul x, w
          b: f32[2] = exp a
          c: f32[2] = exp b
          d: f32[2] = exp c
          return d

        entry f from crate::Net.f
          input x: f32[2] = x
          param w: f32[2] = outer.inner.w
          y: f32[2] = call x, w {callee = "inner", at = "outer.inner"}
          return y
        """,
    )


def test_inlining_gives_each_loop_its_own_regions() -> None:
    module = parse_module(
        dedent(
            """
            module f

            region double_condition
              input n: i64[] = n
              input x: f32[2] = x
              two: i64[] = constant {value = 2}
              more: bool[] = lt n, two
              return more

            region double_body
              input n: i64[] = n
              input x: f32[2] = x
              one: i64[] = constant {value = 1}
              next: i64[] = add n, one
              y: f32[2] = add x, x
              return next, y

            fn double from crate::double
              input x: f32[2] = x
              zero: i64[] = constant {value = 0}
              n: i64[], y: f32[2] = while zero, x {condition = "double_condition", \
body = "double_body", carried = 2, trips = 2}
              return y

            entry f from crate::f
              input x: f32[2] = x
              y: f32[2] = call x {callee = "double", at = ""}
              z: f32[2] = call y {callee = "double", at = ""}
              return z
            """
        )
    )
    flat = inline(module)
    verify(flat)
    loops = [op for op in flat.main.ops if op.kind == "while"]
    assert [op.attrs["body"] for op in loops] == ["double_body", "double_body_1"]
    (found,), _ = run(flat, [np.array([1.0, 2.0])], {})
    assert found.tolist() == [16, 32]


def test_dce_goes_through_calls() -> None:
    becomes(
        """
        module f

        op kernel from std.nn::kernel
          input x: f32[2] = x
          input unused: f32[2] = unused
          y: f32[2] = exp x
          return y

        method part from crate::Part.forward
          input x: f32[2] = x
          input z: f32[2] = z
          param w: f32[2] = w
          param v: f32[2] = v
          state read: f32[2] = read
          state gone: f32[2] = gone
          a: f32[2] = mul x, w
          b: f32[2] = mul z, v
          k: f32[2] = call a, z {callee = "kernel", at = ""}
          c: f32[2] = add k, read
          return c, b
          next read, gone

        method never from crate::Part.never
          input x: f32[2] = x
          return x

        entry f from crate::Net.f
          input x: f32[2] = x
          input y: f32[2] = y
          param w: f32[2] = part.w
          param v: f32[2] = part.v
          state read: f32[2] = part.read
          state gone: f32[2] = part.gone
          a: f32[2], b: f32[2], r: f32[2], g: f32[2] = call x, y, w, v, read, gone \
{callee = "part", at = "part"}
          n: f32[2] = call b {callee = "never", at = "part"}
          return a
          next read, gone
        """,
        dce,
        """
        module f

        op kernel from std.nn::kernel
          input x: f32[2] = x
          input unused: f32[2] = unused
          y: f32[2] = exp x
          return y

        method part from crate::Part.forward
          input x: f32[2] = x
          input z: f32[2] = z
          param w: f32[2] = w
          state read: f32[2] = read
          a: f32[2] = mul x, w
          k: f32[2] = call a, z {callee = "kernel", at = ""}
          c: f32[2] = add k, read
          return c
          next read

        entry f from crate::Net.f
          input x: f32[2] = x
          input y: f32[2] = y
          param w: f32[2] = part.w
          state read: f32[2] = part.read
          a: f32[2], r: f32[2] = call x, y, w, read {callee = "part", at = "part"}
          return a
          next read
        """,
    )


def test_dce_in_regions_drops_what_neither_needs() -> None:
    becomes(
        """
        module f

        region yes
          input a: f32[] = a
          input b: f32[] = b
          input c: f32[] = c
          s: f32[] = add a, b
          return s, c

        region no
          input a: f32[] = a
          input b: f32[] = b
          input c: f32[] = c
          return a, c

        entry f
          input p: bool[] = p
          input x: f32[] = x
          y: f32[] = exp x
          z: f32[] = log x
          r: f32[], s: f32[] = if p, x, y, z {then = "yes", otherwise = "no"}
          return r
        """,
        dce,
        """
        module f

        region yes
          input a: f32[] = a
          input b: f32[] = b
          s: f32[] = add a, b
          return s

        region no
          input a: f32[] = a
          input b: f32[] = b
          return a

        entry f
          input p: bool[] = p
          input x: f32[] = x
          y: f32[] = exp x
          r: f32[] = if p, x, y {then = "yes", otherwise = "no"}
          return r
        """,
    )


LAYERS = """
module f

method layer from crate::Layer.forward
  input x: f32[4] = x
  param w: f32[2, 2] = w
  positions: f32[4] = iota {axis = 0}
  angles: f32[4] = cos positions
  double: f32[2, 2] = add w, w
  turned: f32[2, 2] = permute double {axes = [1, 0]}
  flat: f32[4] = reshape turned
  a: f32[4] = mul x, flat
  b: f32[4] = mul a, angles
  return b

entry f from crate::Net.f
  input x: f32[4] = x
  param w0: f32[2, 2] = layers.0.w
  param w1: f32[2, 2] = layers.1.w
  y: f32[4] = call x, w0 {callee = "layer", at = "layers.0"}
  z: f32[4] = call y, w1 {callee = "layer", at = "layers.1"}
  return z
"""


def test_hoisting_moves_weight_only_work_through_calls_and_keeps_equal_work_once() -> None:
    becomes(
        LAYERS,
        hoist,
        """
        module f

        method layer from crate::Layer.forward
          input x: f32[4] = x
          derived angles: f32[4] = @layer.angles
          derived double: f32[2, 2] = @layer.double
          turned: f32[2, 2] = permute double {axes = [1, 0]}
          flat: f32[4] = reshape turned
          a: f32[4] = mul x, flat
          b: f32[4] = mul a, angles
          return b

        entry f from crate::Net.f
          input x: f32[4] = x
          derived layers_0_angles: f32[4] = @layers.0.layer.angles
          derived layers_0_double: f32[2, 2] = @layers.0.layer.double
          derived layers_1_double: f32[2, 2] = @layers.1.layer.double
          y: f32[4] = call x, layers_0_angles, layers_0_double {callee = "layer", at = "layers.0"}
          z: f32[4] = call y, layers_0_angles, layers_1_double {callee = "layer", at = "layers.1"}
          return z

        prepare @layers.0.layer.angles, @layers.0.layer.double, @layers.1.layer.double

        fn prepare
          param layers_0_w: f32[2, 2] = layers.0.w
          param layers_1_w: f32[2, 2] = layers.1.w
          positions: f32[4] = iota {axis = 0}
          angles: f32[4] = cos positions
          double: f32[2, 2] = add layers_0_w, layers_0_w
          double_1: f32[2, 2] = add layers_1_w, layers_1_w
          return angles, double, double_1
        """,
    )


def test_equal_work_of_two_entries_has_one_fingerprint() -> None:
    module = hoist(parse_module(LAYERS))
    other = hoist(parse_module(LAYERS.replace("layer ", "block ").replace('"layer"', '"block"')))
    a, b = fingerprints(module), fingerprints(other)
    assert a["@layers.0.layer.double"] == b["@layers.0.block.double"]
    assert a["@layers.0.layer.double"] != a["@layers.1.layer.double"]
    changed = hoist(parse_module(LAYERS.replace("add w, w", "mul w, w")))
    assert fingerprints(changed)["@layers.0.layer.double"] != a["@layers.0.layer.double"]
    assert fingerprints(changed)["@layers.0.layer.angles"] == a["@layers.0.layer.angles"]


def test_hoisting_leaves_views_and_bodies_of_ops() -> None:
    text = """
    module f

    op table from std.nn::table
      positions: f32[4] = iota {axis = 0}
      angles: f32[4] = cos positions
      return angles

    op turn from std.nn::turn
      input x: f32[4] = x
      positions: f32[4] = iota {axis = 0}
      angles: f32[4] = cos positions
      y: f32[4] = mul x, angles
      return y

    entry f
      input x: f32[4] = x
      param w: f32[2, 2] = w
      t0: f32[4] = call {callee = "table", at = ""}
      flat: f32[4] = reshape w
      a: f32[4] = mul x, flat
      b: f32[4] = call a {callee = "turn", at = ""}
      c: f32[4] = add b, t0
      return c
    """
    module = hoist(parse_module(text))
    verify(module)
    assert module.derived == ("@f.table",)
    assert [op.kind for op in module.main.ops] == ["reshape", "mul", "call", "add"]
    kept = hoist(parse_module(text), keep=["std.nn::table"])
    assert kept.prepare is None


def test_hoisting_passes_derived_weights_into_loops() -> None:
    text = """
    module f

    method layer from crate::Layer.forward
      input x: f32[2] = x
      param w: f32[2] = w
      big: f32[2] = exp w
      y: f32[2] = mul x, big
      return y

    region f_condition
      input n: i64[] = n
      input x: f32[2] = x
      input w: f32[2] = w
      three: i64[] = constant {value = 3}
      more: bool[] = lt n, three
      return more

    region f_body
      input n: i64[] = n
      input x: f32[2] = x
      input w: f32[2] = w
      one: i64[] = constant {value = 1}
      m: i64[] = add n, one
      small: f32[2] = tanh w
      y: f32[2] = call x, w {callee = "layer", at = "layer"}
      z: f32[2] = add y, small
      return m, z

    entry f from crate::Net.f
      input x: f32[2] = x
      param w: f32[2] = layer.w
      zero: i64[] = constant {value = 0}
      n: i64[], y: f32[2] = while zero, x, w {condition = "f_condition", body = "f_body", \
carried = 2, trips = 3}
      return y
    """
    module = parse_module(dedent(text))
    verify(module)
    moved = hoist(module)
    verify(moved)
    assert set(moved.derived) == {"@layer.layer.big", "@f_body.small"}
    assert [op.kind for op in moved.functions["f_body"].ops] == ["constant", "add", "call", "add"]
    inputs, weights = [np.array([1.0, 2.0])], {"layer.w": np.array([0.5, -0.5])}
    before, after = run(module, inputs, weights)[0], run(moved, inputs, weights)[0]
    np.testing.assert_allclose(before, after, rtol=1e-6)


def test_a_method_that_reads_only_weights_moves_as_a_whole() -> None:
    text = """
    module f

    method tables from crate::Net.tables
      positions: f32[4] = iota {axis = 0}
      a: f32[4] = cos positions
      b: f32[4] = sin positions
      return a, b

    entry f from crate::Net.f
      input x: f32[4] = x
      cosine: f32[4], sine: f32[4] = call {callee = "tables", at = ""}
      y: f32[4] = mul x, cosine
      z: f32[4] = add y, sine
      return z
    """
    module = hoist(parse_module(text))
    verify(module)
    assert list(module.functions) == ["tables", "f"]
    assert module.derived == ("@f.cosine", "@f.sine")
    assert module.prepare is not None
    assert [op.kind for op in module.prepare.ops] == ["call"]


def test_a_method_called_with_and_without_inputs_that_are_fixed() -> None:
    text = """
    module f

    method scaled from crate::Net.scaled
      input x: f32[2] = x
      param w: f32[2] = w
      big: f32[2] = exp w
      y: f32[2] = mul x, big
      return y

    entry f from crate::Net.f
      input x: f32[2] = x
      param w: f32[2] = w
      fixed: f32[2] = call w, w {callee = "scaled", at = ""}
      y: f32[2] = call x, w {callee = "scaled", at = ""}
      z: f32[2] = add y, fixed
      return z
    """
    module = parse_module(text)
    moved = hoist(module)
    verify(moved)
    assert set(moved.functions) == {"scaled", "scaled_1", "f"}
    inputs, weights = [np.array([1.0, 2.0])], {"w": np.array([0.5, -0.5])}
    np.testing.assert_allclose(run(module, inputs, weights)[0], run(moved, inputs, weights)[0])


def test_long_chains_of_fixed_work_move() -> None:
    steps = [f"  v{i + 1}: f32[2] = exp v{i}" for i in range(3000)]
    lines = ["module f\n", "entry f", "  input x: f32[2] = x", "  param v0: f32[2] = v", *steps,
             "  y: f32[2] = mul x, v3000", "  return y"]  # fmt: skip
    module = hoist(parse_module("\n".join(lines)))
    assert module.prepare is not None
    assert (len(module.main.ops), len(module.prepare.ops)) == (1, 3000)


LINEARS = """
module f

op linear from std.nn.linear::linear<In = 2, Out = 2>
  input x: f32[1, 2] = x
  input weight: f32[2, 2] = weight
  input bias: f32[2] = bias
  product: f32[1, 2] = dot x, weight {batch = [[], []], contract = [[1], [1]]}
  wide: f32[1, 2] = broadcast bias {axes = [1]}
  y: f32[1, 2] = add product, wide
  return y

op linear_2 from std.nn.linear::linear<In = 2, Out = 3>
  input x: f32[1, 2] = x
  input weight: f32[3, 2] = weight
  input bias: f32[3] = bias
  product: f32[1, 3] = dot x, weight {batch = [[], []], contract = [[1], [1]]}
  wide: f32[1, 3] = broadcast bias {axes = [1]}
  y: f32[1, 3] = add product, wide
  return y

op linear_3 from std.nn.linear::linear<In = 2, Out = 2>
  input x: f32[1, 2] = x
  input weight: f32[2, 2] = weight
  product: f32[1, 2] = dot x, weight {batch = [[], []], contract = [[1], [1]]}
  return product

entry f from crate::Net.f
  input x: f32[1, 2] = x
  param q_weight: f32[2, 2] = q.weight
  param q_bias: f32[2] = q.bias
  param k_weight: f32[3, 2] = k.weight
  param k_bias: f32[3] = k.bias
  param v_weight: f32[2, 2] = v.weight
  param o_weight: f32[2, 2] = o.weight
  param o_bias: f32[2] = o.bias
  q: f32[1, 2] = call x, q_weight, q_bias {callee = "linear", at = ""}
  k: f32[1, 3] = call x, k_weight, k_bias {callee = "linear_2", at = ""}
  v: f32[1, 2] = call x, v_weight {callee = "linear_3", at = ""}
  o: f32[1, 2] = call q, o_weight, o_bias {callee = "linear", at = ""}
  return k, v, o
"""


def test_joining_takes_projections_of_one_input_and_one_kind() -> None:
    module = join_linears(parse_module(LINEARS))
    verify(module)
    assert list(module.functions) == ["linear", "linear_3", "linear_1", "f"]
    assert module.functions["linear_1"].generics == (("In", 2), ("Out", 5))
    text = print_module(module)
    assert (
        """\
  q_k_weight: f32[5, 2] = concat q_weight, k_weight {axis = 0}
  q_k_bias: f32[5] = concat q_bias, k_bias {axis = 0}
  q_k: f32[1, 5] = call x, q_k_weight, q_k_bias {callee = "linear_1", at = ""}
  q: f32[1, 2] = slice q_k {start = [0, 0], stop = [1, 2], step = [1, 1]}
  k: f32[1, 3] = slice q_k {start = [0, 2], stop = [1, 5], step = [1, 1]}
  v: f32[1, 2] = call x, v_weight {callee = "linear_3", at = ""}
  o: f32[1, 2] = call q, o_weight, o_bias {callee = "linear", at = ""}
"""
        in text
    )


def test_a_weight_that_is_used_elsewhere_is_not_joined() -> None:
    text = LINEARS.replace("return k, v, o", "return k, v, o, q_weight")
    module = join_linears(parse_module(text))
    assert "concat" not in print_module(module)


@pytest.mark.parametrize(("numerics", "joined"), [("exact", False), ("equivalent", True)])
def test_optimise_joins_unless_results_must_be_exact(numerics: str, joined: bool) -> None:
    module = optimise(parse_module(LINEARS), numerics)
    verify(module)
    assert (module.derived == ("@f.q_k_weight", "@f.q_k_bias")) == joined


def test_optimise_names_the_choices() -> None:
    with pytest.raises(ValueError, match="exact, equivalent, fast, not 'quick'"):
        optimise(parse_module(LINEARS), "quick")


def test_optimising_twice_is_refused() -> None:
    module = optimise(parse_module(LINEARS))
    with pytest.raises(ValueError, match="hoisted already"):
        optimise(module)
