"""Core IR as PyTorch source: readable, stable, and complete in one file.

`emit_torch` writes a module as a person would: a function for each block's method, called in a loop
over the layers; library ops as PyTorch's own functions where the table of kernels has one
(`torch_kernels`), as their bodies otherwise; state written in place. The source imports torch and
nothing else. It holds

    decode(model, token, pos)         the entry, a function of its block and its inputs
    prepare(model)                    work that reads only weights, done once
    new_model(weights)                the tree of blocks, from tensors by parameter path

`explain` says which kernel each library op got, and why. Nothing here imports torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from linnet.dtypes import DType
from linnet.emit.bodies import INLINE, Expanded, expand, steps
from linnet.emit.code import Code, shape_text
from linnet.emit.lines import Line, Statement, Suite, render, reroll
from linnet.emit.memory import MustInline, Plan, Summary, plan
from linnet.emit.torch_function import FunctionEmitter, Signature, Tree
from linnet.emit.torch_kernels import KERNELS, Chosen, Use, choose
from linnet.emit.torch_ops import DTYPES, Context
from linnet.emit.torch_support import SUPPORT, support
from linnet.emit.torch_target import TorchTarget
from linnet.ir.core import Function, Module, Op, Value, lift, referenced
from linnet.ir.lower import snake_case

EXPANDED_OPS = ("std.nn.mlp::swiglu",)
"""Library ops whose bodies this emitter would rather have: `passes.optimise`'s `expand`."""


def emit_torch(module: Module, target: TorchTarget | None = None) -> str:
    """The PyTorch source of a module. Raises `ValueError` for what PyTorch can't compute."""
    return _Source(module, target or TorchTarget()).text()


def emitted_name(module: Module) -> str:
    """What the entry's function is called in the emitted source."""
    return _entry_name(module)


@dataclass(frozen=True, slots=True)
class Explained:
    """What a library op became: `kernel` is a kernel's name, or says that it is the op's body."""

    op: str
    types: str
    kernel: str
    why: str
    calls: int
    """How many calls of it run in the entry, each layer counted."""


def explain(module: Module, target: TorchTarget | None = None) -> list[Explained]:
    """For each library op that the entry calls, the kernel chosen for it and why."""
    source = _Source(module, target or TorchTarget())
    source.plan_all()
    found: Counter[tuple[str, str, str, str]] = Counter()
    for name, times in source.call_counts().items():
        for step in steps(source.expanded[name].body):
            callee = step.callee
            if callee is None or callee.kind != "op":
                continue
            types = ", ".join(str(v.type) for v in callee.inputs)
            if isinstance(step.kernel, Chosen):
                chosen = step.kernel.kernel
                found[callee.source, types, chosen.name, chosen.why] += times
            else:
                found[callee.source, types, "its body", _no_kernel(callee, source.target)] += times
    return [Explained(*key, calls) for key, calls in found.items()]


def _no_kernel(callee: Function, target: TorchTarget) -> str:
    if callee.source not in KERNELS:
        return "no kernel is known for it"
    return f"no kernel fits these types on {target.device}, {target.mode}, {target.numerics}"


