"""Cuts a module into the pieces that are worth compiling, each once.

Compiling a whole entry takes time for every layer; compiling a layer's function once and calling it
for each layer takes a few seconds however deep the model is, and runs as fast: only the calls
between pieces are left to Python. A *driver* is a function that calls others in a loop over layers,
or has a loop or a branch at run time; it stays as it is. What stands between its calls is moved to
functions of its own (`decode_begin`, `decode_end`). The functions that drivers call are the pieces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from linnet.ir.core import Function, Module, Op, Slot, Value, referenced
from linnet.ir.rewrite import Names

_HEAVY = 6
"""How many operations, its callees' included, make a function a piece of its own."""
_WORK = 2
"""How many operations between calls are worth a piece."""


@dataclass(frozen=True, slots=True)
class Outlined:
    module: Module
    pieces: tuple[str, ...]
    """The functions that drivers call; of a module without drivers, its entry."""


def outline(module: Module) -> Outlined:
    """The module with its drivers cut into calls, and its pieces."""
    return _Outliner(module).run()


@dataclass(slots=True)
class _Outliner:
    module: Module
    sizes: dict[str, int] = field(default_factory=dict)
    drivers: set[str] = field(default_factory=set)
    """Drivers, and the regions in them."""
    pieces: dict[str, None] = field(default_factory=dict)
    names: Names = field(init=False)

    def __post_init__(self) -> None:
        self.names = Names(self.module.functions)

    def run(self) -> Outlined:
        functions = self.module.functions
        for function in functions.values():
            called = [functions[name] for op in function.ops for name in referenced(op)]
            work = [op for op in function.ops if op.kind not in ("constant", "call")]
            self.sizes[function.name] = len(work) + sum(self.sizes[f.name] for f in called)
            if function.kind != "op" and self.drives(function, called):
                self.drivers.add(function.name)
        if self.module.entry not in self.drivers:
            return Outlined(self.module, (self.module.entry,))
        self.enter(self.module.entry)
        found: dict[str, Function] = {}
        for function in functions.values():
            if function.name in self.drivers:
                function = self.cut(function, found)
            found[function.name] = function
        return Outlined(replace(self.module, functions=found), tuple(self.pieces))

    def drives(self, function: Function, called: Sequence[Function]) -> bool:
        """Whether a function calls drivers, or one heavy function more than once."""
        if any(op.kind in ("while", "if") for op in function.ops):
            return True
        times = Counter(callee.name for callee in called if callee.kind != "op")
        return any(
            name in self.drivers or (count > 1 and self.sizes[name] >= _HEAVY)
            for name, count in times.items()
        )

    def enter(self, name: str) -> None:
        """Makes the regions of drivers drivers too, and what drivers call pieces."""
        self.drivers.add(name)
        for op in self.module.functions[name].ops:
            for callee in referenced(op):
                function = self.module.functions[callee]
                if function.kind == "region" or callee in self.drivers:
                    self.enter(callee)
                elif function.kind != "op" and self.sizes[callee] >= _HEAVY:
                    self.pieces[callee] = None

    # Cutting.

    def cut(self, function: Function, found: dict[str, Function]) -> Function:
        """A driver whose operations between calls are functions, which are added to `found`."""
        constants = {
            value: op for op in function.ops if op.kind == "constant" for value in op.outputs
        }
        stateful = {slot.value for slot in function.states}
        groups: list[list[Op]] = [[]]
        for op in function.ops:
            if op.kind == "constant":
                continue
            if self.stays(op, stateful):
                groups += [[op], []]
                stateful.update(self.new_states(op, stateful))
            else:
                groups[-1].append(op)
        calls = [i for i, group in enumerate(groups) if group and self.stays(group[0], stateful)]
        ops = [op for op in function.ops if op.kind == "constant"]
        for i, group in enumerate(groups):
            work = [op for op in group if not _is_free(op)]
            if i in calls or len(work) < _WORK:
                ops += group
                continue
            where = "begin" if not calls or i < calls[0] else "end" if i > calls[-1] else "between"
            later = [op for other in groups[i + 1 :] for op in other]
            ops.append(self.moved(function, group, later, constants, where, found))
        return replace(function, ops=tuple(ops))

    def stays(self, op: Op, stateful: set[Value]) -> bool:
        """Whether an operation stays in the driver: calls of pieces and drivers, loops and
        branches, what is written in place, and scalars, which Python counts by itself."""
        if op.kind in ("while", "if", "update_slice"):
            return True
        if any(name in self.pieces or name in self.drivers for name in referenced(op)):
            return True
        if any(value in stateful for value in op.inputs):
            return True
        scalar = all(value.type.shape == () for value in (*op.inputs, *op.outputs))
        return scalar and bool(op.inputs) and op.kind != "call"

    def new_states(self, op: Op, stateful: set[Value]) -> list[Value]:
        """Inputs and outputs of an operation that stays which stand for states."""
        if op.kind == "call":
            callee = self.module.functions[op.text("callee")]
            first = len(callee.inputs) + len(callee.weights)
            if callee.kind != "op":
                return [*op.inputs[first:], *op.outputs[len(callee.results) :]]
        if op.kind == "while":
            pairs = zip(op.inputs, op.outputs, strict=False)
            return [output for value, output in pairs if value in stateful]
        return list(op.outputs) if any(value in stateful for value in op.inputs) else []

    def moved(
        self,
        function: Function,
        group: list[Op],
        later: Sequence[Op],
        constants: Mapping[Value, Op],
        where: str,
        found: dict[str, Function],
    ) -> Op:
        """Moves operations to a function of their own; gives the call of it."""
        made = {value for op in group for value in op.outputs}
        used = dict.fromkeys(value for op in group for value in op.inputs if value not in made)
        needed = {value for op in later for value in op.inputs} | set(function.returns)
        results = [value for op in group for value in op.outputs if value in needed]
        slots = {slot.value: slot for slot in function.weights}
        inputs = tuple(v for v in used if v not in slots and v not in constants)
        weights = tuple(slots[value] for value in used if value in slots)
        copied = [constants[value] for value in used if value in constants]
        base = function.name.removesuffix("_body")
        name = self.names.fresh(f"{base}_{where}")
        fresh = _renewed((*inputs, *(s.value for s in weights)), [*copied, *group])
        found[name] = Function(
            name=name,
            source=function.source,
            kind="fn" if function.kind == "region" else "method",
            generics=function.generics,
            inputs=tuple(fresh[value] for value in inputs),
            weights=tuple(Slot(s.path, s.kind, fresh[s.value]) for s in weights),
            states=(),
            ops=tuple(
                replace(
                    op,
                    inputs=tuple(fresh[v] for v in op.inputs),
                    outputs=tuple(fresh[v] for v in op.outputs),
                )
                for op in (*copied, *group)
            ),
            results=tuple(fresh[value] for value in results),
            new_states=(),
            arguments=tuple(value.name for value in inputs),
        )
        self.pieces[name] = None
        operands = (*inputs, *(slot.value for slot in weights))
        attrs = {"callee": name, "at": ""}
        return Op("call", operands, tuple(results), attrs, group[0].location)


def _renewed(operands: Sequence[Value], ops: Sequence[Op]) -> dict[Value, Value]:
    values = (*operands, *(value for op in ops for value in op.outputs))
    return {value: Value(value.name, value.type) for value in values}


def _is_free(op: Op) -> bool:
    return op.kind in ("broadcast", "reshape", "permute", "slice", "iota")
