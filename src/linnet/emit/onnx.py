"""Core IR as an ONNX graph: one flat graph an entry, with weights by name and states as inputs.

`emit` writes a module for a target: library ops as operators of ONNX or of ONNX Runtime where the
tables of kernels have one (`onnx_kernels`, `onnx_attention`, `onnx_caches`), as their bodies
otherwise; `while` as `Loop`, `if` as `If`. Methods are written where they are called: ONNX Runtime
would inline functions anyway, and operators are fused across them here. The graph's inputs are
the entry's, then the old value of each state; its outputs the results, then the new states. Weights
are initializers named by their paths, whose values a runtime or `export` adds.

`explain` says which operator each library op got, and why, and what was computed in a wider dtype.
Nothing here imports onnx; `onnx_proto` makes the protobuf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from linnet.dtypes import DType
from linnet.emit.bodies import (
    INLINE,
    Body,
    Branch,
    Expanded,
    Loop,
    Places,
    Step,
    expand,
    steps,
)
from linnet.emit.onnx_attention import KERNELS
from linnet.emit.onnx_graph import Builder, Graph, Node, Tensor, prune
from linnet.emit.onnx_kernels import Call, Chosen, Use, choose, find_facts
from linnet.emit.onnx_ops import RULES, Context, Operand
from linnet.emit.onnx_target import OnnxTarget, Part
from linnet.ir.core import Function, Module, Op, Value
from linnet.ir.join import LINEAR
from linnet.ir.passes import optimise

EXPANDED_OPS = ("std.nn.mlp::swiglu",)
"""Library ops whose bodies this emitter would rather have: `passes.optimise`'s `expand`."""
KEPT_OPS = ("std.nn.attention::causal_mask",)
"""Library ops that are to be called where they are used: `passes.optimise`'s `keep`."""


@dataclass(frozen=True, slots=True)
class Weight:
    """An initializer: the weight or derived value of a path, held in a dtype; the first half of its
    last axis alone where `half` says so."""

    path: str
    shape: tuple[int, ...]
    dtype: DType
    half: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """A state's names in the graph."""

    path: str
    type: Tensor
    input: str
    output: str | None
    """`None` where the entry leaves it as it is."""
    in_place: bool
    """Whether the output may have the input's memory: only what changes is written, and whatever
    else reads the old value runs before."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """All elements of an input lie between two integers, both included."""

    position: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Emitted:
    """A graph, and what it takes to run it."""

    graph: Graph
    constants: Mapping[str, Tensor]
    types: Mapping[str, Tensor]
    """Types that shape inference can't find: outputs of ONNX Runtime's own operators."""
    name: str
    inputs: tuple[str, ...]
    weights: Mapping[str, Weight]
    packed: Mapping[str, Part]
    """The packed parts that it uses, by name: those of weights one after the other are called by
    all of their names, with a plus between."""
    states: tuple[State, ...]
    results: tuple[str, ...]
    likeliest: str | None
    """An output that holds the position of the largest of each row of the one result, i64."""
    requires: tuple[Requirement, ...]
    rows: int
    """The most vectors that a linear layer of it works on at once."""


@dataclass(frozen=True, slots=True)
class Explained:
    """What a library op became, or an operator that has no kernel for a dtype."""

    op: str
    types: str
    kernel: str
    why: str
    calls: int


def optimised(module: Module, numerics: str = "fast") -> Module:
    """A lowered entry after the passes, as this emitter wants it."""
    return optimise(module, numerics, expand=EXPANDED_OPS, keep=KEPT_OPS)


def emit(module: Module, target: OnnxTarget | None = None, *, likeliest: bool = False) -> Emitted:
    """A module's graph. With `likeliest`, an entry whose one result is logits `[rows, vocabulary]`
    also gives the likeliest of each row. Raises `ValueError` for what ONNX can't compute."""
    return _Writer(module, target or OnnxTarget()).run(likeliest)


def explain(module: Module, target: OnnxTarget | None = None) -> list[Explained]:
    """For each library op that the entry calls, loops counted once, the operator it became."""
    writer = _Writer(module, target or OnnxTarget())
    writer.run(False)
    found: Counter[tuple[str, str, str, str]] = Counter()
    for callee, chosen in writer.calls:
        types = ", ".join(str(value.type) for value in callee.inputs)
        if chosen is None:
            found[callee.source, types, "its body", _no_kernel(callee, writer.target)] += 1
        else:
            found[callee.source, types, chosen.kernel.name, chosen.kernel.why] += 1
    rows = [Explained(*key, calls) for key, calls in found.items()]
    where = {"cpu": "CPU", "cuda": "CUDA", "tensorrt": "TensorRT"}[writer.target.provider]
    for (op, dtype, wide), count in sorted(writer.context.widened.items()):
        how = "and rounded" if dtype.is_float else "and wrapped"
        why = f"ONNX Runtime's {where} provider has no {dtype} kernel for it"
        rows.append(Explained(op, str(dtype), f"computed in {wide} {how}", why, count))
    return rows


