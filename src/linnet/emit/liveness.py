"""Where each value of an expanded body is defined and used, as positions in program order.

A use inside a loop of a value from outside counts at the loop's end too, since the next iteration
uses it again. A use in one branch is none for what happens in the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from linnet.emit.bodies import Body, Branch, Expanded, Loop, Node, Step
from linnet.ir.core import Value

Around = tuple[Loop | Branch, ...]
"""The loops and branches around a point, outermost first."""


@dataclass(frozen=True, slots=True)
class Use:
    position: int
    consumer: Node | None
    """`None` for a result of a body."""
    body: Body | None
    """The body whose operation or result it is; `None` at the function's end."""
    again: int
    """The end of the outermost loop that is around the use and not around the definition; the
    position itself where there is none."""


@dataclass(slots=True)
class Liveness:
    defined: dict[Value, int] = field(default_factory=dict)
    uses: dict[Value, list[Use]] = field(default_factory=dict)
    around: dict[Value, Around] = field(default_factory=dict)
    """What is around each value's definition."""
    home: dict[Value, Body] = field(default_factory=dict)
    maker: dict[Value, Step] = field(default_factory=dict)
    end: int = 0
    """The first position after all nodes: state `i` is stored at `end + i`, then results are
    returned."""

    def last(self, value: Value) -> int:
        """The last position where a value is needed, -1 if it never is."""
        return max((use.again for use in self.uses.get(value, ())), default=-1)

    def after(self, value: Value, position: int, around: Around) -> bool:
        """Whether a value is used after what happens at a position inside `around`."""
        apart = [
            (node.between, node.end)
            for node in around
            if isinstance(node, Branch) and node.position < position <= node.between
        ]
        return any(
            use.again > position and not any(low < use.again <= high for low, high in apart)
            for use in self.uses.get(value, ())
        )


def liveness(expanded: Expanded) -> Liveness:
    """Numbers the nodes of a function and collects definitions and uses."""
    found = Liveness()
    for value in expanded.function.operands:
        found.defined[value] = 0
        found.around[value] = ()
    numbering = _Numbering(found)
    numbering.body(expanded.body, ())
    found.end = numbering.next(1)
    for i, value in enumerate(expanded.new_states):
        numbering.use(value, found.end + i, None, None, ())
    for value in expanded.body.results:
        numbering.use(value, found.end + len(expanded.new_states), None, None, ())
    return found


class _Numbering:
    def __init__(self, found: Liveness):
        self.found = found
        self.position = 0
        self.open: list[tuple[Value, int, Node | None, Body | None, Around]] = []

    def next(self, step: int) -> int:
        self.position += step
        return self.position

    def define(self, value: Value, position: int, body: Body, around: Around) -> None:
        self.found.defined[value] = position
        self.found.around[value] = around
        self.found.home[value] = body

    def use(
        self, value: Value, position: int, node: Node | None, body: Body | None, around: Around
    ) -> None:
        self.open.append((value, position, node, body, around))
        if not around:
            self.close()

    def close(self) -> None:
        """Enters uses once the ends of the loops around them are known."""
        for value, position, node, body, around in self.open:
            again = position
            defined = self.found.defined[value]
            for outer in around:
                if isinstance(outer, Loop) and defined <= outer.position:
                    again = outer.end
                    break
            use = Use(position, node, body, again)
            self.found.uses.setdefault(value, []).append(use)
        self.open.clear()

    def body(self, body: Body, around: Around) -> None:
        for node in body.nodes:
            node.position = self.next(1)
            if isinstance(node, Step):
                for value in node.op.inputs:
                    self.use(value, node.position, node, body, around)
                self.found.maker.update((value, node) for value in node.op.outputs)
                for value in node.op.outputs:
                    self.define(value, node.position, body, around)
            elif isinstance(node, Loop):
                self.loop(node, body, around)
            else:
                self.branch(node, body, around)

    def loop(self, node: Loop, body: Body, around: Around) -> None:
        inside = (*around, node)
        for value in node.initial:
            self.use(value, node.position, node, body, around)
        start = self.next(1)
        for value in node.carried:
            self.define(value, start, node.body, inside)
        self.body(node.condition, inside)
        node.between = self.next(1)
        for value in node.condition.results:
            self.use(value, node.between, None, node.condition, inside)
        self.body(node.body, inside)
        node.end = self.next(1)
        for value in node.body.results:
            self.use(value, node.end, None, node.body, inside)
        for value in node.outputs:
            self.define(value, node.end, body, around)
        if not around:
            self.close()

    def branch(self, node: Branch, body: Body, around: Around) -> None:
        inside = (*around, node)
        self.use(node.condition, node.position, node, body, around)
        self.body(node.then, inside)
        node.between = self.next(1)
        for value in node.then.results:
            self.use(value, node.between, None, node.then, inside)
        self.body(node.otherwise, inside)
        node.end = self.next(1)
        for value in node.otherwise.results:
            self.use(value, node.end, None, node.otherwise, inside)
        for value in node.outputs:
            self.define(value, node.end, body, around)
        if not around:
            self.close()
