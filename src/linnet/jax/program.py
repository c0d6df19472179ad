"""An entry's program for one set of shapes, compiled and bound to the arrays it reads."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax

from linnet.emit.stablehlo import StableHlo, emit
from linnet.ir.core import Module
from linnet.ir.dce import dce
from linnet.ir.join import is_joined
from linnet.ir.keys import result_keys
from linnet.jax.cache import ExecutableCache, cache_key
from linnet.jax.executable import Device, Executable, compile_text, load_serialized, platform
from linnet.jax.weights import Weights


@dataclass(frozen=True, slots=True)
class Target:
    """Where programs run, and how far numbers may stray from the source's own."""

    device: Device
    numerics: str
    cache: ExecutableCache | None

    @property
    def flags(self) -> dict[str, bool]:
        """XLA's options. Fusing may drop roundings in between, which only `fast` allows."""
        return {"xla_allow_excess_precision": self.numerics == "fast"}

    def compile(self, text: str) -> Executable:
        """A program's executable, from the cache where that has it."""
        if self.cache is None:
            return compile_text(text, self.device, self.flags)
        key = cache_key(text, f"{platform(self.device)} {self.device.id}", self.flags)
        data = self.cache.get(key)
        if data is not None:
            # What this JAX can't load after all is compiled and kept anew.
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                return load_serialized(data, self.device, self.flags)
        made = compile_text(text, self.device, self.flags)
        self.cache.put(key, made.serialized())
        return made


@dataclass(slots=True)
class BoundEntry:
    """An entry that runs."""

    module: Module
    emitted: StableHlo
    executable: Executable
    weights: Sequence[jax.Array]
    seconds: float = 0.0
    """What making it took."""

    @property
    def text(self) -> str:
        return self.emitted.text

    def __call__(
        self, inputs: Sequence[jax.Array], states: dict[str, jax.Array]
    ) -> list[jax.Array]:
        """Runs it; the states that it changes are replaced in `states`."""
        emitted = self.emitted
        held = [states[slot.path] for slot in emitted.states]
        found = self.executable([*inputs, *self.weights, *held])
        count = len(emitted.results)
        states.update(zip(emitted.changed, found[count:], strict=True))
        return found[:count]


def bind(module: Module, target: Target, derived: Derived, weights: Weights) -> BoundEntry:
    """Compiles a module and finds its weights, stored and derived."""
    emitted = emit(module, target.numerics)
    executable = target.compile(emitted.text)
    computed = derived.of(module)
    found = [
        computed[slot.path] if slot.kind == "derived" else weights.array(slot.path)
        for slot in emitted.weights
    ]
    return BoundEntry(module, emitted, executable, found)


class Derived:
    """Weight-only work of all entries, each value computed once, by a digest of how."""

    def __init__(self, weights: Weights, target: Target):
        self.weights = weights
        self.target = target
        self.arrays: dict[str, jax.Array] = {}

    def of(self, module: Module) -> Mapping[str, jax.Array]:
        """A module's derived values by path, computed where they are new."""
        if module.prepare is None:
            return {}
        keys = dict(zip(module.derived, result_keys(module), strict=True))
        self._join(module, keys)
        missing = [path for path, key in keys.items() if key not in self.arrays]
        if missing:
            found = self._computed(module, missing)
            self.arrays.update(zip((keys[path] for path in missing), found, strict=True))
        return {path: self.arrays[key] for path, key in keys.items()}

    def _join(self, module: Module, keys: Mapping[str, str]) -> None:
        """Weights that lie together need no work."""
        prepare = module.prepare
        assert prepare is not None
        paths = {slot.value: slot.path for slot in prepare.weights}
        made = {value: op for op in prepare.ops for value in op.outputs}
        for path, value in zip(module.derived, prepare.results, strict=True):
            op = made.get(value)
            if keys[path] not in self.arrays and op is not None and is_joined(op, paths):
                whole = self.weights.joined([paths[part] for part in op.inputs])
                if whole is not None:
                    self.arrays[keys[path]] = whole

    def _computed(self, module: Module, wanted: Sequence[str]) -> list[jax.Array]:
        prepare = module.prepare
        assert prepare is not None
        results = dict(zip(module.derived, prepare.results, strict=True))
        main = replace(prepare, kind="entry", results=tuple(results[path] for path in wanted))
        alone = dce(Module({**module.functions, main.name: main}, main.name))
        emitted = emit(alone, self.target.numerics)
        executable = self.target.compile(emitted.text)
        return executable([self.weights.array(slot.path) for slot in emitted.weights])
