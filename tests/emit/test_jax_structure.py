"""States, loops, branches and calls in JAX: what is emitted, and that it computes the same."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from linnet.cli import app
from linnet.emit.jax import JaxTarget, emit_jax
from linnet.ir.parse import parse_module
from linnet.ir.verify import verify
from tests.emit.random_modules import random_module
from tests.emit.running_jax import Outcome
from tests.emit.test_torch_structure import BRANCHES, HEAD, LAYERS, LOOP, METHOD, STATES, entry

VALUE = np.array([5.0, 6.0], np.float32)
AT = "i: i32[] = constant {value = 1}"


def run(text: str, *inputs: np.ndarray, jit: bool = True) -> str:
    """Checks a module against the interpreter; gives the entry's emitted body."""
    module = parse_module(HEAD + text)
    verify(module)
    given = inputs or (VALUE,)
    states = {slot.path: STATES[slot.path] for slot in module.main.states}
    outcome = Outcome(module, given[: len(module.main.inputs)], {}, states, jit=jit)
    outcome.assert_close()
    source = outcome.emitted.source
    return source[source.index("def main(") :].partition('    """\n')[2]


def test_a_state_is_given_back_as_a_new_value() -> None:
    body = run(entry(f"{AT}\nw: f32[4] = update_slice s, v, i {{axes = [0]}}\nreturn v\nnext w"))
    assert body == '    w = state["s"].at[1:3].set(v)\n    return v, {"s": w}\n'


def test_an_old_value_can_be_used_after_the_new_one() -> None:
    body = run(
        entry(f"""
            {AT}
            w: f32[4] = update_slice s, v, i {{axes = [0]}}
            y: f32[4] = add w, s
            return y
            next w
        """)
    )
    assert '    y = w + state["s"]\n    return y, {"s": w}\n' in body


def test_states_can_be_exchanged() -> None:
    body = run(entry("return v\nnext r, s", states="s r"))
    assert body == '    return v, {"s": state["r"], "r": state["s"]}\n'


def test_states_that_stay_are_given_back_as_they_are() -> None:
    assert run(entry("return v\nnext s", states="s")) == "    return v, state\n"


def test_a_method_gives_back_the_states_of_its_block() -> None:
    text = METHOD + entry("""
        a: f32[2], w: f32[4] = call v, s {callee = "part_run", at = ""}
        b: f32[2], x: f32[4] = call a, w {callee = "part_run", at = ""}
        return b
        next x
    """)
    assert run(text) == (
        "    a, state = part_run(state, v)\n"
        "    b, state = part_run(state, a)\n"
        "    return b, state\n"
    )


def test_a_call_may_be_made_for_a_state_that_is_not_the_last() -> None:
    text = METHOD + entry("""
        a: f32[2], w: f32[4] = call v, s {callee = "part_run", at = ""}
        b: f32[2], x: f32[4] = call v, s {callee = "part_run", at = ""}
        c: f32[2] = add a, b
        return c
        next x
    """)
    run(text)


def test_a_loop_that_counts_is_a_fori_loop() -> None:
    text = LOOP + entry("""
        z: i64[] = constant {value = 0}
        n: i64[], w: f32[4] = while z, s, v {condition = "more", body = "step", carried = 2, \
trips = 3}
        return v
        next w
    """)
    assert run(text) == (
        "    def step(i, c):\n"
        "        w = lax.dynamic_update_slice_in_dim(c, v, i, axis=0)\n"
        "        return w\n"
        "\n"
        '    w = lax.fori_loop(0, 3, step, state["s"])\n'
        '    return v, {"s": w}\n'
    )


def test_a_loop_whose_end_is_not_known_is_a_while_loop() -> None:
    text = LOOP + entry("""
        z: i64[] = constant {value = 0}
        n: i64[], w: f32[4] = while z, s, v {condition = "more", body = "step", carried = 2, \
trips = -1}
        return v, n
        next w
    """)
    assert run(text) == (
        "    def more(carried):\n"
        "        i, _ = carried\n"
        "        return i < 3\n"
        "\n"
        "    def step(carried):\n"
        "        i, c = carried\n"
        "        j = i + 1\n"
        "        w = lax.dynamic_update_slice_in_dim(c, v, jnp.maximum(i, 0), axis=0)\n"
        "        return j, w\n"
        "\n"
        '    n, w = lax.while_loop(more, step, (jnp.int64(0), state["s"]))\n'
        '    return v, n, {"s": w}\n'
    )


