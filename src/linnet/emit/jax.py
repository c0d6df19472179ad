"""Core IR as JAX source: readable, stable, and complete in one file.

`emit_jax` writes a module as a person would: a function for each block's method, called in a loop
over the layers; library ops as JAX's own functions where the table of kernels has one
(`jax_kernels`), as their bodies otherwise; states taken and given back as values. The source
imports jax and nothing else. It holds

    decode(model, state, token, pos)    the entry: its results, then the new state
    new_model(weights)                  the tree of blocks, from arrays by parameter path
    new_state()                         the states, all zero
    prepare(model)                      work that reads only weights, done once

and what it gives may be compiled (`jax.jit(decode, donate_argnums=1)`) and differentiated. 64-bit
types are right whether or not JAX has them on (`jax_enable_x64`): a source that has some turns them
on for itself, and refuses inputs that JAX has narrowed before it could.

`explain` says which kernel each library op got, and why. Nothing here imports jax.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from linnet.dtypes import DType
from linnet.emit.bodies import steps
from linnet.emit.code import WIDTH
from linnet.emit.document import (
    FunctionText,
    block_name,
    bound_lines,
    display,
    last_word,
    origin,
    types_line,
)
from linnet.emit.jax_function import FunctionEmitter, Signature
from linnet.emit.jax_kernels import KERNELS, Chosen
from linnet.emit.jax_model import IN_64_BITS, as_declared, model_source, prepare_statements
from linnet.emit.jax_ops import DTYPES, Context
from linnet.emit.jax_plan import ModulePlan, plan_module
from linnet.emit.jax_support import SUPPORT, support
from linnet.emit.jax_target import JaxTarget
from linnet.emit.lines import Line
from linnet.ir.core import Function, Module
from linnet.ir.passes import optimise

EXPANDED_OPS = ("std.nn.mlp::swiglu",)
"""Library ops whose bodies this emitter would rather have: `passes.optimise`'s `expand`."""
KEPT_OPS = ("std.nn.attention::causal_mask",)
"""Library ops that are computed where they are used: a mask is quicker made than read."""

_DEFINED = ("tree", "new_model", "new_state", "prepare", "as_declared", "in_64_bits")
_WIDE = (DType.I64, DType.U64, DType.F64)


@dataclass(frozen=True, slots=True)
class Emitted:
    """A module's source, and how to run it."""

    source: str
    entry: str
    """The name of the entry's function; it takes the tree of blocks, the tree of states if there
    are any, then `inputs`."""
    inputs: tuple[str, ...]
    places: Mapping[str, str]
    """For each place in the tree that the entry uses, by path, the path of the weight or derived
    value that it holds."""
    states: tuple[str, ...]
    """The paths of the states that it takes and, after its results, gives back."""
    results: int
    """How many results it gives; one alone, and without states, is not in a tuple."""


def optimised(module: Module) -> Module:
    """A lowered module as this emitter wants it. Projections are not joined: XLA reads them as fast
    one by one, and the tree of blocks has the parameters alone, each once."""
    return optimise(module, "exact", expand=EXPANDED_OPS, keep=KEPT_OPS)


def emit_jax(module: Module, target: JaxTarget | None = None) -> str:
    """The JAX source of a module."""
    return emit(module, target or JaxTarget()).source


