"""What names mean outside of bodies: modules, their items and imports, blocks.

An item may use any other, in any order and module, so its outside (a constant's value, a type, a
signature, a block's members) is worked out when it is first asked for: `outline`. Meeting an item
that is still being worked out is a cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from linnet.check import typed
from linnet.check.dims import Facts
from linnet.diagnostics import Diagnostics, Span
from linnet.dtypes import DType
from linnet.syntax import ast

ELEMENTWISE_FLOAT = frozenset({"exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh"})
PRELUDE_FUNCTIONS = ELEMENTWISE_FLOAT | {
    *("abs", "cast", "min", "max", "shl", "shr", "select"),
    *("reshape", "permute", "broadcast_to", "concat", "iota", "fill"),
}
DTYPE_NAMES = {str(dtype): dtype for dtype in DType}
KIND_NAMES = ("Dim", "Shape", "DType", "Numeric", "Integer", "Float")
PRELUDE_TYPES = frozenset(DTYPE_NAMES) | frozenset(KIND_NAMES) | {"Tensor"}
PRELUDE = PRELUDE_FUNCTIONS | PRELUDE_TYPES


class Failed(Exception):
    """Unwinds to the statement or declaration after a mistake that was reported."""


# --- items and the scopes they stand in -----------------------------------------------------


@dataclass(eq=False, slots=True)
class Entity:
    """An item of a module or block."""

    kind: str
    """`const`, `type`, `struct`, `enum`, `function`, `block`."""
    key: str
    decl: ast.Item
    scope: Scope
    state: str = "new"
    """`new`, `busy` (its outside is being worked out), `done`, `bad`."""
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
class ModuleImport:
    """A whole module that a `use` brought in, for `module.item`."""

    target: Scope
    name: ast.Name
    used: bool = False


@dataclass(eq=False, slots=True)
class Scope:
    """The names of a module, or of a block inside it."""

    name: str
    """The module's."""
    file: ast.File
    items: dict[str, Entity] = field(default_factory=dict)
    imports: dict[str, Import] = field(default_factory=dict)
    modules: dict[str, ModuleImport] = field(default_factory=dict)
    broken_imports: set[str] = field(default_factory=set)
    """Names whose import failed and was reported: using them is no second mistake."""
    parent: Scope | None = None
    block: Entity | None = None

    def find(self, name: str) -> Entity | None:
        """The item of this name, here or further out."""
        if name in self.items:
            return self.items[name]
        if name in self.imports:
            self.imports[name].used = True
            return self.imports[name].target
        if name in self.broken_imports:
            raise Failed
        return self.parent.find(name) if self.parent else None

    def find_module(self, name: str) -> Scope | None:
        """The module imported whole under this name."""
        if name in self.modules:
            self.modules[name].used = True
            return self.modules[name].target
        if name in self.broken_imports:
            raise Failed
        return self.parent.find_module(name) if self.parent else None

    def names(self) -> list[str]:
        own = [*self.items, *self.imports, *self.modules]
        return own + self.parent.names() if self.parent else own


# --- outsides -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's or struct constructor's outside, in its own generics."""

    generics: tuple[typed.GenericParam, ...]
    params: tuple[typed.Param, ...]
    result: typed.Type | None
    where: tuple[tuple[typed.Fact, Span], ...]
    facts: Facts
    """What its body knows: the `where` clauses, and that its arguments exist."""


@dataclass(frozen=True, slots=True)
class AliasInfo:
    """What a `type` stands for, in its own generics."""

    generics: tuple[typed.GenericParam, ...]
    target: typed.Type


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """A block's outside: what its users and its methods see."""

    key: str
    generics: tuple[typed.GenericParam, ...]
    where: tuple[tuple[typed.Fact, Span], ...]
    facts: Facts
    members: dict[str, typed.Member]
    scope: Scope
    """Its methods and other items."""


@dataclass(frozen=True, slots=True)
class Outline:
    """How the outside of a kind of item is worked out, and what a cycle of them is called."""

    work: Callable[[Checking, Entity], object]
    code: str
    cycle: str
    """The message, with `{name}` in it."""


OUTLINES: dict[str, Outline] = {}
"""By the kind of item; filled where each kind is checked."""


def outline(checker: Checking, entity: Entity) -> Any:
    """An item's outside: a constant's `Node`, an `AliasInfo`, `Signature`, `BlockInfo`, `EnumT`."""
    if entity.state == "done":
        return entity.resolved
    if entity.state == "bad":
        raise Failed
    how = OUTLINES[entity.kind]
    if entity.state == "busy":
        message = how.cycle.format(name=entity.name.text)
        checker.diagnostics.error(how.code, message, entity.name.span)
        raise Failed
    entity.state = "busy"
    try:
        entity.resolved = how.work(checker, entity)
    except BaseException:
        entity.state = "bad"
        raise
    entity.state = "done"
    return entity.resolved


# --- the whole run --------------------------------------------------------------------------


@dataclass(eq=False)
class Checking:
    """One run over a program: all its modules, and what has been found out."""

    diagnostics: Diagnostics
    modules: dict[str, Scope] = field(default_factory=dict)
    functions: dict[str, typed.Function] = field(default_factory=dict)
    calls: dict[str, dict[str, Span]] = field(default_factory=dict)
    """For a function's key, the functions it calls and where."""
    blocks: dict[str, Entity] = field(default_factory=dict)
    block_scopes: dict[str, Scope] = field(default_factory=dict)
    half_made: dict[str, BlockInfo] = field(default_factory=dict)
    """Blocks whose members are being worked out, as their own items see them meanwhile."""
    bad_members: dict[str, set[str]] = field(default_factory=dict)
    """For a block's key, members whose declaration failed: using one is no second mistake."""
    used_members: dict[str, set[str]] = field(default_factory=dict)
    """For a block's key, the members that some method reads."""
