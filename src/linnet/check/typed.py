"""The typed program: what the checker proves and hands to lowering.

Every name is resolved, every generic argument is written out, every literal has its dtype, defaults
and keyword arguments are in place, and every shape is a tuple of `Dim`s over the generics in scope.
Lowering needs no lookup and no inference: it binds generics to integers and walks these nodes.

Conventions
- A function or block is named by a *key*: `std.nn.linear::linear`, `crate::Llama`,
  `crate::Llama.decode` (a method: its block's key, a dot, its name).
- The variables of a `Dim` are the names of the `Dim` generics in scope (of the block, then of the
  function) and of `static for` range variables. A callee's generics are bound at each call.
- Local names are unique in a function: a shadowing `x` becomes `x.1`.
- A compile-time integer (`let d = H / 2`) leaves no node of its own: its uses hold the `Dim`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from linnet.check.dims import Dim
from linnet.diagnostics import Diagnostic, Span
from linnet.dtypes import DType
from linnet.syntax.ast import node

# --- types ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DTypeVar:
    """A dtype generic, of kind `DType`, `Numeric`, `Integer` or `Float`."""

    name: str
    kind: str

    def __str__(self) -> str:
        return self.name


AnyDType = DType | DTypeVar


@dataclass(frozen=True, slots=True)
class Pack:
    """A shape generic standing for any number of leading axes: `*S`."""

    name: str

    def __str__(self) -> str:
        return f"*{self.name}"


ShapeItem = Dim | Pack
Shape = tuple[ShapeItem, ...]


@dataclass(frozen=True, slots=True)
class TensorT:
    """A tensor; with an empty shape, a scalar."""

    shape: Shape
    dtype: AnyDType


@dataclass(frozen=True, slots=True)
class OptionalT:
    inner: Type


@dataclass(frozen=True, slots=True)
class TupleT:
    items: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class StructT:
    """A struct with its generics filled in; `fields` in declaration order."""

    key: str
    fields: tuple[tuple[str, Type], ...]


@dataclass(frozen=True, slots=True)
class EnumT:
    key: str
    variants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlockT:
    """The type of a sub-block; never the type of a value."""

    key: str
    generics: GenericArgs


@dataclass(frozen=True, slots=True)
class ArrayT:
    """An array of blocks, in a `sub` only."""

    item: BlockT
    count: Dim


Type = TensorT | OptionalT | TupleT | StructT | EnumT | BlockT | ArrayT

GenericValue = Dim | DType | DTypeVar | tuple[ShapeItem, ...]
GenericArgs = tuple[tuple[str, GenericValue], ...]
"""Generic arguments by the callee's generic names, in declaration order."""

# --- expressions ----------------------------------------------------------------------------
# Every expression has `.type` and `.span`.


@node
class Literal:
    """A scalar constant of a dtype (which may still be generic)."""

    value: int | float | bool
    type: TensorT
    span: Span


@node
class DimValue:
    """A compile-time integer used as a scalar value of a numeric dtype."""

    dim: Dim
    type: TensorT
    span: Span


@node
class DimCompare:
    """A comparison of compile-time integers, as a `bool` that is known once generics are bound."""

    op: str
    """`==`, `!=`, `<`, `<=`, `>`, `>=`."""
    left: Dim
    right: Dim
    type: TensorT
    span: Span


@node
class Local:
    """A parameter, `let`, `var`, pattern binding, or the index of a runtime `for`."""

    name: str
    type: Type
    span: Span


@dataclass(frozen=True, slots=True)
class SelfBlock:
    """The block whose method is running."""


@dataclass(frozen=True, slots=True)
class SubBlock:
    """A child of a block; `index` for an element of an array of children."""

    base: BlockRef
    name: str
    index: Dim | None


@dataclass(frozen=True, slots=True)
class BoundBlock:
    """A block named by `static for layer in layers` or `some(head) =>`."""

    name: str


BlockRef = SelfBlock | SubBlock | BoundBlock


@node
class MemberRead:
    """A `param`, `buffer` or `state`, of this block or (weights only) of a child's."""

    block: BlockRef
    name: str
    type: Type
    span: Span


