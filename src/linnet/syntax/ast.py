"""The syntax tree: what the parser makes of one file, with a span on every node.

The tree says what was written and nothing more: names are not resolved, dimensions are plain
expressions, and a literal has no type yet. The checker turns it into the typed program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar, dataclass_transform

from linnet.diagnostics import Span

C = TypeVar("C")


@dataclass_transform(frozen_default=True)
def node(cls: type[C]) -> type[C]:
    """A dataclass with slots, compared by identity, that no pass may change.

    Every generated method costs start-up time, and there are many kinds of node: those that no
    pass needs (`==`, `repr`) are left out, and the type checker alone holds them frozen.
    """
    return dataclass(slots=True, eq=False, repr=False)(cls)


# --- names and types ------------------------------------------------------------------------


@node
class Name:
    text: str
    span: Span


@node
class TensorType:
    """`Tensor[*S, In; T]`; a dimension is an expression or a `Spread` of a shape generic."""

    dims: tuple[Expr, ...]
    dtype: Name
    span: Span


@node
class NamedType:
    """A dtype, alias, struct, enum or block by name, with generic arguments where written."""

    path: tuple[Name, ...]
    generics: tuple[GenericArg, ...] | None
    span: Span


@node
class TupleType:
    items: tuple[Type, ...]
    span: Span


@node
class ArrayType:
    """`[Layer<…>; Layers]`."""

    item: Type
    count: Expr
    span: Span


@node
class OptionalType:
    inner: Type
    span: Span


Type = TensorType | NamedType | TupleType | ArrayType | OptionalType

GenericArg: TypeAlias = "Type | Expr"
"""What stands between `<` and `>`: a type where it can only be one, else an expression.

A bare name may be a dimension or a dtype, which the parser can't know: it gives a `NameExpr`.
A shape generic's argument is a `Spread` (`*S`) or an `ArrayExpr` (`[B, S]`)."""

# --- expressions ----------------------------------------------------------------------------


@node
class IntLiteral:
    value: int
    span: Span


@node
class FloatLiteral:
    value: float
    span: Span


@node
class BoolLiteral:
    value: bool
    span: Span


@node
class StringLiteral:
    value: str
    span: Span


@node
class NameExpr:
    text: str
    span: Span


@node
class TupleExpr:
    """`(a, b)`, `(a,)`, `()`."""

    items: tuple[Expr, ...]
    span: Span


@node
class ArrayExpr:
    """`[B, S, H]`: the dimensions or axes of `reshape`, `permute`, `fill`."""

    items: tuple[Expr, ...]
    span: Span


@node
class SomeExpr:
    value: Expr
    span: Span


@node
class NoneExpr:
    span: Span


@node
class Unary:
    op: str
    """`!`, `-` or `+`."""
    operand: Expr
    span: Span


@node
class Binary:
    op: str
    left: Expr
    right: Expr
    span: Span
    op_span: Span


@node
class Arg:
    """A call's argument; `name` where it was given by keyword."""

    name: Name | None
    value: Expr
    span: Span


@node
class Call:
    callee: Expr
    """A `NameExpr`, or a `Field` for a method of a sub-block."""
    generics: tuple[GenericArg, ...] | None
    args: tuple[Arg, ...]
    span: Span


@node
class Field:
    base: Expr
    name: Name
    span: Span


@node
class EllipsisMark:
    """`...` among index components."""

    span: Span


@node
class Spread:
    """`*s`: a pack of axes in an index, a dimension list or generic arguments."""

    name: Name
    span: Span


@node
class SliceRange:
    """`start:stop:step`, each optional."""

    start: Expr | None
    stop: Expr | None
    step: Expr | None
    span: Span


@node
class Index:
    """`base[…]`: an access in index notation, a slice, or an element of a sub-block array."""

    base: Expr
    components: tuple[Expr | EllipsisMark | SliceRange, ...]
    span: Span


@node
class Reduction:
    """`sum<f32>[k, j] body`."""

    op: str
    dtype: Name | None
    indices: tuple[Name, ...]
    body: Expr
    span: Span


@node
class IfExpr:
    condition: Expr
    then: Expr
    otherwise: Expr
    span: Span


@node
class SomePattern:
    inner: Pattern
    span: Span


@node
class NonePattern:
    span: Span


@node
class NamePattern:
    """A name to bind; in a `match` over an enum, a variant."""

    name: Name

    @property
    def span(self) -> Span:
        return self.name.span


@node
class TuplePattern:
    items: tuple[Pattern, ...]
    span: Span


Pattern = NamePattern | TuplePattern | SomePattern | NonePattern


