"""What names mean: modules and their items, blocks, and the scope inside a body."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field

from linnet.check import typed
from linnet.check.dims import Dim, Facts
from linnet.check.types import FLEX_FLOAT, FLEX_INT, Flexible
from linnet.diagnostics import Diagnostics, Note, Span
from linnet.dtypes import DType
from linnet.syntax import ast

ELEMENTWISE_FLOAT = frozenset("exp log sqrt rsqrt sin cos tanh".split())
PRELUDE_FUNCTIONS = ELEMENTWISE_FLOAT | frozenset(
    "abs cast min max shl shr select reshape permute broadcast_to concat iota fill".split()
)
DTYPE_NAMES = {str(dtype): dtype for dtype in DType}
KIND_NAMES = ("Dim", "Shape", "DType", "Numeric", "Integer", "Float")
PRELUDE = PRELUDE_FUNCTIONS | frozenset(DTYPE_NAMES) | frozenset(KIND_NAMES) | {"Tensor"}


class Failed(Exception):
    """Unwinds to the statement or declaration after a mistake that was reported."""


@dataclass(frozen=True, slots=True)
class Flex:
    """A number without a type yet: a compile-time integer, or a float literal."""

    value: Dim | float
    span: Span

    @property
    def type(self) -> Flexible:
        return FLEX_INT if isinstance(self.value, Dim) else FLEX_FLOAT


Node = typed.Expr | Flex

# --- items ----------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Entity:
    """An item of a module or block; `signature` and the like are worked out when first needed."""

    kind: str
    """`const`, `type`, `struct`, `enum`, `function`, `block`."""
    key: str
    decl: ast.Item
    scope: Scope
    state: str = "new"
    """`new`, `busy` (being worked out: a second visit is a cycle), `done`, `bad`."""
    resolved: object = None

    @property
    def name(self) -> ast.Name:
        return self.decl.name


@dataclass(eq=False, slots=True)
class Import:
    """A name that a `use` brought in, and whether it was needed."""

    target: Entity
    name: ast.Name
    used: bool = False


@dataclass(eq=False, slots=True)
class Scope:
    """The names of a module, or of a block inside it."""

    name: str
    file: ast.File
    items: dict[str, Entity] = field(default_factory=dict)
    imports: dict[str, Import] = field(default_factory=dict)
    broken_imports: set[str] = field(default_factory=set)
    """Names whose import failed and was reported: using them is no second mistake."""
    parent: Scope | None = None
    block: Entity | None = None

    @property
    def module(self) -> str:
        return self.parent.module if self.parent else self.name

    def find(self, name: str) -> Entity | None:
        if name in self.items:
            return self.items[name]
        if name in self.imports:
            self.imports[name].used = True
            return self.imports[name].target
        if name in self.broken_imports:
            raise Failed
        return self.parent.find(name) if self.parent else None

    def names(self) -> list[str]:
        own = [*self.items, *self.imports]
        return own + self.parent.names() if self.parent else own


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's or struct constructor's outside, in its own generics."""

    generics: tuple[typed.GenericParam, ...]
    params: tuple[typed.Param, ...]
    result: typed.Type | None
    where: tuple[tuple[typed.Fact, Span], ...]
    facts: Facts


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """A block's outside: what its users and its methods see."""

    key: str
    generics: tuple[typed.GenericParam, ...]
    where: tuple[tuple[typed.Fact, Span], ...]
    facts: Facts
    members: dict[str, typed.Member]
    scope: Scope


# --- inside a body --------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class LocalName:
    """A name declared in a body."""

    name: ast.Name
    node: Node | None
    """What a use of it stands for; None where its declaration failed."""
    mutable: bool = False
    block: tuple[typed.BlockRef, typed.BlockT] | None = None
    """For a name bound to a sub-block."""
    used: bool = False
    warn: bool = False


@dataclass(eq=False, slots=True)
class IndexName:
    """An index of a comprehension: its extent is known once something is accessed by it."""

    name: str
    span: Span
    is_pack: bool
    extent: Dim | typed.Shape | None = None
    extent_span: Span | None = None
    used: bool = False


@dataclass(eq=False, slots=True)
class Comprehending:
    """One comprehension being checked: its indices, and the affine accesses still to prove."""

    indices: dict[str, IndexName] = field(default_factory=dict)
    pending: list[tuple[list[tuple[IndexName, Dim]], Dim, Dim, Span]] = field(
        default_factory=list
    )
    """Terms, offset, the axis's extent, and where."""


