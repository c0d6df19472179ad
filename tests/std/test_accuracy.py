"""How near the standard library comes to the functions it names, where that takes some care."""

from __future__ import annotations

import math

import numpy as np
import pytest

from linnet.ir.instantiate import instantiate, parameters
from tests.ir.programs import Model, compiled, floats


def run(source: str, *inputs: object) -> list[np.ndarray]:
    return Model.of(f"module test\n{source}").run("f", *inputs).results


def test_erf_is_good_to_f32() -> None:
    x = np.concatenate([np.linspace(-5, 5, 20_001), [1e-30, -1e-6, 30, -30, np.inf, -np.inf]])
    x = x.astype(np.float32)
    (found,) = run(
        "use std.nn.activations::{erf}\n"
        "pub entry f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] { return erf(x) }",
        x,
    )
    exact = np.vectorize(math.erf)(x.astype(np.float64))
    np.testing.assert_allclose(found, exact, rtol=0, atol=1.2e-7)
    np.testing.assert_allclose(found, exact, rtol=4 * 2.0**-24, atol=0)
    assert np.abs(found).max() == 1


@pytest.mark.parametrize(
    ("base", "width", "positions"),
    [(10000, 64, 2048), (130000, 64, 8192), (100000, 64, 8192), (500000, 128, 8192),
     (10000, 80, 4096), (10000, 6, 64)],
)  # fmt: skip
def test_rotary_angles_are_those_of_transformers(base: int, width: int, positions: int) -> None:
    shape = f"Tensor[{positions}, {width}; f32]"
    cosine, sine = run(
        "use std.nn.rope::{rope_tables}\n"
        f"pub entry f() -> ({shape}, {shape}) "
        f"{{ return rope_tables<{positions}, {width}, f32>(cast<f64>({base})) }}"
    )
    # modeling_rope_utils: `1 / base ** (arange(0, dim, 2) / dim)`, angles and all in f32.
    exponent = np.arange(0, width, 2).astype(np.float32) / np.float32(width)
    frequency = np.float32(1) / (float(base) ** exponent.astype(np.float64)).astype(np.float32)
    angle = np.outer(np.arange(positions, dtype=np.float32), frequency).astype(np.float64)
    both = np.concatenate([angle, angle], -1)
    # The same angles to the bit: what is left is the rounding of a cosine.
    np.testing.assert_allclose(cosine, np.cos(both), rtol=0, atol=1.2e-7)
    np.testing.assert_allclose(sine, np.sin(both), rtol=0, atol=1.2e-7)


def test_argmax_points_at_the_first_nan() -> None:
    x = np.array([[1, np.nan, 5, np.nan], [-np.inf] * 4, [3, 1, 3, 2]], np.float32)
    (found,) = run(
        "use std.nn.decoding::{argmax}\n"
        "pub entry f(x: Tensor[3, 4; f32]) -> Tensor[3; i32] { return argmax(x) }",
        x,
    )
    assert found.tolist() == [1, 0, 0] == x.argmax(-1).tolist()


@pytest.mark.parametrize("present", [set(), {"gate"}, {"up", "down"}, {"gate", "up", "down"}])
def test_a_gated_layer_has_the_biases_of_its_checkpoint(present: set[str]) -> None:
    source = """
    module test
    use std.nn.mlp::{SwiGlu}
    pub block B {
        sub mlp: SwiGlu<4, 6, f32>
        pub entry f(x: Tensor[3, 4; f32]) -> Tensor[3, 4; f32] { return mlp.forward(x) }
    }
    """
    biases = {f"mlp.{name}.bias" for name in present}
    instance = instantiate(
        compiled(source), present=lambda path: path in biases or not path.endswith("bias")
    )
    weights = {spec.path: floats(*spec.shape) for spec in parameters(instance)}
    assert biases == {path for path in weights if path.endswith("bias")}
    model, x = Model(instance, weights), floats(3, 4)

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        bias = model.weights.get(f"mlp.{name}.bias", np.float32(0))
        return x @ model.weights[f"mlp.{name}.weight"].T + bias

    gate = linear(x, "gate")
    expected = linear(gate / (1 + np.exp(-gate)) * linear(x, "up"), "down")
    np.testing.assert_allclose(model.run("f", x).result, expected, rtol=2e-6, atol=2e-6)