def _no_kernel(callee: Function, target: OnnxTarget) -> str:
    if callee.source not in KERNELS:
        return "no operator is known for it"
    return f"no operator fits these types on {target.provider}, {target.numerics}"


class _Writer:
    def __init__(self, module: Module, target: OnnxTarget):
        self.module = module
        self.target = target
        self.calls: list[tuple[Function, Chosen | None]] = []
        places = Places(lambda path: path, frozenset())
        self.expanded: Expanded = expand(module, module.main, self.choose, places)
        made = list(steps(self.expanded.body))
        self.makers: dict[Value, Op] = {v: s.op for s in made for v in s.op.outputs}
        self.called = {v: s for s in made if s.callee is not None for v in s.op.outputs}
        main = module.main
        self.builder = Builder(_display(main.source) or main.name)
        self.context = Context(
            self.builder,
            target,
            self.makers,
            inputs={value: i for i, value in enumerate(main.inputs)},
        )
        self.values: dict[Value, Operand] = {}
        self.weights: dict[str, Weight] = {}
        self.facts = find_facts(module, self.expanded.weights, self.half)

    def choose(self, op: Op, callee: Function) -> Chosen | str:
        if callee.kind != "op":
            return INLINE
        use = Use(callee, self.target)
        kernel = choose(use, KERNELS)
        chosen = None if kernel is None else Chosen(kernel, use)
        self.calls.append((callee, chosen))
        return INLINE if chosen is None else chosen

    def run(self, likeliest: bool) -> Emitted:
        main, graph = self.module.main, self.builder.graph
        names = main.arguments if len(set(main.arguments)) == len(main.inputs) else ()
        inputs = []
        for value, name in zip(main.inputs, names or [v.name for v in main.inputs], strict=True):
            inputs.append(self.declared(value, self.builder.fresh(name)))
        olds = [self.declared(s.value, self.builder.fresh(s.path)) for s in main.states]
        for slot in main.weights:
            self.weight(slot.value, slot.path)
        self.body(self.expanded.body)

        results = [self.context.whole(self.values[v]) for v in self.expanded.body.results]
        news = [self.context.whole(self.values[v]) for v in self.expanded.new_states]
        top = None
        types = [value.type for value in main.results]
        if likeliest and len(types) == 1 and len(types[0].shape) == 2 and types[0].dtype.is_float:
            wide = self.context.wide("ArgMax", types[0].dtype)
            logits = self.context.cast(results[0], types[0].dtype, wide)
            top = self.context.one("ArgMax", [logits], "likeliest", axis=-1, keepdims=0)
        states = [
            (new, Tensor(slot.value.type.shape, slot.value.type.dtype))
            for new, old, slot in zip(news, olds, main.states, strict=True)
            if new != old
        ]
        outputs = [(n, Tensor(t.shape, t.dtype)) for n, t in zip(results, types, strict=True)]
        if top is not None:
            outputs.append((top, Tensor(types[0].shape[:1], DType.I64)))
        # What is a result too is copied for the result: a state is written in place.
        settled = self.settled([*states, *outputs])
        given, rest = settled[len(states) :], settled[: len(states)]
        graph.outputs += [*given[: len(results)], *rest, *given[len(results) :]]
        prune(graph, self.builder.constants)
        wanted = self.nice_names(len(results))
        return self.finished(inputs, olds, news, wanted, top)

    def finished(
        self, inputs: list[str], olds: list[str], news: list[str], names: list[str], top: str | None
    ) -> Emitted:
        main, graph = self.module.main, self.builder.graph
        count = len(main.results)
        rest = iter(names[count:])
        states = []
        for slot, old, new in zip(main.states, olds, news, strict=True):
            output = next(rest) if new != old else None
            type_ = Tensor(slot.value.type.shape, slot.value.type.dtype)
            alone = output is not None and in_place(graph, old, output)
            states.append(State(slot.path, type_, old, output, alone))
        used = {name for node in graph.walk() for name in node.inputs}
        return Emitted(
            graph,
            self.builder.constants,
            {n: t for n, t in self.builder.types.items() if n in _made(graph)},
            graph.name,
            tuple(inputs),
            {name: weight for name, weight in self.weights.items() if name in used},
            {n: p for n, p in self.context.packed.items() if f"{n}.blocks" in used},
            tuple(states),
            tuple(names[:count]),
            names[-1] if top is not None else None,
            tuple(Requirement(i, *bounds) for i, bounds in sorted(self.context.requires.items())),
            max((_rows(callee) for callee, _ in self.calls if callee.source == LINEAR), default=0),
        )

    def declared(self, value: Value, name: str) -> str:
        """An input of the graph."""
        type_ = value.type
        self.builder.graph.inputs.append((name, Tensor(type_.shape, type_.dtype)))
        self.values[value] = Operand(name, type_, type_.shape)
        return name

    def weight(self, value: Value, path: str) -> None:
        """A weight: on a CPU, which computes f16 and bf16 in f32, it is held in f32 at once."""
        type_ = value.type
        narrow = type_.dtype in (DType.F16, DType.BF16) and self.target.on_cpu
        held = DType.F32 if narrow else type_.dtype
        name = self.builder.fresh(path)
        self.weights[name] = Weight(path, type_.shape, held)
        if narrow:
            wide, name = name, self.context.one("Cast", [name], to=type_.dtype)
            self.context.wider[name] = wide
        self.values[value] = Operand(name, type_, type_.shape)

    def half(self, value: Value) -> str | None:
        """The first half of a weight's last axis, which is all that rotation needs of a table."""
        path = self.expanded.weights.get(value)
        if path is None:
            return None
        name = f"{path}.half"
        whole = next(weight for weight in self.weights.values() if weight.path == path)
        if name not in self.weights:
            shape = (*whole.shape[:-1], whole.shape[-1] // 2)
            self.weights[self.builder.fresh(name)] = replace(whole, shape=shape, half=True)
        return name

    # Operations.

    def body(self, body: Body) -> None:
        for node in body.nodes:
            if isinstance(node, Loop):
                self.loop(node)
            elif isinstance(node, Branch):
                self.branch(node)
            elif isinstance(node.kernel, Chosen):
                self.kernel(node, node.kernel)
            else:
                op = node.op
                operands = [self.values[value] for value in op.inputs]
                self.values[op.output] = RULES[op.kind](self.context, op, operands)

    def kernel(self, step: Step, chosen: Chosen) -> None:
        operands = {
            name: self.values[value] for name, value in zip(step.names, step.op.inputs, strict=True)
        }
        call = Call(
            self.context, chosen.use, step, operands, self.values, self.called, self.facts
        )  # fmt: skip
        self.values[step.op.output] = chosen.kernel.write(call)

    def loop(self, node: Loop) -> None:
        """`Loop` runs its body, which ends with whether to go on."""
        counted = node.trips >= 0
        initial = [self.context.whole(self.values[value]) for value in node.initial]
        limit = condition = ""
        if counted:
            limit = self.context.scalar(node.trips, DType.I64)
            self.context.known[node.carried[0]] = 0, max(node.trips - 1, 0)
        else:
            self.bind(node.carried, initial)
            condition = self.goes_on(node)
        names = [self.builder.fresh(value.name) for value in node.carried]
        going, turn = self.builder.fresh("going"), self.builder.fresh("turn")

        def write() -> Sequence[tuple[str, Tensor]]:
            self.bind(node.carried, names)
            self.body(node.body)
            found = [self.context.whole(self.values[value]) for value in node.body.results]
            again = going
            if not counted:
                self.bind(node.carried, found)
                again = self.goes_on(node)
            types = [Tensor(value.type.shape, value.type.dtype) for value in node.carried]
            return self.settled(
                [(again, Tensor((), DType.BOOL)), *zip(found, types, strict=True)], inner=True
            )

        graph = self.builder.scope("body", write)
        graph.inputs += [(turn, Tensor((), DType.I64)), (going, Tensor((), DType.BOOL))]
        graph.inputs += [
            (name, Tensor(value.type.shape, value.type.dtype))
            for name, value in zip(names, node.carried, strict=True)
        ]
        outputs = self.builder.node(
            "Loop", [limit, condition, *initial], outputs=len(initial), body=graph
        )
        self.bind(node.outputs, outputs)

    def goes_on(self, node: Loop) -> str:
        self.body(node.condition)
        (result,) = node.condition.results
        return self.context.whole(self.values[result])

    def branch(self, node: Branch) -> None:
        condition = self.context.whole(self.values[node.condition])
        types = [Tensor(value.type.shape, value.type.dtype) for value in node.outputs]
        graphs = []
        for which, body in (("then", node.then), ("otherwise", node.otherwise)):

            def write(body: Body = body) -> Sequence[tuple[str, Tensor]]:
                self.body(body)
                found = [self.context.whole(self.values[value]) for value in body.results]
                return self.settled(list(zip(found, types, strict=True)), inner=True)

            before = dict(self.values)
            graphs.append(self.builder.scope(which, write))
            # What a branch computed is not known outside of it.
            self.values.clear()
            self.values.update(before)
        outputs = self.builder.node(
            "If", [condition], outputs=len(types), then_branch=graphs[0], else_branch=graphs[1]
        )
        self.bind(node.outputs, outputs)

    def bind(self, values: Sequence[Value], names: Sequence[str]) -> None:
        for value, name in zip(values, names, strict=True):
            self.values[value] = Operand(name, value.type, value.type.shape)

    def settled(
        self, outputs: Sequence[tuple[str, Tensor]], *, inner: bool = False
    ) -> list[tuple[str, Tensor]]:
        """Outputs of the open graph: each made by a node of its own, once."""
        graph = self.builder.open
        made = {name for node in graph.nodes for name in node.outputs}
        found: list[tuple[str, Tensor]] = []
        for name, type_ in outputs:
            if name not in made or any(name == other for other, _ in found):
                fresh = self.builder.fresh(f"{name}_out")
                graph.nodes.append(Node("Identity", (name,), (fresh,)))
                name = fresh
            found.append((name, type_))
        return found

    def nice_names(self, results: int) -> list[str]:
        """Renames the outputs: results by what the source calls them, states by their paths."""
        graph, main = self.builder.graph, self.module.main
        paths = [
            s.path for s, new in zip(main.states, self.expanded.new_states, strict=True)
            if self.values[new].name != self.values[s.value].name
        ]  # fmt: skip
        wanted = ["result"] if results == 1 else [f"result_{i}" for i in range(results)]
        wanted += [f"{path}.new" for path in paths]
        renamed: dict[str, str] = {}
        for (name, _), nice in zip(graph.outputs, wanted, strict=False):
            renamed[name] = self.builder.fresh(nice)
        graph.outputs[:] = [(renamed.get(n, n), t) for n, t in graph.outputs]
        for node in graph.walk():
            node.inputs = tuple(renamed.get(n, n) for n in node.inputs)
            node.outputs = tuple(renamed.get(n, n) for n in node.outputs)
            for inner in node.graphs:
                inner.outputs[:] = [(renamed.get(n, n), t) for n, t in inner.outputs]
        self.builder.types = {renamed.get(n, n): t for n, t in self.builder.types.items()}
        return [name for name, _ in graph.outputs]


def _rows(linear: Function) -> int:
    shape = linear.results[0].type.shape
    return linear.results[0].type.size // max(shape[-1], 1)


def _display(source: str) -> str:
    return source.removeprefix("crate::")


def _made(graph: Graph) -> set[str]:
    return {name for node in graph.walk() for name in node.outputs}


# --- memory ---------------------------------------------------------------------------------

_WRITES = {
    "TensorScatter": {0: 0},
    "ScatterND": {0: 0},
    "GroupQueryAttention": {3: 1, 4: 2},
}
"""Operators that leave an input's memory as it is but for what they write, where an output has the
same memory: the input's position and the output's."""


def in_place(graph: Graph, old: str, new: str) -> bool:
    """Whether a new state may be given the old one's memory.

    The node that makes it must be one of `_WRITES`, and every other reader of the old value must be
    needed by that node, so that it has run before.
    """
    makers = {name: node for node in graph.nodes for name in node.outputs}
    writer = makers.get(new)
    if writer is None or writer.op not in _WRITES:
        return False
    pairs = [
        (writer.inputs[i], writer.outputs[o])
        for i, o in _WRITES[writer.op].items()
        if i < len(writer.inputs)
    ]
    if (old, new) not in pairs or writer.inputs.count(old) != 1:
        return False
    before: set[int] = set()
    open_ = [writer]
    while open_:
        for name in _reads(open_.pop()):
            node = makers.get(name)
            if node is not None and id(node) not in before:
                before.add(id(node))
                open_.append(node)
    return all(id(node) in before or node is writer for node in graph.nodes if old in _reads(node))


def _reads(node: Node) -> set[str]:
    """Names that a node reads, its graphs included."""
    found = set(node.inputs)
    for graph in node.graphs:
        found |= {name for inner in graph.walk() for name in inner.inputs}
        found |= {name for name, _ in graph.outputs}
    return found


__all__ = [
    "Emitted",
    "Explained",
    "OnnxTarget",
    "Requirement",
    "State",
    "Weight",
    "emit",
    "explain",
    "optimised",
]
