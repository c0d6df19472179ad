"""Calls, loops, branches and states in ONNX, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from linnet.ir.parse import parse_module
from linnet.ir.verify import verify

pytest.importorskip("onnxruntime")

from linnet.emit.onnx import emit
from tests.emit.random_modules import random_module
from tests.emit.running_onnx import Outcome


@pytest.mark.parametrize("seed", range(300))
def test_random_modules(seed: int) -> None:
    """States, views, updates, loops, branches and calls at random; all numbers are exact."""
    module, paths = random_module(seed)
    random = np.random.default_rng(seed)
    inputs = [random.integers(-3, 4, 4).astype(np.float32) for _ in module.main.inputs]
    states = {path: random.integers(-3, 4, 4).astype(np.float32) for path in paths}
    Outcome(module, inputs, states=states).assert_close()


def state_module(body: str, result: str, new: str):
    text = f"""module f

entry f
  input v: f32[2, 1] = v
  input at: i32[] = at
  state s: f32[2, 8] = s
{body}
  return {result}
  next {new}
"""
    module = parse_module(text)
    verify(module)
    return module


UPDATE = "  n: f32[2, 8] = update_slice s, v, at {axes = [1]}"
V, S = np.array([[1.0], [2.0]], np.float32), np.arange(16, dtype=np.float32).reshape(2, 8)


def outcome(body: str, result: str, new: str) -> Outcome:
    found = Outcome(state_module(body, result, new), [V, np.array(3, np.int32)], states={"s": S})
    found.assert_close()
    return found


def test_an_update_is_in_place() -> None:
    found = outcome(UPDATE, "n", "n")
    (state,) = found.emitted.states
    assert state.in_place
    assert found.memory["s"][0].data_ptr() != found.results[0].data_ptr()


def test_an_update_by_what_was_read_before_is_in_place() -> None:
    body = f"""
  t: f32[2, 1] = slice s {{start = [0, 0], stop = [2, 1], step = [1, 1]}}
  w: f32[2, 1] = add t, v
{UPDATE.replace("v, at", "w, at")}"""
    assert outcome(body, "w", "n").emitted.states[0].in_place


def test_a_state_whose_old_value_is_read_besides_is_not_in_place() -> None:
    body = f"{UPDATE}\n  old: f32[2, 8] = neg s"
    assert not outcome(body, "old", "n").emitted.states[0].in_place


def test_a_state_updated_twice_is_not_in_place() -> None:
    body = f"{UPDATE}\n  m: f32[2, 8] = update_slice n, v, t {{axes = [1]}}"
    body = f"  t: i32[] = constant {{value = 6}}\n{body}"
    assert not outcome(body, "v", "m").emitted.states[0].in_place


def test_a_state_that_stays_is_no_output() -> None:
    (state,) = outcome("  y: f32[2, 8] = neg s", "y", "s").emitted.states
    assert state.output is None


def test_one_value_may_be_several_outputs_and_an_input_one() -> None:
    module = parse_module(
        "module f\n\nentry f\n  input x: f32[2] = x\n  y: f32[2] = neg x\n  return x, y, y\n"
    )
    Outcome(module, [np.array([1.0, 2.0], np.float32)]).assert_close()


def test_shared_work_is_written_once() -> None:
    module = parse_module(
        "module f\n\nentry f\n  input x: bf16[2] = x\n  a: bf16[2] = exp x\n"
        "  b: bf16[2] = sin x\n  return a, b\n"
    )
    ops = [node.op for node in emit(module).graph.nodes]
    assert sorted(ops) == ["Cast", "Cast", "Cast", "Exp", "Sin"]
