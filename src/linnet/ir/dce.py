"""Removes what nothing needs: operations, results, arguments, slots and functions.

Marking starts from what the entry returns and follows each value to what it is computed from, into
callees and out again: a callee's result is needed where a caller uses it, an argument where the
callee uses it. Then everything unmarked goes. An `op` keeps its signature, which kernels know it
by, an entry its inputs and results, and a loop what it carries. A state is either kept whole, its
old value and its new one, or goes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from linnet.ir.core import Function, Module, Op, Value, referenced
from linnet.ir.rewrite import producers


def dce(module: Module) -> Module:
    """A module without dead code."""
    marks = _Marks(module)
    marks.run()
    functions = {
        name: _swept(function, marks)
        for name, function in module.functions.items()
        if name in marks.reached
    }
    if module.prepare is None:
        return replace(module, functions=functions)
    derived = _kept(module.derived, marks.returns(module.prepare))
    prepare = _swept(module.prepare, marks) if derived else None
    return replace(module, functions=functions, prepare=prepare, derived=derived)


class _Marks:
    """What is needed, function by function."""

    def __init__(self, module: Module):
        self.module = module
        self.prepare = module.prepare
        self.live: dict[str, set[Value]] = defaultdict(set)
        self.wanted: dict[str, set[int]] = defaultdict(set)
        """The returns of each function that are needed, by position."""
        self.sites: dict[str, list[tuple[Function, Op]]] = defaultdict(list)
        self.ops: set[int] = set()
        """The operations that stay, by identity."""
        self.reached: set[str] = {module.entry}
        self._pending: list[tuple[Function, Value]] = []
        self._producers: dict[str, dict[Value, Op]] = {}

    def run(self) -> None:
        main = self.module.main
        for i in range(len(main.results)):
            self.want(main, i)
        for i, (slot, new) in enumerate(zip(main.states, main.new_states, strict=True)):
            if new is not slot.value:
                self.want(main, len(main.results) + i)
        while self._pending:
            self.follow(*self._pending.pop())

    def mark(self, function: Function, value: Value) -> None:
        live = self.live[function.name]
        if value not in live:
            live.add(value)
            self._pending.append((function, value))

    def want(self, function: Function, index: int) -> None:
        """Notes that a return is needed; a new state brings its old value along."""
        self.reached.add(function.name)
        if index not in self.wanted[function.name]:
            self.wanted[function.name].add(index)
            self.mark(function, function.returns[index])
            state = index - len(function.results)
            if state >= 0:
                self.mark(function, function.states[state].value)

    def follow(self, function: Function, value: Value) -> None:
        """Marks what a value is computed from."""
        if function.name not in self._producers:
            self._producers[function.name] = producers(function)
        op = self._producers[function.name].get(value)
        if op is not None:
            self.keep(function, op, value)
            return
        for caller, site in self.sites[function.name]:
            for given, operand in _passed(site, function):
                if operand is value:
                    self.mark(caller, given)
        for i, slot in enumerate(function.states):
            if slot.value is value:
                self.want(function, len(function.results) + i)
        if function is self.module.main and self.prepare is not None:
            for slot in function.weights:
                if slot.value is value and slot.kind == "derived":
                    self.want(self.prepare, self.module.derived.index(slot.path))

    def keep(self, function: Function, op: Op, value: Value) -> None:
        """Keeps an operation for one of its outputs."""
        callees = [self.module.functions[name] for name in referenced(op)]
        if id(op) not in self.ops:
            self.ops.add(id(op))
            for callee in callees:
                self.reached.add(callee.name)
                self.sites[callee.name].append((function, op))
            for given in self.always_passed(op, callees):
                self.mark(function, given)
            for callee in callees:
                live = self.live[callee.name]
                for given, operand in _passed(op, callee):
                    if operand in live:
                        self.mark(function, given)
        for callee in callees:
            for i in range(len(callee.returns)):
                if keeps_signature(callee, op) or op.outputs[i] is value:
                    self.want(callee, i)

    def always_passed(self, op: Op, callees: Sequence[Function]) -> Sequence[Value]:
        """The inputs that an operation needs whatever its functions do with them."""
        if op.kind == "if":
            return op.inputs[:1]
        if op.kind == "while":
            return op.inputs[: op.integer("carried")]
        if op.kind == "call" and callees[0].kind != "op":
            return ()
        return op.inputs

    # What stays.

    def operands(self, function: Function) -> list[bool]:
        """Which operands of a function stay."""
        live = self.live[function.name]
        if function.kind == "op":
            return [True] * len(function.operands)
        if function.kind == "region":
            ops = [op for _, op in self.sites[function.name]]
            return [any(self.passed(op, i) for op in ops) for i in range(len(function.inputs))]
        first = len(function.inputs) if function is self.module.main else 0
        return [i < first or value in live for i, value in enumerate(function.operands)]

    def passed(self, op: Op, index: int) -> bool:
        """Whether a region's input stays: it is carried, or one of the operation's regions needs
        it."""
        if op.kind == "while" and index < op.integer("carried"):
            return True
        regions = [self.module.functions[name] for name in referenced(op)]
        return any(region.inputs[index] in self.live[region.name] for region in regions)

    def returns(self, function: Function) -> list[bool]:
        """Which returns of a function stay."""
        wanted = self.wanted[function.name]
        return [function.kind == "op" or i in wanted for i in range(len(function.returns))]


def keeps_signature(callee: Function, op: Op) -> bool:
    return callee.kind == "op" or op.kind == "while"


def _passed(op: Op, callee: Function) -> Iterable[tuple[Value, Value]]:
    """What an operation passes for each operand of a function it runs."""
    given = op.inputs[1:] if op.kind == "if" else op.inputs
    return zip(given, callee.operands, strict=True)


T = TypeVar("T")


def _kept(items: Sequence[T], keep: Sequence[bool]) -> tuple[T, ...]:
    return tuple(item for item, stays in zip(items, keep, strict=True) if stays)


def _swept(function: Function, marks: _Marks) -> Function:
    keep, stay = marks.operands(function), marks.returns(function)
    inputs, weights = len(function.inputs), len(function.inputs) + len(function.weights)
    results = len(function.results)
    return replace(
        function,
        inputs=_kept(function.inputs, keep[:inputs]),
        arguments=_kept(function.arguments, keep[:inputs]) if function.arguments else (),
        weights=_kept(function.weights, keep[inputs:weights]),
        states=_kept(function.states, keep[weights:]),
        ops=tuple(_swept_op(op, marks) for op in function.ops if id(op) in marks.ops),
        results=_kept(function.results, stay[:results]),
        new_states=_kept(function.new_states, stay[results:]),
    )


def _swept_op(op: Op, marks: _Marks) -> Op:
    names = referenced(op)
    if not names:
        return op
    callee = marks.module.functions[names[-1]]
    keep, stay = marks.operands(callee), marks.returns(callee)
    given = op.inputs[1:] if op.kind == "if" else op.inputs
    kept = _kept(given, keep)
    if op.kind == "if":
        kept = (op.inputs[0], *kept)
    return replace(op, inputs=kept, outputs=_kept(op.outputs, stay))
