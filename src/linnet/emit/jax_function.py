"""One IR function as a Python function over JAX arrays.

Walks an expanded body and writes statements: an expression gets a name if the source gave it one or
if it is used more than once; a loop or branch becomes functions of its own, which use the values
around them. Names are taken again once what they named is dead, as a person would:
`x = layer_forward(layer, x)`.

A block's weights, and its states, are nested dicts and lists by the parts of their paths. A
function takes the dict of its block, then that of its block's states, and gives back the new
states last. States travel together: see `jax_states`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from linnet.emit.bodies import Body, Branch, Expanded, Loop, Node, Step, bodies_of
from linnet.emit.code import WIDTH, Code, call
from linnet.emit.jax_kernels import Chosen
from linnet.emit.jax_ops import Context, constant, express
from linnet.emit.jax_plan import FunctionPlan
from linnet.emit.jax_states import Bundles, subscript
from linnet.emit.lines import Line, Statement, Suite
from linnet.emit.operands import Operand
from linnet.ir.core import Function, Value
from linnet.ir.rewrite import is_temporary

_LONG = WIDTH - 14
"""An expression longer than this is not written into another."""


@dataclass(frozen=True, slots=True)
class Signature:
    """How a function is called: its name in the source, whether it takes its block, takes states
    and gives them back, and which of its inputs are constants at every call, with their values."""

    name: str
    takes_block: bool
    takes_states: bool
    gives_states: bool
    constants: Mapping[int, int | float | bool] = field(default_factory=dict)


class FunctionEmitter:
    """Writes the body of one function; `statements` collects them."""

    def __init__(
        self,
        plan: FunctionPlan,
        context: Context,
        block: str,
        attribute: Callable[[str], str],
        arrays: Mapping[str, int],
        signatures: Mapping[str, Signature],
        reserved: set[str],
    ):
        self.plan = plan
        self.expanded: Expanded = plan.expanded
        self.context = context
        self.block = block
        """The parameter that holds the function's block."""
        self.attribute = attribute
        """Where a slot's path is kept, relative to the block."""
        self.signatures = signatures
        self.reserved = reserved | {block, *_USED}
        self.bundles = Bundles(arrays)
        self.bindings: dict[Value, Operand] = {}
        self.deferred: set[Value] = set()
        self.holders: dict[str, list[Value]] = {}
        """For each name, the values it holds or held."""
        self.names: dict[Value, str] = {}
        self.statements: list[Statement] = []

    # The function.

    def parameters(self, signature: Signature) -> list[str]:
        """Binds the function's operands; gives its parameters' names."""
        function, found = self.expanded.function, []
        if signature.takes_block:
            found.append(self.block)
        for slot in function.weights:
            code = Code(self.bundles.subscript(self.block, self.attribute(slot.path)))
            self.bindings[slot.value] = Operand(code, slot.value.type, slot.value.type.shape)
        if signature.takes_states:
            taken = {_base(value.name) for value in function.inputs}
            name = "states" if "state" in taken else "state"
            found.append(name)
            self.bind_states(name, [(slot.path, slot.value) for slot in function.states])
        for i, value in enumerate(function.inputs):
            if i in signature.constants:
                self.bindings[value] = constant(value.type, signature.constants[i])
                continue
            name = self.fresh(value, 0)
            self.bind_name(value, name)
            found.append(name)
        return found

    def write(self, signature: Signature) -> list[Statement]:
        """The function's statements."""
        self.body(self.expanded.body)
        results = [self.whole(value).text for value in self.expanded.body.results]
        if signature.gives_states:
            slots = self.expanded.function.states
            pairs = zip(slots, self.expanded.new_states, strict=True)
            results.append(self.states([(slot.path, new) for slot, new in pairs]))
        if results:
            self.add(f"return {', '.join(results)}")
        return self.bundles.rerolled(self.statements, self.reserved | set(self.holders))

    # Names and operands.

    def add(self, text: str) -> None:
        self.statements.append(Line(text))

    def fresh(self, value: Value, position: int) -> str:
        """A name for a value defined at a position."""
        return self.fresh_name(self.base(value), position)

    def fresh_name(self, base: str, position: int) -> str:
        if is_temporary(base):
            count, form = 0, "t{}"
        else:
            count, form = 1, base + "_{}"
        name = base
        while not self.is_free(name, position):
            count += 1
            name = form.format(count)
        return name

    def base(self, value: Value) -> str:
        """What a value is called, if that is free: as in the source, or after the call it comes
        from."""
        if value in self.plan.states and not is_temporary(value.name):
            return _base(value.name.rsplit(".", 1)[-1])
        if not is_temporary(value.name):
            return _base(value.name)
        maker = self.plan.live.maker.get(value)
        if maker is not None and maker.callee is not None:
            block = [part for part in maker.op.text("at").split(".") if part.isidentifier()]
            name = maker.callee.source.rsplit("::", 1)[-1].rsplit(".", 1)[-1]
            name = block[-1] if block else name
            for candidate in (name, name.rsplit("_", 1)[-1]):
                if candidate not in self.reserved:
                    return candidate
        return "t0"

    def is_free(self, name: str, position: int) -> bool:
        if name in self.reserved or keyword.iskeyword(name):
            return False
        return self.is_dead(name, position)

    def is_dead(self, name: str, position: int) -> bool:
        """Whether nothing that a name holds is needed after a position."""
        holders = self.holders.get(name, ())
        return max((self.plan.alive.get(held, -1) for held in holders), default=-1) <= position

    def bind_name(self, value: Value, name: str, shape: tuple[int, ...] | None = None) -> None:
        self.holders.setdefault(name, []).append(value)
        self.names[value] = name
        actual = value.type.shape if shape is None else shape
        self.bindings[value] = Operand(Code(name), value.type, actual)

    def bind_states(self, name: str, values: Sequence[tuple[str, Value]], below: str = "") -> None:
        """Binds the values of states to a dict that holds them by their paths; with `below`, to a
        place in the one named."""
        held = self.holders.setdefault(subscript(name, below), [])
        for path, value in values:
            place = f"{below}.{path}" if below else path
            held.append(value)
            if below:
                self.holders.setdefault(name, []).append(value)
            self.bundles.place[value] = (name, place)
            code = Code(self.bundles.subscript(name, place))
            self.bindings[value] = Operand(code, value.type, value.type.shape)
        if not below:
            self.bundles.paths[name] = frozenset(path for path, _ in values)

    def states(self, values: Sequence[tuple[str, Value]], exact: bool = True) -> str:
        """States by their paths as one expression."""
        return self.bundles.expression(values, lambda value: self.whole(value).text, exact)

    def rebind(self, value: Value, text: str) -> None:
        """Has a value called by another expression, which it was given to."""
        self.bindings[value] = Operand(Code(text), value.type, value.type.shape)

    def operand(self, value: Value) -> Operand:
        return self.bindings[value]

    def whole(self, value: Value) -> Code:
        """A value as an array of its full shape."""
        return self.context.whole(self.bindings[value])

    def is_used(self, value: Value) -> bool:
        return bool(self.plan.live.uses.get(value))

    def define(self, value: Value, operand: Operand, position: int) -> None:
        """Gives a computed value its place: in the expression that uses it, or a name."""
        if operand.number:
            self.bindings[value] = operand
        elif value in self.plan.fused:
            self.bindings[value] = operand
            self.deferred.add(value)
        elif self.is_used(value):
            name = self.fresh(value, position)
            self.add(f"{name} = {operand.code.text}")
            self.bind_name(value, name, operand.shape)

    def settle(self, values: Sequence[Value], build: Callable[[], Operand]) -> Operand:
        """Builds an expression of some values; long operands get names first."""
        while True:
            operand = build()
            if len(operand.code.text) <= _LONG:
                return operand
            waiting = [v for v in values if v in self.deferred]
            waiting = [v for v in waiting if len(self.bindings[v].code.text) > 24]
            if not waiting:
                return operand
            self.name_now(max(waiting, key=lambda v: len(self.bindings[v].code.text)))

    def name_now(self, value: Value) -> None:
        """Gives a fused value a name after all."""
        operand = self.bindings[value]
        name = self.fresh(value, self.plan.live.defined[value])
        self.add(f"{name} = {operand.code.text}")
        self.deferred.discard(value)
        self.bind_name(value, name, operand.shape)

    # Steps.

    def body(self, body: Body) -> None:
        self.nodes(body.nodes)

    def nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if isinstance(node, Step):
                self.step(node)
            elif any(self.is_used(value) for value in node.outputs):
                self.loop(node) if isinstance(node, Loop) else self.branch(node)

    def step(self, step: Step) -> None:
        op = step.op
        if step.callee is not None and step.kernel is None:
            self.call(step, step.callee)
            return
        operand = self.settle(op.inputs, lambda: self.expression(step))
        self.define(op.output, operand, step.position)

    def expression(self, step: Step) -> Operand:
        op = step.op
        if step.kernel is None:
            return express(self.context, op, [self.operand(v) for v in op.inputs])
        assert isinstance(step.kernel, Chosen)
        arguments = {n: self.whole(v) for n, v in zip(step.names, op.inputs, strict=True)}
        code = step.kernel.expression(self.context, arguments)
        return Operand(code, op.output.type, op.output.type.shape)

    def call(self, step: Step, callee: Function) -> None:
        op, signature, at = step.op, self.signatures[callee.name], step.op.text("at")
        if not any(self.is_used(value) for value in op.outputs):
            return
        first = len(callee.inputs) + len(callee.weights)
        slots = [slot.path for slot in callee.states]
        before = list(zip(slots, op.inputs[first:], strict=True))

        def build() -> Operand:
            texts = []
            if signature.takes_block:
                texts.append(self.bundles.subscript(self.block, at))
            if signature.takes_states:
                texts.append(self.states(before, exact=False))
            for i, value in enumerate(op.inputs[: len(callee.inputs)]):
                if i not in signature.constants:
                    texts.append(self.whole(value).text)
            type_ = op.outputs[0].type
            return Operand(call(signature.name, *texts), type_, type_.shape)

        found = self.settle(op.inputs, build)
        results = op.outputs[: len(callee.results)]
        if len(results) == 1 and not signature.gives_states:
            self.define(results[0], found, step.position)
            return
        targets = []
        for value in results:
            name = "_"
            if self.is_used(value):
                name = self.fresh(value, step.position)
                self.bind_name(value, name)
            targets.append(name)
        if signature.gives_states:
            after = [
                (path, old if new is slot.value else output)
                for slot, new, (path, old), output in zip(
                    callee.states, callee.new_states, before, op.outputs[len(results) :],
                    strict=True,
                )
            ]  # fmt: skip
            targets.append(self.new_states(at, after, step.position))
        self.add(f"{', '.join(targets)} = {found.code.text}")

    def new_states(self, at: str, values: Sequence[tuple[str, Value]], position: int) -> str:
        """What the states that a call gives back are called: an element of a list for those of an
        array's block, which makes a loop over the array of what would be many names."""
        array, _, last = at.rpartition(".")
        if last.isdigit() and self.covers(at, values):
            name = self.bundles.lists.get(array)
            if name is None:
                name = self.new_list(array, position)
            if name is not None and self.is_dead(f"{name}[{last}]", position):
                self.bind_states(name, values, below=last)
                return f"{name}[{last}]"
        parts = [part for part in at.split(".") if part and not part.isdigit()]
        name = self.fresh_name(f"{parts[-1]}_state" if parts else "state", position)
        self.bind_states(name, values)
        return name

    def covers(self, at: str, values: Sequence[tuple[str, Value]]) -> bool:
        """Whether a block's states are all that the function has below a path."""
        below = {s.path for s in self.expanded.function.states if s.path.startswith(f"{at}.")}
        return below == {f"{at}.{path}" for path, _ in values}

    def new_list(self, array: str, position: int) -> str | None:
        """Makes the list that takes the new states of an array's blocks; `None` where the present
        ones are not one list."""
        slots = self.expanded.function.states
        paths = [s.path for s in slots if s.path.startswith(f"{array}.")]
        source = self.bundles.holder(array, paths)
        if source is None:
            return None
        name = self.fresh_name(_base(array.rsplit(".", 1)[-1]), position)
        self.add(f"{name} = list({source})")
        self.bundles.lists[array] = name
        self.bundles.paths[name] = frozenset(path[len(array) + 1 :] for path in paths)
        self.bundles.note(name, array)
        return name

    # Loops and branches.

    def loop(self, loop: Loop) -> None:
        first = self.operand(loop.initial[0]).value if loop.initial else None
        counted = loop.trips >= 0 and isinstance(first, int)
        skipped = 1 if counted else 0
        variables, initial = loop.carried[skipped:], loop.initial[skipped:]
        carried = self.group(variables)
        if counted:
            assert isinstance(first, int)
            self.bindings[loop.outputs[0]] = constant(loop.outputs[0].type, first + loop.trips)
            if not any(self.is_used(value) for value in loop.outputs[1:]):
                return
        start = self.packed(carried, dict(zip(variables, initial, strict=True)))
        outer = self.enter(loop)
        step_name = self.function_name("step")
        if counted:
            assert isinstance(first, int)
            header = self.counter(loop, first)
            test = None
        else:
            header = ""
            test_name = self.function_name("more")
            used = {value for value in variables if self.used_between(loop, value)}
            test = self.nested(loop.condition, test_name, "", carried, loop.position + 1,
                               loop.between, lambda: self.whole(loop.condition.results[0]).text,
                               used)  # fmt: skip
        results = dict(zip(variables, loop.body.results[skipped:], strict=True))
        step = self.nested(
            loop.body, step_name, header, carried, loop.position + 1, loop.end,
            lambda: self.packed(carried, results),
        )  # fmt: skip
        self.leave(outer)
        for function in [step] if test is None else [test, step]:
            self.define_function(function)
        outputs = dict(zip(variables, loop.outputs[skipped:], strict=True))
        targets = self.unpacked(self.renamed(carried, outputs), loop.end)
        if test is None:
            assert isinstance(first, int)
            bounds = f"{first}, {first + loop.trips}"
            self.add(f"{targets} = lax.fori_loop({bounds}, {step_name}, {_pack(start)})")
        else:
            self.add(f"{targets} = lax.while_loop({test_name}, {step_name}, {_pack(start)})")

    def counter(self, loop: Loop, first: int) -> str:
        """The parameter that counts a loop with a known number of iterations. Its own step and the
        condition are the loop's."""
        counter, following = loop.carried[0], loop.body.results[0]
        step = self.plan.live.maker.get(following)
        if step is not None and len(self.plan.live.uses[following]) == 1:
            loop.body.nodes[:] = [node for node in loop.body.nodes if node is not step]
        self.context.known[counter] = (first, first + loop.trips - 1)
        name = self.fresh(counter, loop.position)
        self.bind_name(counter, name)
        return name

    def nested(
        self,
        body: Body,
        name: str,
        counter: str,
        carried: Sequence[Carried],
        position: int,
        end: int,
        result: Callable[[], str],
        used: set[Value] | None = None,
    ) -> Suite:
        """A function of what a loop carries."""
        outside = self.open()
        targets = self.unpacked(carried, position, used)
        parameter = targets
        if len(carried) != 1:
            parameter = self.fresh_name("carried", position)
            self.add(f"{targets} = {parameter}")
        self.body(body)
        self.add(f"return {result()}")
        statements = self.close(outside)
        parameters = ", ".join(filter(None, [counter, parameter]))
        return Suite(f"def {name}({parameters}):", statements)

    def branch(self, branch: Branch) -> None:
        condition = self.whole(branch.condition).text
        used = [value for value in branch.outputs if self.is_used(value)]
        carried = self.group(used)
        arms = []
        for name, body in (("then", branch.then), ("otherwise", branch.otherwise)):
            found = dict(zip(branch.outputs, body.results, strict=True))
            outer = self.enter(branch)
            name = self.function_name(name)
            outside = self.open()
            self.body(body)
            result = self.packed(carried, {value: found[value] for value in used})
            statements = self.close(outside)
            if statements:
                statements = (*statements, Line(f"return {result}"))
                self.define_function(Suite(f"def {name}():", statements))
            else:
                name = f"lambda: {_pack(result)}"
            self.leave(outer)
            arms.append(name)
        targets = self.unpacked(carried, branch.end)
        self.add(f"{targets} = lax.cond({condition}, {', '.join(arms)})")

    # What loops carry and branches give.

    def group(self, values: Sequence[Value]) -> list[Carried]:
        """Values as they travel: several states as one dict, the others each by itself."""
        states = [(self.plan.states[v], v) for v in values if v in self.plan.states]
        if len(states) < 2 or len({path for path, _ in states}) < len(states):
            return [Carried((), value) for value in values]
        single = [Carried((), value) for value in values if value not in self.plan.states]
        return [*single, Carried(tuple(states))]

    def renamed(self, carried: Sequence[Carried], by: Mapping[Value, Value]) -> list[Carried]:
        return [
            Carried(tuple((path, by[v]) for path, v in c.states), c.value and by[c.value], c.value)
            for c in carried
        ]

    def packed(self, carried: Sequence[Carried], by: Mapping[Value, Value]) -> str:
        """The expressions of what is carried, `by` giving the values that stand for it now."""
        texts = []
        for c in carried:
            if c.value is not None:
                texts.append(self.whole(by[c.value]).text)
            else:
                texts.append(self.states([(path, by[v]) for path, v in c.states]))
        return ", ".join(texts)

    def unpacked(
        self, carried: Sequence[Carried], position: int, used: set[Value] | None = None
    ) -> str:
        """Names for what is carried, as they are assigned."""
        texts = []
        for c in carried:
            if c.value is None:
                name = "_"
                if used is None or any(v in used for _, v in c.states):
                    name = self.fresh_name("state", position)
                    self.bind_states(name, c.states)
            else:
                name = "_"
                if self.is_used(c.value) and (used is None or c.value in used):
                    base = self.base(c.value)
                    if is_temporary(base) and c.like is not None:
                        base = self.base(c.like)
                    name = self.fresh_name(base, position)
                    self.bind_name(c.value, name)
            texts.append(name)
        return ", ".join(texts)

    def used_between(self, loop: Loop, value: Value) -> bool:
        """Whether a loop's condition reads a value."""
        uses = self.plan.live.uses.get(value, ())
        return any(use.position <= loop.between for use in uses)

    # Scopes.

    def open(self) -> Scope:
        """Begins a nested function."""
        outside = Scope(
            self.statements, self.bundles.lists, {n: list(v) for n, v in self.holders.items()}
        )
        self.statements, self.bundles.lists = [], {}
        return outside

    def define_function(self, function: Suite) -> None:
        """Adds a nested function, with an empty line on either side."""
        if self.statements and self.statements[-1] != _EMPTY:
            self.statements.append(_EMPTY)
        self.statements += [function, _EMPTY]

    def close(self, outside: Scope) -> tuple[Statement, ...]:
        """Ends it; gives its statements."""
        found = tuple(self.statements)
        self.statements, self.bundles.lists = outside.statements, outside.lists
        self.holders = outside.holders
        return found

    def enter(self, node: Node) -> set[str]:
        """Reserves the names that a node's nested functions read from outside: Python would take
        them for their own if they also assigned them."""
        outer, self.reserved = self.reserved, set(self.reserved)
        inside: list[Body] = list(bodies_of(node))
        read: set[Value] = set()
        for body in inside:
            read.update(body.results)
            for inner in body.nodes:
                read.update(inner.op.inputs)
                inside += bodies_of(inner)
        for value in read:
            operand = self.bindings.get(value)
            if operand is not None:
                self.reserved.update(re.findall(r"[A-Za-z_]\w*", operand.code.text))
        return outer

    def leave(self, outer: set[str]) -> None:
        self.reserved = outer

    def function_name(self, base: str) -> str:
        """A name for a nested function, which is then taken in the scope that is open."""
        name, count = base, 1
        while name in self.reserved or name in self.holders:
            count += 1
            name = f"{base}_{count}"
        self.reserved.add(name)
        return name


@dataclass(frozen=True, slots=True)
class Scope:
    """What is put aside while a nested function is written."""

    statements: list[Statement]
    lists: dict[str, str]
    holders: dict[str, list[Value]]


@dataclass(frozen=True, slots=True)
class Carried:
    """What travels under one name: one value, or states by their paths."""

    states: tuple[tuple[str, Value], ...]
    value: Value | None = None
    like: Value | None = None
    """A value that it may be called after."""


_EMPTY = Line("")
_USED = ("jax", "jnp", "lax", "list", "range", "enumerate")
"""Names that statements use."""


def _pack(text: str) -> str:
    """What may be several expressions as one."""
    depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            return f"({text})"
    return text


def _base(name: str) -> str:
    """A value's name without the number that made it unique, as an identifier."""
    found = re.sub(r"(_\d+)+$", "", name).replace(".", "_").replace("@", "")
    return found if found.isidentifier() else "value"
