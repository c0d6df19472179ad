"""Weight-only work of all entries, each value computed once.

Entries are lowered one by one, and each has a `prepare` function of its own. Two of their results
are the same value if the same operations lead to them from the same weights: each gets a *key*, a
digest of how it is computed, and what has been computed under a key is used again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import torch

from linnet.emit.torch import TorchTarget, emit
from linnet.emit.torch_model import is_joined
from linnet.ir.core import Function, Module, Op, Value
from linnet.ir.dce import dce
from linnet.ir.printer import print_attr, print_function
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


def result_keys(module: Module) -> list[str]:
    """For each result of a module's `prepare`, a digest of how it is computed."""
    assert module.prepare is not None
    prepare = module.prepare
    keys = {slot.value: f"weight {slot.path}" for slot in prepare.weights}
    return _keys(module, prepare, keys)


def _keys(module: Module, function: Function, keys: dict[Value, str]) -> list[str]:
    for op in function.ops:
        inputs = [keys[value] for value in op.inputs]
        if op.kind == "call":
            callee = module.functions[op.text("callee")]
            found = _keys(module, callee, dict(zip(callee.operands, inputs, strict=True)))
        else:
            digest = _digest(op.kind, *_attrs(module, op), *inputs)
            found = [f"{digest}.{i}" for i in range(len(op.outputs))]
            found = [_digest(k, str(v.type)) for k, v in zip(found, op.outputs, strict=True)]
        keys.update(zip(op.outputs, found, strict=True))
    return [keys[value] for value in function.returns]


def _attrs(module: Module, op: Op) -> list[str]:
    """An operation's attributes as text, a region by its own text."""
    found = []
    for name, value in sorted(op.attrs.items()):
        region = module.functions.get(value) if isinstance(value, str) else None
        found.append(print_function(region) if region is not None else print_attr(value))
        found.append(name)
    return found


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
