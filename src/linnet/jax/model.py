"""Loading a model to be run by XLA, and the loaded model."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from linnet.described import block_tree, signature, weights_read
from linnet.dtypes import DType
from linnet.emit.stablehlo import emit_stablehlo, optimised
from linnet.inputs import Inputs, declared_inputs, read_inputs
from linnet.ir.core import Module
from linnet.ir.instantiate import BlockInstance, bind_entry, entries, find_entry, parameters
from linnet.ir.lower import lower
from linnet.ir.passes import NUMERICS
from linnet.jax.arrays import find_device, place, read_tensor, zeros
from linnet.jax.cache import ExecutableCache, default_folder
from linnet.jax.executable import Device, Executable
from linnet.jax.program import BoundEntry, Derived, Target, bind
from linnet.jax.weights import Weights
from linnet.loading import Source, begin
from linnet.runtime import EntrySignature
from linnet.weights import Bindings


def load(
    source: Source,
    *,
    root: str | None = None,
    generics: Mapping[str, Any] | None = None,
    weights: Any = None,
    bindings: str | Path | Mapping[str, object] | Bindings | None = None,
    dtype: DType | str | None = None,
    device: str | Device | None = None,
    numerics: str = "fast",
    cache: bool | str | Path = True,
) -> XlaModel:
    """Loads a model: checks its source, binds its generics, reads its weights.

    source      a `.linnet` file, a package's directory, or a program that is checked already
    root        the root block, where the module has several with entries
    generics    of the root block, by name
    weights     a SafeTensors file, directory or index, or a GGUF file; arrays by path; or a
                function of a path and shape that makes them
    bindings    which tensor of the checkpoint each parameter is
    dtype       what float weights are converted to; binds the root's dtype generics
    device      `cpu`, `cuda`, `cuda:1`, a device of JAX's; the one that JAX would choose unless
                given
    numerics    `exact` computes the source's own operations, `equivalent` sums in another order,
                `fast` also drops roundings in between
    cache       a folder for compiled programs; `True` for Linnet's own, `False` for none

    Raises `LinnetError` for a source with errors, `ValueError` for generics, options and weights
    that don't fit; nothing is read before all weights are known to fit.
    """
    if numerics not in NUMERICS:
        raise ValueError(f"numerics must be one of {', '.join(NUMERICS)}, not {numerics!r}")
    chosen = find_device(device)
    folder = default_folder() if cache is True else Path(cache) if cache else None
    target = Target(chosen, numerics, ExecutableCache(folder) if folder is not None else None)
    loading = begin(
        source, root=root, generics=generics, weights=weights, bindings=bindings, dtype=dtype
    )
    loaded = Weights(loading.specs, chosen)
    loaded.fill(loading.read)
    return XlaModel(loading.instance, loaded, target, loading.dtype)


class XlaModel:
    """A model with its weights and states on a device. Implements `linnet.runtime.Runtime`."""

    name = "xla"

    def __init__(
        self, instance: BlockInstance, weights: Weights, target: Target, dtype: DType | None
    ):
        self.instance = instance
        self.target = target
        self.weights = weights
        self.device = target.device
        self._dtype = dtype
        self._derived = Derived(weights, target)
        self._entries = entries(instance)
        self._bound: dict[object, BoundEntry] = {}
        self._by_form: dict[object, BoundEntry] = {}
        self._argmax = jax.jit(likeliest)
        self.reset_state()

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
    def weight_bytes(self) -> int:
        """Bytes of weights that a step over one token reads: all, but of a table that is only
        looked up in, nothing."""
        if "decode" not in self._entries or self.generics.get("Batch", 1) != 1:
            return self.weights.total
        bound = self._bind("decode", declared_inputs(self._entries["decode"]), {})
        read = weights_read(bound.module)
        return sum(
            array.nbytes
            for slot, array in zip(bound.emitted.weights, bound.weights, strict=True)
            if slot.path in read
        )

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
        """The StableHLO of an entry: for generics given by name, or as it was last run."""
        bound = self._ran(entry, generics)
        if bound is not None:
            return bound.emitted.text
        found = find_entry(self.instance, entry)
        given = declared_inputs(found, generics)
        own = bind_entry(self.instance, entry, given.arguments, generics)
        return emit_stablehlo(self._module(entry, given, own), self.target.numerics)

    def executable(self, entry: str, **generics: int) -> Executable:
        """An entry's compiled program: for generics given by name, or as it was last run."""
        bound = self._ran(entry, generics)
        if bound is None:
            given = declared_inputs(find_entry(self.instance, entry), generics)
            bound = self._bind(entry, given, generics)
        return bound.executable

    def to_numpy(self, value: jax.Array) -> np.ndarray:
        """A result on the host, floats as f32."""
        found = np.asarray(value)
        narrow = found.dtype != np.float64 and jax.numpy.issubdtype(found.dtype, np.floating)
        return found.astype(np.float32) if narrow else found

    def argmax(self, logits: jax.Array) -> np.ndarray:
        """The likeliest token of each row of `[B, V]`, chosen on the device: `[B]`, int64."""
        return np.asarray(self._argmax(logits)).astype(np.int64)

    # Binding.

    def _ran(self, name: str, generics: Mapping[str, int]) -> BoundEntry | None:
        """The entry as it last ran, where its generics are not given."""
        if generics or not find_entry(self.instance, name).generics:
            return None
        ran = [bound for key, bound in self._bound.items() if key[0] == name]  # type: ignore[index]
        return ran[-1] if ran else None

    def _bind(self, name: str, given: Inputs, generics: Mapping[str, int]) -> BoundEntry:
        """The entry for inputs of a form, compiled on first use."""
        own = bind_entry(self.instance, name, given.arguments, generics)
        form = (name, tuple(own.items()), given.presence)
        found = self._by_form.get(form)
        if found is None:
            started = time.perf_counter()
            module = self._module(name, given, own)
            found = bind(module, self.target, self._derived, self.weights)
            found.seconds = time.perf_counter() - started
            self._by_form[form] = found
        return found

    def _module(self, name: str, given: Inputs, own: Mapping[str, Any]) -> Module:
        return optimised(lower(self.instance, name, own, given.arguments), self.target.numerics)


def likeliest(logits: jax.Array) -> jax.Array:
    """The first position of each row's largest value; NaN counts as the largest. In two plain
    reductions, since XLA's own for both at once takes four times as long on a CPU."""
    top = jax.numpy.max(logits, -1, keepdims=True)
    found = (logits == top) | (logits != logits)
    positions = jax.lax.broadcasted_iota("int32", logits.shape, logits.ndim - 1)
    return jax.numpy.min(jax.numpy.where(found, positions, logits.shape[-1]), -1)
