"""Core IR as a StableHLO program: MLIR text that XLA compiles for any of its devices.

A function of the IR is a private function of the module: a block's method is written once and
called for every layer, a library op is a function of its own. The regions of loops and branches
stand where they run. `@main` takes

    the entry's inputs         {linnet.input = "tokens"}
    its weights                {linnet.path = "layers.0.attention.q.weight"}
    its states                 {linnet.path = "layers.0.key_cache", tf.aliasing_output = 1 : i32}

in that order, and gives its results, then the new value of each state that changes; the attribute
`tf.aliasing_output` says which result may take a state's memory. Nothing here imports JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from linnet.emit.stablehlo_kernels import KERNELS, Use, choose
from linnet.emit.stablehlo_ops import RULES
from linnet.emit.stablehlo_text import Body, Names, Ref, type_text
from linnet.ir.core import Function, Module, Op, Slot, TensorType, Value, referenced
from linnet.ir.passes import NUMERICS, optimise

EXPANDED_OPS = ("std.nn.mlp::swiglu",)
"""Library ops whose bodies this emitter would rather have: `passes.optimise`'s `expand`."""
KEPT_OPS = ("std.nn.attention::causal_mask",)
"""Library ops to call where they are used, even if they read only weights: XLA computes them while
it uses them, which is faster than reading them. `passes.optimise`'s `keep`."""


@dataclass(frozen=True, slots=True)
class StableHlo:
    """A module's text, and how to call its `@main`."""

    text: str
    inputs: tuple[TensorType, ...]
    weights: tuple[Slot, ...]
    states: tuple[Slot, ...]
    results: tuple[TensorType, ...]
    changed: tuple[str, ...]
    """The paths of the states that change; their new values follow the results."""


def optimised(module: Module, numerics: str = "fast") -> Module:
    """A lowered module as this emitter takes it."""
    return optimise(module, numerics, expand=EXPANDED_OPS, keep=KEPT_OPS)


def emit_stablehlo(module: Module, numerics: str = "fast") -> str:
    """The StableHLO text of a module. Raises `ValueError` for unknown numerics."""
    return emit(module, numerics).text


def emit(module: Module, numerics: str = "fast") -> StableHlo:
    """The StableHLO of a module, with what a runtime needs to know of it."""
    if numerics not in NUMERICS:
        raise ValueError(f"numerics must be one of {', '.join(NUMERICS)}, not {numerics!r}")
    writer = _Writer(module, numerics)
    main = module.main
    changed = _changed(main)
    return StableHlo(
        writer.text(),
        tuple(value.type for value in main.inputs),
        main.weights,
        main.states,
        tuple(value.type for value in main.results),
        tuple(slot.path for slot, _ in changed),
    )


def _changed(function: Function) -> list[tuple[Slot, Value]]:
    """The states that an entry changes, with their new values."""
    pairs = zip(function.states, function.new_states, strict=True)
    return [(slot, value) for slot, value in pairs if value is not slot.value]


