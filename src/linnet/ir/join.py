"""Joins projections of one input into one: q, k and v, or gate and up.

Sibling calls of `std.nn.linear::linear` on the same value, whose weights are parameters used
nowhere else in the function, become one call on the weights concatenated, and slices of its
result. The concatenation is weight-only work, which `hoist` moves to `prepare`; a runtime keeps
the joined weight and makes the parameters views of it. Each element of the result is computed as
before, but a matrix product of another size may add up in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from linnet.ir.core import OPS, Function, Module, Op, TensorType, Value
from linnet.ir.instantiate import ParameterSpec
from linnet.ir.rewrite import Names, map_functions, use_counts
from linnet.ir.verify import dot_shape

LINEAR = "std.nn.linear::linear"


def join_linears(module: Module) -> Module:
    """Joins sibling linear projections throughout a module."""
    joiner = _Joiner(module, Names(module.functions))
    for function in module.functions.values():
        joiner.functions[function.name] = joiner.joined(function)
    return map_functions(replace(module, functions=joiner.functions), {})


@dataclass(slots=True)
class _Joiner:
    module: Module
    names: Names
    functions: dict[str, Function] = field(default_factory=dict)
    wide: dict[tuple[str, int], Function | None] = field(default_factory=dict)
    """The projection of each width, by the name of the one it was made from."""

    def joined(self, function: Function) -> Function:
        if function.kind in ("op", "region"):
            return function
        groups = self.groups(function)
        if not groups:
            return function
        names = Names.of(function)
        first = {id(group[0]): group for group in groups}
        gone = {id(op) for group in groups for op in group}
        ops: list[Op] = []
        for op in function.ops:
            if id(op) in first:
                ops += self.projection(first[id(op)], names)
            elif id(op) not in gone:
                ops.append(op)
        return replace(function, ops=tuple(ops))

    def groups(self, function: Function) -> list[list[Op]]:
        """The calls to join, each group in order."""
        uses = use_counts(function)
        alone = {s.value for s in function.weights if s.kind == "param" and uses[s.value] == 1}
        found: dict[object, list[Op]] = {}
        for op in function.ops:
            callee = self.module.functions.get(str(op.attrs.get("callee")))
            if op.kind != "call" or callee is None or callee.source != LINEAR:
                continue
            x, weight, *bias = op.inputs
            if all(value in alone for value in (weight, *bias)):
                dtypes = tuple(value.type.dtype for value in (weight, *bias))
                found.setdefault((x, callee.arguments, dtypes), []).append(op)
        return [
            group for group in found.values() if len(group) > 1 and self.widened(group) is not None
        ]

    def widened(self, group: list[Op]) -> Function | None:
        """The projection to all of a group's outputs at once."""
        original = self.module.functions[group[0].text("callee")]
        width = sum(op.inputs[1].type.shape[0] for op in group)
        key = (original.name, width)
        if key not in self.wide:
            shapes = [v.type for v in original.inputs]
            wide = [shapes[0], *(_wider(t, width) for t in shapes[1:])]
            made = retyped(original, wide)
            if made is not None:
                generics = tuple((n, width if n == "Out" else v) for n, v in made.generics)
                name = self.names.fresh(original.source.rsplit("::", 1)[-1])
                made = replace(made, name=name, generics=generics)
                self.functions[made.name] = made
            self.wide[key] = made
        return self.wide[key]

    def projection(self, group: list[Op], names: Names) -> list[Op]:
        """The joined call, and the parts of its result."""
        callee = self.widened(group)
        assert callee is not None
        ops: list[Op] = []
        operands = [group[0].inputs[0]]
        location = group[0].location
        for position in range(1, len(group[0].inputs)):
            parts = tuple(op.inputs[position] for op in group)
            type_ = callee.inputs[position].type
            whole = names.value(_joined_name([part.name for part in parts]), type_)
            ops.append(Op("concat", parts, (whole,), {"axis": 0}, location))
            operands.append(whole)
        (result,) = callee.results
        every = names.value(operands[1].name.removesuffix("_weight"), result.type)
        attrs = {"callee": callee.name, "at": ""}
        ops.append(Op("call", tuple(operands), (every,), attrs, location))
        at = 0
        for op in group:
            extent = op.output.type.shape[-1]
            ops.append(_last_axis(every, op, at, at + extent))
            at += extent
        return ops


