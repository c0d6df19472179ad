"""Running emitted JAX beside the interpreter, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from linnet.dtypes import DType
from linnet.emit.jax import Emitted, JaxTarget, emit
from linnet.ir.core import Module, TensorType
from linnet.ir.interpreter import run

EXACT = JaxTarget(numerics="exact")


def to_jax(array: np.ndarray, dtype: DType) -> jax.Array:
    """An array of the interpreter's on the device, whether or not 64-bit types are on."""
    with jax.enable_x64(True):
        return jnp.asarray(np.asarray(array), _jax_dtype(dtype))


def _jax_dtype(dtype: DType) -> np.dtype:
    names = {DType.BOOL: "bool", DType.BF16: "bfloat16"}
    kind = {"i": "int", "u": "uint", "f": "float"}[dtype.value[0]] if dtype not in names else ""
    return jnp.dtype(names.get(dtype, f"{kind}{dtype.bits}"))


def to_numpy(array: Any, dtype: DType) -> np.ndarray:
    """The reverse."""
    found = np.asarray(array)
    return found.astype(np.float32) if found.dtype == ml_dtypes.bfloat16 else found


def load(emitted: Emitted) -> dict[str, Any]:
    """What the source defines, run with nothing but jax."""
    names: dict[str, Any] = {}
    exec(compile(emitted.source, "<emitted>", "exec"), names)
    return names


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """The leaves of nested dicts and lists by path."""
    if not isinstance(tree, (dict, list)):
        return {prefix: tree}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    found: dict[str, Any] = {}
    for key, item in items:
        if item is not None:
            found |= flat(item, f"{prefix}.{key}" if prefix else str(key))
    return found


class Outcome:
    """What the interpreter and the emitted source give for the same module and inputs."""

    def __init__(
        self,
        module: Module,
        inputs: Sequence[np.ndarray],
        weights: Mapping[str, np.ndarray] | None = None,
        states: Mapping[str, np.ndarray] | None = None,
        target: JaxTarget = EXACT,
        jit: bool = True,
    ):
        weights, states = weights or {}, states or {}
        self.expected, self.expected_states = run(module, inputs, weights, states)
        self.emitted = emit(module, target)
        names = load(self.emitted)
        types = {slot.path: slot.value.type for slot in module.main.weights}
        if module.prepare is not None:
            types |= {slot.path: slot.value.type for slot in module.prepare.weights}
        model = names["new_model"](
            {path: to_jax(weights[path], t.dtype) for path, t in types.items() if path in weights}
        )
        held = {slot.path: slot.value.type for slot in module.main.states}
        given: list[Any] = [model]
        if held:
            zeros = flat(names["new_state"]())
            assert {path: (x.shape, x.dtype) for path, x in zeros.items()} == {
                path: (t.shape, _jax_dtype(t.dtype)) for path, t in held.items()
            }
            full = {path: to_jax(states[path], t.dtype) if path in states else zeros[path]
                    for path, t in held.items()}  # fmt: skip
            given.append(names["tree"](full))
        given += [
            to_jax(x, value.type.dtype) for x, value in zip(inputs, module.main.inputs, strict=True)
        ]
        entry = names[self.emitted.entry]
        found = (jax.jit(entry) if jit else entry)(*given)
        found = found if isinstance(found, tuple) else (found,)
        self.states = {}
        if held:
            *found, new = found
            self.states = {p: _checked(x, held[p]) for p, x in flat(new).items()}
            assert set(self.states) == set(held)
        self.found = [
            _checked(array, value.type)
            for array, value in zip(found, module.main.results, strict=True)
        ]

    def assert_close(self, relative: float = 0.0, absolute: float = 0.0) -> None:
        """Raises where a result or state is further off than it may be."""
        for found, expected in zip(self.found, self.expected, strict=True):
            np.testing.assert_allclose(found, expected, relative, absolute)
        for path, expected in self.expected_states.items():
            np.testing.assert_allclose(self.states[path], expected, relative, absolute)


def _checked(array: Any, type_: TensorType) -> np.ndarray:
    assert array.shape == type_.shape
    assert array.dtype == _jax_dtype(type_.dtype)
    return to_numpy(array, type_.dtype)
