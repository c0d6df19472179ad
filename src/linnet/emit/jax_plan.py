"""What a module's functions become in JAX: which are written, with which kernels, where derived
values are kept, and which expressions stand where they are used.

Arrays are values here, so nothing has to be planned about memory: XLA finds out by itself what it
can write in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from linnet.emit.bodies import (
    INLINE,
    Body,
    Expanded,
    Loop,
    Places,
    Step,
    bodies_of,
    expand,
    steps,
)
from linnet.emit.jax_kernels import Chosen, Use, choose
from linnet.emit.jax_target import JaxTarget
from linnet.emit.liveness import Liveness, liveness
from linnet.emit.liveness import Use as LiveUse
from linnet.emit.survey import Number, all_functions, constant_inputs, own_methods, places_of
from linnet.ir.core import Function, Module, Op, Value, lift
from linnet.ir.rewrite import is_temporary


@dataclass(slots=True)
class FunctionPlan:
    """A function on its way to text."""

    expanded: Expanded
    live: Liveness
    fused: set[Value] = field(default_factory=set)
    """Values whose expressions are written where they are used."""
    alive: dict[Value, int] = field(default_factory=dict)
    """The last position where a value's name is needed."""
    states: dict[Value, str] = field(default_factory=dict)
    """For each value that is, or was, a state's: the state's path."""

    @property
    def changes(self) -> bool:
        """Whether the function gives back states."""
        slots = self.expanded.function.states
        pairs = zip(slots, self.expanded.new_states, strict=True)
        return any(new is not slot.value for slot, new in pairs)


