"""One IR function as a Python function over PyTorch tensors.

Walks an expanded body with its memory plan and writes statements: an expression gets a name if the
source gave it one or if it is used more than once, a state is an attribute of its block and written
in place, a loop is a Python loop. Names are taken again once what they named is dead, as a person
would: `x = layer_forward(layer, x)`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from linnet.dtypes import DType
from linnet.emit.bodies import Body, Branch, Expanded, Loop, Node, Step, updated
from linnet.emit.code import WIDTH, Code, Level, call, method
from linnet.emit.lines import Line, Statement, Suite, reroll
from linnet.emit.memory import Plan, Root
from linnet.emit.torch_kernels import Chosen
from linnet.emit.torch_ops import (
    Context,
    Operand,
    constant,
    express,
)
from linnet.emit.torch_updates import write_slice
from linnet.ir.core import Function, TensorType, Value
from linnet.ir.rewrite import is_temporary

_LONG = WIDTH - 14
"""An expression longer than this is not written into another."""


@dataclass(frozen=True, slots=True)
class Signature:
    """How a function is called: its name in the source, whether it takes its block, and which of
    its inputs are constants at every call, with their values."""

    name: str
    takes_block: bool
    constants: Mapping[int, int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tree:
    """What a function's weights and states are called."""

    block: str
    """The parameter that holds the function's block."""
    attribute: Callable[[str], str]
    """Where a slot's path is kept, relative to the block."""

    def path(self, path: str) -> str:
        """A weight or state as an expression."""
        return self.block_at(self.attribute(path))

    def block_at(self, path: str) -> str:
        """A block by its path relative to this one: `layers.3` as `model.layers[3]`."""
        text = self.block
        for part in path.split(".") if path else ():
            text += f"[{part}]" if part.isdigit() else f".{part}"
        return text


