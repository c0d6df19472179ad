"""Random modules with states, views, updates, loops, branches and calls, for tests of memory.

Every tensor is `f32[4]` and every number a small integer, so that nothing rounds: any difference
from the interpreter is a wrong order of reads and writes.
"""

from __future__ import annotations

import random

from linnet.ir.core import Module
from linnet.ir.parse import parse_module
from linnet.ir.verify import verify

STEP = "{start = [%d], stop = [%d], step = [%d]}"


def random_module(seed: int, size: int = 9) -> tuple[Module, list[str]]:
    """A module, and the paths of its states."""
    writer = _Writer(random.Random(seed))
    text, paths = writer.module(size)
    module = parse_module(text)
    verify(module)
    return module, paths


class _Writer:
    def __init__(self, choice: random.Random):
        self.random = choice
        self.count = 0
        self.regions = 0
        self.functions: list[str] = []

    def module(self, size: int) -> tuple[str, list[str]]:
        paths = [f"s{i}" for i in range(self.random.randint(1, 3))]
        methods = []
        for m in range(self.random.randint(0, 2)):
            name = f"m{m}_run"
            head = [f"method {name} from crate::M{m}.run", "  input a: f32[4] = a"]
            self.function(head, ["a"], paths, self.random.randint(1, 4), 2, [])
            methods.append(name)
        head = ["entry main from crate::Model.main"]
        head += [f"  input {name}: f32[4] = {name}" for name in ("a", "b")]
        self.function(head, ["a", "b"], paths, self.random.randint(3, size), 0, methods)
        return "module main\n\n" + "\n\n".join(self.functions) + "\n", paths

    def function(
        self,
        head: list[str],
        scope: list[str],
        paths: list[str],
        count: int,
        depth: int,
        methods: list[str],
    ) -> None:
        states = {path: path for path in paths}
        body = _Body(self, scope, states, methods, depth)
        body.write(count)
        results = ", ".join(body.any() for _ in range(self.random.randint(1, 3) if methods else 1))
        head += [f"  state {path}: f32[4] = {path}" for path in paths]
        tail = [f"  return {results}", f"  next {', '.join(states[path] for path in paths)}"]
        self.functions.append("\n".join([*head, *(f"  {line}" for line in body.lines), *tail]))

    def name(self) -> str:
        """Some temporary, some named in the source."""
        self.count += 1
        if self.random.random() < 0.6:
            return f"t{self.count}"
        return f"{self.random.choice('xyz')}_{self.count}"


