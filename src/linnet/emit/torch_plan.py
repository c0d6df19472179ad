"""What a module's functions become in PyTorch: which are written, with which kernels, and where
weights, states and derived values are kept."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from linnet.emit.bodies import INLINE, Expanded, Places, Step, expand, steps
from linnet.emit.memory import MustInline, Plan, Summary, plan
from linnet.emit.outline import outline
from linnet.emit.torch_kernels import Chosen, Use, choose
from linnet.emit.torch_target import TorchTarget
from linnet.ir.core import Function, Module, Op, Value, referenced

Number = int | float | bool


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

    def arrays(self, function: Function) -> dict[str, int]:
        """The arrays of blocks whose elements a function uses, with their lengths."""
        paths = [slot.path for slot in (*function.weights, *function.states)]
        if function is self.module.prepare:
            paths += self.placed()
        found: dict[str, int] = {}
        for path in paths:
            parts = path.removeprefix("@").split(".")
            for i, part in enumerate(parts):
                if part.isdigit():
                    array = ".".join(parts[:i])
                    found[array] = max(found.get(array, 0), int(part) + 1)
        return found

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
        self.makers = {value: op for f in _all(module) for op in f.ops for value in op.outputs}
        self.constants, self.numbers = _constant_inputs(module, self.makers)
        self.inlined = _own_methods(module) - set(self.pieces)

    def run(self) -> ModulePlan:
        while True:
            found = ModulePlan(
                self.module,
                self.target,
                _places(self.module),
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


def _all(module: Module) -> list[Function]:
    prepare = [] if module.prepare is None else [module.prepare]
    return [*module.functions.values(), *prepare]


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


def _own_methods(module: Module) -> set[str]:
    """Methods that are called once, for their caller's own block: they read better in place."""
    calls = Counter(name for f in _all(module) for op in f.ops for name in referenced(op))
    return {
        callee.name
        for caller in _all(module)
        for op in caller.ops
        if op.kind == "call" and op.attrs["at"] == "" and caller.kind in ("entry", "method")
        for callee in (module.functions[op.text("callee")],)
        if callee.kind == "method" and calls[callee.name] == 1
    }


def _constant_inputs(
    module: Module, makers: Mapping[Value, Op]
) -> tuple[dict[str, dict[int, Number]], dict[Value, Number]]:
    """Inputs that are the same scalar constant at every call, and all values that are constants."""
    known: dict[Value, Number] = {
        value: op.attrs["value"]  # type: ignore[misc]
        for value, op in makers.items()
        if op.kind == "constant" and not value.type.shape
    }
    calls: dict[str, list[Op]] = {}
    for function in _all(module):
        for op in function.ops:
            if op.kind == "call":
                calls.setdefault(op.text("callee"), []).append(op)
    found: dict[str, dict[int, Number]] = {}
    for function in reversed(_all(module)):
        ops = calls.get(function.name, [])
        if function.kind in ("entry", "region") or not ops:
            continue
        for i, value in enumerate(function.inputs):
            given = {repr(known.get(op.inputs[i])) for op in ops}
            if len(given) == 1 and ops[0].inputs[i] in known:
                known[value] = known[ops[0].inputs[i]]
                found.setdefault(function.name, {})[i] = known[value]
    return found, known


def _places(module: Module) -> Places:
    """Names for derived values: `@layers.3.layer_forward.scale` is kept in `layers.3.scale`, with
    its function's name before it where that place is taken."""
    main = module.main
    own = {slot.path for slot in (*main.weights, *main.states) if slot.kind != "derived"}
    if module.prepare is not None:
        own |= {slot.path for slot in module.prepare.weights}
    taken = {path for full in own for path in _prefixes(full)}
    holders: dict[str, set[str]] = {}
    for path in module.derived:
        holders.setdefault(_short(path), set()).add(path)
    long: set[tuple[str, str]] = {
        _function_and_name(path)
        for short, paths in holders.items()
        for path in paths
        if short in taken or len(paths) > 1
    }

    def attribute(path: str) -> str:
        if not path.startswith("@"):
            return path
        function, name = _function_and_name(path)
        if (function, name) in long:
            return ".".join([*path[1:].split(".")[:-2], f"{function}_{name}"])
        return _short(path)

    derived = {attribute(path) for path in module.derived}
    return Places(attribute, frozenset(taken | derived))


def _short(path: str) -> str:
    *block, _, name = path[1:].split(".")
    return ".".join([*block, name])


def _function_and_name(path: str) -> tuple[str, str]:
    *_, function, name = path[1:].split(".")
    return function, name


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]