@node
class Arm:
    pattern: Pattern
    value: Expr
    span: Span


@node
class MatchExpr:
    subject: Expr
    arms: tuple[Arm, ...]
    span: Span


@node
class ErrorExpr:
    """Stands where the parser could not make an expression; already reported."""

    span: Span


Expr = (
    IntLiteral
    | FloatLiteral
    | BoolLiteral
    | StringLiteral
    | NameExpr
    | TupleExpr
    | ArrayExpr
    | SomeExpr
    | NoneExpr
    | Unary
    | Binary
    | Call
    | Field
    | Spread
    | Index
    | Reduction
    | IfExpr
    | MatchExpr
    | ErrorExpr
)

# --- statements -----------------------------------------------------------------------------


@node
class Let:
    pattern: Pattern
    type: Type | None
    value: Expr
    span: Span


@node
class LetIndexed:
    """`let c[m, *s] = …`: a tensor defined element by element."""

    name: Name
    indices: tuple[Name | Spread, ...]
    value: Expr
    span: Span


@node
class Var:
    name: Name
    type: Type | None
    value: Expr
    span: Span


@node
class Assign:
    name: Name
    value: Expr
    span: Span


@node
class Return:
    value: Expr | None
    span: Span


@node
class StaticFor:
    """`static for layer in layers { … }`, or over `lo..hi` when `stop` is given."""

    pattern: Pattern
    iterable: Expr
    stop: Expr | None
    body: Body
    span: Span


@node
class While:
    condition: Expr
    body: Body
    span: Span


@node
class For:
    """`for i in lo..hi { … }`; with `result`, a scan: `let ys = for i in lo..hi { … yield y }`."""

    result: Name | None
    index: Name
    start: Expr
    stop: Expr
    body: Body
    span: Span


@node
class Yield:
    value: Expr
    span: Span


Stmt = Let | LetIndexed | Var | Assign | Return | StaticFor | While | For | Yield


@node
class Body:
    statements: tuple[Stmt, ...]
    span: Span


# --- items ----------------------------------------------------------------------------------


@node
class UseName:
    name: Name
    alias: Name | None


@node
class Use:
    """`use std.nn.linear::{linear, Linear as L}`; no `names` means the module itself."""

    path: tuple[Name, ...]
    names: tuple[UseName, ...]
    span: Span


@node
class Generic:
    """`H: Dim`, `*S: Shape`, `T: Float = bf16`."""

    name: Name
    pack: bool
    kind: Name
    default: GenericArg | None
    span: Span


@node
class Param:
    name: Name
    type: Type
    default: Expr | None
    span: Span


@node
class Fact:
    """One comparison of a `where` clause."""

    op: str
    left: Expr
    right: Expr
    span: Span


@node
class Const:
    public: bool
    name: Name
    type: Type | None
    value: Expr
    doc: str | None
    span: Span


@node
class Alias:
    public: bool
    name: Name
    generics: tuple[Generic, ...]
    type: Type
    doc: str | None
    span: Span


@node
class StructField:
    name: Name
    type: Type
    span: Span


@node
class Struct:
    public: bool
    name: Name
    generics: tuple[Generic, ...]
    fields: tuple[StructField, ...]
    doc: str | None
    span: Span


@node
class Enum:
    public: bool
    name: Name
    variants: tuple[Name, ...]
    doc: str | None
    span: Span


@node
class Grad:
    """`grad(y, dy) { … }` after an op's body: its backward pass."""

    result: Name
    cotangent: Name
    body: Body
    span: Span


@node
class Function:
    public: bool
    kind: str
    """`fn`, `op` or `entry`."""
    name: Name
    generics: tuple[Generic, ...]
    params: tuple[Param, ...]
    result: Type | None
    where: tuple[Fact, ...]
    body: Body
    grad: Grad | None
    doc: str | None
    span: Span


@node
class Member:
    kind: str
    """`param`, `buffer`, `state` or `sub`."""
    name: Name
    type: Type
    default: Expr | None
    """`= none` marks an optional member; anything else is for the checker to refuse."""
    doc: str | None
    span: Span


@node
class Block:
    public: bool
    name: Name
    generics: tuple[Generic, ...]
    where: tuple[Fact, ...]
    members: tuple[Member, ...]
    items: tuple[Item, ...]
    """Methods and entries, and whatever else was declared inside, in source order."""
    doc: str | None
    span: Span


Item = Const | Alias | Struct | Enum | Function | Block


@node
class File:
    module: tuple[Name, ...]
    uses: tuple[Use, ...]
    items: tuple[Item, ...]
    span: Span
