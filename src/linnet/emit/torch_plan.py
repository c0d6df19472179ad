"""What a module's functions become in PyTorch: which are written, with which kernels, and where
weights, states and derived values are kept."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from linnet.emit.bodies import INLINE, Expanded, Places, Step, expand, steps
from linnet.emit.memory import MustInline, Plan, Summary, plan
from linnet.emit.outline import outline
from linnet.emit.survey import Number, all_functions, constant_inputs, own_methods, places_of
from linnet.emit.torch_kernels import Chosen, Use, choose
from linnet.emit.torch_target import TorchTarget
from linnet.ir.core import Function, Module, Op, referenced


@dataclass(slots=True)
class ModulePlan:
    """A module on its way to text."""

    module: Module
    target: TorchTarget
    places: Places
    constants: dict[str, dict[int, Number]]
    """For each function, the inputs that are one scalar constant at every call."""
    pieces: tuple[str, ...]
    """The functions that are to be compiled, each by itself."""
    outlined: tuple[str, ...]
    """Those and the ones that work on too many rows for it."""
    functions: list[Function] = field(default_factory=list)
    """The functions that are written, callees first."""
    expanded: dict[str, Expanded] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)

    arrays: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each function, the arrays of blocks in its block, by path, with their lengths: as far as
    the entry, or `prepare`, uses any of their elements, whichever function does."""

    @property
    def capturable(self) -> bool:
        """Whether a call of the entry always does the same on the device: all its work is in
        compiled pieces, and no loop or branch waits for a value."""
        drivers = [f for f in self.functions if f.name not in _reached(self.module, self.pieces)]
        branching = any(
            not isinstance(node, Step)
            for function in drivers
            for node in self.expanded[function.name].body.nodes
        )
        return self.pieces == self.outlined and bool(self.pieces) and not branching

    def placed(self) -> dict[str, str]:
        """For each attribute of the tree that the entry uses, the path of what it holds."""
        main = self.module.main
        found = {
            self.places.attribute(slot.path): slot.path for slot in (*main.weights, *main.states)
        }
        return {**found, **self.places.aliases}


def plan_module(module: Module, target: TorchTarget) -> ModulePlan:
    """Plans every function that the entry, or `prepare`, runs."""
    return _Planner(module, target).run()


def _find_arrays(found: ModulePlan) -> None:
    module = found.module
    paths = list(found.placed())
    if module.prepare is not None:
        slots = (*module.prepare.weights, *module.prepare.states)
        paths += [found.places.attribute(slot.path) for slot in slots]
    lengths: dict[str, int] = {}
    for path in paths:
        parts = path.split(".")
        for i, part in enumerate(parts):
            if part.isdigit():
                array = ".".join(parts[:i])
                lengths[array] = max(lengths.get(array, 0), int(part) + 1)
    found.arrays = {function.name: {} for function in found.functions}
    for root in (module.main, module.prepare):
        if root is not None:
            found.arrays[root.name] = lengths
    for function in reversed(found.functions):
        arrays = found.arrays[function.name]
        for step in steps(found.expanded[function.name].body):
            if step.callee is None or step.kernel is not None:
                continue
            at, below = step.op.text("at"), found.arrays[step.callee.name]
            for path, length in arrays.items():
                if not at or path.startswith(f"{at}."):
                    own = path[len(at) + 1 :] if at else path
                    below[own] = max(below.get(own, 0), length)


class _Planner:
    def __init__(self, module: Module, target: TorchTarget):
        self.target = target
        self.pieces: tuple[str, ...] = ()
        self.outlined: tuple[str, ...] = ()
        if target.compiled:
            outlined = outline(module)
            module, self.outlined = outlined.module, outlined.pieces
            self.pieces = tuple(
                name
                for name in outlined.pieces
                if _rows(module.functions[name]) <= target.compile_rows
            )
        self.module = module
        self.compiled = _reached(module, self.pieces)
        self.makers = {
            value: op for f in all_functions(module) for op in f.ops for value in op.outputs
        }
        self.constants, self.numbers = constant_inputs(module, self.makers)
        self.inlined = own_methods(module) - set(self.pieces)

    def run(self) -> ModulePlan:
        while True:
            found = ModulePlan(
                self.module,
                self.target,
                places_of(self.module),
                self.constants,
                self.pieces,
                self.outlined,
            )
            summaries: dict[str, Summary] = {}
            try:
                # The entry first: it finds where else derived values are looked for.
                self.add(found, self.module.main, summaries)
                if self.module.prepare is not None:
                    self.add(found, self.module.prepare, summaries)
                _find_arrays(found)
                return found
            except MustInline as error:
                self.inlined.add(error.name)

    def add(self, found: ModulePlan, function: Function, summaries: dict[str, Summary]) -> None:
        if function.name in found.expanded:
            return
        mode = self.target.mode if function.name in self.compiled else "eager"
        target = replace(self.target, mode=mode)
        expanded = expand(
            self.module, function, lambda op, callee: self.chosen(op, callee, target), found.places
        )
        for step in steps(expanded.body):
            if step.callee is not None and step.kernel is None:
                self.add(found, step.callee, summaries)
        done = plan(expanded, summaries)
        summaries[function.name] = done.summary
        found.expanded[function.name] = expanded
        found.plans[function.name] = done
        found.functions.append(function)

    def chosen(self, op: Op, callee: Function, target: TorchTarget) -> Chosen | str | None:
        """What a call becomes: a kernel, its callee's operations, or a call."""
        if callee.name in self.inlined or not callee.ops:
            return INLINE
        if callee.kind != "op":
            return None
        names = callee.arguments or tuple(value.name for value in callee.inputs)
        sources, numbers = {}, set()
        for name, value in zip(names, op.inputs, strict=True):
            maker = self.makers.get(value)
            if maker is not None and maker.kind == "call":
                sources[name] = self.module.functions[maker.text("callee")].source
            if value in self.numbers:
                numbers.add(name)
        use = Use(callee, target, sources, frozenset(numbers))
        kernel = choose(use)
        return None if kernel is None else Chosen(kernel, use)


def _rows(function: Function) -> int:
    """How many vectors a function works on."""
    values = (*function.inputs, *function.results)
    floats = [value.type.shape for value in values if value.type.dtype.is_float]
    return max((math.prod(shape[:-1]) for shape in floats if shape), default=1)


def _reached(module: Module, names: Iterable[str]) -> set[str]:
    """Functions and all that they call."""
    found: set[str] = set()
    open_ = list(names)
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_ += [n for op in module.functions[name].ops for n in referenced(op)]
    return found
