"""Core IR: a typed program with every generic bound, as straight-line functions over tensors.

A `Module` is one entry and all the functions it calls. A `Function` is a list of `Op`s in single
assignment form over `Value`s of concrete `TensorType`s. There are no optionals, tuples, structs or
dtype variables here: lowering has resolved and flattened them. State is threaded: a function takes
the old value of each state it touches and gives back the new one.

A call keeps the callee's name, so a block's method stays one function called once for each layer,
and a library `op` stays a named operation that an emitter may have a kernel for (its body remains
its definition). The operands of a call are its arguments, then the callee's weights, then its
states; its outputs are the callee's results, then its new states.

`OPS` below is the whole set of operations; `verify` checks a module against it, `print_module`
writes it as text, and `interpreter.py` says what each one means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from linnet.dtypes import DType


@dataclass(frozen=True, slots=True)
class TensorType:
    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """One tensor, assigned once; compared by identity. `name` is unique in its function."""

    name: str
    type: TensorType

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


Attr = int | float | bool | str | DType | tuple[int, ...] | tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Op:
    """One operation; `kind` is a key of `OPS`, which says what `attrs` it takes."""

    kind: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    location: str = ""
    """Where in the source it comes from: `model.linnet:12:5`."""

    @property
    def output(self) -> Value:
        (only,) = self.outputs
        return only

    # Attributes by the type that `OPS` says they have.

    def integer(self, name: str) -> int:
        return self.attrs[name]  # type: ignore[return-value]

    def integers(self, name: str) -> tuple[int, ...]:
        return self.attrs[name]  # type: ignore[return-value]

    def axis_pairs(self, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.attrs[name]  # type: ignore[return-value]

    def text(self, name: str) -> str:
        return self.attrs[name]  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Slot:
    """A weight or state that a function uses, by its path relative to the function's block.

    `kind` is `param`, `buffer`, `state`, or `derived`: computed once from weights by the module's
    `prepare` function (the path then starts with `@`: `@inverse_frequency` in the function that
    uses it, `@layers.3.inverse_frequency` in a caller).
    """

    path: str
    kind: str
    value: Value


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    """Unique in its module and an identifier: `layer_forward`, `linear`, `linear_2`."""
    source: str
    """The key of what it was lowered from (`std.nn.linear::linear`); a region says whose it is."""
    kind: str
    """`entry`, `method`, `fn`, `op`, or `region` (the body or condition of a loop or branch)."""
    generics: tuple[tuple[str, int | DType | tuple[int, ...]], ...]
    """What the generics of its block, then its own, are bound to."""
    inputs: tuple[Value, ...]
    """Arguments in source order, flattened, absent optionals left out."""
    weights: tuple[Slot, ...]
    states: tuple[Slot, ...]
    ops: tuple[Op, ...]
    results: tuple[Value, ...]
    new_states: tuple[Value, ...]
    """One for each of `states`, in order; the old value itself where it does not change."""
    arguments: tuple[str, ...] = ()
    """For each of `inputs`, the name of the source parameter it belongs to; tells kernels which
    optional arguments were given."""
    location: str = ""
    """Where its source is declared: `model.linnet:12:5`."""

    @property
    def operands(self) -> tuple[Value, ...]:
        """All that a call passes: inputs, weights, states."""
        return (
            *self.inputs,
            *(slot.value for slot in self.weights),
            *(slot.value for slot in self.states),
        )

    @property
    def returns(self) -> tuple[Value, ...]:
        """All that a call gives back: results, new states."""
        return (*self.results, *self.new_states)

    def bound(self, name: str) -> int | DType | tuple[int, ...]:
        """What a generic is bound to; raises `KeyError`."""
        return dict(self.generics)[name]


@dataclass(frozen=True, slots=True)
class Module:
    """An entry with all that it calls, callees before callers."""

    functions: Mapping[str, Function]
    entry: str
    prepare: Function | None = None
    """Weight-only work, run once: takes weights, and `results[i]` is the derived value for the
    entry's `derived` slot of path `derived[i]`."""
    derived: tuple[str, ...] = ()

    @property
    def main(self) -> Function:
        return self.functions[self.entry]


# --- the operations -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpDef:
    """`arity` -1 means any number of inputs."""

    group: str
    arity: int
    attrs: tuple[str, ...]
    meaning: str


