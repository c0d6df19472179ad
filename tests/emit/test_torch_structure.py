"""States in place, loops, branches and calls: what is emitted, and that it computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from linnet.emit.torch import TorchTarget, emit_torch
from linnet.ir.parse import parse_module
from linnet.ir.verify import verify
from tests.emit.random_modules import random_module
from tests.emit.running import Outcome

HEAD = "module main\n\n"
VALUE = np.array([5.0, 6.0], np.float32)
STATES = {"s": np.arange(4, dtype=np.float32), "r": np.arange(4, 8, dtype=np.float32)}


def entry(body: str, states: str = "s", inputs: str = "v: f32[2]") -> str:
    """An entry of the given states, all `f32[4]`."""
    lines = ["entry main from crate::Model.main"]
    lines += [f"  input {i} = {i.split(':')[0]}" for i in inputs.split("; ") if i]
    lines += [f"  state {name}: f32[4] = {name}" for name in states.split()]
    lines += [f"  {line.strip()}" for line in body.strip().splitlines()]
    return "\n".join(lines) + "\n"


def run(text: str, *inputs: np.ndarray) -> str:
    """Checks a module against the interpreter; gives the entry's emitted body."""
    module = parse_module(HEAD + text)
    verify(module)
    given = inputs or (VALUE,)
    before = [np.array(x) for x in given]
    states = {slot.path: STATES[slot.path] for slot in module.main.states}
    outcome = Outcome(module, given[: len(module.main.inputs)], {}, states)
    outcome.assert_close()
    for x, kept in zip(given, before, strict=True):
        np.testing.assert_array_equal(x, kept)
    source = outcome.emitted.source
    return source[source.index("def main") :].partition('    """\n')[2]


AT = "i: i32[] = constant {value = 1}"


def test_a_dead_state_is_written_in_place() -> None:
    body = run(entry(f"{AT}\nw: f32[4] = update_slice s, v, i {{axes = [0]}}\nreturn v\nnext w"))
    assert body == "    model.s[1:3] = v\n    return v\n"


def test_the_result_of_an_entry_never_is_the_state_itself() -> None:
    body = run(entry(f"{AT}\nw: f32[4] = update_slice s, v, i {{axes = [0]}}\nreturn w\nnext w"))
    assert body == "    model.s[1:3] = v\n    return model.s.clone()\n"


def test_an_old_value_that_is_used_later_is_copied_first() -> None:
    body = run(
        entry(f"""
            {AT}
            w: f32[4] = update_slice s, v, i {{axes = [0]}}
            y: f32[4] = add w, s
            return y
            next w
        """)
    )
    assert body == (
        "    # a copy: the old values are still used below\n"
        "    s_before = model.s.clone()\n"
        "    model.s[1:3] = v\n"
        "    return model.s + s_before\n"
    )


def test_a_view_that_is_used_later_is_copied_when_it_is_made() -> None:
    body = run(
        entry(f"""
            {AT}
            old: f32[2] = slice s {{start = [0], stop = [2], step = [1]}}
            w: f32[4] = update_slice s, v, i {{axes = [0]}}
            y: f32[2] = add old, v
            return y
            next w
        """)
    )
    assert "    old = model.s[:2].clone()\n    model.s[1:3] = v\n" in body
    assert "s_before" not in body


def test_a_view_that_is_used_before_is_not_copied() -> None:
    body = run(
        entry(f"""
            {AT}
            t0: f32[2] = slice s {{start = [0], stop = [2], step = [1]}}
            y: f32[2] = add t0, v
            w: f32[4] = update_slice s, v, i {{axes = [0]}}
            return y
            next w
        """)
    )
    assert body == "    y = model.s[:2] + v\n    model.s[1:3] = v\n    return y\n"


def test_an_expression_does_not_move_past_a_write() -> None:
    body = run(
        entry(f"""
            {AT}
            t0: f32[4] = neg s
            w: f32[4] = update_slice s, v, i {{axes = [0]}}
            return t0
            next w
        """)
    )
    assert body == "    t0 = -model.s\n    model.s[1:3] = v\n    return t0\n"


def test_a_value_that_overlaps_its_target_is_copied() -> None:
    body = run(
        entry(f"""
            {AT}
            t0: f32[2] = slice s {{start = [0], stop = [2], step = [1]}}
            w: f32[4] = update_slice s, t0, i {{axes = [0]}}
            return v
            next w
        """)
    )
    assert "t0 = model.s[:2].clone()\n    model.s[1:3] = t0\n" in body


