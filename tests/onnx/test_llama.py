"""Every entry of a small Llama on ONNX Runtime, against the interpreter, in each dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from linnet.inputs import read_inputs
from linnet.ir.instantiate import bind_entry, entries
from linnet.ir.interpreter import round_bf16, run
from linnet.ir.lower import lower
from linnet.onnx import OnnxModel
from linnet.onnx.inputs import read_tensor
from tests.onnx.models import load, tokens, weights

EPS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23}
"""The relative rounding of a dtype. Logits here are below 4, and come from sums of at most 96
products in each of 3 layers; an operator rounds once where the source does, but a value that falls
on the other side of a rounding is one `EPS` off, and so is what is computed from it."""
BOUND = {dtype: 4.0 * 8 * eps for dtype, eps in EPS.items()}
BOUND["f32"] *= 4  # Sums in another order: some ten roundings for one.
TOKENS = tokens(2, 5)
ROWS = tokens(2, 1, seed=2)


class Reference:
    """The interpreter as a model: the same entries on states of its own."""

    def __init__(self, model: OnnxModel, dtype: str):
        self.model = model
        round_ = {"f32": np.float32, "f16": np.float16, "bf16": round_bf16}[dtype]
        self.weights = {path: round_(array) for path, array in weights().items()}
        self.states: dict[str, np.ndarray] = {}

    def run_entry(self, name: str, inputs: list[Any], **generics: int) -> list[np.ndarray]:
        entry = entries(self.model.instance)[name]
        given = read_inputs(entry, inputs, read_tensor)
        own = bind_entry(self.model.instance, name, given.arguments, generics)
        module = lower(self.model.instance, name, own, given.arguments)
        arrays = [tensor.array for tensor in given.tensors]
        found, new = run(module, arrays, self.weights, self.states)
        self.states |= new
        return found


SEQUENCES: dict[str, list[tuple[str, list[Any], dict[str, int]]]] = {
    "forward": [("forward", [TOKENS], {})],
    "prefill, decode": [
        ("prefill", [TOKENS, 0], {}),
        ("decode", [ROWS, 5], {}),
        ("prefill", [TOKENS, 6], {}),
        ("decode", [ROWS, 15], {}),
    ],
    "positions outside of the cache": [
        ("prefill", [TOKENS, -2], {}),
        ("prefill", [TOKENS, 13], {}),
        ("decode", [ROWS, 16], {}),
        ("decode", [ROWS, -1], {}),
        ("decode", [ROWS, 4], {}),
    ],
    "rows": [
        ("prefill", [TOKENS, 0], {}),
        ("decode_rows", [ROWS, np.array([5, 3], np.int32)], {}),
        ("decode_rows", [ROWS, np.array([6, -1], np.int32)], {}),
        ("decode_rows", [ROWS, np.array([99, 4], np.int32)], {}),
        ("decode_rows", [ROWS, np.array([7, 5], np.int32)], {}),
    ],
    "slots": [
        ("prefill_slots", [TOKENS, np.array([1, 0], np.int32), np.array([3, 5], np.int32)], {}),
        ("prefill_slots", [TOKENS[:1], np.array([1], np.int32), np.array([4], np.int32)], {}),
        ("prefill_slots", [TOKENS, np.array([-1, 0], np.int32), np.array([3, 5], np.int32)], {}),
        ("decode_rows", [ROWS, np.array([5, 4], np.int32)], {}),
    ],
    "packed": [
        (
            "prefill_packed",
            [
                TOKENS.reshape(1, 10),
                np.array([1, 1, 1, 0, 0, 0, 0, -1, -1, -1], np.int32),
                np.array([0, 1, 2, 0, 1, 2, 3, -1, 0, 99], np.int32),
                np.array([1, 1, 1, 0, 0, 0, 0, -1, -1, -1], np.int32),
                np.array([2, 6], np.int32),
            ],
            {},
        ),
        ("decode_rows", [ROWS, np.array([4, 3], np.int32)], {}),
    ],
}


@pytest.mark.parametrize("numerics", ["exact", "equivalent", "fast"])
@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("name", SEQUENCES)
def test_entries(name: str, dtype: str, numerics: str) -> None:
    model = load(dtype, numerics=numerics)
    reference = Reference(model, dtype)
    for entry, inputs, generics in SEQUENCES[name]:
        (expected,) = reference.run_entry(entry, inputs, **generics)
        found = model.to_numpy(model.run_entry(entry, inputs, **generics))
        np.testing.assert_allclose(found, expected.astype(np.float32), atol=BOUND[dtype], rtol=0)


@pytest.mark.parametrize("numerics", ["exact", "fast"])
@pytest.mark.parametrize(
    ("entry", "inputs"),
    [
        ("generate", [TOKENS]),
        ("generate_until", [TOKENS, 7]),
        ("sample", [TOKENS, np.array([3, 4], np.int64), np.float32(0.8)]),
        ("sample", [TOKENS, np.array([3, 4], np.int64), np.float32(0.0)]),
    ],
)
def test_loops(entry: str, inputs: list[Any], numerics: str) -> None:
    model = load(numerics=numerics)
    expected = Reference(model, "f32").run_entry(entry, inputs, N=6)
    found = model.run_entry(entry, inputs, N=6)
    for one, other in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_array_equal(model.to_numpy(one), other)