def test_a_branch_is_a_cond() -> None:
    text = BRANCHES + entry(
        """
        w: f32[4] = if p, s, v {then = "then", otherwise = "otherwise"}
        return v
        next w
        """,
        inputs="p: bool[]; v: f32[2]",
    )
    for truth in (True, False):
        assert run(text, np.array(truth), VALUE) == (
            '    w = lax.cond(p, lambda: state["s"].at[1:3].set(v), lambda: state["s"])\n'
            '    return v, {"s": w}\n'
        )


def test_a_nested_function_does_not_assign_a_name_that_it_reads_from_outside() -> None:
    """Else Python would take the name for the function's own, which has no value yet."""
    text = """\
region then
  input x: f32[2] = x
  a: f32[2] = neg x
  x_1: f32[2] = mul a, a
  y: f32[2] = add x_1, a
  return y

region otherwise
  input x: f32[2] = x
  return x

entry main from crate::Model.main
  input p: bool[] = p
  input v: f32[2] = v
  x: f32[2] = add v, v
  y: f32[2] = if p, x {then = "then", otherwise = "otherwise"}
  return y
"""
    body = run(text, np.array(True), VALUE)
    assert "a = -x\n" in body and "        x = " not in body


@pytest.mark.parametrize("part", range(8))
def test_random_modules_compute_what_the_interpreter_says(part: int) -> None:
    for seed in range(part * 20, part * 20 + 20):
        module, paths = random_module(seed, size=12)
        random = np.random.default_rng(seed)
        given = [random.integers(-3, 4, 4).astype(np.float32) for _ in range(2 + len(paths))]
        states = dict(zip(paths, given[2:], strict=True))
        with jax.enable_x64(seed % 3 == 0):
            outcome = Outcome(module, given[:2], {}, states, jit=seed % 2 == 0)
        outcome.assert_close()


def test_the_source_is_the_same_every_time() -> None:
    for seed in range(20):
        module, _ = random_module(seed)
        assert emit_jax(module) == emit_jax(random_module(seed)[0])


EMITTED = '''\
"""`Model.main` in JAX, generated by Linnet.

Bound: H = 4.

Numerics: fast.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax


def as_declared(function):
    """Computes in the types of the source: f32 products in f32, whatever the device's habit."""

    @functools.wraps(function)
    def run(*arguments):
        with jax.default_matmul_precision("float32"):
            return function(*arguments)

    return run


def tree(leaves):
    """Nested dicts and lists from arrays by path, such as `layers.3.norm.weight`."""
'''

REST = '''\
def new_model(weights):
    """The tree of blocks, from arrays by parameter path."""
    return prepare(tree(weights))


def layer_run(layer, x):
    """`Layer.run`

    x: f32[4] -> f32[4]
    """
    return x * layer["norm"]["weight"] * layer["scale"]


@as_declared
def main(model, x):
    """`Model.main`

    x: f32[4] -> f32[4]
    """
    for layer in model["layers"]:
        x = layer_run(layer, x)
    return x


@as_declared
def prepare(model):
    """Work that reads only weights: run once they are there, on a new tree of them."""
    model = jax.tree.map(lambda weight: weight, model)
    for layer in model["layers"]:
        layer["scale"] = -layer["norm"]["weight"]
    return model
'''


def test_a_model_reads_as_a_person_would_write_it() -> None:
    module = parse_module(HEAD + LAYERS)
    verify(module)
    source = emit_jax(module)
    assert source.startswith(EMITTED)
    assert source[source.index("def new_model") :] == REST
    weights = {f"layers.{i}.norm.weight": np.full(4, i + 1, np.float32) for i in range(3)}
    Outcome(module, [np.ones(4, np.float32)], weights).assert_close()