def test_a_computed_state_is_stored_at_the_end() -> None:
    body = run(entry("w: f32[4] = add s, s\nreturn v\nnext w"))
    assert body == "    w = model.s + model.s\n    model.s.copy_(w)\n    return v\n"


def test_states_can_be_exchanged() -> None:
    body = run(entry("return v\nnext r, s", states="s r"))
    assert body == (
        "    # a copy: the old values are still used below\n"
        "    s_before = model.s.clone()\n"
        "    model.s.copy_(model.r)\n"
        "    model.r.copy_(s_before)\n"
        "    return v\n"
    )


def test_an_update_that_becomes_no_state_is_made_in_a_copy() -> None:
    body = run(entry(f"{AT}\nw: f32[4] = update_slice s, v, i {{axes = [0]}}\nreturn w\nnext s"))
    assert "    w = model.s.clone()\n    w[1:3] = v\n    return w\n" in body


def test_an_input_is_never_written() -> None:
    text = entry(
        f"{AT}\nw: f32[4] = update_slice x, v, i {{axes = [0]}}\nreturn w",
        states="",
        inputs="x: f32[4]; v: f32[2]",
    )
    body = run(text, np.ones(4, np.float32), VALUE)
    assert "    w = x.clone()\n    w[1:3] = v\n" in body


def test_a_new_tensor_is_written_without_a_copy() -> None:
    text = entry(
        f"c: f32[4] = constant {{value = 0.0}}\n{AT}\n"
        "w: f32[4] = update_slice c, v, i {axes = [0]}\nreturn w",
        states="",
    )
    assert run(text) == (
        "    w = torch.zeros((4,), dtype=torch.float32)\n    w[1:3] = v\n    return w\n"
    )


METHOD = """\
method part_run from crate::Part.run
  input v: f32[2] = v
  state s: f32[4] = s
  i: i32[] = constant {value = 1}
  y: f32[2] = slice s {start = [0], stop = [2], step = [1]}
  w: f32[4] = update_slice s, v, i {axes = [0]}
  return y
  next w

"""


def test_a_method_writes_the_state_of_its_block() -> None:
    text = METHOD + entry("""
        a: f32[2], w: f32[4] = call v, s {callee = "part_run", at = ""}
        b: f32[2], x: f32[4] = call a, w {callee = "part_run", at = ""}
        return b
        next x
    """)
    assert run(text) == "    a = part_run(model, v)\n    b = part_run(model, a)\n    return b\n"


def test_a_state_is_kept_for_what_needs_it_after_a_call() -> None:
    """The method is called once, for the block that calls it: it stands in its caller."""
    text = METHOD + entry("""
        a: f32[2], w: f32[4] = call v, s {callee = "part_run", at = ""}
        b: f32[4] = add s, w
        return b
        next w
    """)
    body = run(text)
    assert "s_before = model.s.clone()\n    model.s[1:3] = v\n    return" in body


def test_a_call_that_must_not_change_its_state_is_inlined() -> None:
    text = METHOD + entry("""
        a: f32[2], w: f32[4] = call v, s {callee = "part_run", at = ""}
        b: f32[2], x: f32[4] = call v, s {callee = "part_run", at = ""}
        c: f32[2] = add a, b
        return c
        next x
    """)
    run(text)


LOOP = """\
region more
  input i: i64[] = i
  input c: f32[4] = c
  input v: f32[2] = v
  n: i64[] = constant {value = 3}
  more: bool[] = lt i, n
  return more

region step
  input i: i64[] = i
  input c: f32[4] = c
  input v: f32[2] = v
  one: i64[] = constant {value = 1}
  j: i64[] = add i, one
  w: f32[4] = update_slice c, v, i {axes = [0]}
  return j, w

"""


@pytest.mark.parametrize("trips", [3, -1])
def test_a_state_is_written_in_a_loop(trips: int) -> None:
    text = LOOP + entry(f"""
        z: i64[] = constant {{value = 0}}
        n: i64[], w: f32[4] = while z, s, v {{condition = "more", body = "step", carried = 2, \
trips = {trips}}}
        return v
        next w
    """)
    body = run(text)
    assert "clone" not in body and "copy_" not in body
    if trips == 3:
        assert body == "    for i in range(3):\n        model.s[i:i + 2] = v\n    return v\n"
    else:
        assert body.startswith("    i = 0\n    while i < 3:\n")


