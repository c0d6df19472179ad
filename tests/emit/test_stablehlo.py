"""StableHLO of whole modules: calls, loops, branches, states, and what `@main` says of itself."""

from __future__ import annotations

import re

import numpy as np
import pytest

from linnet.emit.stablehlo import emit, emit_stablehlo, optimised
from linnet.ir.core import Module
from linnet.ir.instantiate import find_entry, instantiate
from linnet.ir.lower import lower
from linnet.ir.parse import parse_module
from tests.emit.random_modules import random_module
from tests.emit.running_stablehlo import Outcome, parsed
from tests.torch.models import GENERICS, PROGRAM, absent

COUNTING = """\
module main

region more
  input i: i64[] = i
  input total: f32[4] = total
  input x: f32[4] = x
  last: i64[] = constant {value = 3}
  y: bool[] = lt i, last
  return y

region step
  input i: i64[] = i
  input total: f32[4] = total
  input x: f32[4] = x
  one: i64[] = constant {value = 1}
  j: i64[] = add i, one
  y: f32[4] = add total, x
  return j, y

entry main from crate::Model.main
  input x: f32[4] = x
  state s: f32[4] = s
  state kept: f32[4] = kept
  zero: i64[] = constant {value = 0}
  n: i64[], y: f32[4] = while zero, s, x {condition = "more", body = "step", carried = 2, trips = 3}
  z: f32[4] = add y, kept
  return z, n
  next y, kept
"""


@pytest.mark.parametrize("part", range(8))
def test_random_modules_compute_what_the_interpreter_says(part: int) -> None:
    for seed in range(part * 25, part * 25 + 25):
        module, paths = random_module(seed, size=12)
        random = np.random.default_rng(seed)
        given = [random.integers(-3, 4, 4).astype(np.float32) for _ in range(2 + len(paths))]
        states = dict(zip(paths, given[2:], strict=True))
        Outcome(module, given[:2], {}, states).assert_close()


def test_loops_and_states() -> None:
    x, s, kept = (np.arange(4, dtype=np.float32) * n for n in (1, 10, 100))
    outcome = Outcome(parse_module(COUNTING), [x], {}, {"s": s, "kept": kept})
    outcome.assert_close()
    assert outcome.emitted.changed == ("s",)
    text = outcome.emitted.text
    assert '%s: tensor<4xf32> {linnet.path = "s", tf.aliasing_output = 2 : i32}' in text
    assert '%kept: tensor<4xf32> {linnet.path = "kept"}' in text
    assert outcome.executable.memory.aliased == s.nbytes


def test_the_text_is_the_same_every_time() -> None:
    for seed in range(20):
        first, second = (emit_stablehlo(random_module(seed)[0]) for _ in range(2))
        assert first == second


def llama(entry: str, numerics: str = "fast", **generics: int) -> Module:
    given = {**GENERICS, **{k: v for k, v in generics.items() if k in GENERICS}}
    own = {k: v for k, v in generics.items() if k not in GENERICS}
    instance = instantiate(PROGRAM, "Llama", given, present=absent)
    generics_of = {generic.name for generic in find_entry(instance, entry).generics}
    bound = {name: own[name] for name in generics_of}
    return optimised(lower(instance, entry, bound), numerics)


ENTRIES = {
    "forward": {"B": 2, "S": 5}, "next_token": {"B": 2, "S": 5}, "prefill": {"S": 5},
    "decode": {}, "decode_rows": {}, "prefill_slots": {"M": 2, "S": 4},
    "prefill_packed": {"P": 6, "M": 2}, "generate": {"S": 4, "N": 3},
    "generate_until": {"S": 4, "N": 3}, "sample": {"S": 4, "N": 3},
}  # fmt: skip


@pytest.mark.parametrize("numerics", ["exact", "fast"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_is_valid_stablehlo(entry: str, numerics: str) -> None:
    parsed(emit_stablehlo(llama(entry, numerics, **ENTRIES[entry]), numerics))


def test_a_method_is_one_private_function_for_all_layers() -> None:
    text = emit_stablehlo(llama("decode"))
    assert len(re.findall(r"func\.func private @layer_extend\w*\(", text)) == 1
    assert len(re.findall(r"func.call @layer_extend\(", text)) == GENERICS["Layers"]
    assert len(re.findall(r"func\.func public", text)) == 1


def test_the_text_grows_with_the_layers_by_their_weights_alone() -> None:
    lines = [emit_stablehlo(llama("decode", Layers=n)).count("\n") for n in (2, 12)]
    weights_of_a_layer, states_of_a_layer, call = 6, 2, 1
    assert lines[1] - lines[0] == 10 * (weights_of_a_layer + states_of_a_layer + call)


def test_arguments_are_named_by_path_and_states_are_donated() -> None:
    found = emit(llama("decode"))
    text = found.text
    for slot in (*found.weights, *found.states):
        assert f'linnet.path = "{slot.path}"' in text
    assert 'linnet.input = "token"' in text and 'linnet.input = "pos"' in text
    assert found.changed == tuple(slot.path for slot in found.states)
    outputs = list(range(1, 1 + len(found.states)))
    assert [int(n) for n in re.findall(r"tf\.aliasing_output = (\d+)", text)] == outputs


def test_contractions_say_what_they_accumulate_in() -> None:
    (dot,) = re.findall(r"dot_general .*", emit_stablehlo(dot_module("bf16", "f32")))
    assert dot.endswith("(tensor<2x3xbf16>, tensor<3x4xbf16>) -> tensor<2x4xf32>")
    text = emit_stablehlo(dot_module("f16", "f16"))
    assert "(tensor<2x3xf16>, tensor<3x4xf16>) -> tensor<2x4xf32>" in text
    assert "stablehlo.convert %y : (tensor<2x4xf32>) -> tensor<2x4xf16>" in text


def dot_module(dtype: str, result: str) -> Module:
    return parse_module(
        f"module f\n\nentry f\n  input a: {dtype}[2, 3] = a\n  input b: {dtype}[3, 4] = b\n"
        f"  y: {result}[2, 4] = dot a, b {{batch = [[], []], contract = [[1], [0]]}}\n  return y\n"
    )


def test_cache_writes_are_in_place() -> None:
    assert emit_stablehlo(llama("decode")).count("dynamic_update_slice") == 1  # one function
    assert '"stablehlo.scatter"' in emit_stablehlo(llama("decode_rows"))
    assert "stablehlo.while" in emit_stablehlo(llama("generate_until", S=4, N=3))


def test_unknown_numerics_are_refused() -> None:
    with pytest.raises(ValueError, match="numerics must be one of exact, equivalent, fast"):
        emit(llama("decode"), "quick")
