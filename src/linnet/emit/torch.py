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
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from linnet.emit.bodies import steps
from linnet.emit.code import fit
from linnet.emit.document import (
    FunctionText,
    block_name,
    bound_lines,
    display,
    last_word,
    origin,
    types_line,
)
from linnet.emit.torch_function import FunctionEmitter, Signature, Tree
from linnet.emit.torch_kernels import KERNELS, Chosen
from linnet.emit.torch_model import model_source, prepare_statements
from linnet.emit.torch_ops import Context
from linnet.emit.torch_plan import ModulePlan, plan_module
from linnet.emit.torch_support import OPAQUE, SUPPORT, support
from linnet.emit.torch_target import TorchTarget
from linnet.ir.core import Function, Module

EXPANDED_OPS = ("std.nn.mlp::swiglu",)
"""Library ops whose bodies this emitter would rather have: `passes.optimise`'s `expand`."""
KEPT_OPS = ("std.nn.attention::causal_mask",)
"""Library ops that are to be called where they are used, even if they read only weights, since
kernels look out for them: `passes.optimise`'s `keep`."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """A module's source, and how to run it."""

    source: str
    entry: str
    """The name of the entry's function; it takes the tree of blocks, then `inputs`."""
    inputs: tuple[str, ...]
    places: Mapping[str, str]
    """For each attribute of the tree that the entry uses, by path, the path of the weight, state or
    derived value that it holds."""
    pieces: Mapping[str, tuple[str, ...]]
    """The functions that are to be compiled, each by itself, with the attributes of their block
    that they use."""
    opaque: tuple[str, ...]
    """The support functions that compiled pieces call as they are."""
    capturable: bool
    """Whether a call always does the same on the device, and so may be captured in a graph."""


def emit_torch(module: Module, target: TorchTarget | None = None) -> str:
    """The PyTorch source of a module. Raises `ValueError` for what PyTorch can't compute."""
    return emit(module, target or TorchTarget()).source


def emit(module: Module, target: TorchTarget) -> Emitted:
    """The PyTorch source of a module with what a runtime needs to know of it."""
    plan = plan_module(module, target)
    writer = _Writer(plan)
    source = writer.text()
    module = plan.module
    names = module.main.arguments or tuple(value.name for value in module.main.inputs)
    return Emitted(
        source,
        writer.signatures[module.entry].name,
        names,
        plan.placed(),
        writer.pieces(),
        writer.opaque(),
        plan.capturable,
    )


@dataclass(frozen=True, slots=True)
class Explained:
    """What a library op became: `kernel` is a kernel's name, or says that it is the op's body."""

    op: str
    types: str
    kernel: str
    why: str
    calls: int
    """How many calls of it run in the entry, each layer counted, loops once."""


def explain(module: Module, target: TorchTarget | None = None) -> list[Explained]:
    """For each library op that the entry calls, the kernel chosen for it and why."""
    plan = plan_module(module, target or TorchTarget())
    found: Counter[tuple[str, str, str, str]] = Counter()
    for name, times in _call_counts(plan).items():
        for step in steps(plan.expanded[name].body):
            callee = step.callee
            if callee is None or callee.kind != "op":
                continue
            types = ", ".join(str(value.type) for value in callee.inputs)
            if isinstance(step.kernel, Chosen):
                kernel = step.kernel.kernel
                found[callee.source, types, kernel.name, kernel.why] += times
            else:
                found[callee.source, types, "its body", _no_kernel(callee, plan.target)] += times
    return [Explained(*key, calls) for key, calls in found.items()]


def _no_kernel(callee: Function, target: TorchTarget) -> str:
    if callee.source not in KERNELS:
        return "no kernel is known for it"
    return f"no kernel fits these types on {target.device}, {target.mode}, {target.numerics}"


def _call_counts(plan: ModulePlan) -> dict[str, int]:
    """How often each function that is written runs in the entry."""
    counts: Counter[str] = Counter({plan.module.entry: 1})
    for function in reversed(plan.functions):
        for step in steps(plan.expanded[function.name].body):
            if step.callee is not None and step.kernel is None:
                counts[step.callee.name] += counts[function.name]
    return dict(counts)


_PIECES = """\
# What is worth compiling, each function by itself: a layer's is compiled once for all layers."""
_OPAQUE = "# What these call as it is, since it looks at the values of tensors."


