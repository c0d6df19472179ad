"""A function as an emitter writes it: a tree of steps, loops and branches, small callees inlined.

Core IR keeps the regions of loops and branches as functions of their own that get what they use as
inputs. Here they stand where they run and use the values around them directly. A call that reads
better (or runs better) as what it stands for is replaced by its callee's operations: `expand` asks
a `Choose` function, and inlines by itself where a call can't be written as one: its weights and
states must be those of one block, by their paths.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from linnet.ir.core import Function, Module, Op, Value, lift
from linnet.ir.rewrite import is_temporary


@dataclass(slots=True, eq=False)
class Step:
    """One operation. `kernel` is what the emitter's table chose for a call, if anything."""

    op: Op
    callee: Function | None = None
    kernel: Kernel | None = None
    names: tuple[str, ...] = ()
    """With a kernel: the parameters of the callee that the inputs are for."""
    position: int = -1


@dataclass(slots=True, eq=False)
class Loop:
    """`while`: each carried variable starts at its initial value and becomes the body's result."""

    op: Op
    carried: tuple[Value, ...]
    initial: tuple[Value, ...]
    condition: Body
    body: Body
    trips: int
    position: int = -1
    between: int = -1
    """Where the condition ends."""
    end: int = -1

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.op.outputs


@dataclass(slots=True, eq=False)
class Branch:
    """`if`."""

    op: Op
    condition: Value
    then: Body
    otherwise: Body
    position: int = -1
    between: int = -1
    """Where `then` ends."""
    end: int = -1

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.op.outputs


Node = Step | Loop | Branch


@dataclass(slots=True, eq=False)
class Body:
    nodes: list[Node]
    results: tuple[Value, ...]


@dataclass(slots=True, eq=False)
class Expanded:
    """A function's body, and which of its values stand for weights and states, by path."""

    function: Function
    body: Body
    new_states: tuple[Value, ...]
    weights: dict[Value, str] = field(default_factory=dict)
    states: dict[Value, str] = field(default_factory=dict)


class Kernel(Protocol):
    """What `expand` and `memory` need to know of a kernel that stands for a call."""

    @property
    def needs(self) -> Collection[str]:
        """The callee's parameters that it looks at."""
        ...

    @property
    def updates(self) -> str | None:
        """The one that it writes over and gives back, if there is one."""
        ...


INLINE = "inline"
"""What a `Choose` function says of a call that is to be inlined."""

Choose = Callable[[Op, Function], Kernel | str | None]
"""For a call: a kernel, `INLINE`, or `None` to keep it as a call."""


@dataclass(slots=True)
class Places:
    """Where weights and states are kept, as attributes of their blocks by path.

    A derived value that is the same for several blocks or functions is computed once; `aliases`
    gives the other places where the functions called look for it.
    """

    attribute: Callable[[str], str]
    """The attribute of a slot's path, relative like the path."""
    taken: frozenset[str]
    """The attributes of the entry's own slots."""
    aliases: dict[str, str] = field(default_factory=dict)

    def same(self, given: str | None, wanted: str, at: str, main: bool) -> bool:
        """Whether a caller's slot is what a callee at `at` finds at its own."""
        if given is None:
            return False
        there = self.attribute(wanted)
        there = f"{at}.{there}" if at else there
        if self.attribute(given) == there:
            return given.startswith("@") == wanted.startswith("@")
        if not main or not given.startswith("@") or there in self.taken:
            return False
        return self.aliases.setdefault(there, given) == given


def expand(module: Module, function: Function, choose: Choose, places: Places) -> Expanded:
    """The body of a function of the module."""
    builder = _Expansion(module, choose, places, function is module.main)
    for slot in function.weights:
        builder.weights[slot.value] = slot.path
    for slot in function.states:
        builder.states[slot.value] = slot.path
    values = {value: value for value in function.operands}
    body = builder.body(function, values)
    found = Expanded(
        function,
        Body(body.nodes, tuple(values[v] for v in function.results)),
        tuple(values[v] for v in function.new_states),
        {slot.value: slot.path for slot in function.weights},
        {slot.value: slot.path for slot in function.states},
    )
    while _prune(found):
        pass
    return found