def _joined_name(names: list[str]) -> str:
    """`q_weight`, `k_weight`, `v_weight` as `q_k_v_weight`."""
    stems = [name.removesuffix("_weight").removesuffix("_bias") for name in names]
    return "_".join(stems) + names[0].removeprefix(stems[0])


def _wider(type_: TensorType, width: int) -> TensorType:
    return TensorType((width, *type_.shape[1:]), type_.dtype)


def _last_axis(whole: Value, op: Op, start: int, stop: int) -> Op:
    shape = whole.type.shape[:-1]
    zeros, ones = (0,) * len(shape), (1,) * len(shape)
    attrs = {"start": (*zeros, start), "stop": (*shape, stop), "step": (*ones, 1)}
    return Op("slice", (whole,), op.outputs, attrs, op.location)


def retyped(function: Function, inputs: list[TensorType]) -> Function | None:
    """A function for inputs of other extents; `None` where an operation's attributes depend on
    them."""
    known = {
        value: Value(value.name, type_)
        for value, type_ in zip(function.inputs, inputs, strict=True)
    }
    ops: list[Op] = []
    for op in function.ops:
        given = tuple(known[value] for value in op.inputs)
        type_ = _retyped_output(op, given)
        if type_ is None:
            return None
        known[op.output] = Value(op.output.name, type_)
        ops.append(replace(op, inputs=given, outputs=(known[op.output],)))
    return replace(
        function,
        inputs=tuple(known[value] for value in function.inputs),
        ops=tuple(ops),
        results=tuple(known[value] for value in function.results),
    )


def _retyped_output(op: Op, given: tuple[Value, ...]) -> TensorType | None:
    old = op.output.type if len(op.outputs) == 1 else None
    if old is None:
        return None
    if OPS[op.kind].group in ("unary", "binary", "compare", "select"):
        return TensorType(given[0].type.shape, old.dtype)
    if op.kind == "dot":
        pairs = op.axis_pairs("batch"), op.axis_pairs("contract")
        shape = dot_shape(given[0].type.shape, given[1].type.shape, *pairs)
        return TensorType(shape, old.dtype)
    if op.kind == "broadcast":
        shape, narrow = list(old.shape), op.inputs[0].type.shape
        extents = zip(narrow, given[0].type.shape, op.integers("axes"), strict=True)
        for before, now, axis in extents:
            if before != now:
                shape[axis] = now
        return TensorType(tuple(shape), old.dtype)
    same = all(a.type == b.type for a, b in zip(op.inputs, given, strict=True))
    return old if same and op.kind != "constant" else None


# --- memory that needs no joining ------------------------------------------------------------


def is_joined(op: Op, weights: Mapping[Value, str]) -> bool:
    """Whether an operation only puts weights one after the other, each once."""
    return (
        op.kind == "concat"
        and op.attrs["axis"] == 0
        and all(value in weights for value in op.inputs)
        and len(set(op.inputs)) == len(op.inputs)
    )


def sibling_weights(specs: Sequence[ParameterSpec]) -> list[list[ParameterSpec]]:
    """Weights of one name and dtype in the children of one block (`q.weight`, `k.weight`, …), in
    the order that the block declares them: held one after the other, a run of them is a joined
    weight already."""
    found: dict[object, list[ParameterSpec]] = {}
    for spec in specs:
        *parents, name = spec.path.split(".")
        found.setdefault((tuple(parents[:-1]), name, spec.dtype), []).append(spec)
    return list(found.values())