@dataclass(slots=True)
class ModulePlan:
    """A module on its way to text."""

    module: Module
    target: JaxTarget
    places: Places
    constants: dict[str, dict[int, Number]]
    """For each function, the inputs that are one scalar constant at every call."""
    plans: dict[str, FunctionPlan] = field(default_factory=dict)
    """Of the functions that are written, callees first."""
    arrays: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each function, the arrays of blocks in its block, by path, with their lengths."""

    @property
    def functions(self) -> list[Function]:
        return [plan.expanded.function for plan in self.plans.values()]

    def placed(self) -> dict[str, str]:
        """For each place in the tree that the entry uses, the path of what it holds."""
        main = self.module.main
        found = {self.places.attribute(slot.path): slot.path for slot in main.weights}
        return {**found, **self.places.aliases}


def plan_module(module: Module, target: JaxTarget) -> ModulePlan:
    """Plans every function that the entry, or `prepare`, runs."""
    makers = {value: op for f in all_functions(module) for op in f.ops for value in op.outputs}
    constants, _ = constant_inputs(module, makers)
    found = ModulePlan(module, target, places_of(module), constants)
    inlined = own_methods(module)
    # The entry first: it finds where else derived values are looked for.
    _add(found, module.main, inlined)
    if module.prepare is not None:
        _add(found, module.prepare, inlined)
    _find_arrays(found)
    return found


def _add(found: ModulePlan, function: Function, inlined: set[str]) -> None:
    if function.name in found.plans:
        return

    def chosen(op: Op, callee: Function) -> Chosen | str | None:
        if callee.name in inlined or not callee.ops:
            return INLINE
        if callee.kind != "op":
            return None
        use = Use(callee)
        kernel = choose(use, found.target)
        return None if kernel is None else Chosen(kernel, use)

    expanded = expand(found.module, function, chosen, found.places)
    for step in steps(expanded.body):
        if step.callee is not None and step.kernel is None:
            _add(found, step.callee, inlined)
    plan = FunctionPlan(expanded, liveness(expanded))
    _fuse(plan)
    plan.states.update((slot.value, slot.path) for slot in function.states)
    _follow_states(plan, expanded.body)
    found.plans[function.name] = plan


def _find_arrays(found: ModulePlan) -> None:
    """How long the arrays of blocks are: as far as the entry uses any of their blocks."""
    module = found.module
    main = module.main
    paths = [slot.path.removeprefix("@") for slot in (*main.weights, *main.states)]
    if module.prepare is not None:
        paths += [slot.path for slot in module.prepare.weights]
        paths += [found.places.attribute(path) for path in module.derived]
    lengths: dict[str, int] = {}
    for path in paths:
        parts = path.split(".")
        for i, part in enumerate(parts):
            if part.isdigit():
                array = ".".join(parts[:i])
                lengths[array] = max(lengths.get(array, 0), int(part) + 1)
    found.arrays = {name: {} for name in found.plans}
    for root in (main, module.prepare):
        if root is not None:
            found.arrays[root.name] = lengths
    for plan in reversed(found.plans.values()):
        arrays = found.arrays[plan.expanded.function.name]
        for step in steps(plan.expanded.body):
            if step.callee is not None and step.kernel is None:
                at = step.op.text("at")
                below = found.arrays[step.callee.name]
                for path, length in arrays.items():
                    if not at or path.startswith(f"{at}."):
                        own = path[len(at) + 1 :] if at else path
                        below[own] = max(below.get(own, 0), length)


# --- expressions ----------------------------------------------------------------------------


def _fuse(plan: FunctionPlan) -> None:
    """Decides which expressions are written where they are used, last ones first."""
    live = plan.live
    evaluated: dict[Value, int] = {}

    def needed(use: LiveUse) -> int:
        consumer = use.consumer
        if isinstance(consumer, Step) and len(consumer.op.outputs) == 1:
            return max(use.again, evaluated.get(consumer.op.output, -1))
        return use.again

    for value, step in sorted(live.maker.items(), key=lambda item: -item[1].position):
        uses = live.uses.get(value, [])
        if uses and _may_fuse(plan, value, step, uses):
            plan.fused.add(value)
            evaluated[value] = max(map(needed, uses))
    for value, uses in live.uses.items():
        plan.alive[value] = max(map(needed, uses))


def _may_fuse(plan: FunctionPlan, value: Value, step: Step, uses: list[LiveUse]) -> bool:
    if step.op.kind in ("constant", "broadcast"):
        return True
    if len(step.op.outputs) != 1:
        return False
    if any(part.isdigit() for part in str(step.op.attrs.get("at", "")).split(".")):
        return False  # one of an array's blocks: a statement that can be repeated in a loop
    body = plan.live.home[value]
    alone = body is not plan.expanded.body or not plan.changes
    returned = alone and body.results == (value,) and body.nodes[-1] is step
    if not is_temporary(value.name) and not returned:
        return False
    (use, *others) = uses
    return (
        not others
        and (use.body is plan.live.home[value] or use.body is None)
        and not isinstance(use.consumer, Loop)
    )


# --- states ---------------------------------------------------------------------------------


def _follow_states(plan: FunctionPlan, body: Body) -> None:
    """Finds which values are those of states, so that they can travel together."""
    paths = plan.states
    for node in body.nodes:
        if isinstance(node, Loop):
            for variable, initial in zip(node.carried, node.initial, strict=True):
                _pass(paths, initial, variable)
            for output, initial in zip(node.outputs, node.initial, strict=True):
                _pass(paths, initial, output)
        for inner in bodies_of(node):
            _follow_states(plan, inner)
        if isinstance(node, Step):
            _follow_step(node, paths)
        elif not isinstance(node, Loop):
            pairs = zip(node.outputs, node.then.results, node.otherwise.results, strict=True)
            for output, a, b in pairs:
                if a in paths and paths.get(a) == paths.get(b):
                    paths[output] = paths[a]


def _follow_step(step: Step, paths: dict[Value, str]) -> None:
    op, callee = step.op, step.callee
    if op.kind == "update_slice":
        _pass(paths, op.inputs[0], op.output)
    elif step.kernel is not None and step.kernel.updates is not None:
        _pass(paths, op.inputs[step.names.index(step.kernel.updates)], op.output)
    elif step.kernel is None and callee is not None:
        outputs = op.outputs[len(callee.results) :]
        for slot, output in zip(callee.states, outputs, strict=True):
            paths[output] = lift(slot.path, op.text("at"))


def _pass(paths: dict[Value, str], source: Value, target: Value) -> None:
    if source in paths:
        paths[target] = paths[source]
