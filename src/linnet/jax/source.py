"""Models run as generated JAX source under `jax.jit`, and entries as functions to differentiate.

    m = linnet.jax.load_source("model.linnet", generics={…}, weights="model.safetensors")
    m.run_entry("prefill", [tokens, 0])

    f = m.function("forward")
    jax.grad(lambda parameters: loss(f.apply(parameters, tokens)))(f.parameters)

It reads the same weights into the same memory as `linnet.jax.load`, and has the same interface.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from linnet.described import weights_read
from linnet.dtypes import DType
from linnet.emit.jax import Emitted, JaxTarget, emit, optimised
from linnet.inputs import Inputs, declared_inputs, read_inputs
from linnet.ir.core import Module
from linnet.ir.instantiate import BlockInstance, bind_entry, find_entry, parameters
from linnet.ir.keys import result_keys
from linnet.ir.lower import lower
from linnet.jax.arrays import NUMPY, find_device, read_tensor
from linnet.jax.cache import ExecutableCache, default_folder
from linnet.jax.device_model import DeviceModel
from linnet.jax.executable import Device, Executable
from linnet.jax.program import Target
from linnet.jax.weights import Weights
from linnet.loading import Source, begin
from linnet.weights import Bindings


def load_source(
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
) -> JaxModel:
    """Loads a model to be run as generated JAX source; the arguments are those of `load`.

    Raises `LinnetError` for a source with errors, `ValueError` for generics, options and weights
    that don't fit; nothing is read before all weights are known to fit.
    """
    target = JaxTarget(numerics)
    place = find_device(device)
    folder = default_folder() if cache is True else Path(cache) if cache else None
    compiler = Target(place, numerics, ExecutableCache(folder) if folder is not None else None)
    loading = begin(
        source, root=root, generics=generics, weights=weights, bindings=bindings, dtype=dtype
    )
    loaded = Weights(loading.specs, place)
    loaded.fill(loading.read)
    return JaxModel(loading.instance, loaded, target, compiler, loading.dtype)


class JaxModel(DeviceModel):
    """A model with its weights and states on a device. Implements `linnet.runtime.Runtime`."""

    name = "jax"

    def __init__(
        self,
        instance: BlockInstance,
        weights: Weights,
        target: JaxTarget,
        compiler: Target,
        dtype: DType | None,
    ):
        super().__init__(instance, weights, dtype)
        self.target = target
        self.compiler = compiler
        self._derived: dict[str, jax.Array] = {}
        """Weight-only work of all entries, by a digest of how it is computed."""
        self.functions: dict[object, tuple[Module, Emitted, dict[str, Any]]] = {}
        """What `function` has generated, for each form of inputs."""

    def function(self, entry: str, **generics: int) -> Function:
        """An entry as a function of the parameters and its inputs, to be compiled and
        differentiated. Raises `ValueError` for an unknown entry."""
        find_entry(self.instance, entry)
        return Function(self, entry, generics)

    def emitted(self, name: str, given: Inputs, own: Mapping[str, Any]) -> tuple[Module, Emitted]:
        """An entry's module and source for inputs of a form."""
        module = optimised(lower(self.instance, name, own, given.arguments))
        return module, emit(module, self.target)

    def _make(self, name: str, given: Inputs, own: Mapping[str, Any]) -> SourceEntry:
        module, emitted = self.emitted(name, given, own)
        names = defined(emitted.source, name)
        derived = self._computed(module, names)
        held = [
            derived[path] if path in derived else self.weights.array(path)
            for path in emitted.places.values()
        ]
        states = [self.states[path] for path in emitted.states]
        types = [jax.ShapeDtypeStruct(v.type.shape, NUMPY[v.type.dtype])
                 for v in module.main.inputs]  # fmt: skip
        # Compiled and called past `jit`, which takes a millisecond or two to pass so many arrays.
        run = jax.jit(flat_entry(emitted, names), donate_argnums=1, keep_unused=True)
        with jax.enable_x64(True):
            lowered = run.lower(held, states, *types)
        return SourceEntry(module, emitted, held, self.compiler.compile(lowered.as_text()))

    def executable(self, entry: str, **generics: int) -> Executable:
        """An entry's compiled program: for generics given by name, or as it was last run."""
        bound = self._ran(entry, generics)
        if bound is None:
            given = declared_inputs(find_entry(self.instance, entry), generics)
            bound = self._bind(entry, given, generics)
        return bound.executable

    def _computed(self, module: Module, names: Mapping[str, Any]) -> dict[str, jax.Array]:
        """A module's derived values by path, computed where they are new."""
        if module.prepare is None:
            return {}
        keys = dict(zip(module.derived, result_keys(module), strict=True))
        if not set(keys.values()) <= set(self._derived):
            weights = {slot.path: self.weights.array(slot.path) for slot in module.prepare.weights}
            run = jax.jit(lambda given: names["prepare"](names["tree"](given)))
            found = leaves(run(weights))
            places = attributes(module)
            for path, key in keys.items():
                made = jax.device_put(found[places[path]], self.device)
                self._derived.setdefault(key, made)
        return {path: self._derived[key] for path, key in keys.items()}

    def _text(self, name: str, given: Inputs, own: Mapping[str, Any]) -> str:
        return self.emitted(name, given, own)[1].source

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a step over one token reads: all, but of a table that is only
        looked up in, nothing."""
        if "decode" not in self._entries or self.generics.get("Batch", 1) != 1:
            return self.weights.total
        bound = self._bind("decode", declared_inputs(self._entries["decode"]), {})
        read = weights_read(bound.module)
        pairs = zip(bound.emitted.places.values(), bound.weights, strict=True)
        return sum(array.nbytes for path, array in pairs if path in read)


@dataclass(slots=True)
class SourceEntry:
    """A generated entry that is compiled and bound to the weights."""

    module: Module
    emitted: Emitted
    weights: Sequence[jax.Array]
    executable: Executable
    seconds: float = 0.0
    """What making it took."""

    @property
    def text(self) -> str:
        return self.emitted.source

    def __call__(
        self, inputs: Sequence[jax.Array], states: dict[str, jax.Array]
    ) -> Sequence[jax.Array]:
        """Runs it; the states that it takes are replaced in `states`."""
        paths = self.emitted.states
        found = self.executable([*self.weights, *(states[path] for path in paths), *inputs])
        count = self.emitted.results
        states.update(zip(paths, found[count:], strict=True))
        return found[:count]


# --- generated source -----------------------------------------------------------------------


def defined(source: str, name: str) -> dict[str, Any]:
    """What generated source defines, by name."""
    names: dict[str, Any] = {}
    exec(compile(source, f"<{name}>", "exec"), names)
    return names


def flat_entry(emitted: Emitted, names: Mapping[str, Any]) -> Callable[..., Any]:
    """An entry as a function of lists, which cost less to pass than dicts: the weights and derived
    values in the order of `places`, the states in the order of `states`, then the inputs. Gives
    the results and the new states."""
    entry, tree = names[emitted.entry], names["tree"]

    def run(weights: Sequence[Any], states: Sequence[Any], *inputs: Any) -> Any:
        model = tree(dict(zip(emitted.places, weights, strict=True)))
        if not emitted.states:
            found = entry(model, *inputs)
            return list(found) if emitted.results != 1 else [found], []
        held = tree(dict(zip(emitted.states, states, strict=True)))
        found = entry(model, held, *inputs)
        *results, new = found if emitted.results else (found,)
        by_path = leaves(new)
        return results, [by_path[path] for path in emitted.states]

    return run


def leaves(tree: Any, prefix: str = "") -> dict[str, Any]:
    """The arrays in nested dicts and lists, by path."""
    if tree is None:
        return {}
    if not isinstance(tree, (dict, list)):
        return {prefix: tree}
    found: dict[str, Any] = {}
    for key, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
        found |= leaves(item, f"{prefix}.{key}" if prefix else str(key))
    return found


def attributes(module: Module) -> dict[str, str]:
    """For each derived value, its place in the tree that `prepare` gives."""
    from linnet.emit.survey import places_of

    places = places_of(module)
    return {path: places.attribute(path) for path in module.derived}


# --- functions ------------------------------------------------------------------------------


@dataclass(eq=False)
class Function:
    """An entry as a function without side effects, for `jax.jit`, `jax.grad` and the like.

    Source is generated for the shapes of the inputs when it is called (under `jit`, when it is
    traced).
    """

    model: JaxModel
    entry: str
    generics: Mapping[str, int]

    @property
    def parameters(self) -> dict[str, jax.Array]:
        """The model's parameters by path, on the device."""
        kinds = {spec.path: spec.kind for spec in parameters(self.model.instance)}
        held = self.model.state_dict()
        return {path: array for path, array in held.items() if kinds[path] == "param"}

    def state(self) -> dict[str, jax.Array]:
        """New states by path, all zero, for an entry that has some."""
        specs = [spec for spec in parameters(self.model.instance) if spec.kind == "state"]
        with jax.enable_x64(True):
            return {spec.path: jnp.zeros(spec.shape, NUMPY[spec.dtype]) for spec in specs}

    def apply(self, parameters: Mapping[str, Any], *inputs: Any) -> Any:
        """The entry's result, or a tuple of them, for an entry without states.

        `parameters` are by path; buffers are the model's own unless they are given too. Raises
        `ValueError` for inputs and parameters that don't fit, and for an entry with states.
        """
        emitted, run = self._source(inputs)
        if emitted.states:
            raise ValueError(
                f"`{self.entry}` has states: use `apply_with_state(parameters, state, …)`, which "
                "gives the new ones back"
            )
        results, _ = run(parameters, {}, inputs)
        return results[0] if len(results) == 1 else tuple(results)

    def apply_with_state(
        self, parameters: Mapping[str, Any], state: Mapping[str, Any], *inputs: Any
    ) -> tuple[Any, dict[str, Any]]:
        """The entry's result, or a tuple of them, and the new states by path."""
        _, run = self._source(inputs)
        results, new = run(parameters, state, inputs)
        return results[0] if len(results) == 1 else tuple(results), {**state, **new}

    def __call__(self, *inputs: Any) -> Any:
        """`apply` with the model's own parameters."""
        return self.apply(self.parameters, *inputs)

    def _source(self, inputs: Sequence[Any]) -> tuple[Emitted, Callable[..., Any]]:
        """The entry for inputs of these shapes: its source, and what runs it."""
        model = self.model
        given = read_inputs(find_entry(model.instance, self.entry), inputs, _read_traced)
        own = bind_entry(model.instance, self.entry, given.arguments, self.generics)
        key = (self.entry, tuple(own.items()), given.presence)
        made = model.functions.get(key)
        if made is None:
            module, emitted = model.emitted(self.entry, given, own)
            made = model.functions[key] = (module, emitted, defined(emitted.source, self.entry))
        module, emitted, names = made

        def run(weights: Mapping[str, Any], state: Mapping[str, Any], _: Any) -> Any:
            wanted = {p for p in emitted.places.values() if not p.startswith("@")}
            if module.prepare is not None:
                wanted |= {slot.path for slot in module.prepare.weights}
            held = {path: self._weight(weights, path) for path in sorted(wanted)}
            tree = leaves(names["new_model"](held))
            listed = [tree[place] for place in emitted.places]
            states = [state[path] for path in emitted.states]
            results, new = flat_entry(emitted, names)(listed, states, *given.tensors)
            return results, dict(zip(emitted.states, new, strict=True))

        return emitted, run

    def _weight(self, weights: Mapping[str, Any], path: str) -> Any:
        spec = self.model.weights.specs[path]
        found = weights.get(path)
        if found is None:
            if spec.kind == "param":
                raise ValueError(f"the parameter `{path}` is not given")
            return self.model.weights.array(path)
        if tuple(found.shape) != spec.shape or found.dtype != NUMPY[spec.dtype]:
            wanted = f"{spec.dtype}{list(spec.shape)}"
            raise ValueError(f"`{path}` must be {wanted}, found {found.dtype}{list(found.shape)}")
        return found


def _read_traced(what: str, value: Any, declared: DType | None) -> tuple[Any, DType]:
    """An input as it is, traced or not."""
    if isinstance(value, Tracer):
        dtypes = {dtype: name for name, dtype in NUMPY.items()}
        return value, dtypes[np.dtype(value.dtype)]
    return read_tensor(what, value, declared)


__all__ = ["Function", "JaxModel", "load_source"]