class FunctionEmitter:
    """Writes the body of one function; `statements` collects them."""

    def __init__(
        self,
        expanded: Expanded,
        plan: Plan,
        context: Context,
        tree: Tree,
        signatures: Mapping[str, Signature],
        reserved: set[str],
    ):
        self.expanded = expanded
        self.plan = plan
        self.context = context
        self.tree = tree
        self.signatures = signatures
        self.reserved = reserved | {tree.block, *_USED}
        self.current: Body | None = None
        self.bindings: dict[Value, Operand] = {}
        self.deferred: set[Value] = set()
        self.states: dict[Value, Operand] = {}
        """For each state's old value, the buffer that it lives in."""
        self.holders: dict[str, list[Value]] = {}
        """For each name, the values it holds or held."""
        self.names: dict[Value, str] = {}
        self.variables: dict[Value, str] = {}
        """The names of loop variables."""
        self.kept: list[str] = []
        """The names of loop variables around what is written, for what becomes their next value."""
        self.heirs: dict[Value, Value] = {}
        """For each value that a loop variable becomes, the variable."""
        self.statements: list[Statement] = []

    # The function.

    def parameters(self, signature: Signature) -> list[str]:
        """Binds the function's operands; gives its parameters' names, the block's left out."""
        function, found = self.expanded.function, []
        for i, value in enumerate(function.inputs):
            if i in signature.constants:
                self.bindings[value] = constant(value.type, signature.constants[i])
                continue
            name = self.fresh(value, 0)
            self.bind_name(value, name)
            found.append(name)
        for slot in (*function.weights, *function.states):
            code = Code(self.tree.path(slot.path))
            self.bindings[slot.value] = Operand(code, slot.value.type, slot.value.type.shape)
            self.states[slot.value] = self.bindings[slot.value]
        return found

    def write(self, arrays: Mapping[str, int]) -> list[Statement]:
        """The function's statements, repetitions over the blocks of an array made loops."""
        self.body(self.expanded.body)
        function, end = self.expanded.function, self.plan.live.end
        for i, value in enumerate(self.expanded.new_states):
            self.snapshot(end + i)
            root = self.plan.stored.get(end + i)
            if root is not None:
                self.store(root, value)
        self.returned(function)
        taken = self.reserved | set(self.holders)
        return reroll(self.statements, arrays, taken)

    def returned(self, function: Function) -> None:
        results = []
        for value in self.expanded.body.results:
            code = self.context.whole(self.operand(value))
            shared = any(root.kind == "state" for root in self.plan.roots[value])
            if function.kind == "entry" and shared:
                code = method(code, "clone")
            results.append(code.text)
        if results:
            self.add(f"return {', '.join(results)}")

    def store(self, root: Root, value: Value) -> None:
        """Copies a state's new value into its buffer."""
        source = self.context.whole(self.operand(value))
        self.add(method(self.states[root.value].code, "copy_", source.text).text)

    # Names and operands.

    def add(self, text: str, comment: str = "") -> None:
        self.statements.append(Line(text, comment))

    def fresh(self, value: Value, position: int, apart: bool = False) -> str:
        """A name for a value defined at a position; with `apart`, different from those of all
        values that are used there."""
        base = self.base(value)
        if is_temporary(base):
            count, form = 0, "t{}"
        else:
            count, form = 1, base + "_{}"
        variable = self.heirs.get(value)
        if variable in self.variables and self.is_dead(self.variables[variable], position, apart):
            return self.variables[variable]
        name = base
        while not self.is_free(name, position, apart):
            count += 1
            name = form.format(count)
        return name

    def base(self, value: Value) -> str:
        """What a value is called, if that is free: as in the source, or after the call it comes
        from."""
        if not is_temporary(value.name):
            return _base(value.name)
        maker = self.plan.live.maker.get(value)
        if maker is not None and maker.callee is not None:
            block = [part for part in str(maker.op.attrs["at"]).split(".") if part.isidentifier()]
            name = maker.callee.source.rsplit("::", 1)[-1].rsplit(".", 1)[-1]
            name = block[-1] if block else name
            for candidate in (name, name.rsplit("_", 1)[-1]):
                if candidate not in self.reserved:
                    return candidate
        return "t0"

    def is_free(self, name: str, position: int, apart: bool) -> bool:
        if name in self.reserved or name in self.kept or keyword.iskeyword(name):
            return False
        return self.is_dead(name, position, apart)

    def is_dead(self, name: str, position: int, apart: bool) -> bool:
        """Whether nothing that a name holds is needed after a position."""
        holders = self.holders.get(name, ())
        last = max((self.plan.alive.get(holder, -1) for holder in holders), default=-1)
        return last < position or (last == position and not apart)

    def bind_name(self, value: Value, name: str, shape: tuple[int, ...] | None = None) -> None:
        self.holders.setdefault(name, []).append(value)
        self.names[value] = name
        actual = value.type.shape if shape is None else shape
        self.bindings[value] = Operand(Code(name), value.type, actual)

    def operand(self, value: Value) -> Operand:
        return self.bindings[value]

    def define(self, value: Value, operand: Operand, position: int) -> None:
        """Gives a computed value its place: in the expression that uses it, or a name."""
        if operand.number:
            self.bindings[value] = operand
            return
        copied = value in self.plan.copied
        if value in self.plan.fused and not copied:
            self.bindings[value] = operand
            self.deferred.add(value)
            return
        code, shape = operand.code, operand.shape
        if copied:
            code, shape = method(self.context.whole(operand), "clone"), value.type.shape
        name = self.fresh(value, position)
        self.add(f"{name} = {code.text}", _COPIED if copied else "")
        self.bind_name(value, name, shape)

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

    # Nodes.

    def body(self, body: Body) -> None:
        outside, self.current = self.current, body
        self.body_of(body.nodes)
        self.current = outside

    def body_of(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.snapshot(node.position)
            if isinstance(node, Step):
                self.step(node)
            elif isinstance(node, Loop):
                self.loop(node)
            else:
                self.branch(node)

    def snapshot(self, position: int) -> None:
        """Copies what is about to be written and still needed."""
        for value in self.plan.snapshots.get(position, ()):
            code = self.context.whole(self.operand(value))
            name = self.fresh(Value(f"{_base(value.name)}_before", value.type), position, True)
            self.add(f"{name} = {method(code, 'clone').text}", _COPIED)
            self.bind_name(value, name)

    def step(self, step: Step) -> None:
        op = step.op
        changes = updated(step)
        if step.callee is not None and step.kernel is None:
            self.call(step, step.callee, changes)
        elif changes:
            self.update(step)
        else:
            operand = self.settle(op.inputs, lambda: self.expression(step))
            self.define(op.output, operand, step.position)

    def expression(self, step: Step) -> Operand:
        op = step.op
        if step.kernel is None:
            return express(self.context, op, [self.operand(v) for v in op.inputs])
        assert isinstance(step.kernel, Chosen) and step.callee is not None
        code = step.kernel.expression(self.context, self.arguments(step))
        return Operand(code, op.output.type, op.output.type.shape)

    def arguments(self, step: Step) -> dict[str, Code]:
        """A kernel's operands by the names of the source's parameters."""
        assert isinstance(step.kernel, Chosen)
        found: dict[str, Code] = {}
        for name, value in zip(step.names, step.op.inputs, strict=True):
            operand = self.operand(value)
            number = name in step.kernel.use.numbers
            found[name] = operand.code if number else self.whole(value)
        return found

    def whole(self, value: Value) -> Code:
        """A value as a tensor. A number that is computed becomes one once, if it is used again."""
        operand = self.operand(value)
        counted = operand.number and operand.value is None
        uses = self.plan.live.uses.get(value, [])
        if counted and len(uses) > 1 and self.plan.live.home[value] is self.current:
            maker = self.plan.live.maker.get(value)
            if maker is not None:
                name = self.fresh(value, maker.position)
                self.add(f"{name} = {self.context.whole(operand).text}")
                self.bind_name(value, name)
        return self.context.whole(self.operand(value))

    def call(self, step: Step, callee: Function, changes: list[tuple[Value, Value]]) -> None:
        op, signature = step.op, self.signatures[callee.name]

        def build() -> Operand:
            texts = []
            if signature.takes_block:
                texts.append(self.tree.block_at(str(op.attrs["at"])))
            for i, value in enumerate(op.inputs[: len(callee.inputs)]):
                if i not in signature.constants:
                    texts.append(self.whole(value).text)
            type_ = op.outputs[0].type if op.outputs else TensorType((), DType.BOOL)
            return Operand(call(signature.name, *texts), type_, type_.shape)

        found = self.settle(op.inputs, build)
        results = op.outputs[: len(callee.results)]
        for root, (_, after) in zip(self.plan.in_place.get(step, ()), changes, strict=True):
            self.bindings[after] = replace(self.states[root.value], type=after.type)
        if len(results) == 1 and not changes:
            self.define(results[0], found, step.position)
            return
        used = [value for value in results if self.plan.live.uses.get(value)]
        if not used:
            self.add(found.code.text)
            return
        names = []
        for value in results:
            name = self.fresh(value, step.position) if value in used else "_"
            names.append(name)
            if value in used:
                self.bind_name(value, name)
        self.add(f"{', '.join(names)} = {found.code.text}")
        for value in used:
            if value in self.plan.copied:
                name = self.names[value]
                self.add(f"{name} = {name}.clone()", _COPIED)

    # Updates.

    def update(self, step: Step) -> None:
        ((target, output),) = updated(step)
        operand = self.operand(target)
        (root,) = self.plan.in_place.get(step, (None,))
        if root is not None and root.kind == "state":
            self.bindings[output] = replace(self.states[root.value], type=output.type)
        elif root is not None and target in self.names:
            if operand.shape != target.type.shape:
                self.add(f"{operand.code.text} = {self.context.whole(operand).text}.clone()")
            self.bind_name(output, self.names[target])
        else:
            name = self.fresh(output, step.position, apart=True)
            code = self.context.whole(operand)
            whole = operand.shape == target.type.shape
            made = operand.number or (target in self.deferred and whole and root is not None)
            if not made:
                code = method(code, "clone")
            self.add(f"{name} = {code.text}", "" if made or root is not None else _COPIED)
            self.bind_name(output, name)
        where = self.bindings[output].code
        if step.kernel is not None:
            assert isinstance(step.kernel, Chosen)
            assert step.kernel.updates is not None
            arguments = {**self.arguments(step), step.kernel.updates: where}
            for text in step.kernel.statements(self.context, arguments):
                self.add(text)
            return
        op = step.op
        operands = [self.operand(v) for v in op.inputs[1:]]
        for text in write_slice(self.context, op, where, operands):
            self.add(text)

    # Loops and branches.

    def loop(self, loop: Loop) -> None:
        start = loop.initial[0] if loop.initial else None
        first = self.operand(start).value if start is not None else None
        counted = loop.trips >= 0 and isinstance(first, int)
        kept = len(self.kept)
        for i, (variable, initial) in enumerate(zip(loop.carried, loop.initial, strict=True)):
            if counted and i == 0:
                continue
            self.start(loop, variable, initial, loop.body.results[i])
            if variable in self.names:
                self.variables[variable] = self.names[variable]
                self.kept.append(self.names[variable])
        outside, self.statements = self.statements, []
        self.heirs.update(zip(loop.body.results, loop.carried, strict=True))
        if counted:
            assert isinstance(first, int)
            header = self.count(loop, first)
        else:
            header = self.condition(loop)
        self.body(loop.body)
        self.finish(loop, counted)
        del self.kept[kept:]
        outside.append(Suite(header, tuple(self.statements)))
        self.statements = outside
        for i, (variable, output) in enumerate(zip(loop.carried, loop.outputs, strict=True)):
            if counted and i == 0:
                assert isinstance(first, int)
                self.bindings[output] = constant(output.type, first + loop.trips)
                continue
            root = self.plan.bound.get(variable)
            if root is not None and root.kind == "state":
                self.bindings[output] = replace(self.states[root.value], type=output.type)
                continue
            self.bind_name(output, self.variables[variable])
            number = self.bindings[variable].number
            self.bindings[output] = replace(self.bindings[output], number=number)
            if output in self.plan.copied:
                name = self.names[output]
                self.add(f"{name} = {name}.clone()", _COPIED)

    def count(self, loop: Loop, first: int) -> str:
        """The header of a loop with a known number of iterations."""
        counter = loop.carried[0]
        name = "_"
        if self.plan.live.uses.get(counter):
            name = self.fresh(counter, loop.position, apart=True)
            self.bind_name(counter, name, ())
            self.kept.append(name)
            self.context.known[counter] = (first, first + loop.trips - 1)
            self.bindings[counter] = replace(self.bindings[counter], number=True)
        bounds = f"{first}, {first + loop.trips}" if first else str(loop.trips)
        self.skip_counter(loop)
        return f"for {name} in range({bounds}):"

    def skip_counter(self, loop: Loop) -> None:
        """The condition and the counter's step are the `for`'s own."""
        step = self.plan.live.maker.get(loop.body.results[0])
        if step is not None and len(self.plan.live.uses[loop.body.results[0]]) == 1:
            loop.body.nodes[:] = [node for node in loop.body.nodes if node is not step]

    def condition(self, loop: Loop) -> str:
        self.body(loop.condition)
        text = self.operand(loop.condition.results[0]).code
        if not self.statements:
            return f"while {text.text}:"
        self.statements.append(Suite(f"if not {text.at(Level.COMPARE)}:", (Line("break"),)))
        return "while True:"

    def start(self, loop: Loop, variable: Value, initial: Value, result: Value) -> None:
        """A loop variable's first value."""
        root = self.plan.bound.get(variable)
        operand = self.operand(initial)
        if root is not None and root.kind == "state":
            self.bindings[variable] = replace(operand, type=variable.type)
            return
        held = self.names.get(initial)
        if held is not None and self.holders[held][-1] is not initial:
            held = None
        copied = variable in self.plan.copied and not operand.number
        dead = self.plan.alive.get(initial, -1) <= loop.position
        full = operand.shape == variable.type.shape
        if held is not None and dead and full and not copied:
            self.bind_name(variable, held)
            return
        name = self.fresh(variable, loop.position, apart=True)
        if self.countable(loop, variable, operand, result):
            self.add(f"{name} = {operand.code.text}")
            self.bind_name(variable, name, ())
            self.bindings[variable] = replace(self.bindings[variable], number=True)
            return
        code = self.context.whole(operand)
        if copied:
            code = method(code, "clone")
        self.add(f"{name} = {code.text}")
        self.bind_name(variable, name)

    def countable(self, loop: Loop, variable: Value, operand: Operand, result: Value) -> bool:
        """Whether a loop variable is a count: it starts at a number and goes up or down by one."""
        step = self.plan.live.maker.get(result)
        if not operand.number or not variable.type.dtype.is_integer or variable.type.shape:
            return False
        if step is None or step.op.kind not in ("add", "sub"):
            return False
        a, b = step.op.inputs
        return a is variable and self.context.bounds(b) in ((1, 1), (0, 1))

    def finish(self, loop: Loop, counted: bool) -> None:
        """The loop variables' next values, as an iteration ends."""
        self.snapshot(loop.end)
        names: list[str] = []
        sources: list[str] = []
        stores: list[tuple[Root, Value]] = []
        for i, (variable, result) in enumerate(zip(loop.carried, loop.body.results, strict=True)):
            if counted and i == 0:
                continue
            root = self.plan.bound.get(variable)
            if root is not None and variable not in self.plan.rebound:
                continue
            if root is not None and root.kind == "state":
                stores.append((root, result))
                continue
            operand, name = self.operand(result), self.variables[variable]
            number = self.bindings[variable].number
            code = operand.code if number else self.context.whole(operand)
            shared = variable not in self.plan.taken if root else variable in self.plan.copied
            if shared and not number and not operand.number:
                code = method(code, "clone")
            if code.text != name:
                names.append(name)
                sources.append(code.text)
        self.store_all(stores)
        if any(_mentions(source, name) for name in names for source in sources):
            self.add(f"{', '.join(names)} = {', '.join(sources)}")
        else:
            for name, source in zip(names, sources, strict=True):
                self.add(f"{name} = {source}")

    def store_all(self, stores: Sequence[tuple[Root, Value]]) -> None:
        """Stores states together: what shares memory with another of them is copied first."""
        written = {root for root, _ in stores}
        for root, value in stores:
            if self.plan.roots[value] & (written - {root}):
                name = self.fresh(value, self.plan.live.end, apart=True)
                self.add(
                    f"{name} = {self.context.whole(self.operand(value)).text}.clone()", _COPIED
                )
                self.bind_name(value, name)
        for root, value in stores:
            self.store(root, value)

    def branch(self, branch: Branch) -> None:
        condition = self.operand(branch.condition).code.text
        names: dict[Value, str] = {}
        for output in branch.outputs:
            if output not in self.plan.bound and self.plan.live.uses.get(output):
                names[output] = self.fresh(output, branch.position, apart=True)
                self.holders.setdefault(names[output], []).append(output)
        outside = self.statements
        suites = []
        for body in (branch.then, branch.otherwise):
            self.statements = []
            self.body(body)
            stores: list[tuple[Root, Value]] = []
            for output, result in zip(branch.outputs, body.results, strict=True):
                if output in names:
                    code = self.context.whole(self.operand(result))
                    if output in self.plan.copied:
                        code = method(code, "clone")
                    if code.text != names[output]:
                        self.add(f"{names[output]} = {code.text}")
                root = self.plan.bound.get(output)
                if root is not None and self.plan.place.get(result) != root:
                    stores.append((root, result))
            self.store_all(stores)
            suites.append(tuple(self.statements))
        self.statements = outside
        then, otherwise = suites
        self.statements.append(Suite(f"if {condition}:", then))
        if otherwise:
            self.statements.append(Suite("else:", otherwise))
        for output in branch.outputs:
            root = self.plan.bound.get(output)
            if root is not None:
                self.bindings[output] = replace(self.states[root.value], type=output.type)
            elif output in names:
                self.bind_name(output, names[output])


_USED = ("torch", "F", "device", "min", "max", "range", "float")
"""Names that statements use."""
_COPIED = "a copy: the old values are still used below"


def _base(name: str) -> str:
    """A value's name without the number that made it unique, as an identifier."""
    found = re.sub(r"(_\d+)+$", "", name).replace(".", "_").replace("@", "")
    return found if found.isidentifier() else "value"


def _mentions(source: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", source) is not None
