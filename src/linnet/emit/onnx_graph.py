"""An ONNX graph in the making: nodes, constants and scopes, without the `onnx` library.

Names are assigned once. A node that computes what another in reach has computed already is not
written again: casts, shapes and positions are shared that way. Bodies of loops and branches are
graphs of their own, which see the names around them, as ONNX has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from linnet.dtypes import DType

Attr: TypeAlias = "int | float | str | tuple[int, ...] | DType | Graph"
Number = int | float | bool


@dataclass(slots=True, eq=False)
class Node:
    op: str
    inputs: tuple[str, ...]
    """Names; empty for an optional input left out."""
    outputs: tuple[str, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    domain: str = ""

    @property
    def graphs(self) -> list[Graph]:
        return [value for value in self.attrs.values() if isinstance(value, Graph)]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A constant's or value's type; `values` in row-major order for a constant."""

    shape: tuple[int, ...]
    dtype: DType
    values: tuple[Number, ...] = ()


@dataclass(slots=True, eq=False)
class Graph:
    """`inputs` and `outputs` are names with their types, in order."""

    name: str
    inputs: list[tuple[str, Tensor]] = field(default_factory=list)
    outputs: list[tuple[str, Tensor]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """Every node, those of inner graphs included."""
        for node in self.nodes:
            yield node
            for graph in node.graphs:
                yield from graph.walk()


class Builder:
    """Writes nodes into the innermost open scope."""

    def __init__(self, name: str):
        self.graph = Graph(name)
        self.constants: dict[str, Tensor] = {}
        self.types: dict[str, Tensor] = {}
        """Types that inference can't find by itself: outputs of operators it doesn't know."""
        self._scopes: list[tuple[Graph, dict[object, tuple[str, ...]]]] = [(self.graph, {})]
        self._shared: dict[object, str] = {}
        self._taken: set[str] = set()

    def fresh(self, name: str) -> str:
        """A name that nothing has yet."""
        found, count = name, 1
        while found in self._taken:
            count += 1
            found = f"{name}_{count}"
        self._taken.add(found)
        return found

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        name: str = "",
        *,
        domain: str = "",
        outputs: int = 1,
        **attrs: Attr,
    ) -> tuple[str, ...]:
        """Writes a node, or finds one that is there; gives the names of its outputs."""
        key = (op, tuple(inputs), domain, outputs, tuple(sorted(attrs.items(), key=lambda a: a[0])))
        pure = not any(isinstance(value, Graph) for value in attrs.values())
        if pure:
            for _, made in self._scopes:
                if key in made:
                    return made[key]
        stem = name or op.lower()
        names = tuple(self.fresh(stem if i == 0 else f"{stem}_{i}") for i in range(outputs))
        graph, made = self._scopes[-1]
        graph.nodes.append(Node(op, tuple(inputs), names, attrs, domain))
        if pure:
            made[key] = names
        return names

    def one(
        self, op: str, inputs: Sequence[str], name: str = "", *, domain: str = "", **attrs: Attr
    ) -> str:
        """The same for a node of one output."""
        return self.node(op, inputs, name, domain=domain, outputs=1, **attrs)[0]

    def constant(
        self, values: Sequence[Number], shape: tuple[int, ...], dtype: DType, name: str = "c"
    ) -> str:
        """A constant tensor, shared by all that have the same. f16 and bf16 have no constants of
        their own; they are cast."""
        tensor = Tensor(shape, dtype, tuple(values))
        key = (shape, dtype, tuple(map(repr, tensor.values)))
        if key not in self._shared:
            self._shared[key] = found = self.fresh(name)
            self.constants[found] = tensor
        return self._shared[key]

    def integers(self, values: Sequence[int]) -> str:
        """A vector of i64: a shape, axes, bounds."""
        return self.constant(values, (len(values),), DType.I64, "i")

    def scope(self, name: str, write: Callable[[], Sequence[tuple[str, Tensor]]]) -> Graph:
        """A graph for a loop or branch: what `write` writes; it gives the outputs."""
        graph = Graph(self.fresh(name))
        self._scopes.append((graph, {}))
        graph.outputs.extend(write())
        self._scopes.pop()
        return graph

    @property
    def open(self) -> Graph:
        """The innermost open graph."""
        return self._scopes[-1][0]


def prune(graph: Graph, constants: dict[str, Tensor]) -> None:
    """Removes nodes that no output needs, in inner graphs too, and constants left without use."""
    needed = _pruned(graph, set())
    for name in [name for name in constants if name not in needed]:
        del constants[name]


def _pruned(graph: Graph, outer: set[str]) -> set[str]:
    """The names that a graph needs."""
    needed = {name for name, _ in graph.outputs} | outer
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(name for name in node.inputs if name)
            for inner in node.graphs:
                needed |= _pruned(inner, set())
            kept.append(node)
    graph.nodes[:] = reversed(kept)
    return needed
