"""Moves work that reads only weights out of the entry, into the module's `prepare` function.

A value is *fixed* in a function if it is computed from weights and constants alone. A fixed value
that other work needs, and that is more than another view of a weight, becomes a `derived` slot:
its path is that of the function's block, then the function's name and its own
(`@layers.3.layer_forward.scale` in the entry), so that each layer has its own. `prepare` computes
them all; those that come out the same for every layer, such as rotary tables, are kept once.

Bodies of `op`s stay as they are: they define what a kernel computes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from linnet.ir.core import Function, Module, Op, Slot, TensorType, Value, lift, referenced
from linnet.ir.dce import dce
from linnet.ir.rewrite import Names, is_temporary, join, producers, substituted, with_ops
from linnet.ir.simplify import cse

_VIEWS = ("reshape", "permute", "broadcast", "slice")
"""What costs nothing to do again."""
_CREATED = ("constant", "iota")


def hoist(module: Module, keep: Collection[str] = ()) -> Module:
    """Moves weight-only work to `prepare`; calls of the sources in `keep` stay where they are.

    Raises `ValueError` for a module that has a `prepare` function already.
    """
    if module.prepare is not None:
        raise ValueError("weight-only work has been hoisted already")
    plans = _plan(module, keep)
    if not any(plan.roots for plan in plans.values()):
        return module
    needs = _needs(module, plans)
    functions = {n: _rewritten(module, f, plans, needs) for n, f in module.functions.items()}
    preparation = _Preparation(module, plans, needs)
    preparation.visit(_Scope(module.main, ""))
    prepare, derived = preparation.finished()
    functions = {**functions, **preparation.copies}
    moved = Module(functions, module.entry, prepare, derived)
    return _merged(dce(cse(moved)))


# --- what is fixed --------------------------------------------------------------------------


@dataclass(slots=True)
class _Plan:
    """What is hoisted out of one function."""

    roots: dict[Value, str] = field(default_factory=dict)
    """The values that become derived slots, with their paths."""
    fixed: set[Value] = field(default_factory=set)


def _plan(module: Module, keep: Collection[str]) -> dict[str, _Plan]:
    plans = {name: _Plan() for name in module.functions}
    runs = {module.entry}
    """The functions that run in the entry, not only as a whole in `prepare`."""
    given: dict[str, list[bool]] = {}
    """Which inputs of a region are fixed."""
    for function in reversed(list(module.functions.values())):
        plan = plans[function.name]
        if function.kind == "op" or function.name not in runs:
            continue
        plan.fixed = {slot.value for slot in function.weights}
        if function.kind == "region":
            flags = zip(function.inputs, given[function.name], strict=True)
            plan.fixed |= {value for value, fixed in flags if fixed}
        for op in function.ops:
            stays = op.kind == "call" and _source(module, op) in keep
            if not stays and all(value in plan.fixed for value in op.inputs):
                plan.fixed.update(op.outputs)
        for op in function.ops:
            if op.outputs and op.outputs[0] in plan.fixed:
                continue
            runs.update(referenced(op))
            if op.kind in ("while", "if"):
                fixed = [value in plan.fixed for value in _passed(op)]
                carried = op.integer("carried") if op.kind == "while" else 0
                for name in referenced(op):
                    given[name] = [f and i >= carried for i, f in enumerate(fixed)]
        plan.roots = _named(module, function, _roots(function, plan.fixed))
    return plans


def _source(module: Module, op: Op) -> str:
    return module.functions[op.text("callee")].source


def _passed(op: Op) -> tuple[Value, ...]:
    return op.inputs[1:] if op.kind == "if" else op.inputs


def _roots(function: Function, fixed: set[Value]) -> list[Value]:
    """The fixed values that the rest needs, each taken back to where its work is done."""
    made = producers(function)
    needed: dict[Value, None] = {}
    for op in function.ops:
        if op.outputs and op.outputs[0] not in fixed:
            needed.update((value, None) for value in op.inputs if value in fixed)
    needed.update((value, None) for value in function.returns if value in fixed)
    found: dict[Value, None] = {}
    for value in needed:
        while value in made and made[value].kind in _VIEWS:
            (value,) = made[value].inputs
        if value in made and made[value].kind not in _CREATED:
            found[value] = None
    order = {value: i for i, value in enumerate(made)}
    return sorted(found, key=order.__getitem__)


def _named(module: Module, function: Function, roots: list[Value]) -> dict[Value, str]:
    """A path for each: the function's name, and the value's or that of what it calls."""
    made = producers(function)
    names = Names(root.name for root in roots if not is_temporary(root.name))
    found: dict[Value, str] = {}
    for root in roots:
        name, op = root.name, made[root]
        if is_temporary(name):
            what = op.kind if op.kind != "call" else _source(module, op)
            name = names.fresh(re.split(r"[.:]", what)[-1])
        found[root] = f"@{function.name}.{name}"
    return found


# --- functions ------------------------------------------------------------------------------

Needs = Mapping[str, Mapping[str, TensorType]]
"""The derived values that each function takes, by relative path, its callees' included."""


