"""Running emitted PyTorch beside the interpreter, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from linnet.dtypes import DType
from linnet.emit.torch import Emitted, TorchTarget, emit
from linnet.ir.core import Module, TensorType
from linnet.ir.interpreter import run
from linnet.torch.tree import DTYPES

EAGER = TorchTarget(numerics="exact")
_WIDE = (DType.U16, DType.U32, DType.U64)


def to_torch(array: np.ndarray, dtype: DType) -> torch.Tensor:
    """An array of the interpreter's as generated source holds it."""
    if dtype in _WIDE:
        array = np.asarray(array).astype(np.uint64).view(np.int64)
    return torch.from_numpy(np.array(array)).to(DTYPES[dtype.value])


def to_numpy(tensor: torch.Tensor, dtype: DType) -> np.ndarray:
    """The reverse."""
    if dtype in _WIDE:
        return tensor.numpy().astype(f"uint{dtype.bits}")
    return tensor.float().numpy() if dtype == DType.BF16 else tensor.numpy()


def load(emitted: Emitted) -> dict:
    """What the source defines, run with nothing but torch; one for a GPU is run on the CPU."""
    names: dict = {}
    source = emitted.source.replace('torch.device("cuda")', 'torch.device("cpu")')
    exec(compile(source, "<emitted>", "exec"), names)
    return names


class Outcome:
    """What the interpreter and the emitted source give for the same module and inputs."""

    def __init__(
        self,
        module: Module,
        inputs: Sequence[np.ndarray],
        weights: Mapping[str, np.ndarray] | None = None,
        states: Mapping[str, np.ndarray] | None = None,
        target: TorchTarget = EAGER,
    ):
        weights, states = weights or {}, states or {}
        self.expected, self.expected_states = run(module, inputs, weights, states)
        self.emitted = emit(module, target)
        names = load(self.emitted)
        types = {slot.path: slot.value.type for slot in module.main.weights}
        if module.prepare is not None:
            types |= {slot.path: slot.value.type for slot in module.prepare.weights}
        model = names["new_model"](
            {path: to_torch(weights[path], t.dtype) for path, t in types.items() if path in weights}
        )
        held = {slot.path: slot.value.type for slot in module.main.states}
        for path, array in states.items():
            _at(model, path).copy_(to_torch(array, held[path].dtype))
        given = [
            to_torch(x, value.type.dtype)
            for x, value in zip(inputs, module.main.inputs, strict=True)
        ]
        found = names[self.emitted.entry](model, *given)
        self.tensors = found if isinstance(found, tuple) else (found,)
        self.found = [
            _checked(tensor, value.type)
            for tensor, value in zip(self.tensors, module.main.results, strict=True)
        ]
        self.states = {path: to_numpy(_at(model, path), t.dtype) for path, t in held.items()}

    def assert_close(self, relative: float = 0.0, absolute: float = 0.0) -> None:
        """Raises where a result or state is further off than it may be."""
        for found, expected in zip(self.found, self.expected, strict=True):
            np.testing.assert_allclose(found, expected, relative, absolute)
        for path, expected in self.expected_states.items():
            np.testing.assert_allclose(self.states[path], expected, relative, absolute)


def _checked(tensor: torch.Tensor, type_: TensorType) -> np.ndarray:
    assert tuple(tensor.shape) == type_.shape
    assert tensor.dtype == DTYPES[type_.dtype.value]
    return to_numpy(tensor, type_.dtype)


def _at(model: object, path: str) -> torch.Tensor:
    found: object = model
    for part in path.split("."):
        found = found[int(part)] if isinstance(found, list) else getattr(found, part)
    assert isinstance(found, torch.Tensor)
    return found
