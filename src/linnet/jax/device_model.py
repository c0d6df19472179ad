"""A model with its weights and states as JAX's arrays on a device, however its entries are made."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from linnet.described import block_tree, signature
from linnet.dtypes import DType
from linnet.inputs import Inputs, declared_inputs, read_inputs
from linnet.ir.instantiate import BlockInstance, bind_entry, entries, find_entry, parameters
from linnet.jax.arrays import place, read_tensor, zeros
from linnet.jax.weights import Weights
from linnet.runtime import EntrySignature


class Bound(Protocol):
    """An entry for inputs of one form, ready to run."""

    seconds: float
    """What making it took."""

    def __call__(
        self, inputs: Sequence[jax.Array], states: dict[str, jax.Array]
    ) -> Sequence[jax.Array]:
        """Runs it; the states that it changes are replaced in `states`."""
        ...


class DeviceModel(ABC):
    """What the runtimes that keep JAX's arrays share of `linnet.runtime.Runtime`."""

    def __init__(self, instance: BlockInstance, weights: Weights, dtype: DType | None):
        self.instance = instance
        self.weights = weights
        self.device = weights.device
        self.states: dict[str, jax.Array] = {}
        self._dtype = dtype
        self._entries = entries(instance)
        self._bound: dict[object, Any] = {}
        self._by_form: dict[object, Any] = {}
        self._argmax = jax.jit(likeliest)
        self.reset_state()

    @abstractmethod
    def _make(self, name: str, given: Inputs, own: Mapping[str, Any]) -> Bound:
        """An entry for inputs of a form, compiled."""

    @abstractmethod
    def _text(self, name: str, given: Inputs, own: Mapping[str, Any]) -> str:
        """What an entry is turned into."""

    # What it is.

    @property
    def entries(self) -> dict[str, EntrySignature]:
        """The entries, as their source declares them."""
        return {name: signature(entry) for name, entry in self._entries.items()}

    @property
    def generics(self) -> dict[str, int]:
        """What the root's dimensions are bound to."""
        return {n: v for n, v in self.instance.generics.items() if isinstance(v, int)}

    @property
    def dtype(self) -> DType:
        """The dtype of most of the weights."""
        if self._dtype is not None:
            return self._dtype
        sizes: dict[DType, int] = {}
        for path, spec in self.weights.specs.items():
            if spec.dtype.is_float:
                sizes[spec.dtype] = sizes.get(spec.dtype, 0) + self.weights.nbytes(path)
        return max(sizes, key=sizes.__getitem__, default=DType.F32)

    @property
    def compile_s(self) -> float:
        """Seconds spent writing and compiling entries so far."""
        return sum(bound.seconds for bound in self._by_form.values())

    def state_dict(self) -> dict[str, jax.Array]:
        """The parameters and buffers by path, on the device."""
        return {path: self.weights.array(path) for path in self.weights.specs}

    def __str__(self) -> str:
        return block_tree(self.instance)

    __repr__ = __str__

    # Running it.

    def __call__(self, *inputs: Any, **generics: int) -> Any:
        """Runs the entry `forward`."""
        return self.run_entry("forward", inputs, **generics)

    def run_entry(self, name: str, inputs: Sequence[Any], **generics: int) -> Any:
        """Runs an entry; gives its result as an array, or a tuple of arrays, without waiting.

        Inputs are numpy arrays, numbers, JAX's arrays, `None` for an optional input left out, a
        variant's name for an enum, tuples for tuples and structs. Entry generics follow from the
        inputs' shapes or are given by keyword. An entry is compiled when it first runs with inputs
        of some shapes. Raises `ValueError` for an unknown entry, and for inputs of a wrong number,
        shape or dtype.
        """
        entry = self._entries.get(name)
        if entry is None:
            entry = find_entry(self.instance, name)
        given = read_inputs(entry, inputs, read_tensor)
        key = (name, given.form, tuple(generics.items())) if generics else (name, given.form)
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = self._bind(name, given, generics)
        found = bound([place(array, self.device) for array in given.tensors], self.states)
        return found[0] if len(found) == 1 else tuple(found)

    def reset_state(self) -> None:
        """Sets all states back to zero."""
        self.states = {
            spec.path: zeros(spec.shape, spec.dtype, self.device)
            for spec in parameters(self.instance)
            if spec.kind == "state"
        }

    def generated_source(self, entry: str, **generics: int) -> str:
        """What an entry was turned into: for generics given by name, or as it was last run."""
        bound = self._ran(entry, generics)
        if bound is not None:
            return bound.text
        given = declared_inputs(find_entry(self.instance, entry), generics)
        return self._text(entry, given, bind_entry(self.instance, entry, given.arguments, generics))

    def to_numpy(self, value: jax.Array) -> np.ndarray:
        """A result on the host, floats as f32."""
        found = np.asarray(value)
        narrow = found.dtype != np.float64 and jax.numpy.issubdtype(found.dtype, np.floating)
        return found.astype(np.float32) if narrow else found

    def argmax(self, logits: jax.Array) -> np.ndarray:
        """The likeliest token of each row of `[B, V]`, chosen on the device: `[B]`, int64."""
        return np.asarray(self._argmax(logits)).astype(np.int64)

    # Binding.

    def _ran(self, name: str, generics: Mapping[str, int]) -> Any:
        """The entry as it last ran, where its generics are not given."""
        if generics or not find_entry(self.instance, name).generics:
            return None
        ran = [bound for key, bound in self._bound.items() if key[0] == name]  # type: ignore[index]
        return ran[-1] if ran else None

    def _bind(self, name: str, given: Inputs, generics: Mapping[str, int]) -> Any:
        """The entry for inputs of a form, made on first use."""
        own = bind_entry(self.instance, name, given.arguments, generics)
        form = (name, tuple(own.items()), given.presence)
        found = self._by_form.get(form)
        if found is None:
            started = time.perf_counter()
            found = self._make(name, given, own)
            found.seconds = time.perf_counter() - started
            self._by_form[form] = found
        return found


def likeliest(logits: jax.Array) -> jax.Array:
    """The first position of each row's largest value; NaN counts as the largest. In two plain
    reductions, since XLA's own for both at once takes four times as long on a CPU."""
    top = jax.numpy.max(logits, -1, keepdims=True)
    found = (logits == top) | (logits != logits)
    positions = jax.lax.broadcasted_iota("int32", logits.shape, logits.ndim - 1)
    return jax.numpy.min(jax.numpy.where(found, positions, logits.shape[-1]), -1)