def _needs(module: Module, plans: Mapping[str, _Plan]) -> Needs:
    needs: dict[str, dict[str, TensorType]] = {}
    for function in module.functions.values():
        own = {path: root.type for root, path in plans[function.name].roots.items()}
        for op in function.ops:
            at = str(op.attrs.get("at", ""))
            found: dict[str, TensorType] = {}
            for name in referenced(op):
                found.update(needs[name])
            if op.kind != "call":
                needs.update((name, found) for name in referenced(op))
            own.update((lift(path, at), type_) for path, type_ in found.items())
        needs[function.name] = own
    return needs


def _rewritten(
    module: Module, function: Function, plans: Mapping[str, _Plan], needs: Needs
) -> Function:
    """A function with its derived slots (a region: inputs), which it passes on to its callees."""
    names = Names.of(function)
    for root in plans[function.name].roots:
        names.release(root.name)
    taken = {
        path: names.value(_value_name(path), type_) for path, type_ in needs[function.name].items()
    }
    by = {root: taken[path] for root, path in plans[function.name].roots.items()}
    ops = []
    for op in function.ops:
        inputs = substituted(op.inputs, by)
        for name in referenced(op)[:1]:
            at = str(op.attrs.get("at", ""))
            extra = [taken[lift(path, at)] for path in needs[name]]
            split = len(inputs) - len(module.functions[name].states)
            inputs = (*inputs[:split], *extra, *inputs[split:])
        ops.append(replace(op, inputs=inputs))
    done = with_ops(function, ops, by)
    if function.kind == "region":
        return replace(done, inputs=(*done.inputs, *taken.values()), arguments=())
    slots = tuple(Slot(path, "derived", value) for path, value in taken.items())
    return replace(done, weights=(*done.weights, *slots))


def _value_name(path: str) -> str:
    """`@layers.3.layer_forward.scale` as `layers_3_scale`."""
    *at, _, name = path[1:].split(".")
    return "_".join([*at, name])


# --- prepare --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Scope:
    """One function at one place in the tree of blocks, or a region of it."""

    function: Function
    at: str
    outer: _Scope | None = None
    given: Mapping[Value, Value] = field(default_factory=dict)
    """For a region, the values of `outer` that its inputs are."""
    known: dict[Value, Value] = field(default_factory=dict)
    made: Mapping[Value, Op] = field(init=False)
    slots: Mapping[Value, Slot] = field(init=False)

    def __post_init__(self) -> None:
        self.made = producers(self.function)
        self.slots = {slot.value: slot for slot in self.function.weights}


