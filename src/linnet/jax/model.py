"""Loading a model to be run by XLA, and the loaded model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from linnet.described import weights_read
from linnet.dtypes import DType
from linnet.emit.stablehlo import emit_stablehlo, optimised
from linnet.inputs import Inputs, declared_inputs
from linnet.ir.core import Module
from linnet.ir.instantiate import BlockInstance, find_entry
from linnet.ir.lower import lower
from linnet.ir.passes import NUMERICS
from linnet.jax.arrays import find_device
from linnet.jax.cache import ExecutableCache, default_folder
from linnet.jax.device_model import DeviceModel
from linnet.jax.executable import Device, Executable
from linnet.jax.program import BoundEntry, Derived, Target, bind
from linnet.jax.weights import Weights
from linnet.loading import Source, begin
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


class XlaModel(DeviceModel):
    """A model with its weights and states on a device. Implements `linnet.runtime.Runtime`."""

    name = "xla"

    def __init__(
        self, instance: BlockInstance, weights: Weights, target: Target, dtype: DType | None
    ):
        super().__init__(instance, weights, dtype)
        self.target = target
        self._derived = Derived(weights, target)

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

    def executable(self, entry: str, **generics: int) -> Executable:
        """An entry's compiled program: for generics given by name, or as it was last run."""
        bound = self._ran(entry, generics)
        if bound is None:
            given = declared_inputs(find_entry(self.instance, entry), generics)
            bound = self._bind(entry, given, generics)
        return bound.executable

    def _make(self, name: str, given: Inputs, own: Mapping[str, Any]) -> BoundEntry:
        return bind(self._module(name, given, own), self.target, self._derived, self.weights)

    def _text(self, name: str, given: Inputs, own: Mapping[str, Any]) -> str:
        return emit_stablehlo(self._module(name, given, own), self.target.numerics)

    def _module(self, name: str, given: Inputs, own: Mapping[str, Any]) -> Module:
        return optimised(lower(self.instance, name, own, given.arguments), self.target.numerics)