@dataclass(eq=False)
class Context:
    """Where an expression stands: what its names mean and what is known there."""

    checker: Checking
    scope: Scope
    generics: dict[str, Flex | typed.DTypeVar | typed.Pack]
    facts: Facts
    block: BlockInfo | None = None
    function: Entity | None = None
    locals: list[dict[str, LocalName]] = field(default_factory=lambda: [{}])
    index: Comprehending | None = None
    loop_depth: int = 0
    used_names: dict[str, int] = field(default_factory=dict)
    used_members: set[str] = field(default_factory=set)
    calls: dict[str, Span] = field(default_factory=dict)

    @property
    def diagnostics(self) -> Diagnostics:
        return self.checker.diagnostics

    def fail(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        label: str = "",
        notes: Iterable[Note] = (),
        help: str | None = None,
    ) -> Failed:
        """Reports; to be raised by the caller."""
        self.diagnostics.error(code, message, span, label=label, notes=notes, help=help)
        return Failed()

    # Locals.

    def declare(self, local: LocalName) -> None:
        if local.name.text in PRELUDE:
            self.diagnostics.error(
                "E1207", f"`{local.name.text}` is a prelude name", local.name.span,
                help="choose another name",
            )  # fmt: skip
        self.locals[-1][local.name.text] = local

    def unique(self, name: str) -> str:
        """A name no other local of the function has: `x`, then `x.1`, `x.2`."""
        seen = self.used_names.get(name, 0)
        self.used_names[name] = seen + 1
        return f"{name}.{seen}" if seen else name

    def local(self, name: str) -> LocalName | None:
        for level in reversed(self.locals):
            if name in level:
                return level[name]
        return None

    def push(self) -> None:
        self.locals.append({})

    def pop(self) -> None:
        self.warn_unused(self.locals.pop())

    def warn_unused(self, level: dict[str, LocalName]) -> None:
        for local in level.values():
            if local.warn and not local.used and not local.name.text.startswith("_"):
                self.diagnostics.error(
                    "W1002", f"`{local.name.text}` is never used", local.name.span,
                    help=f"leave it out, or name it `_{local.name.text}`",
                )  # fmt: skip

    def undeclared(self, name: str, span: Span, extra: Iterable[str] = ()) -> Failed:
        if self.block is not None and name in self.checker.bad_members.get(self.block.key, ()):
            return Failed()
        candidates = [n for level in self.locals for n in level]
        candidates += [*self.generics, *self.scope.names(), *PRELUDE_FUNCTIONS, *extra]
        if self.block:
            candidates += self.block.members
        close = difflib.get_close_matches(name, candidates, n=2, cutoff=0.7)
        help = f"did you mean {' or '.join(f'`{c}`' for c in close)}?" if close else None
        if help is None and name in STD_HOMES:
            help = f"import it: `use {STD_HOMES[name]}::{{{name}}}`"
        return self.fail("E1201", f"`{name}` is not declared", span, help=help)


STD_HOMES = {
    "linear": "std.nn.linear", "Linear": "std.nn.linear", "matmul": "std.linalg",
    "Embedding": "std.nn.embedding", "RmsNorm": "std.nn.norm", "rms_norm": "std.nn.norm",
    "softmax": "std.nn.softmax", "attention": "std.nn.attention", "SwiGlu": "std.nn.mlp",
    "grouped_attention": "std.nn.attention", "causal_mask": "std.nn.attention",
    "rope": "std.nn.rope", "silu": "std.nn.activations", "gelu": "std.nn.activations",
    "relu": "std.nn.activations", "sigmoid": "std.nn.activations", "argmax": "std.nn.decoding",
}  # fmt: skip
"""Where the standard library keeps what people reach for first."""


@dataclass(eq=False)
class Checking:
    """One run over a program: all its modules, and what has been worked out."""

    diagnostics: Diagnostics
    modules: dict[str, Scope] = field(default_factory=dict)
    functions: dict[str, typed.Function] = field(default_factory=dict)
    blocks: dict[str, typed.Block] = field(default_factory=dict)
    calls: dict[str, dict[str, Span]] = field(default_factory=dict)
    """For a function's key, the functions it calls and where."""
    subs: dict[str, dict[str, Span]] = field(default_factory=dict)
    """For a block's key, the blocks its members are made of and where."""
    block_entities: dict[str, Entity] = field(default_factory=dict)
    block_scopes: dict[str, Scope] = field(default_factory=dict)
    bad_members: dict[str, set[str]] = field(default_factory=dict)
    """Members whose declaration failed: using one is no second mistake."""
    used_members: dict[str, set[str]] = field(default_factory=dict)
    """For a block's key, the members its own methods use."""
    outside_members: dict[str, set[str]] = field(default_factory=dict)
    """The same for members that other blocks read."""