@dataclass(slots=True)
class _Source:
    """A module on its way to text."""

    module: Module
    target: TorchTarget
    functions: list[Function] = field(default_factory=list)
    expanded: dict[str, Expanded] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    constants: dict[str, dict[int, int | float | bool]] = field(default_factory=dict)
    inlined: set[str] = field(default_factory=set)
    support: set[str] = field(default_factory=set)

    def text(self) -> str:
        self.plan_all()
        signatures = self.signatures()
        written = [self.function(f, signatures) for f in self.functions]
        parts = [self.header(), self.model(), *written]
        if self.support:
            parts[1:1] = support(self.support)
        return "\n\n".join(part.rstrip() + "\n" for part in parts if part)

    # Planning.

    def plan_all(self) -> None:
        """Expands and plans the functions that will be written, callees first."""
        self.constants = _constant_inputs(self.module)
        counts = _call_sites(self.module)
        self.inlined = {
            name
            for name, function in self.module.functions.items()
            if function.kind == "method" and counts[name] == 1 and self.stays_in_block(name)
        }
        while True:
            try:
                self.try_plans()
                return
            except MustInline as error:
                self.inlined.add(error.name)

    def stays_in_block(self, name: str) -> bool:
        """Whether a method is called for its caller's own block, and does no loop over layers
        inside a loop."""
        for function in self.module.functions.values():
            for op in function.ops:
                if op.kind == "call" and op.attrs["callee"] == name:
                    return op.attrs["at"] == "" and function.kind != "region"
        return False

    def try_plans(self) -> None:
        self.functions, self.expanded, self.plans = [], {}, {}
        summaries: dict[str, Summary] = {}
        roots = [f for f in (self.module.prepare, self.module.main) if f is not None]
        for function in roots:
            self.plan_function(function, summaries)

    def plan_function(self, function: Function, summaries: dict[str, Summary]) -> None:
        if function.name in self.expanded:
            return
        makers = _makers(self.module)
        expanded = expand(self.module, function, lambda op, callee: self.chosen(op, callee, makers))
        for step in steps(expanded.body):
            if step.callee is not None and step.kernel is None:
                self.plan_function(step.callee, summaries)
        found = plan(expanded, summaries)
        summaries[function.name] = found.summary
        self.expanded[function.name] = expanded
        self.plans[function.name] = found
        self.functions.append(function)

    def chosen(self, op: Op, callee: Function, makers: Mapping[Value, Op]) -> object:
        """What a call becomes: a kernel, its callee's operations, or a call."""
        if callee.name in self.inlined or not callee.ops:
            return INLINE
        if callee.kind != "op":
            return None
        names = callee.arguments or tuple(v.name for v in callee.inputs)
        sources, numbers = {}, set()
        for name, value in zip(names, op.inputs, strict=True):
            maker = makers.get(value)
            if maker is not None and maker.kind == "call":
                sources[name] = self.module.functions[maker.text("callee")].source
            if maker is not None and maker.kind == "constant" and not value.type.shape:
                numbers.add(name)
        use = Use(callee, self.target, sources, frozenset(numbers))
        kernel = choose(use)
        return None if kernel is None else Chosen(kernel, use)

    def call_counts(self) -> dict[str, int]:
        """How often each function that is written runs in the entry, loops counted once."""
        counts: Counter[str] = Counter({self.module.entry: 1})
        for function in reversed(self.functions):
            for step in steps(self.expanded[function.name].body):
                if step.callee is not None and step.kernel is None:
                    counts[step.callee.name] += counts[function.name]
        return dict(counts)

    def signatures(self) -> dict[str, Signature]:
        taken = {f.name for f in self.functions} | set(SUPPORT)
        found = {}
        for function in self.functions:
            name = function.name
            if function is self.module.main:
                name = _entry_name(self.module)
            elif function is self.module.prepare:
                name = "prepare"
            elif name in SUPPORT or name in ("prepare", "new_model", "place", "Block"):
                name = f"{name}_body"
                while name in taken:
                    name += "_"
            block = bool(function.weights or function.states) or function in (
                self.module.main,
                self.module.prepare,
            )
            found[function.name] = Signature(name, block, self.constants.get(function.name, {}))
        return found

    # Text.

    def header(self) -> str:
        main = self.module.main
        bound = ", ".join(f"{name} = {_bound(value)}" for name, value in main.generics)
        lines = [f'"""`{_display(main.source)}` in PyTorch, generated by Linnet.', ""]
        if bound:
            lines += [f"Bound: {bound}.", ""]
        lines += [
            f"For {self.target.device}, {self.target.mode}, numerics: {self.target.numerics}.",
            '"""',
            "",
            "import torch",
            "from torch.nn import functional as F",
        ]
        if not self.target.on_cpu:
            lines += ["", f'device = torch.device("{self.target.device}")']
        return "\n".join(lines) + "\n"

    def function(self, function: Function, signatures: Mapping[str, Signature]) -> str:
        signature = signatures[function.name]
        expanded, found = self.expanded[function.name], self.plans[function.name]
        definitions = {v: s.op for v, s in found.live.maker.items()}
        context = Context(self.target.device, definitions)
        inputs = {name for name in function.arguments}
        block = _block_name(function, function in (self.module.main, self.module.prepare), inputs)
        tree = Tree(block, self.attributes(function))
        reserved = {s.name for s in signatures.values()} | set(SUPPORT)
        emitter = FunctionEmitter(expanded, found, context, tree, signatures, reserved)
        parameters = emitter.parameters(signature)
        if signature.takes_block:
            parameters = [block, *parameters]
        arrays = {tree.block_at(path): n for path, n in self.arrays(function).items()}
        if function is self.module.prepare:
            statements = self.prepared(emitter, tree, arrays)
        else:
            statements = emitter.write(arrays)
        self.support |= context.support
        doc = [Line(text) for text in self.docstring(function, signature)]
        suite = Suite(f"def {signature.name}({', '.join(parameters)}):", (*doc, *statements))
        return "\n".join(render([suite])) + "\n"

    def docstring(self, function: Function, signature: Signature) -> list[str]:
        if function is self.module.prepare:
            return ['"""Work that reads only weights: run once they are loaded."""']
        where = next((op.location for op in function.ops if op.location), "")
        origin = f"`{_display(function.source)}`" + (f" ({where})" if where else "")
        takes = [
            f"{value.name}: {value.type}"
            for i, value in enumerate(function.inputs)
            if i not in signature.constants
        ]
        gives = ", ".join(str(value.type) for value in function.results) or "nothing"
        types = f"{', '.join(takes)} -> {gives}" if takes else f"-> {gives}"
        return [f'"""{origin}', "", types, '"""']

    def attributes(self, function: Function) -> dict[str, str]:
        """Derived values by path, as paths of attributes."""
        return {
            slot.path: derived_attribute(slot.path)
            for slot in function.weights
            if slot.kind == "derived"
        }

    def arrays(self, function: Function) -> dict[str, int]:
        """The arrays of blocks whose elements a function uses, with their lengths in the model."""
        found: dict[str, int] = {}
        paths = [slot.path for slot in (*function.weights, *function.states)]
        paths += self.derived_paths() if function is self.module.prepare else []
        for path in paths:
            parts = path.removeprefix("@").split(".")
            for i, part in enumerate(parts):
                if part.isdigit():
                    array = ".".join(parts[:i])
                    found[array] = max(found.get(array, 0), int(part) + 1)
        return found

    def derived_paths(self) -> list[str]:
        return [derived_attribute(path) for path in self.module.derived]

    def prepared(
        self, emitter: FunctionEmitter, tree: Tree, arrays: Mapping[str, int]
    ) -> list[Statement]:
        """`prepare`'s statements: each derived value is put where its functions look for it, and
        weights that were joined become views of what they were joined to."""
        prepare = self.module.prepare
        assert prepare is not None
        places = dict(zip(emitter.expanded.body.results, self.module.derived, strict=True))
        for node in emitter.expanded.body.nodes:
            for value in node.op.outputs:
                if value in places:
                    emitter.plan.fused.discard(value)
        for node in emitter.expanded.body.nodes:
            before = len(emitter.statements)
            emitter.body_of([node])
            for value in node.op.outputs:
                if value in places:
                    self.put(emitter, tree, value, places[value], before)
            for text in joined_views(node.op, emitter.expanded.weights, tree, places):
                emitter.add(text)
        return reroll(emitter.statements, arrays, emitter.reserved | set(emitter.holders))

    def put(
        self, emitter: FunctionEmitter, tree: Tree, value: Value, path: str, before: int
    ) -> None:
        """Makes a derived value an attribute of its block."""
        place = tree.path(derived_attribute(path))
        last = emitter.statements[-1] if len(emitter.statements) > before else None
        name = emitter.names.get(value, "")
        if isinstance(last, Line) and last.text.startswith(f"{name} = "):
            emitter.statements[-1] = Line(f"{place} = {last.text.removeprefix(f'{name} = ')}")
            operand = emitter.bindings[value]
            emitter.bindings[value] = type(operand)(Code(place), value.type, operand.shape)
        else:
            code = emitter.context.whole(emitter.operand(value))
            emitter.add(f"{place} = {code.text}")

    def model(self) -> str:
        """`Block`, `place` and `new_model`."""
        main, prepare = self.module.main, self.module.prepare
        states = [
            Line(f'place(model, "{slot.path}", {_zeros(slot.value, self.target)})')
            for slot in main.states
        ]
        body: list[Statement] = [
            Line('"""The tree of blocks, from tensors by parameter path; states start at zero."""'),
            Line("model = Block()"),
            Suite(
                "for path, tensor in weights.items():",
                (Line(f"place(model, path, tensor{self._moved()})"),),
            ),
            *_states_rerolled(states),
        ]
        if prepare is not None:
            body.append(Line("prepare(model)"))
        body.append(Line("return model"))
        return _MODEL + "\n\n" + "\n".join(render([Suite("def new_model(weights):", tuple(body))]))

    def _moved(self) -> str:
        return "" if self.target.on_cpu else ".to(device)"


