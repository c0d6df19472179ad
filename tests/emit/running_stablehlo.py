"""Running emitted StableHLO beside the interpreter, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import ml_dtypes
import numpy as np
from jax.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir as mlir

from linnet.dtypes import DType
from linnet.emit.stablehlo import emit
from linnet.ir.core import Module, TensorType
from linnet.ir.interpreter import run
from linnet.jax.executable import compile_text

NUMPY = {DType.BF16: np.dtype(ml_dtypes.bfloat16), DType.BOOL: np.dtype(bool)} | {
    dtype: np.dtype({"i": "int", "u": "uint", "f": "float"}[dtype.value[0]] + dtype.value[1:])
    for dtype in DType
    if dtype not in (DType.BOOL, DType.BF16)
}
EXACT = {"xla_allow_excess_precision": False}


def parsed(text: str) -> mlir.Module:
    """The module that a text is, verified by MLIR; raises where it is none."""
    module = mlir.Module.parse(text, make_ir_context())
    assert module.operation.verify()
    return module


def on_device(array: np.ndarray, dtype: DType) -> jax.Array:
    """An array of the interpreter's on JAX's first device."""
    with jax.enable_x64(True):
        return jax.numpy.array(np.asarray(array).astype(NUMPY[dtype]))


class Outcome:
    """What the interpreter and the compiled program give for the same module and inputs."""

    def __init__(
        self,
        module: Module,
        inputs: Sequence[np.ndarray],
        weights: Mapping[str, np.ndarray] | None = None,
        states: Mapping[str, np.ndarray] | None = None,
        numerics: str = "exact",
    ):
        weights, states = weights or {}, states or {}
        self.expected, self.expected_states = run(module, inputs, weights, states)
        self.emitted = emit(module, numerics)
        parsed(self.emitted.text)
        self.executable = compile_text(self.emitted.text, jax.devices()[0], EXACT)
        held = {slot.path: slot.value.type for slot in self.emitted.states}
        given = {p: states.get(p, np.zeros(t.shape)) for p, t in held.items()}
        arguments = [
            *(on_device(x, t.dtype) for x, t in zip(inputs, self.emitted.inputs, strict=True)),
            *(on_device(weights[s.path], s.value.type.dtype) for s in self.emitted.weights),
            *(on_device(given[path], t.dtype) for path, t in held.items()),
        ]
        found = self.executable(arguments)
        count = len(self.emitted.results)
        self.found = [
            _checked(x, t) for x, t in zip(found[:count], self.emitted.results, strict=True)
        ]
        self.states = {path: np.asarray(given[path]) for path in held}
        changed = zip(self.emitted.changed, found[count:], strict=True)
        self.states |= {path: _checked(x, held[path]) for path, x in changed}

    def assert_close(self, relative: float = 0.0, absolute: float = 0.0) -> None:
        """Raises where a result or state is further off than it may be."""
        for found, expected in zip(self.found, self.expected, strict=True):
            np.testing.assert_allclose(found, expected, relative, absolute)
        for path, expected in self.expected_states.items():
            np.testing.assert_allclose(self.states[path], expected, relative, absolute)


def _checked(array: jax.Array, type_: TensorType) -> np.ndarray:
    assert array.shape == type_.shape
    assert array.dtype == NUMPY[type_.dtype]
    found = np.asarray(array)
    return found.astype(np.float32) if type_.dtype == DType.BF16 else found