def _group(group: str, arity: int, names: str, meaning: str) -> dict[str, OpDef]:
    return {name: OpDef(group, arity, (), meaning) for name in names.split()}


OPS: dict[str, OpDef] = {
    # Elementwise: all inputs and the output have one shape and dtype (comparisons give bool).
    **_group("unary", 1, "neg not exp log sqrt rsqrt sin cos tanh abs", "elementwise"),
    **_group("binary", 2, "add sub mul div rem min max and or xor shl shr", "elementwise"),
    **_group("compare", 2, "eq ne lt le gt ge", "elementwise, to bool"),
    "cast": OpDef("unary", 1, (), "to the output's dtype; float to integer truncates"),
    "select": OpDef("select", 3, (), "condition (bool) ? a : b, all of one shape"),
    # Shape.
    "constant": OpDef("create", 0, ("value",), "the scalar `value` in every element"),
    "iota": OpDef("create", 0, ("axis",), "the position along `axis`"),
    "reshape": OpDef("shape", 1, (), "same elements, row-major, in the output's shape"),
    "permute": OpDef("shape", 1, ("axes",), "output axis i is input axis axes[i]"),
    "broadcast": OpDef("shape", 1, ("axes",), "input axis i becomes output axis axes[i], of its "
                       "extent or stretched from 1; other output axes repeat; axes ascend"),
    "slice": OpDef("shape", 1, ("start", "stop", "step"), "start:stop:step on each axis; "
                   "0 <= start <= stop <= extent, step > 0"),
    "concat": OpDef("shape", -1, ("axis",), "along one axis"),
    # Contraction and reduction.
    "dot": OpDef("dot", 2, ("batch", "contract"), "output axes: batch, left free, right free, each "
                 "in its operand's order; `batch` and `contract` hold (left axes, right axes); "
                 "products and sums are in the output's dtype, to which inputs are cast first"),
    "reduce": OpDef("reduce", 1, ("op", "axes"), "op: sum prod max min any all; axes dropped; in "
                    "the input's dtype"),
    # Indexing by runtime integers. An index out of range is clamped to its axis.
    "gather": OpDef("gather", -1, ("axes",), "inputs: x, then one integer index tensor for each of "
                    "`axes`, all of one shape I; output shape: I, then x's other axes in order"),
    "update_slice": OpDef("update", -1, ("axes",), "inputs: x, a value of x's rank and no larger, "
                          "then one integer scalar for each of `axes`: where the value starts "
                          "there (0 on other axes), clamped so that it fits; output: x with the "
                          "value written over"),
    # Structure. `callee` etc. name functions of the module.
    "call": OpDef("call", -1, ("callee", "at"), "`at`: the path of the callee's block relative to "
                  "the caller's (`layers.3`), empty for the caller's own block or a free function"),
    "while": OpDef("while", -1, ("condition", "body", "carried", "trips"), "regions; the first "
                   "`carried` inputs are carried and are the outputs, the rest are passed to both "
                   "regions unchanged (region operands: carried, then the rest); `trips` is the "
                   "number of iterations where it is known (carried value 0 is then an i64 "
                   "counter), else -1"),
    "if": OpDef("if", -1, ("then", "otherwise"), "regions of the inputs after the first, a bool "
                "scalar"),
}  # fmt: skip


class VerifyError(ValueError):
    """A module that breaks a rule of the IR: a defect of the compiler, not of the user's source."""


_REFERENCES = {
    "call": ("callee",),
    "while": ("condition", "body"),
    "if": ("then", "otherwise"),
}


def referenced(op: Op) -> tuple[str, ...]:
    """The names of the functions an operation runs: its callee or its regions."""
    return tuple(op.text(name) for name in _REFERENCES.get(op.kind, ()))


def lift(path: str, at: str) -> str:
    """A slot's path in the caller of a block at `at`: `weight` at `layers.3` is `layers.3.weight`,
    and `@cos` is `@layers.3.cos`."""
    if not at:
        return path
    return f"@{at}.{path[1:]}" if path.startswith("@") else f"{at}.{path}"


def walk(module: Module) -> Iterator[tuple[Function, Op]]:
    """Every operation of a module with the function it stands in."""
    for function in module.functions.values():
        for op in function.ops:
            yield function, op