def _prune(expanded: Expanded) -> bool:
    """Removes steps whose results nothing uses, as happens where a kernel leaves an argument out;
    says whether there were any."""
    used = {*expanded.body.results, *expanded.new_states}
    bodies = [expanded.body]
    for body in bodies:
        used.update(body.results)
        for node in body.nodes:
            used.update(node.op.inputs)
            bodies += bodies_of(node)
    removed = False
    for body in bodies:
        kept = [node for node in body.nodes if not _is_dead(node, used)]
        removed |= len(kept) < len(body.nodes)
        body.nodes[:] = kept
    return removed


def _is_dead(node: Node, used: set[Value]) -> bool:
    writes = isinstance(node, Step) and node.callee is not None and bool(updated(node))
    return isinstance(node, Step) and not writes and not used.intersection(node.op.outputs)


class _Expansion:
    def __init__(self, module: Module, choose: Choose, places: Places, main: bool):
        self.module = module
        self.choose = choose
        self.places = places
        self.main = main
        self.weights: dict[Value, str] = {}
        self.states: dict[Value, str] = {}
        """For each value that is the present value of a state: the state's path."""

    def body(self, function: Function, values: dict[Value, Value]) -> Body:
        """Expands the operations; `values` maps the function's values to those used here."""
        nodes: list[Node] = []
        for op in function.ops:
            self.op(op, values, nodes)
        return Body(nodes, tuple(values[v] for v in function.results))

    def op(self, op: Op, values: dict[Value, Value], nodes: list[Node]) -> None:
        inputs = tuple(values[v] for v in op.inputs)
        if op.kind == "call":
            self.call(op, inputs, values, nodes)
        elif op.kind == "while":
            nodes.append(self.loop(op, inputs, values))
        elif op.kind == "if":
            nodes.append(self.branch(op, inputs, values))
        else:
            outputs = _renew(op.outputs, values)
            nodes.append(Step(Op(op.kind, inputs, outputs, op.attrs, op.location)))
            if op.kind == "update_slice" and inputs[0] in self.states:
                self.states[outputs[0]] = self.states[inputs[0]]

    def call(
        self, op: Op, inputs: tuple[Value, ...], values: dict[Value, Value], nodes: list[Node]
    ) -> None:
        callee = self.module.functions[str(op.attrs["callee"])]
        chosen = self.choose(op, callee)
        if chosen == INLINE or (chosen is None and not self.fits(op, callee, inputs)):
            self.inline(op, callee, inputs, values, nodes)
            return
        assert not isinstance(chosen, str)
        outputs = _renew(op.outputs, values)
        names: tuple[str, ...] = ()
        if chosen is not None:
            names = callee.arguments or tuple(value.name for value in callee.inputs)
            needed = [i for i, name in enumerate(names) if name in chosen.needs]
            names = tuple(names[i] for i in needed)
            inputs = tuple(inputs[i] for i in needed)
        step = Step(Op(op.kind, inputs, outputs, op.attrs, op.location), callee, chosen, names)
        nodes.append(step)
        for target, output in updated(step):
            if target in self.states:
                self.states[output] = self.states[target]
        if chosen is None:
            first = len(callee.inputs) + len(callee.weights)
            for i, (slot, new) in enumerate(zip(callee.states, callee.new_states, strict=True)):
                if new is slot.value:
                    values[op.outputs[len(callee.results) + i]] = inputs[first + i]

    def fits(self, op: Op, callee: Function, inputs: tuple[Value, ...]) -> bool:
        """Whether the operands for a callee's weights and states are those of the block at `at`."""
        at = str(op.attrs["at"])
        rest = inputs[len(callee.inputs) :]
        weights, states = rest[: len(callee.weights)], rest[len(callee.weights) :]
        return all(
            self.places.same(self.weights.get(value), slot.path, at, self.main)
            for slot, value in zip(callee.weights, weights, strict=True)
        ) and all(
            self.states.get(value) == lift(slot.path, at)
            for slot, value in zip(callee.states, states, strict=True)
        )

    def inline(
        self,
        op: Op,
        callee: Function,
        inputs: tuple[Value, ...],
        values: dict[Value, Value],
        nodes: list[Node],
    ) -> None:
        inner = dict(zip(callee.operands, inputs, strict=True))
        before = len(nodes)
        for inner_op in callee.ops:
            self.op(inner_op, inner, nodes)
        made = {value for node in nodes[before:] for value in node.op.outputs}
        renamed = {
            inner[result]: Value(output.name, output.type)
            for result, output in zip(callee.returns, op.outputs, strict=True)
            if inner[result] in made and not is_temporary(output.name)
        }
        for node in nodes[before:]:
            _substitute(node, renamed)
        for old, new in renamed.items():
            if old in self.states:
                self.states[new] = self.states[old]
        for result, output in zip(callee.returns, op.outputs, strict=True):
            values[output] = renamed.get(inner[result], inner[result])

    def loop(self, op: Op, inputs: tuple[Value, ...], values: dict[Value, Value]) -> Loop:
        condition = self.module.functions[str(op.attrs["condition"])]
        body = self.module.functions[str(op.attrs["body"])]
        count = len(op.outputs)
        carried = tuple(Value(v.name, v.type) for v in body.inputs[:count])
        for value, initial in zip(carried, inputs, strict=False):
            if initial in self.states:
                self.states[value] = self.states[initial]
        bound = (*carried, *inputs[count:])
        test, step = (
            self.body(region, dict(zip(region.inputs, bound, strict=True)))
            for region in (condition, body)
        )
        outputs = _renew(op.outputs, values)
        for value, initial in zip(outputs, inputs, strict=False):
            if initial in self.states:
                self.states[value] = self.states[initial]
        renewed = Op(op.kind, inputs, outputs, op.attrs, op.location)
        trips = op.attrs["trips"]
        assert isinstance(trips, int)
        return Loop(renewed, carried, inputs[:count], test, step, trips)

    def branch(self, op: Op, inputs: tuple[Value, ...], values: dict[Value, Value]) -> Branch:
        regions = [self.module.functions[str(op.attrs[n])] for n in ("then", "otherwise")]
        then, otherwise = (
            self.body(region, dict(zip(region.inputs, inputs[1:], strict=True)))
            for region in regions
        )
        outputs = _renew(op.outputs, values)
        for value, a, b in zip(outputs, then.results, otherwise.results, strict=True):
            if a in self.states and self.states.get(a) == self.states.get(b):
                self.states[value] = self.states[a]
        renewed = Op(op.kind, inputs, outputs, op.attrs, op.location)
        return Branch(renewed, inputs[0], then, otherwise)


