"""Weight-only work of all entries, each value computed once.

What has been computed under a key, a digest of how it is computed, is used again by other entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from linnet.emit.torch import TorchTarget, emit
from linnet.ir.core import Module
from linnet.ir.dce import dce
from linnet.ir.join import is_joined
from linnet.ir.keys import result_keys
from linnet.torch.tree import build_tree
from linnet.torch.weights import Weights


class Derived:
    """Derived values by key."""

    def __init__(self, weights: Weights, target: TorchTarget):
        self.weights = weights
        self.target = replace(target, mode="eager")
        self.tensors: dict[str, torch.Tensor] = {}

    def of(self, module: Module) -> dict[str, torch.Tensor]:
        """A module's derived values by path, computed where they are new."""
        if module.prepare is None:
            return {}
        keys = dict(zip(module.derived, result_keys(module), strict=True))
        self._join(module, keys)
        missing = {p: k for p, k in keys.items() if k not in self.tensors}
        if missing:
            found = self._computed(module, list(missing))
            self.tensors.update(zip(missing.values(), found, strict=True))
        return {path: self.tensors[key] for path, key in keys.items()}

    def _join(self, module: Module, keys: Mapping[str, str]) -> None:
        """Joined weights that are a view already need no work."""
        prepare = module.prepare
        assert prepare is not None
        paths = {slot.value: slot.path for slot in prepare.weights}
        made = {value: op for op in prepare.ops for value in op.outputs}
        for path, value in zip(module.derived, prepare.results, strict=True):
            op = made.get(value)
            if keys[path] not in self.tensors and op is not None and is_joined(op, paths):
                whole = self.weights.joined([paths[v] for v in op.inputs])
                if whole is not None:
                    self.tensors[keys[path]] = whole

    def _computed(self, module: Module, wanted: list[str]) -> list[torch.Tensor]:
        prepare = module.prepare
        assert prepare is not None
        results = dict(zip(module.derived, prepare.results, strict=True))
        main = replace(prepare, kind="entry", results=tuple(results[path] for path in wanted))
        alone = dce(Module({**module.functions, main.name: main}, main.name))
        emitted = emit(alone, self.target)
        names: dict[str, object] = {}
        exec(compile(emitted.source, "<prepare>", "exec"), names)
        tensors = {at: self.weights.tensors[path] for at, path in emitted.places.items()}
        run = names[emitted.entry]
        with torch.no_grad():
            found = run(build_tree(tensors))  # type: ignore[operator]
        tensors_found = found if isinstance(found, tuple) else (found,)
        return [tensor.contiguous() for tensor in tensors_found]