class _Body:
    """The operations of a function or region. `states` gives each state's present value."""

    def __init__(
        self,
        writer: _Writer,
        scope: list[str],
        states: dict[str, str],
        methods: list[str],
        depth: int,
    ):
        self.writer = writer
        self.random = writer.random
        self.scope = scope
        self.states = states
        self.methods = methods
        self.depth = depth
        self.lines: list[str] = []

    def write(self, count: int) -> None:
        kinds = ["add", "neg", "view", "mix", "update", "update", "replace", "make", "call",
                 "loop", "branch"]  # fmt: skip
        for _ in range(count):
            getattr(self, self.random.choice(kinds))()

    def any(self) -> str:
        return self.random.choice(self.scope + list(self.states.values()) * 2)

    def emit(self, right: str, type_: str = "f32[4]") -> str:
        name = self.writer.name()
        self.lines.append(f"{name}: {type_} = {right}")
        return name

    def add(self) -> None:
        self.scope.append(self.emit(f"add {self.any()}, {self.any()}"))

    def neg(self) -> None:
        self.scope.append(self.emit(f"neg {self.any()}"))

    def make(self) -> None:
        self.scope.append(self.emit(f"constant {{value = {float(self.random.randint(0, 3))}}}"))

    def view(self) -> None:
        square = self.emit(f"reshape {self.any()}", "f32[2, 2]")
        turned = self.emit(f"permute {square} {{axes = [1, 0]}}", "f32[2, 2]")
        self.scope.append(self.emit(f"reshape {self.random.choice([square, turned])}"))

    def mix(self) -> None:
        start = self.random.randint(0, 2)
        a = self.emit(f"slice {self.any()} {STEP % (start, start + 2, 1)}", "f32[2]")
        b = self.emit(f"slice {self.any()} {STEP % (0, 4, 2)}", "f32[2]")
        self.scope.append(self.emit(f"concat {a}, {b} {{axis = 0}}"))

    def update(self) -> None:
        path = self.random.choice([*self.states, None]) if self.states else None
        target = self.states[path] if path is not None else self.any()
        value = self.any()
        if self.random.random() < 0.5:
            start = self.random.randint(0, 2)
            value = self.emit(f"slice {value} {STEP % (start, start + 2, 1)}", "f32[2]")
        at = self.emit(f"constant {{value = {self.random.randint(-1, 3)}}}", "i32[]")
        name = self.emit(f"update_slice {target}, {value}, {at} {{axes = [0]}}")
        if path is not None and self.random.random() < 0.85:
            self.states[path] = name
        else:
            self.scope.append(name)

    def replace(self) -> None:
        if self.states and self.random.random() < 0.4:
            self.states[self.random.choice(list(self.states))] = self.any()

    def call(self) -> None:
        if not self.methods:
            return
        names = [self.writer.name() for _ in range(1 + len(self.states))]
        outputs = ", ".join(f"{name}: f32[4]" for name in names)
        operands = ", ".join([self.any(), *self.states.values()])
        callee = self.random.choice(self.methods)
        self.lines.append(f'{outputs} = call {operands} {{callee = "{callee}", at = ""}}')
        self.scope.append(names[0])
        for path, name in zip(list(self.states), names[1:], strict=True):
            if self.random.random() < 0.9:
                self.states[path] = name

    def loop(self) -> None:
        if self.depth >= 2:
            return
        plain = [self.any() for _ in range(self.random.randint(0, 2))]
        paths = [path for path in self.states if self.random.random() < 0.7]
        initial = plain + [self.states[path] for path in paths]
        rest = list(dict.fromkeys(self.random.choice(self.scope) for _ in range(2)))
        self.writer.regions += 1
        number, trips = self.writer.regions, self.random.randint(0, 3)
        carried = [f"c{i}" for i in range(len(initial))]
        passed = [f"r{i}" for i in range(len(rest))]
        inputs = ["  input i: i64[] = i"]
        inputs += [f"  input {name}: f32[4] = {name}" for name in carried + passed]
        condition = [f"  lim: i64[] = constant {{value = {trips}}}", "  more: bool[] = lt i, lim"]
        region = [f"region cond{number}", *inputs, *condition, "  return more"]
        self.writer.functions.append("\n".join(region))
        states = dict(zip(paths, carried[len(plain) :], strict=True))
        methods = self.methods if len(states) == len(self.states) else []
        scope = carried[: len(plain)] + passed
        body = _Body(self.writer, scope, states, methods, self.depth + 1)
        body.write(self.random.randint(1, 4))
        results = ["ii", *(body.any() for _ in plain), *(states[path] for path in paths)]
        counting = ["  one: i64[] = constant {value = 1}", "  ii: i64[] = add i, one"]
        lines = [f"  {line}" for line in body.lines]
        region = [f"region body{number}", *inputs, *lines, *counting]
        self.writer.functions.append("\n".join([*region, f"  return {', '.join(results)}"]))
        zero = self.emit("constant {value = 0}", "i64[]")
        names = [self.writer.name() for _ in range(len(initial) + 1)]
        outputs = f"{names[0]}: i64[]" + "".join(f", {name}: f32[4]" for name in names[1:])
        known = trips if self.random.random() < 0.5 else -1
        attrs = f'condition = "cond{number}", body = "body{number}", carried = {len(names)}'
        operands = ", ".join([zero, *initial, *rest])
        self.lines.append(f"{outputs} = while {operands} {{{attrs}, trips = {known}}}")
        self.scope += names[1 : 1 + len(plain)]
        self.states.update(zip(paths, names[1 + len(plain) :], strict=True))

    def branch(self) -> None:
        paths = [path for path in self.states if self.random.random() < 0.7]
        count = self.random.randint(0, 1)
        if self.depth >= 2 or not (count or paths):
            return
        captured = [self.random.choice(self.scope), *(self.states[path] for path in paths)]
        captured = list(dict.fromkeys(captured))
        inner = {value: f"c{i}" for i, value in enumerate(captured)}
        self.writer.regions += 1
        number = self.writer.regions
        for which in ("then", "other"):
            states = {path: inner[self.states[path]] for path in paths}
            body = _Body(self.writer, list(inner.values()), states, [], self.depth + 1)
            body.write(self.random.randint(0, 3))
            results = [body.any() for _ in range(count)] + [states[path] for path in paths]
            region = [f"region {which}{number}"]
            region += [f"  input {name}: f32[4] = {name}" for name in inner.values()]
            region += [f"  {line}" for line in body.lines]
            self.writer.functions.append("\n".join([*region, f"  return {', '.join(results)}"]))
        total = self.emit(f'reduce {self.any()} {{op = "sum", axes = [0]}}', "f32[]")
        one = self.emit("constant {value = 1.0}", "f32[]")
        condition = self.emit(f"lt {total}, {one}", "bool[]")
        names = [self.writer.name() for _ in range(count + len(paths))]
        outputs = ", ".join(f"{name}: f32[4]" for name in names)
        attrs = f'then = "then{number}", otherwise = "other{number}"'
        self.lines.append(f"{outputs} = if {', '.join([condition, *captured])} {{{attrs}}}")
        self.scope += names[:count]
        self.states.update(zip(paths, names[count:], strict=True))