_MODEL = '''\
class Block:
    """Holds the weights, states and children of one block of the model."""


def place(block, path, tensor):
    """Puts a tensor where its path says, making the blocks on the way: `layers.3.norm.weight`."""
    *parents, name = path.split(".")
    for i, part in enumerate(parents):
        below = list if (parents + [name])[i + 1].isdigit() else Block
        if part.isdigit():
            block.extend(below() for _ in range(len(block), int(part) + 1))
            block = block[int(part)]
        else:
            block = vars(block).setdefault(part, below())
    setattr(block, name, tensor)
'''


def _zeros(value: Value, target: TorchTarget) -> str:
    where = "" if target.on_cpu else ", device=device"
    dtype = DTYPES[value.type.dtype]
    return f"torch.zeros({shape_text(value.type.shape)}, dtype={dtype}{where})"


def _states_rerolled(lines: Sequence[Line]) -> list[Statement]:
    """States of the same name in all layers, as a loop over their number."""
    patterns: dict[str, list[int]] = {}
    for line in lines:
        head, quote, rest = line.text.partition('"')
        path, _, tail = rest.partition('"')
        parts = path.split(".")
        digits = [i for i, part in enumerate(parts) if part.isdigit()]
        if len(digits) == 1:
            index = int(parts[digits[0]])
            parts[digits[0]] = "{i}"
            key = f'{head}f{quote}{".".join(parts)}"{tail}'
            patterns.setdefault(key, []).append(index)
        else:
            patterns[line.text] = []
    found: list[Statement] = []
    loops: dict[int, list[Line]] = {}
    for text, indices in patterns.items():
        if not indices:
            found.append(Line(text))
        elif indices == list(range(len(indices))):
            loops.setdefault(len(indices), []).append(Line(text))
        else:
            found += [Line(text.replace("{i}", str(i)).replace('f"', '"', 1)) for i in indices]
    found += [Suite(f"for i in range({n}):", tuple(body)) for n, body in loops.items()]
    return found