def _renew(outputs: tuple[Value, ...], values: dict[Value, Value]) -> tuple[Value, ...]:
    """Fresh values of the same names: a callee may be inlined more than once."""
    made = tuple(Value(v.name, v.type) for v in outputs)
    values.update(zip(outputs, made, strict=True))
    return made


def _substitute(node: Node, swap: Mapping[Value, Value]) -> None:
    def all_of(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(swap.get(v, v) for v in values)

    op = node.op
    node.op = Op(op.kind, all_of(op.inputs), all_of(op.outputs), op.attrs, op.location)
    if isinstance(node, Loop):
        node.initial = all_of(node.initial)
    elif isinstance(node, Branch):
        node.condition = swap.get(node.condition, node.condition)
    for body in bodies_of(node):
        body.results = all_of(body.results)
        for inner in body.nodes:
            _substitute(inner, swap)


def updated(step: Step) -> list[tuple[Value, Value]]:
    """The inputs of a step that it gives back changed, each with the output that it becomes."""
    op = step.op
    if op.kind == "update_slice":
        return [(op.inputs[0], op.output)]
    if step.callee is None:
        return []
    if step.kernel is not None:
        if step.kernel.updates is None:
            return []
        return [(op.inputs[step.names.index(step.kernel.updates)], op.output)]
    first = len(step.callee.inputs) + len(step.callee.weights)
    states = zip(
        step.callee.states,
        step.callee.new_states,
        op.inputs[first:],
        op.outputs[len(step.callee.results) :],
        strict=True,
    )
    return [(before, after) for slot, new, before, after in states if new is not slot.value]


def bodies_of(node: Node) -> tuple[Body, ...]:
    """The bodies inside a node."""
    if isinstance(node, Loop):
        return node.condition, node.body
    return (node.then, node.otherwise) if isinstance(node, Branch) else ()


def steps(body: Body) -> Iterator[Step]:
    """Every step of a body and of the bodies in it."""
    for node in body.nodes:
        if isinstance(node, Step):
            yield node
        for inner in bodies_of(node):
            yield from steps(inner)
