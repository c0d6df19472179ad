"""Digests of how derived weights are computed.

Entries are lowered one by one, and each has a `prepare` function of its own. Two of their results
are the same value if the same operations lead to them from the same weights, and then their keys
are equal.
"""

from __future__ import annotations

import hashlib

from linnet.ir.core import Function, Module, Op, Value
from linnet.ir.printer import print_attr, print_function


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
