"""Puts the bodies of helper functions where they are called.

A free `fn` always goes; so does a method of a few operations, such as `Linear.forward`, which only
passes its weights on to an `op`. An `op` stays, for an emitter to have a kernel for, unless the
emitter asks for its body by name; other methods stay, so that a layer is one function called once
a layer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from linnet.ir.core import Attr, Function, Module, Op, Value, referenced
from linnet.ir.rewrite import Names, is_temporary, join, map_functions, substituted, with_ops

_FEW = 3
"""The most operations, constants aside, that a method is inlined with."""


def inline(module: Module, expand: Collection[str] = ()) -> Module:
    """Inlines `fn`s, small methods, and the `op`s whose sources are in `expand`."""
    return _Inliner(module, expand).run()


class _Inliner:
    def __init__(self, module: Module, expand: Collection[str]):
        self.module = module
        self.expand = expand
        self.done: dict[str, Function] = {}
        self.names = Names(module.functions)
        self.claimed: set[str] = set()
        """Regions that an operation has; another use gets a copy."""

    def run(self) -> Module:
        kept = [f for f in self.module.functions.values() if not self.goes(f)]
        for function in kept:
            if function.kind != "region":
                self.claim(function)
        for function in self.module.functions.values():
            self.done[function.name] = self.inlined(function)
        prepare = self.module.prepare
        if prepare is not None:
            prepare = self.inlined(prepare)
        # A copied region has to come before its user; new names stand at their first use.
        module = replace(self.module, functions=self.ordered(prepare), prepare=prepare)
        return map_functions(module, {})

    def goes(self, function: Function) -> bool:
        if function.name == self.module.entry:
            return False
        if function.source in self.expand and function.kind == "op":
            return True
        if function.kind == "method":
            work = [op for op in function.ops if op.kind != "constant"]
            return len(work) <= _FEW and not any(op.kind in ("while", "if") for op in work)
        return function.kind == "fn"

    def claim(self, function: Function) -> None:
        for op in function.ops:
            if op.kind != "call":
                for name in referenced(op):
                    self.claimed.add(name)
                    self.claim(self.module.functions[name])

    def inlined(self, function: Function) -> Function:
        names = Names.of(function)
        by: dict[Value, Value] = {}
        ops: list[Op] = []
        for op in function.ops:
            op = replace(op, inputs=substituted(op.inputs, by))
            callee = self.done.get(str(op.attrs.get("callee")))
            if op.kind == "call" and callee is not None and self.goes(callee):
                self.splice(op, callee, names, ops, by)
            else:
                ops.append(op)
        return with_ops(function, ops, by)

    def splice(
        self, call: Op, callee: Function, names: Names, ops: list[Op], by: dict[Value, Value]
    ) -> None:
        """Writes a callee's body in place of a call."""
        at = call.text("at")
        local = dict(zip(callee.operands, call.inputs, strict=True))
        produced = {value for op in callee.ops for value in op.outputs}
        named: dict[Value, Value] = {}
        for output, value in zip(call.outputs, callee.returns, strict=True):
            if value in produced and (not is_temporary(output.name) or is_temporary(value.name)):
                named.setdefault(value, output)
        for op in callee.ops:
            for value in op.outputs:
                local[value] = named.get(value) or names.value(value.name, value.type)
            ops.append(
                Op(
                    op.kind,
                    substituted(op.inputs, local),
                    substituted(op.outputs, local),
                    self.moved(op, at),
                    op.location,
                )
            )
        for output, value in zip(call.outputs, callee.returns, strict=True):
            if local[value] is not output:
                by[output] = local[value]

    def moved(self, op: Op, at: str) -> dict[str, Attr]:
        """An operation's attributes where the block of its function is at a path."""
        attrs = dict(op.attrs)
        if op.kind == "call":
            callee = self.module.functions[str(attrs["callee"])]
            nested = str(attrs["at"])
            if nested or callee.weights or callee.states:
                attrs["at"] = join(at, nested)
        elif op.kind in ("while", "if"):
            for attr in ("condition", "body", "then", "otherwise"):
                if attr in attrs:
                    attrs[attr] = self.region(str(attrs[attr]))
        return attrs

    def region(self, name: str) -> str:
        """A region for one more operation: itself, or a copy if another operation has it."""
        if name not in self.claimed:
            self.claimed.add(name)
            self.claim(self.module.functions[name])
            return name
        original = self.done[name]
        copy = self.names.fresh(name)
        ops = [replace(op, attrs=self.moved(op, "")) for op in original.ops]
        self.done[copy] = replace(original, name=copy, ops=tuple(ops))
        self.claimed.add(copy)
        return copy

    def ordered(self, prepare: Function | None) -> dict[str, Function]:
        found: dict[str, Function] = {}

        def visit(name: str) -> None:
            if name not in found:
                references(self.done[name].ops)
                found[name] = self.done[name]

        def references(ops: Sequence[Op]) -> None:
            for op in ops:
                for callee in referenced(op):
                    visit(callee)

        for name in self.module.functions:
            visit(name)
        if prepare is not None:
            references(prepare.ops)
        return found