@node
class Call:
    """A call of a `fn`, `op`, or of a method when `block` is given.

    `args` are one per parameter, in declaration order, defaults filled in.
    """

    function: str
    block: BlockRef | None
    generics: GenericArgs
    """The callee's own generics; a method's block generics come with the block."""
    args: tuple[Expr, ...]
    type: Type
    span: Span


@node
class Prim:
    """An operator or prelude function.

    Elementwise, broadcasting right-aligned to `type.shape`:
      neg not exp log sqrt rsqrt sin cos tanh abs · add sub mul div rem min max and or xor shl shr
      eq ne lt le gt ge · select (condition, a, b) · cast (to `type.dtype`)
      (`not`, `and`, `or` are logical on bool, bitwise on integers; `&&` and `||` arrive as and/or.)
    Shape: reshape, broadcast_to, iota, fill (to `type`; `fill` takes its value as argument) ·
      permute (`axes`: one position per axis) · concat (`axes`: one, negative from the end).
    """

    op: str
    args: tuple[Expr, ...]
    axes: tuple[int, ...]
    type: TensorT
    span: Span


@dataclass(frozen=True, slots=True)
class Keep:
    """A whole axis, or all axes of a pack."""


@dataclass(frozen=True, slots=True)
class Range:
    start: Dim
    stop: Dim
    step: int


@node
class At:
    """One element of an axis, which is dropped: by a compile-time or a runtime integer."""

    index: Dim | Expr


@node
class Slice:
    """`x[0, :, 1:3]`; one item for each item of the base's shape."""

    base: Expr
    items: tuple[Keep | Range | At, ...]
    type: TensorT
    span: Span


@node
class If:
    condition: Expr
    then: Expr
    otherwise: Expr
    type: Type
    span: Span


@node
class Some:
    value: Expr
    type: OptionalT
    span: Span


@node
class NoneValue:
    type: OptionalT
    span: Span


@node
class MatchOptional:
    """`match x { some(p) => a, none => b }` over an optional value."""

    subject: Expr
    pattern: Pattern
    some: Expr
    none: Expr
    type: Type
    span: Span


@node
class MatchSub:
    """The same over an optional sub-block, which `some` binds as the `BoundBlock` `name`."""

    block: SubBlock
    name: str
    some: Expr
    none: Expr
    type: Type
    span: Span


@node
class MatchEnum:
    subject: Expr
    arms: tuple[Expr, ...]
    """One for each variant, in declaration order."""
    type: Type
    span: Span


@node
class EnumValue:
    variant: int
    type: EnumT
    span: Span


@node
class MakeTuple:
    """A tuple or a struct (fields in declaration order)."""

    items: tuple[Expr, ...]
    type: TupleT | StructT
    span: Span


@node
class GetField:
    """A struct's field by position."""

    base: Expr
    index: int
    type: Type
    span: Span


# Index notation. Inside a comprehension's body expressions are scalars that vary with the indices.


@dataclass(frozen=True, slots=True)
class Affine:
    """`2 * i + k + 1`: index names with coefficients, and an offset; proven in range."""

    terms: tuple[tuple[str, Dim], ...]
    offset: Dim


@dataclass(frozen=True, slots=True)
class PackSubscript:
    """`*s`: a pack of indices over a run of axes."""

    name: str


@node
class Access:
    """`a[m, labels[b], *s]`; one subscript for each axis, an `Expr` being a runtime integer."""

    base: Expr
    """Varies with no index."""
    subscripts: tuple[Affine | PackSubscript | Expr, ...]
    type: TensorT
    span: Span


@node
class Reduce:
    """`sum<f32>[k] body`; `op` is sum, prod, max, min, any or all.

    The body has the result's dtype.
    """

    op: str
    indices: tuple[tuple[str, Dim], ...]
    body: Expr
    type: TensorT
    span: Span


@node
class Comprehension:
    """`let c[m, *s] = body`: each output index with its extent, a pack with its axes."""

    indices: tuple[tuple[str, Dim | Shape], ...]
    body: Expr
    type: TensorT
    span: Span