@dataclass(slots=True)
class _Writer:
    module: Module
    numerics: str
    symbols: dict[str, str] = field(default_factory=dict)
    """What each function that is written is called."""

    def text(self) -> str:
        functions = list(self.reachable())
        taken = {"main"}
        for function in functions:
            name = "main" if function is self.module.main else function.name
            while function is not self.module.main and name in taken:
                name += "_"
            taken.add(name)
            self.symbols[function.name] = name
        parts = [self.function(function) for function in reversed(functions)]
        name = self.module.main.source.rsplit("::", 1)[-1].replace(".", "_")
        name = "".join(c if c.isalnum() else "_" for c in name) or "main"
        return f"module @{name} {{\n" + "\n".join(parts) + "}\n"

    def reachable(self) -> Iterator[Function]:
        """The functions that run in the entry and are written, callees first."""
        wanted = {self.module.entry}
        for function in reversed(list(self.module.functions.values())):
            if function.name in wanted and choose(function, self.numerics) is None:
                for op in function.ops:
                    wanted.update(referenced(op))
        for function in self.module.functions.values():
            if function.name in wanted and function.kind != "region":
                yield function

    def function(self, function: Function) -> str:
        names, main = Names(), function is self.module.main
        operands = [Ref(names.fresh(v.name), v.type) for v in function.operands]
        body = Body(names)
        kernel = choose(function, self.numerics)
        if kernel is not None:
            with body.naming("k"):
                results = [kernel.write(body, Use(function, operands))]
        else:
            values = dict(zip(function.operands, operands, strict=True))
            self.ops(body, function, values)
            returned = function.returns
            if main:
                returned = (*function.results, *(value for _, value in _changed(function)))
            results = [values[value] for value in returned]
        types = ", ".join(type_text(x.type) for x in results)
        given = f" {', '.join(map(str, results))} : {types}" if results else ""
        body.line(f"return{given}")
        head = f"  // {_origin(function, kernel is not None)}\n"
        head += f"  func.func {'public' if main else 'private'} @{self.symbols[function.name]}("
        if main:
            head += ",\n      ".join(["", *_main_arguments(function, operands)])[1:]
            head += f"\n  ) -> ({', '.join(_main_results(function))}) {{\n"
        else:
            head += ", ".join(f"{x}: {type_text(x.type)}" for x in operands)
            head += f") -> ({types}) {{\n"
        return head + "\n".join(body.lines) + "\n  }\n"

    def ops(self, body: Body, function: Function, values: dict[Value, Ref]) -> None:
        """Writes a function's operations; `values` holds its operands, and then all else."""
        for op in function.ops:
            inputs = [values[value] for value in op.inputs]
            if op.kind in _STRUCTURE:
                outputs = _STRUCTURE[op.kind](self, body, op, inputs)
            else:
                with body.naming(op.output.name):
                    outputs = [RULES[op.kind](body, op, inputs)]
            values.update(zip(op.outputs, outputs, strict=True))

    def region(self, body: Body, name: str, inputs: Sequence[Ref]) -> list[Ref]:
        region = self.module.functions[name]
        values = dict(zip(region.inputs, inputs, strict=True))
        self.ops(body, region, values)
        return [values[value] for value in region.results]

    def call(self, body: Body, op: Op, inputs: list[Ref]) -> list[Ref]:
        outputs = [(value.name, value.type) for value in op.outputs]
        return body.call(self.symbols[op.text("callee")], inputs, outputs)

    def loop(self, body: Body, op: Op, inputs: list[Ref]) -> list[Ref]:
        count = op.integer("carried")
        if not count:
            return []
        names = [v.name for v in self.module.functions[op.text("body")].inputs[:count]]
        rest = inputs[count:]
        with body.naming(op.outputs[0].name):
            return body.loop(
                inputs[:count],
                names,
                lambda inner, carried: self.region(inner, op.text("condition"), [*carried, *rest])[
                    0
                ],
                lambda inner, carried: self.region(inner, op.text("body"), [*carried, *rest]),
            )

    def branch(self, body: Body, op: Op, inputs: list[Ref]) -> list[Ref]:
        if not op.outputs:
            return []
        like = [Ref("", value.type) for value in op.outputs]

        def region(which: str) -> Callable[[Body], list[Ref]]:
            return lambda inner: self.region(inner, op.text(which), inputs[1:])

        with body.naming(op.outputs[0].name):
            return body.case(inputs[0], [region("then"), region("otherwise")], like)


_STRUCTURE = {"call": _Writer.call, "while": _Writer.loop, "if": _Writer.branch}


def _main_arguments(function: Function, operands: Sequence[Ref]) -> Iterator[str]:
    changed = [slot.path for slot, _ in _changed(function)]
    names = function.arguments or tuple(value.name for value in function.inputs)
    given = [f'linnet.input = "{name}"' for name in names]
    given += [f'linnet.path = "{slot.path}"' for slot in function.weights]
    for slot in function.states:
        text = f'linnet.path = "{slot.path}"'
        if slot.path in changed:
            output = len(function.results) + changed.index(slot.path)
            text += f", tf.aliasing_output = {output} : i32"
        given.append(text)
    for ref, attributes in zip(operands, given, strict=True):
        yield f"{ref}: {type_text(ref.type)} {{{attributes}}}"


def _main_results(function: Function) -> Iterator[str]:
    for value in function.results:
        yield type_text(value.type)
    for slot, value in _changed(function):
        yield f'{type_text(value.type)} {{linnet.path = "{slot.path}"}}'


def _origin(function: Function, by_kernel: bool) -> str:
    """Where a function comes from, for who reads the text."""
    text = function.source.removeprefix("crate::") or function.name
    return f"{text}: {KERNELS[function.source].why}" if by_kernel else text


__all__ = ["StableHlo", "emit", "emit_stablehlo", "optimised"]