def emit(module: Module, target: JaxTarget) -> Emitted:
    """The JAX source of a module with what a runtime needs to know of it."""
    plan = plan_module(module, target)
    writer = _Writer(plan)
    source = writer.text()
    main = plan.module.main
    return Emitted(
        source,
        writer.signatures[main.name].name,
        main.arguments or tuple(value.name for value in main.inputs),
        plan.placed(),
        tuple(slot.path for slot in main.states),
        len(main.results),
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


def explain(module: Module, target: JaxTarget | None = None) -> list[Explained]:
    """For each library op that the entry calls, the kernel chosen for it and why."""
    plan = plan_module(module, target or JaxTarget())
    counts: Counter[str] = Counter({module.entry: 1})
    found: Counter[tuple[str, str, str, str]] = Counter()
    for name, planned in reversed(plan.plans.items()):
        for step in steps(planned.expanded.body):
            callee, times = step.callee, counts[name]
            if callee is None:
                continue
            if step.kernel is None:
                counts[callee.name] += times
            if callee.kind == "op":
                types = ", ".join(str(value.type) for value in callee.inputs)
                kernel, why = "its body", "no kernel is known for it"
                if isinstance(step.kernel, Chosen):
                    kernel, why = step.kernel.kernel.name, step.kernel.kernel.why
                elif callee.source in KERNELS:
                    why = f"no kernel fits these types, {plan.target.numerics}"
                found[callee.source, types, kernel, why] += times
    return [Explained(*key, calls) for key, calls in found.items() if calls]


@dataclass(slots=True)
class _Writer:
    plan: ModulePlan
    signatures: dict[str, Signature] = field(default_factory=dict)
    support: set[str] = field(default_factory=set)

    def text(self) -> str:
        self.signatures = self.name_functions()
        module = self.plan.module
        written: dict[object, FunctionText] = {}
        for function in self.plan.functions:
            text = self.function(function)
            key: object = (function.source, tuple(text.parameters), tuple(text.statements))
            if function in (module.main, module.prepare):
                key = function.name
            same = written.setdefault(key, text)
            if same is not text:
                same.types += [types for types in text.types if types not in same.types]
                name = self.signatures[function.name]
                self.signatures[function.name] = replace(name, name=same.name)
        wide = self.wide()
        parts = [self.header(), as_declared(wide)]
        if any(value.type.dtype in _WIDE for value in module.main.inputs):
            parts.append(IN_64_BITS)
        parts += [*support(self.support), model_source(self.plan)]
        for key, text in written.items():
            called = key in (module.entry, module.prepare and module.prepare.name)
            parts.append(("@as_declared\n" if called else "") + text.lines())
        return "\n\n".join(part.rstrip() + "\n" for part in parts)

    def wide(self) -> bool:
        """Whether there are 64-bit types anywhere."""
        return any(
            value.type.dtype in _WIDE
            for plan in self.plan.plans.values()
            for value in (*plan.expanded.function.operands, *plan.live.defined)
        )

    def name_functions(self) -> dict[str, Signature]:
        module, found = self.plan.module, {}
        own = (*SUPPORT, *_DEFINED)
        taken = {*own, *(f.name for f in self.plan.functions)}
        for function in self.plan.functions:
            name = function.name
            if function is module.main:
                name = last_word(function.source, name, own)
                if name in taken and name != function.name:
                    name = function.name
            elif function is module.prepare:
                name = "prepare"
            if function is not module.prepare and name in own:
                name = f"{name}_body"
                while name in taken:
                    name += "_"
            special = function in (module.main, module.prepare)
            states = bool(function.states)
            found[function.name] = Signature(
                name,
                takes_block=bool(function.weights) or special,
                takes_states=states,
                gives_states=self.plan.plans[function.name].changes or (special and states),
                constants=self.plan.constants.get(function.name, {}),
            )
        return found

    def header(self) -> str:
        main = self.plan.module.main
        lines = [f'"""`{display(main.source)}` in JAX, generated by Linnet.', *bound_lines(main)]
        use = "Results come before the new state, which takes the old one's place." * bool(
            main.states
        )
        lines += ["", *textwrap.wrap(f"Numerics: {self.plan.target.numerics}. {use}", WIDTH), '"""']
        lines += ["", "import functools", "", "import jax", "import jax.numpy as jnp"]
        return "\n".join([*lines, "from jax import lax"]) + "\n"

    def function(self, function: Function) -> FunctionText:
        plan, module = self.plan, self.plan.module
        signature = self.signatures[function.name]
        found = plan.plans[function.name]
        context = Context({value: step.op for value, step in found.live.maker.items()})
        root = function in (module.main, module.prepare)
        reserved = {s.name for s in self.signatures.values()} | {*SUPPORT, *_DEFINED}
        emitter = FunctionEmitter(
            found,
            context,
            block_name(function, root),
            plan.places.attribute,
            plan.arrays[function.name],
            self.signatures,
            reserved,
        )
        parameters = emitter.parameters(signature)
        if function is module.prepare:
            statements = prepare_statements(plan, emitter, signature)
            where = "Work that reads only weights: run once they are there, on a new tree of them."
            types: list[str] = []
        else:
            checks = []
            if function is module.main:
                for value in function.inputs:
                    if value.type.dtype in _WIDE:
                        name = emitter.names[value]
                        dtype = DTYPES[value.type.dtype]
                        checks.append(Line(f'{name} = in_64_bits("{name}", {name}, {dtype})'))
            statements = [*checks, *emitter.write(signature)]
            where, types = origin(function), [types_line(function, signature.constants)]
        self.support |= context.support
        return FunctionText(signature.name, where, types, parameters, statements)


__all__ = ["Emitted", "Explained", "JaxTarget", "emit", "emit_jax", "explain", "optimised"]