Expr = (
    Literal
    | DimValue
    | DimCompare
    | Local
    | MemberRead
    | Call
    | Prim
    | Slice
    | If
    | Some
    | NoneValue
    | MatchOptional
    | MatchSub
    | MatchEnum
    | EnumValue
    | MakeTuple
    | GetField
    | Access
    | Reduce
    | Comprehension
)

# --- statements -----------------------------------------------------------------------------


@node
class BindName:
    """Binds a local; `None` for `_`."""

    name: str | None


@node
class BindTuple:
    items: tuple[Pattern, ...]


Pattern = BindName | BindTuple


@node
class Let:
    """A `let` or a `var`'s first value."""

    pattern: Pattern
    value: Expr
    span: Span


@node
class Assign:
    """A new value for a `var`."""

    name: str
    value: Expr
    span: Span


@node
class AssignState:
    """A new value for a state of the method's own block."""

    name: str
    value: Expr
    span: Span


@node
class Return:
    """Always the last statement; `None` where the function returns nothing."""

    value: Expr | None
    span: Span


@node
class StaticForBlocks:
    """`static for layer in layers`: unrolled, `name` bound to each child in turn."""

    name: str
    array: SubBlock
    count: Dim
    body: tuple[Stmt, ...]
    span: Span


@node
class StaticForRange:
    """`static for i in lo..hi`: unrolled, `name` a variable of the body's `Dim`s."""

    name: str
    start: Dim
    stop: Dim
    body: tuple[Stmt, ...]
    span: Span


@node
class While:
    condition: Expr
    body: tuple[Stmt, ...]
    span: Span


@node
class For:
    """A runtime loop, `index` an `i64`; as a scan its `Yield`s are stacked into `result`."""

    index: str
    start: Dim
    stop: Dim
    result: str | None
    result_type: TensorT | TupleT | None
    body: tuple[Stmt, ...]
    span: Span


@node
class Yield:
    """Last in a scan's body."""

    value: Expr
    span: Span


Stmt = Let | Assign | AssignState | Return | StaticForBlocks | StaticForRange | While | For | Yield

# --- declarations ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GenericParam:
    name: str
    kind: str
    """`Dim`, `Shape`, `DType`, `Numeric`, `Integer` or `Float`."""
    default: GenericValue | None


@dataclass(frozen=True, slots=True)
class Fact:
    """A `where` clause's comparison: `==`, `!=`, `<`, `<=`, `>`, `>=`."""

    op: str
    left: Dim
    right: Dim


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    type: Type
    default: Expr | None


@dataclass(frozen=True, slots=True)
class Grad:
    """Binds `result` and `cotangent`, then runs `body`, which returns the gradients."""

    result: str
    cotangent: str
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Function:
    key: str
    name: str
    kind: str
    """`fn`, `op` or `entry`."""
    block: str | None
    """The key of the block it is a method of."""
    generics: tuple[GenericParam, ...]
    params: tuple[Param, ...]
    result: Type | None
    where: tuple[Fact, ...]
    body: tuple[Stmt, ...]
    grad: Grad | None
    public: bool
    doc: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Member:
    kind: str
    """`param`, `buffer`, `state` or `sub`."""
    name: str
    type: Type
    """Without the optional marker: `optional` says it."""
    optional: bool
    doc: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Block:
    key: str
    name: str
    generics: tuple[GenericParam, ...]
    where: tuple[Fact, ...]
    members: tuple[Member, ...]
    methods: Mapping[str, str]
    """Function keys by method name, in source order; entries among them."""
    public: bool
    doc: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Program:
    """All that was reached from one root module."""

    root: str
    """The root module's name."""
    functions: Mapping[str, Function]
    blocks: Mapping[str, Block]
    diagnostics: tuple[Diagnostic, ...] = ()
    """Warnings only: a program with errors is never handed on."""
    exports: Mapping[str, str] = field(default_factory=dict)
    """The root module's public functions and blocks, by name, to their keys."""