CACHED = """\
method layer_run from crate::Layer.run<H = 4>
  input x: f32[4] = x
  param weight: f32[4] = norm.weight
  state last: f32[4] = memory.last
  state total: f32[4] = memory.total
  t0: f32[4] = mul x, weight
  y: f32[4] = add t0, last
  sum: f32[4] = add total, y
  return y
  next x, sum

entry main from crate::Model.main<H = 4>
  input x: f32[4] = x
  param w0: f32[4] = layers.0.norm.weight
  param w1: f32[4] = layers.1.norm.weight
  state l0: f32[4] = layers.0.memory.last
  state t0s: f32[4] = layers.0.memory.total
  state l1: f32[4] = layers.1.memory.last
  state t1s: f32[4] = layers.1.memory.total
  a: f32[4], m0: f32[4], n0: f32[4] = call x, w0, l0, t0s {callee = "layer_run", at = "layers.0"}
  b: f32[4], m1: f32[4], n1: f32[4] = call a, w1, l1, t1s {callee = "layer_run", at = "layers.1"}
  return b
  next m0, n0, m1, n1
"""


def test_a_loop_over_layers_collects_their_states() -> None:
    module = parse_module(HEAD + CACHED.replace("b:", "x_2:").replace("a: f32[4], m0", "x_1: "
                          "f32[4], m0").replace("call a", "call x_1").replace("return b",
                          "return x_2"))  # fmt: skip
    verify(module)
    weights = {f"layers.{i}.norm.weight": np.full(4, i + 1, np.float32) for i in range(2)}
    states = {slot.path: np.arange(i, i + 4, dtype=np.float32)
              for i, slot in enumerate(module.main.states)}  # fmt: skip
    outcome = Outcome(module, [np.ones(4, np.float32)], weights, states)
    outcome.assert_close()
    source = outcome.emitted.source
    assert (
        '    layers = list(state["layers"])\n'
        '    for i, layer in enumerate(model["layers"]):\n'
        '        x, layers[i] = layer_run(layer, state["layers"][i], x)\n'
        '    return x, {"layers": layers}\n'
    ) in source
    assert '    return t0 + state["memory"]["last"]' in source or "return y, {" in source


def test_only_a_part_of_the_layers_may_run() -> None:
    """The loop must not go over layers that a method does not use."""
    text = LAYERS.replace("entry main from", "method some_run from").replace(
        "  x_3: f32[4] = call x_2, w2, s2 {callee = \"layer_run\", at = \"layers.2\"}\n", ""
    ).replace("return x_3", "return x_2")  # fmt: skip
    text = text.replace("  param w2: f32[4] = layers.2.norm.weight\n  derived s0",
                        "  derived s0", 1)  # fmt: skip
    text = text.replace("  derived s2: f32[4] = @layers.2.layer_run.scale\n", "", 1)
    head, _, prepare = text.partition("prepare @layers")
    main = """\
entry main from crate::Model.all<H = 4>
  input x: f32[4] = x
  param w0: f32[4] = layers.0.norm.weight
  param w1: f32[4] = layers.1.norm.weight
  param w2: f32[4] = layers.2.norm.weight
  derived s0: f32[4] = @layers.0.layer_run.scale
  derived s1: f32[4] = @layers.1.layer_run.scale
  derived s2: f32[4] = @layers.2.layer_run.scale
  y: f32[4] = call x, w0, w1, s0, s1 {callee = "some_run", at = ""}
  z: f32[4] = call y, w0, w1, s0, s1 {callee = "some_run", at = ""}
  u: f32[4] = call z, w2, s2 {callee = "layer_run", at = "layers.2"}
  return u

"""
    module = parse_module(HEAD + head + main + "prepare @layers" + prepare)
    verify(module)
    weights = {f"layers.{i}.norm.weight": np.full(4, i + 1, np.float32) for i in range(3)}
    outcome = Outcome(module, [np.ones(4, np.float32)], weights)
    outcome.assert_close()
    assert "    for i in range(2):\n" in outcome.emitted.source


def test_numerics_must_be_one_there_is() -> None:
    with pytest.raises(ValueError, match="numerics must be one of exact, equivalent, fast"):
        JaxTarget(numerics="loose")


def test_the_command_line_prints_it(tmp_path: Path) -> None:
    arguments = ["emit-jax", "smollm2-135m-instruct", "--entry", "decode", "--bind", "MaxSeq=64"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0
    assert '"""`Llama.decode` in JAX, generated by Linnet.' in shown.output
    written = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "decode.py")])
    assert written.exit_code == 0 and not written.output
    assert (tmp_path / "decode.py").read_text(encoding="utf-8") == shown.output
    refused = CliRunner().invoke(app, ["emit-jax", "smollm2-135m-instruct", "--entry", "decod"])
    assert refused.exit_code == 1 and "has no entry `decod`" in refused.output
