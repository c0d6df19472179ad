"""What passes share: fresh names, substitution, who calls whom."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from linnet.ir.core import Function, Module, Op, TensorType, Value, referenced

_TEMPORARY = re.compile(r"t\d+")


class Names:
    """The names taken in a function."""

    def __init__(self, taken: Iterable[str]):
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    @staticmethod
    def of(function: Function) -> Names:
        names = Names(value.name for value in function.operands)
        names._taken.update(value.name for op in function.ops for value in op.outputs)
        return names

    def fresh(self, name: str) -> str:
        """The name itself if it is free, else with a number; a temporary gets the next number."""
        if is_temporary(name):
            base, form, first = "t", "t{}", 0
        else:
            base, form, first = name, f"{name}_{{}}", 1
        while name in self._taken:
            count = self._next.get(base, first)
            self._next[base] = count + 1
            name = form.format(count)
        self._taken.add(name)
        return name

    def release(self, name: str) -> None:
        """Frees the name of a value that goes away."""
        self._taken.discard(name)

    def value(self, name: str, type_: TensorType) -> Value:
        return Value(self.fresh(name), type_)


def is_temporary(name: str) -> bool:
    """Whether a name is one that nothing in the source gave."""
    return _TEMPORARY.fullmatch(name) is not None


Substitution = Mapping[Value, Value]


def substituted(values: Iterable[Value], by: Substitution) -> tuple[Value, ...]:
    return tuple(by.get(value, value) for value in values)


def with_ops(function: Function, ops: Iterable[Op], by: Substitution) -> Function:
    """A function with these operations, and its returns substituted."""
    return replace(
        function,
        ops=tuple(ops),
        results=substituted(function.results, by),
        new_states=substituted(function.new_states, by),
    )


def producers(function: Function) -> dict[Value, Op]:
    return {value: op for op in function.ops for value in op.outputs}


def use_counts(function: Function) -> Counter[Value]:
    """How often each value is used, by operations and returns."""
    found = Counter(value for op in function.ops for value in op.inputs)
    found.update(function.returns)
    return found


def map_functions(module: Module, functions: Mapping[str, Function]) -> Module:
    """A module with some of its functions replaced, without those that nothing uses."""
    kept = {name: functions.get(name, f) for name, f in module.functions.items()}
    reached: set[str] = set()
    pending = [module.entry]
    if module.prepare is not None:
        pending += [name for op in module.prepare.ops for name in referenced(op)]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += [callee for op in kept[name].ops for callee in referenced(op)]
    return replace(module, functions={n: f for n, f in kept.items() if n in reached})


def join(at: str, path: str) -> str:
    return f"{at}.{path}" if at and path else at or path


def fingerprints(module: Module) -> dict[str, str]:
    """What each derived weight is computed by, as a digest that tells equal work from other.

    Entries of one model that have a derived weight of one digest can share it, whatever its path.
    """
    prepare = module.prepare
    if prepare is None:
        return {}
    digests = {slot.value: f"{slot.path}: {slot.value.type}" for slot in prepare.weights}
    for op in prepare.ops:
        digests.update(zip(op.outputs, _digests(module, op, digests), strict=True))
    found = zip(module.derived, prepare.results, strict=True)
    return {path: digests[value] for path, value in found}


def _digests(module: Module, op: Op, digests: Mapping[Value, str]) -> list[str]:
    attrs = []
    for name, value in sorted(op.attrs.items()):
        if value in referenced(op) and name != "at":
            value = _function_digest(module, str(value))
        attrs.append(f"{name}={value!r}" if name != "at" else "")
    types = [str(value.type) for value in op.outputs]
    text = repr((op.kind, [digests[value] for value in op.inputs], attrs, types))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return [f"{digest}:{i}" for i in range(len(op.outputs))]


def _function_digest(module: Module, name: str) -> str:
    function = module.functions[name]
    digests = {value: f"{i}: {value.type}" for i, value in enumerate(function.operands)}
    for op in function.ops:
        digests.update(zip(op.outputs, _digests(module, op, digests), strict=True))
    text = repr([digests[value] for value in function.returns])
    return hashlib.sha256(text.encode()).hexdigest()
