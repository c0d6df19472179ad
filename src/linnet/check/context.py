"""Where an expression stands: what its names mean there, and what is known about dimensions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from linnet.check import typed
from linnet.check.dims import Dim, Facts
from linnet.check.scope import (
    PRELUDE,
    PRELUDE_FUNCTIONS,
    BlockInfo,
    Checking,
    Failed,
    Scope,
)
from linnet.check.types import FLEX_FLOAT, FLEX_INT, Flexible
from linnet.diagnostics import Diagnostics, Note, Span
from linnet.syntax import ast


@dataclass(frozen=True, slots=True)
class Flex:
    """A number without a type yet: a compile-time integer, or a float literal."""

    value: Dim | float
    span: Span

    @property
    def type(self) -> Flexible:
        return FLEX_INT if isinstance(self.value, Dim) else FLEX_FLOAT


Node = typed.Expr | Flex


@dataclass(eq=False, slots=True)
class LocalName:
    """A name declared in a body."""

    name: ast.Name
    node: typed.Local | Flex | None
    """What a use of it stands for; None where its declaration failed, and for a block."""
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


@dataclass(eq=False, slots=True)
class AffineAccess:
    """An access still to be proven in range, once the extents of its indices are known."""

    terms: list[tuple[IndexName, Dim]]
    offset: Dim
    extent: Dim
    span: Span


@dataclass(eq=False, slots=True)
class Comprehending:
    """One comprehension being checked."""

    indices: dict[str, IndexName] = field(default_factory=dict)
    pending: list[AffineAccess] = field(default_factory=list)


@dataclass(eq=False)
class Context:
    """The scope of an expression: of a body, a signature, or an item's declaration."""

    checker: Checking
    scope: Scope
    generics: dict[str, Flex | typed.DTypeVar | typed.Pack]
    facts: Facts
    block: BlockInfo | None = None
    locals: list[dict[str, LocalName]] = field(default_factory=lambda: [{}])
    index: Comprehending | None = None
    hidden: list[tuple[Comprehending, str]] = field(default_factory=list)
    """Comprehensions around a part that may not vary with their indices, and what that is."""
    loop_depth: int = 0
    loop_dims: list[str] = field(default_factory=list)
    """The variables of the `static for` ranges around, as they stand in dimensions."""
    used_names: dict[str, int] = field(default_factory=dict)
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
        self.refuse_prelude(local.name)
        level = self.locals[-1]
        shadowed = level.get(local.name.text)
        if shadowed is not None:
            self.warn_unused(shadowed)
        level[local.name.text] = local

    def refuse_prelude(self, name: ast.Name) -> None:
        if name.text in PRELUDE:
            self.diagnostics.error(
                "E1207", f"`{name.text}` is a prelude name", name.span, help="choose another name"
            )

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

    @contextmanager
    def level(self) -> Iterator[None]:
        """A level of locals, gone at its end."""
        self.locals.append({})
        try:
            yield
        finally:
            for local in self.locals.pop().values():
                self.warn_unused(local)

    def warn_unused(self, local: LocalName) -> None:
        if local.warn and not local.used and not local.name.text.startswith("_"):
            self.diagnostics.error(
                "W1002",
                f"`{local.name.text}` is never used",
                local.name.span,
                help=f"leave it out, or name it `_{local.name.text}`",
            )

    # Facts and indices.

    @contextmanager
    def assuming(self, facts: Facts) -> Iterator[None]:
        """Other facts for a while."""
        before, self.facts = self.facts, facts
        try:
            yield
        finally:
            self.facts = before

    @contextmanager
    def without_indices(self, what: str) -> Iterator[None]:
        """Out of index notation: `what` is there once, not for each element."""
        index, self.index = self.index, None
        if index is not None:
            self.hidden.append((index, what))
        try:
            yield
        finally:
            self.index = index
            if index is not None:
                self.hidden.pop()

    def refuse_hidden(self, name: str, span: Span) -> None:
        """E3104 where a name is an index that may not be used here."""
        for comprehending, what in reversed(self.hidden):
            if name in comprehending.indices:
                raise self.fail(
                    "E3104",
                    f"{what} can't vary with the index `{name}`",
                    span,
                    help="element by element there are operators, `select`, the prelude's "
                    "functions and accesses such as `x[i]`",
                )

    # Names that aren't there.

    def undeclared(self, name: str, span: Span, extra: Iterable[str] = ()) -> Failed:
        is_bad = self.block and name in self.checker.bad_members.get(self.block.key, ())
        if is_bad or self.diagnostics.is_full:
            return Failed()
        candidates = {n for level in self.locals for n in level}
        candidates |= {*self.generics, *self.scope.names(), *PRELUDE_FUNCTIONS, *extra}
        if self.block:
            candidates |= self.block.members.keys()
        help = did_you_mean(name, candidates)
        if name in STD_HOMES:
            help = f"import it: `use {STD_HOMES[name]}::{{{name}}}`"
        elif name in ELSEWHERE:
            help = f"here it is `{ELSEWHERE[name]}`"
        return self.fail("E1201", f"`{name}` is not declared", span, help=help)


_MAX_CANDIDATES = 300


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A help line with what comes close, or None."""
    near = sorted(c for c in candidates if abs(len(c) - len(name)) <= 2)[:_MAX_CANDIDATES]
    close = difflib.get_close_matches(name, near, n=2, cutoff=0.7)
    return f"did you mean {' or '.join(f'`{c}`' for c in close)}?" if close else None


ELSEWHERE = {
    "float": "f32",
    "float32": "f32",
    "float64": "f64",
    "double": "f64",
    "half": "f16",
    "float16": "f16",
    "bfloat16": "bf16",
    "int": "i64",
    "int8": "i8",
    "int32": "i32",
    "int64": "i64",
    "long": "i64",
    "uint8": "u8",
    "boolean": "bool",
    "None": "none",
    "True": "true",
    "False": "false",
    "Some": "some(x)",
    "null": "none",
    "zeros": "fill([…], 0)",
    "ones": "fill([…], 1)",
    "full": "fill([…], x)",
    "arange": "iota(N)",
    "range": "0..N",
    "cat": "concat(a, b, axis = -1)",
    "view": "reshape(x, […])",
    "expand": "broadcast_to(x, […])",
    "einsum": "let c[m, n] = sum[k] a[m, k] * b[k, n]",
    "mean": "(sum[i] x[i]) / N",
}
"""What other languages and frameworks call what is here by another name."""

STD_HOMES = {
    name: module
    for module, names in {
        "std.linalg": "dot outer matmul batched_matmul transpose",
        "std.nn.linear": "linear Linear",
        "std.nn.embedding": "embedding Embedding",
        "std.nn.norm": "rms_norm layer_norm batch_norm group_norm RmsNorm",
        "std.nn.activations": "relu sigmoid silu gelu gelu_erf",
        "std.nn.softmax": "softmax",
        "std.nn.attention": "attention grouped_attention causal_mask",
        "std.nn.rope": "rope rope_rows rope_tables rotate_half",
        "std.nn.mlp": "swiglu SwiGlu",
        "std.nn.cache": "write_at write_span write_rows",
        "std.nn.decoding": "argmax",
    }.items()
    for name in names.split()
}
"""Where the standard library keeps what people reach for first."""