class _Preparation:
    """Writes `prepare`: for each function at each place, what its derived slots hold."""

    def __init__(self, module: Module, plans: Mapping[str, _Plan], needs: Needs):
        self.module = module
        self.plans = plans
        self.needs = needs
        self.names = Names(())
        self.functions = Names(module.functions)
        self.weights: dict[str, Slot] = {}
        self.ops: list[Op] = []
        self.derived: dict[str, Value] = {}
        self.copies: dict[str, Function] = {}
        """Functions as they were, for calls that moved here as a whole."""
        self._copied: dict[str, str] = {}
        self._visited: set[tuple[str, str]] = set()

    def visit(self, scope: _Scope) -> None:
        function = scope.function
        if function.kind != "region":
            if (function.name, scope.at) in self._visited or not self.needs[function.name]:
                return
            self._visited.add((function.name, scope.at))
        roots = self.plans[function.name].roots
        for path, value in zip(roots.values(), self.moved(scope, list(roots)), strict=True):
            self.derived[lift(path, scope.at)] = value
        for op in function.ops:
            for name in referenced(op):
                callee = self.module.functions[name]
                if op.kind == "call":
                    self.visit(_Scope(callee, join(scope.at, op.text("at"))))
                else:
                    given = dict(zip(callee.inputs, _passed(op), strict=True))
                    self.visit(_Scope(callee, scope.at, scope, given))

    def moved(self, scope: _Scope, values: Sequence[Value]) -> list[Value]:
        """Fixed values, computed in `prepare`, each once."""
        ops: set[int] = set()
        pending = list(values)
        while pending:
            value = pending.pop()
            if value in scope.known:
                continue
            op = scope.made.get(value)
            if op is not None:
                if id(op) not in ops:
                    ops.add(id(op))
                    pending += op.inputs
            elif value in scope.slots:
                scope.known[value] = self.weight(scope.slots[value], scope.at)
            else:
                assert scope.outer is not None
                (scope.known[value],) = self.moved(scope.outer, [scope.given[value]])
        for op in scope.function.ops:
            if id(op) in ops:
                self.write(scope, op)
        return [scope.known[value] for value in values]

    def write(self, scope: _Scope, op: Op) -> None:
        """Writes one operation whose operands are there."""
        inputs = tuple(scope.known[value] for value in op.inputs)
        outputs = tuple(self.names.value(value.name, value.type) for value in op.outputs)
        attrs = dict(op.attrs)
        if op.kind == "call":
            attrs["at"] = join(scope.at, str(attrs["at"])) if attrs["at"] else ""
        for attr, name in attrs.items():
            if name in referenced(op) and attr != "at":
                attrs[attr] = self.original(str(name))
        self.ops.append(Op(op.kind, inputs, outputs, attrs, op.location))
        scope.known.update(zip(op.outputs, outputs, strict=True))

    def weight(self, slot: Slot, at: str) -> Value:
        path = lift(slot.path, at)
        if path not in self.weights:
            value = self.names.value(path.replace(".", "_"), slot.value.type)
            self.weights[path] = Slot(path, slot.kind, value)
        return self.weights[path].value

    def original(self, name: str) -> str:
        """A function as it was before: itself, or a copy where it takes derived values now."""
        if not self.needs[name]:
            return name
        if name not in self._copied:
            self._copied[name] = copy = self.functions.fresh(name)
            function = self.module.functions[name]
            ops = []
            for op in function.ops:
                attrs = dict(op.attrs)
                for attr, callee in attrs.items():
                    if callee in referenced(op) and attr != "at":
                        attrs[attr] = self.original(str(callee))
                ops.append(replace(op, attrs=attrs))
            self.copies[copy] = replace(function, name=copy, ops=tuple(ops))
        return self._copied[name]

    def finished(self) -> tuple[Function, tuple[str, ...]]:
        prepare = Function(
            name=self.functions.fresh("prepare"),
            source="",
            kind="fn",
            generics=(),
            inputs=(),
            weights=tuple(self.weights.values()),
            states=(),
            ops=tuple(self.ops),
            results=tuple(self.derived.values()),
            new_states=(),
        )
        return prepare, tuple(self.derived)


def _merged(module: Module) -> Module:
    """Keeps once what `prepare` computes once, under the first of its paths."""
    assert module.prepare is not None
    first: dict[Value, str] = {}
    for path, value in zip(module.derived, module.prepare.results, strict=True):
        first.setdefault(value, path)
    same = {p: first[v] for p, v in zip(module.derived, module.prepare.results, strict=True)}
    main = module.main
    held = {slot.path: slot.value for slot in main.weights}
    by = {held[path]: held[kept] for path, kept in same.items() if path != kept}
    slots = tuple(slot for slot in main.weights if same.get(slot.path, slot.path) == slot.path)
    ops = [replace(op, inputs=substituted(op.inputs, by)) for op in main.ops]
    merged = replace(with_ops(main, ops, by), weights=slots)
    return replace(
        module,
        functions={**module.functions, main.name: merged},
        prepare=replace(module.prepare, results=tuple(first)),
        derived=tuple(first.values()),
    )