def test_a_tensor_is_built_up_in_a_loop() -> None:
    text = LOOP + entry(
        """
        z: i64[] = constant {value = 0}
        c: f32[4] = constant {value = 0.0}
        n: i64[], w: f32[4] = while z, c, v {condition = "more", body = "step", carried = 2, \
trips = 3}
        return w, n
        """,
        states="",
    )
    body = run(text)
    assert body.count("torch.zeros") == 1 and "clone" not in body
    assert "return c, torch.full((), 3, dtype=torch.int64)" in body


BRANCHES = """\
region then
  input s: f32[4] = s
  input v: f32[2] = v
  i: i32[] = constant {value = 1}
  w: f32[4] = update_slice s, v, i {axes = [0]}
  return w

region otherwise
  input s: f32[4] = s
  input v: f32[2] = v
  return s

"""


def test_a_state_is_written_in_a_branch() -> None:
    text = BRANCHES + entry(
        """
        w: f32[4] = if p, s, v {then = "then", otherwise = "otherwise"}
        return v
        next w
        """,
        inputs="p: bool[]; v: f32[2]",
    )
    for truth in (True, False):
        body = run(text, np.array(truth), VALUE)
        assert body == "    if p:\n        model.s[1:3] = v\n    return v\n"


@pytest.mark.parametrize("part", range(8))
def test_random_modules_compute_what_the_interpreter_says(part: int) -> None:
    for seed in range(part * 25, part * 25 + 25):
        module, paths = random_module(seed, size=12)
        random = np.random.default_rng(seed)
        given = [random.integers(-3, 4, 4).astype(np.float32) for _ in range(2 + len(paths))]
        before = [x.copy() for x in given[:2]]
        outcome = Outcome(module, given[:2], {}, dict(zip(paths, given[2:], strict=True)))
        outcome.assert_close()
        np.testing.assert_array_equal(before, given[:2])


def test_the_source_is_the_same_every_time() -> None:
    for seed in range(20):
        module, _ = random_module(seed)
        assert emit_torch(module) == emit_torch(random_module(seed)[0])


LAYERS = """\
method layer_run from crate::Layer.run<H = 4>
  input x: f32[4] = x
  param weight: f32[4] = norm.weight
  derived scale: f32[4] = @layer_run.scale
  t0: f32[4] = mul x, weight
  y: f32[4] = mul t0, scale
  return y

entry main from crate::Model.main<H = 4>
  input x: f32[4] = x
  param w0: f32[4] = layers.0.norm.weight
  param w1: f32[4] = layers.1.norm.weight
  param w2: f32[4] = layers.2.norm.weight
  derived s0: f32[4] = @layers.0.layer_run.scale
  derived s1: f32[4] = @layers.1.layer_run.scale
  derived s2: f32[4] = @layers.2.layer_run.scale
  x_1: f32[4] = call x, w0, s0 {callee = "layer_run", at = "layers.0"}
  x_2: f32[4] = call x_1, w1, s1 {callee = "layer_run", at = "layers.1"}
  x_3: f32[4] = call x_2, w2, s2 {callee = "layer_run", at = "layers.2"}
  return x_3

prepare @layers.0.layer_run.scale, @layers.1.layer_run.scale, @layers.2.layer_run.scale

fn prepare
  param w0: f32[4] = layers.0.norm.weight
  param w1: f32[4] = layers.1.norm.weight
  param w2: f32[4] = layers.2.norm.weight
  a: f32[4] = neg w0
  b: f32[4] = neg w1
  c: f32[4] = neg w2
  return a, b, c
"""