def derived_attribute(path: str) -> str:
    """Where a derived value is kept: `@layers.3.layer_forward.scale` in `layers.3.scale`."""
    *block, _, name = path.removeprefix("@").split(".")
    return ".".join([*block, name])


def joined_views(
    op: Op, weights: Mapping[Value, str], tree: Tree, places: Mapping[Value, str]
) -> Iterator[str]:
    """The statements that make joined weights views of the whole."""
    if not is_joined(op, weights) or op.output not in places:
        return
    whole = tree.path(derived_attribute(places[op.output]))
    targets = ", ".join(tree.path(weights[value]) for value in op.inputs)
    sizes = ", ".join(str(value.type.shape[0]) for value in op.inputs)
    yield f"{targets} = {whole}.split([{sizes}])"


def is_joined(op: Op, weights: Mapping[Value, str]) -> bool:
    """Whether an operation only puts weights one after the other, each once."""
    return (
        op.kind == "concat"
        and op.attrs["axis"] == 0
        and all(value in weights for value in op.inputs)
        and len(set(op.inputs)) == len(op.inputs)
    )


def _entry_name(module: Module) -> str:
    name = module.main.source.rsplit("::", 1)[-1].rsplit(".", 1)[-1]
    return name if name.isidentifier() and name not in SUPPORT else module.entry


def _display(source: str) -> str:
    return source.removeprefix("crate::")


def _bound(value: object) -> str:
    if isinstance(value, DType):
        return value.value
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _block_name(function: Function, root: bool, inputs: set[str]) -> str:
    """What a function calls the block it belongs to."""
    if root:
        name = "model"
    else:
        owner = function.source.rsplit("::", 1)[-1]
        name = snake_case(owner.split(".")[0]) if "." in owner else "model"
    return name if name not in inputs else f"{name}_block"


def _call_sites(module: Module) -> Counter[str]:
    functions = [*module.functions.values()]
    if module.prepare is not None:
        functions.append(module.prepare)
    return Counter(name for f in functions for op in f.ops for name in referenced(op))


def _makers(module: Module) -> dict[Value, Op]:
    functions = [*module.functions.values()]
    if module.prepare is not None:
        functions.append(module.prepare)
    return {value: op for f in functions for op in f.ops for value in op.outputs}


def _constant_inputs(module: Module) -> dict[str, dict[int, int | float | bool]]:
    """For each function, the inputs that are the same scalar constant at every call."""
    makers = _makers(module)
    known: dict[Value, int | float | bool] = {
        value: op.attrs["value"]  # type: ignore[misc]
        for value, op in makers.items()
        if op.kind == "constant" and not value.type.shape
    }
    functions = [*module.functions.values()]
    if module.prepare is not None:
        functions.append(module.prepare)
    found: dict[str, dict[int, int | float | bool]] = {}
    for function in reversed(functions):
        if function.kind in ("entry", "region") or function is module.prepare:
            continue
        calls = [
            op
            for caller in functions
            for op in caller.ops
            if op.kind == "call" and op.attrs["callee"] == function.name
        ]
        for i, value in enumerate(function.inputs):
            given = {repr(known.get(op.inputs[i])) for op in calls}
            if len(given) == 1 and calls and calls[0].inputs[i] in known:
                known[value] = known[calls[0].inputs[i]]
                found.setdefault(function.name, {})[i] = known[value]
    return found


__all__ = [
    "EXPANDED_OPS",
    "Explained",
    "TorchTarget",
    "emit_torch",
    "emitted_name",
    "explain",
    "lift",
]
