"""The IR's text form: printing, parsing, verifying."""

from __future__ import annotations

from dataclasses import replace

import pytest

from linnet.ir.core import VerifyError
from linnet.ir.parse import ParseError, parse_module
from linnet.ir.printer import print_module
from linnet.ir.verify import verify

DECODE = """\
module decode

op linear from std.nn.linear::linear<S = [1], In = 4, Out = 8, T = f32>
  input x: f32[1, 4] = x
  input weight: f32[8, 4] = weight
  y: f32[1, 8] = dot x, weight {batch = [[], []], contract = [[1], [1]]}
  return y

method layer_forward from crate::Layer.forward<H = 4>
  input x: f32[1, 4] = x
  param weight: f32[8, 4] = out.weight
  derived scale: f32[8] = @scale
  state cache: f32[3, 8] = cache
  y: f32[1, 8] = call x, weight {callee = "linear", at = ""}
  t: f32[1, 8] = broadcast scale {axes = [1]}
  z: f32[1, 8] = mul y, t
  at: i32[] = constant {value = 1}
  cache_1: f32[3, 8] = update_slice cache, z, at {axes = [0]}
  return z
  next cache_1

region decode_condition
  input n: i64[] = n
  input limit: i64[] = limit
  more: bool[] = lt n, limit
  return more

region decode_body
  input n: i64[] = n
  input limit: i64[] = limit
  one: i64[] = constant {value = 1}
  n_1: i64[] = add n, one
  return n_1

entry decode from crate::Tiny.decode<H = 4, T = f32>
  input x: f32[1, 4] = x
  param weight: f32[8, 4] = layers.0.out.weight
  derived scale: f32[8] = @layers.0.scale
  state cache: f32[3, 8] = layers.0.cache
  y: f32[1, 8], cache_1: f32[3, 8] = call x, weight, scale, cache {callee = "layer_forward", \
at = "layers.0"}
  n: i64[] = constant {value = 0}
  limit: i64[] = constant {value = 5}
  n_1: i64[] = while n, limit {condition = "decode_condition", body = "decode_body", carried = 1, \
trips = 5}
  return y, n_1
  next cache_1

prepare @layers.0.scale

fn prepare
  scale: f32[8] = constant {value = 1e-05}
  return scale
"""


def test_print_of_parse_is_the_text() -> None:
    module = parse_module(DECODE)
    verify(module)
    assert print_module(module) == DECODE


def test_locations_are_printed_on_request() -> None:
    text = DECODE.replace(
        "contract = [[1], [1]]}", "contract = [[1], [1]]} // lib.linnet:3:5"
    ).replace("Layer.forward<H = 4>", "Layer.forward<H = 4> // model.linnet:9:1")
    module = parse_module(text)
    assert print_module(module) == DECODE
    assert print_module(module, locations=True) == text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mul y, t", "mul y, scale", "operand types differ"),
        ("mul y, t", "frobnicate y", "unknown operation"),
        ("mul y, t", "mul y", "1 inputs, 2 needed"),
        ("return more", "more: bool[] = lt n, limit\n  return more", "defined twice"),
        ("broadcast scale {axes = [1]}", "broadcast scale {axes = [0]}", "extent 1 stretches"),
        ("broadcast scale {axes = [1]}", "broadcast scale", "attributes"),
        ("contract = [[1], [1]]", "contract = [[1], [0]]", "extents differ"),
        ("next cache_1\n\nregion", "next z\n\nregion", "the state `cache` becomes"),
        ("at: i32[] = constant", "at: f32[] = constant", "holds a float"),
        ("trips = 5", "trips = 2.5", "trips"),
        ("more: bool[] = lt", "more: i64[] = add", "gives one bool"),
        ("prepare @layers.0.scale", "prepare @layers.1.scale", "derived"),
        ("scale: f32[8] = constant", "scale: f32[7] = constant", "`prepare` gives"),
        ('callee = "linear"', 'callee = "decode"', "not defined before"),
        ("call x, weight {", "call weight, x {", "takes"),
        ("param weight: f32[8, 4] = out", "param weight: f32[8, 4] = @out", "no path of a param"),
        ("value = 1}", "value = 3000000000}", "in its range"),
    ],
)  # fmt: skip
def test_verify_names_the_broken_rule(old: str, new: str, message: str) -> None:
    assert old in DECODE
    with pytest.raises(VerifyError, match=message):
        verify(parse_module(DECODE.replace(old, new, 1)))


def test_verify_finds_a_use_before_its_definition() -> None:
    module = parse_module(DECODE)
    layer = module.functions["layer_forward"]
    turned = replace(layer, ops=tuple(reversed(layer.ops)))
    with pytest.raises(VerifyError, match=r"in `layer_forward`, operation 0 .*`%z` is not"):
        verify(replace(module, functions={**module.functions, "layer_forward": turned}))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mul y, t", "mul y, q", "line 16: `q` is not defined"),
        ("mul y, t", "mul y, t }", "too much"),
        ("mul y, t", "mul y & t", "can't be read"),
        ("op linear", "def linear", "no kind of function"),
        ("module decode", "module nothing", "entry `nothing`"),
        ("z: f32[1, 8]", "z: g32[1, 8]", "starts no type"),
    ],
)
def test_parse_names_the_line(old: str, new: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_module(DECODE.replace(old, new, 1))
