"""Running emitted ONNX beside the interpreter, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from linnet.dtypes import DType
from linnet.emit.onnx import OnnxTarget, Weight, emit
from linnet.emit.onnx_graph import Tensor
from linnet.ir.core import Module, TensorType, Value
from linnet.ir.interpreter import run
from linnet.onnx.session import Options, Session, empty, on_host, to_array
from linnet.weights.floats import from_bf16, to_bf16

EXACT = OnnxTarget(numerics="exact")
OPTIONS = Options("cpu", {}, 1)


def held(array: np.ndarray, dtype: DType) -> np.ndarray:
    """An array of the interpreter's as its dtype's memory."""
    array = np.array(array, order="C")
    return to_bf16(array) if dtype == DType.BF16 else array


def value(array: np.ndarray, type_: TensorType | Tensor | Weight):
    array = held(np.asarray(array).reshape(type_.shape), type_.dtype)
    return on_host(array, Tensor(type_.shape, type_.dtype))


def to_numpy(found, dtype: DType) -> np.ndarray:
    array = to_array(found)
    return from_bf16(array) if dtype == DType.BF16 else array


class Outcome:
    """What the interpreter and the emitted graph give for the same module and inputs."""

    def __init__(
        self,
        module: Module,
        inputs: Sequence[np.ndarray],
        weights: Mapping[str, np.ndarray] | None = None,
        states: Mapping[str, np.ndarray] | None = None,
        target: OnnxTarget = EXACT,
    ):
        weights, states = weights or {}, states or {}
        self.expected, self.expected_states = run(module, inputs, weights, states)
        self.emitted = emit(module, target)
        arrays = dict(weights)
        if module.prepare is not None:
            arrays |= _derived(module, weights)
        values = {n: value(arrays[w.path], w) for n, w in self.emitted.weights.items()}
        session = Session(self.emitted, values, OPTIONS)
        memory = {}
        self.memory = {}
        for state in self.emitted.states:
            start = states.get(state.path, np.zeros(state.type.shape, np.float32))
            memory[state.input] = found = value(np.array(start), state.type)
            if state.output is not None:
                found = found if state.in_place else empty(state.type, "cpu")
                memory[state.output] = found
            self.memory[state.path] = found, state.type.dtype
        given = [value(x, v.type) for x, v in zip(inputs, module.main.inputs, strict=True)]
        self.results = session.run(given, memory, self.emitted.results)
        self.found = [
            _checked(x, v) for x, v in zip(self.results, module.main.results, strict=True)
        ]
        self.states = {path: to_numpy(x, dtype) for path, (x, dtype) in self.memory.items()}

    def assert_close(self, relative: float = 0.0, absolute: float = 0.0) -> None:
        """Raises where a result or state is further off than it may be."""
        for found, expected in zip(self.found, self.expected, strict=True):
            np.testing.assert_allclose(found, expected, relative, absolute)
        for path, expected in self.expected_states.items():
            np.testing.assert_allclose(self.states[path], expected, relative, absolute)


def _derived(module: Module, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What `prepare` gives, as the interpreter computes it."""
    from dataclasses import replace

    assert module.prepare is not None
    alone = Module(
        {**module.functions, module.prepare.name: replace(module.prepare, kind="entry")},
        module.prepare.name,
    )
    found, _ = run(alone, [], weights)
    return dict(zip(module.derived, found, strict=True))


def _checked(found, expected: Value) -> np.ndarray:
    assert tuple(found.shape()) == expected.type.shape
    return to_numpy(found, expected.type.dtype)