@dataclass(slots=True)
class _Writer:
    plan: ModulePlan
    signatures: dict[str, Signature] = field(default_factory=dict)
    support: set[str] = field(default_factory=set)

    def text(self) -> str:
        self.signatures = self.name_functions()
        written: dict[object, FunctionText] = {}
        for function in self.plan.functions:
            text = self.function(function)
            key = (function.source, tuple(text.parameters), tuple(text.statements))
            special = (self.plan.module.main, self.plan.module.prepare)
            if function in special or function.name in self.plan.pieces:
                key = function.name
            same = written.setdefault(key, text)
            if same is not text:
                same.types += [types for types in text.types if types not in same.types]
                name = self.signatures[function.name]
                self.signatures[function.name] = replace(name, name=same.name)
        parts = [self.header(), *support(self.support), model_source(self.plan)]
        parts += [text.lines() for text in written.values()]
        if self.plan.pieces:
            names = ", ".join(f'"{name}"' for name in self.pieces())
            lines = [_PIECES, *fit(f"PIECES = [{names}]")]
            if self.opaque():
                names = ", ".join(f'"{name}"' for name in self.opaque())
                lines += ["", _OPAQUE, f"OPAQUE = [{names}]"]
            parts.append("\n".join(lines))
        return "\n\n".join(part.rstrip() + "\n" for part in parts)

    def opaque(self) -> tuple[str, ...]:
        return tuple(name for name in OPAQUE if self.plan.pieces and name in self.support)

    def pieces(self) -> dict[str, tuple[str, ...]]:
        found = {}
        for function in self.plan.functions:
            if function.name in self.plan.pieces:
                slots = (*function.weights, *function.states)
                places = tuple(self.plan.places.attribute(slot.path) for slot in slots)
                found[self.signatures[function.name].name] = places
        return found

    def name_functions(self) -> dict[str, Signature]:
        module, found = self.plan.module, {}
        taken = {*SUPPORT, "Block", "place", "new_model", "prepare"}
        taken |= {f.name for f in self.plan.functions}
        for function in self.plan.functions:
            name = function.name
            special = function in (module.main, module.prepare)
            if function is module.main:
                name = last_word(function.source, name, SUPPORT)
                if name in taken and name != function.name:
                    name = function.name
            elif function is module.prepare:
                name = "prepare"
            if function is not module.prepare and name in (*SUPPORT, "Block", "place", "prepare"):
                name = f"{name}_body"
                while name in taken:
                    name += "_"
            takes_block = bool(function.weights or function.states) or special
            constants = self.plan.constants.get(function.name, {})
            found[function.name] = Signature(name, takes_block, constants)
        return found

    def header(self) -> str:
        plan, main = self.plan, self.plan.module.main
        lines = [f'"""`{display(main.source)}` in PyTorch, generated by Linnet.']
        lines += bound_lines(main)
        target = plan.target
        lines += ["", f"For {target.device}, {target.mode}, numerics: {target.numerics}.", '"""']
        lines += ["", "import torch", "from torch.nn import functional as F"]
        if not target.on_cpu:
            lines += ["", f'device = torch.device("{target.device}")']
        return "\n".join(lines) + "\n"

    def function(self, function: Function) -> FunctionText:
        plan, module = self.plan, self.plan.module
        signature = self.signatures[function.name]
        found = plan.plans[function.name]
        context = Context(
            plan.target.device, {value: step.op for value, step in found.live.maker.items()}
        )
        root = function in (module.main, module.prepare)
        tree = Tree(block_name(function, root), plan.places.attribute)
        reserved = {s.name for s in self.signatures.values()} | set(SUPPORT)
        emitter = FunctionEmitter(
            plan.expanded[function.name], found, context, tree, self.signatures, reserved
        )
        parameters = emitter.parameters(signature)
        if signature.takes_block:
            parameters = [tree.block, *parameters]
        arrays = {tree.block_at(path): n for path, n in plan.arrays[function.name].items()}
        if function is module.prepare:
            statements = prepare_statements(plan, emitter, tree, arrays)
            where = "Work that reads only weights: run once they are loaded."
            types = []
        else:
            statements = emitter.write(arrays)
            where, types = origin(function), [types_line(function, signature.constants)]
        self.support |= context.support
        return FunctionText(signature.name, where, types, parameters, statements)


__all__ = [
    "EXPANDED_OPS",
    "KEPT_OPS",
    "Emitted",
    "Explained",
    "TorchTarget",
    "emit",
    "emit_torch",
    "explain",
]