EMITTED = '''\
"""`Model.main` in PyTorch, generated by Linnet.

Bound: H = 4.

For cpu, eager, numerics: fast.
"""

import torch
from torch.nn import functional as F


class Block:
    """Holds the weights, states and children of one block of the model."""


def place(block, path, tensor):
    """Puts a tensor where its path says, making the blocks on the way: `layers.3.norm.weight`."""
    *parents, name = path.split(".")
    for part, following in zip(parents, [*parents[1:], name]):
        new = list if following.isdigit() else Block
        if part.isdigit():
            block.extend(new() for _ in range(len(block), int(part) + 1))
            block = block[int(part)]
        else:
            block = vars(block).setdefault(part, new())
    setattr(block, name, tensor)


def new_model(weights):
    """The tree of blocks, from tensors by parameter path; states start at zero."""
    model = Block()
    for path, tensor in weights.items():
        place(model, path, tensor)
    prepare(model)
    return model


def layer_run(layer, x):
    """`Layer.run`

    x: f32[4] -> f32[4]
    """
    return x * layer.norm.weight * layer.scale


def main(model, x):
    """`Model.main`

    x: f32[4] -> f32[4]
    """
    for layer in model.layers:
        x = layer_run(layer, x)
    return x


def prepare(model):
    """Work that reads only weights: run once they are loaded."""
    for layer in model.layers:
        layer.scale = -layer.norm.weight
'''


def test_a_model_reads_as_a_person_would_write_it() -> None:
    module = parse_module(HEAD + LAYERS)
    verify(module)
    assert emit_torch(module) == EMITTED
    weights = {f"layers.{i}.norm.weight": np.full(4, i + 1, np.float32) for i in range(3)}
    Outcome(module, [np.ones(4, np.float32)], weights).assert_close()


SOME_LAYERS = """\
method layer_run from crate::Layer.run<H = 4>
  input x: f32[4] = x
  param weight: f32[4] = norm.weight
  y: f32[4] = mul x, weight
  return y

method some_run from crate::Model.some<H = 4>
  input x: f32[4] = x
  param w0: f32[4] = layers.0.norm.weight
  param w1: f32[4] = layers.1.norm.weight
  x_1: f32[4] = call x, w0 {callee = "layer_run", at = "layers.0"}
  x_2: f32[4] = call x_1, w1 {callee = "layer_run", at = "layers.1"}
  return x_2

entry main from crate::Model.all<H = 4>
  input x: f32[4] = x
  param w0: f32[4] = layers.0.norm.weight
  param w1: f32[4] = layers.1.norm.weight
  param w2: f32[4] = layers.2.norm.weight
  y: f32[4] = call x, w0, w1 {callee = "some_run", at = ""}
  z: f32[4] = call y, w0, w1 {callee = "some_run", at = ""}
  u: f32[4] = call z, w2 {callee = "layer_run", at = "layers.2"}
  return u
"""


def test_a_loop_is_over_the_layers_that_a_method_uses() -> None:
    module = parse_module(HEAD + SOME_LAYERS)
    verify(module)
    assert "    for layer in model.layers[:2]:\n" in emit_torch(module)
    weights = {f"layers.{i}.norm.weight": np.full(4, i + 2, np.float32) for i in range(3)}
    Outcome(module, [np.ones(4, np.float32)], weights).assert_close()


def test_derived_values_of_several_layers_may_be_one() -> None:
    text = LAYERS.replace("a, b, c", "a").replace(
        "@layers.0.layer_run.scale, @layers.1.layer_run.scale, @layers.2.layer_run.scale",
        "@layers.0.layer_run.scale",
    )
    for i in (1, 2):
        text = text.replace(f"  derived s{i}: f32[4] = @layers.{i}.layer_run.scale\n", "")
        text = text.replace(f"w{i}, s{i} {{", f"w{i}, s0 {{")
    text = text.replace("  b: f32[4] = neg w1\n  c: f32[4] = neg w2\n", "")
    text = text.replace("  param w1: f32[4] = layers.1.norm.weight\n  param w2: f32[4] = "
                        "layers.2.norm.weight\n  a:", "  a:")  # fmt: skip
    module = parse_module(HEAD + text)
    verify(module)
    source = emit_torch(module)
    assert "    for layer in model.layers:\n        x = layer_run(layer, x)\n" in source
    assert "    for layer in model.layers:\n        layer.scale = a\n" in source
    weights = {f"layers.{i}.norm.weight": np.full(4, i + 1, np.float32) for i in range(3)}
    Outcome(module, [np.ones(4, np.float32)], weights).assert_close()


def test_a_target_must_be_one_there_is() -> None:
    with pytest.raises(ValueError, match="mode must be one of eager, inductor, cudagraphs"):
        TorchTarget(mode="xla")
    with pytest.raises(ValueError, match="numerics must be one of exact, equivalent, fast"):
        TorchTarget(numerics="loose")
    with pytest.raises(ValueError, match="CUDA graphs need a CUDA device"):
        TorchTarget(mode="cudagraphs")
