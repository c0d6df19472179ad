"""Syntax trees compared without their spans, and random ones to compare."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

from linnet.diagnostics import Diagnostics, SourceFile, Span, render
from linnet.syntax import ast, parse
from linnet.syntax.expressions import PRECEDENCE, REDUCTIONS
from linnet.syntax.tokens import KEYWORDS, RESERVED

T = TypeVar("T")


def tree(node: object) -> object:
    """A node as nested tuples, without spans: equal for equal trees."""
    if isinstance(node, tuple):
        return tuple(map(tree, node))
    if hasattr(node, "__dataclass_fields__"):
        fields = {name: getattr(node, name) for name in node.__dataclass_fields__}  # type: ignore[attr-defined]
        children = [(n, tree(v)) for n, v in fields.items() if not isinstance(v, Span)]
        return (type(node).__name__, *children)
    return node


def parsed(text: str) -> ast.File:
    """The tree of a text that has no mistakes."""
    diagnostics = Diagnostics()
    file = parse(SourceFile("text", text), diagnostics)
    assert not list(diagnostics), render(diagnostics)
    return file


def expression(text: str) -> ast.Expr:
    """The tree of an expression."""
    const = parsed(f"module m const A = {text}").items[0]
    assert isinstance(const, ast.Const)
    return const.value


def statements(text: str) -> tuple[ast.Stmt, ...]:
    """The trees of a function's statements."""
    function = parsed(f"module m fn f() {{ {text} }}").items[0]
    assert isinstance(function, ast.Function)
    return function.body.statements


# --- random trees ---------------------------------------------------------------------------

HERE = Span(SourceFile("made", ""), 0, 0)
_WORDS = ["a", "B", "_", "x1", "Layer", "and_so_on", "moduleX", "f32", "grad_", "sums"]
_CHARS = [
    "a",
    "ß",
    "語",
    "😀",
    '"',
    "\\",
    "\n",
    "\t",
    "\r",
    "\0",
    "\x7f",
    "\u2028",
    "/*",
    "//",
    "'",
]
_MARKS = sorted(PRECEDENCE)
assert not {*_WORDS} & (KEYWORDS | RESERVED | REDUCTIONS)


class Maker:
    """Random trees, each choice from one source of chance; deeper ones get simpler."""

    def __init__(self, seed: int):
        self.random = Random(seed)
        self.depth = 0

    # Choosing.

    def pick(self, choices: list[Callable[[], T]]) -> T:
        self.depth += 1
        made = self.random.choice(choices)()
        self.depth -= 1
        return made

    def maybe(self, make: Callable[[], T]) -> T | None:
        return make() if self.random.random() < 0.5 / (1 + self.depth / 4) else None

    def several(self, make: Callable[[], T], least: int = 0) -> tuple[T, ...]:
        most = max(least, 3 - self.depth // 2)
        return tuple(make() for _ in range(self.random.randint(least, most)))

    def name(self) -> ast.Name:
        return ast.Name(self.random.choice(_WORDS), HERE)

    def doc(self) -> str | None:
        lines = ["what it is", "  indented", "", "/ slash", "größe {x} */"]
        return "\n".join(self.random.choices(lines, k=2)) if self.random.random() < 0.2 else None

    # Expressions.

    def expr(self) -> ast.Expr:
        leaves = [
            lambda: ast.NameExpr(self.name().text, HERE),
            lambda: ast.NameExpr(self.random.choice(["sum", "max", "any"]), HERE),
            lambda: ast.IntLiteral(self.random.choice([0, 1, 42, 2**63, 10**30]), HERE),
            lambda: ast.FloatLiteral(self.random.choice([0.0, 1.5, 1e-5, 1e300, 5e-324]), HERE),
            lambda: ast.BoolLiteral(self.random.random() < 0.5, HERE),
            lambda: ast.StringLiteral("".join(self.random.choices(_CHARS, k=3)), HERE),
            lambda: ast.NoneExpr(HERE),
        ]
        larger = [
            self.binary,
            self.binary,
            self.binary,
            lambda: ast.Unary(self.random.choice("!-+"), self.expr(), HERE),
            self.call,
            lambda: ast.Field(self.expr(), self.name(), HERE),
            self.index,
            lambda: ast.TupleExpr(self.several(self.expr), HERE),
            lambda: ast.ArrayExpr(self.several(self.dimension), HERE),
            lambda: ast.SomeExpr(self.expr(), HERE),
            self.reduction,
            lambda: ast.IfExpr(self.expr(), self.expr(), self.expr(), HERE),
            lambda: ast.MatchExpr(self.expr(), self.several(self.arm), HERE),
        ]
        return self.pick(leaves if self.random.randint(0, 5) < self.depth - 1 else larger)

    def binary(self) -> ast.Expr:
        return ast.Binary(self.random.choice(_MARKS), self.expr(), self.expr(), HERE, HERE)

    def call(self) -> ast.Expr:
        callee = self.pick(
            [
                lambda: ast.NameExpr(self.random.choice([*_WORDS, "max"]), HERE),
                lambda: ast.Field(self.expr(), self.name(), HERE),
            ]
        )
        generics = self.maybe(lambda: self.several(self.dimension, 1))
        return ast.Call(callee, generics, self.several(self.arg), HERE)

    def arg(self) -> ast.Arg:
        return ast.Arg(self.maybe(self.name), self.expr(), HERE)

    def index(self) -> ast.Expr:
        def component() -> ast.Expr | ast.EllipsisMark | ast.SliceRange:
            return self.pick(
                [
                    self.dimension,
                    lambda: ast.EllipsisMark(HERE),
                    lambda: ast.SliceRange(
                        self.maybe(self.expr), self.maybe(self.expr), self.maybe(self.expr), HERE
                    ),
                ]
            )

        base = self.expr()
        while isinstance(base, ast.NameExpr) and base.text in REDUCTIONS:
            base = self.expr()  # `sum[k]` would start a reduction.
        return ast.Index(base, self.several(component, 1), HERE)

    def reduction(self) -> ast.Expr:
        op = self.random.choice(sorted(REDUCTIONS))
        return ast.Reduction(
            op, self.maybe(self.name), self.several(self.name, 1), self.expr(), HERE
        )

    def arm(self) -> ast.Arm:
        return ast.Arm(self.pattern(), self.expr(), HERE)

    def spread(self) -> ast.Spread:
        return ast.Spread(self.name(), HERE)

    def dimension(self) -> ast.Expr:
        return self.spread() if self.random.random() < 0.2 else self.expr()

    # Patterns and types.

    def pattern(self) -> ast.Pattern:
        choices: list[Callable[[], ast.Pattern]] = [
            lambda: ast.NamePattern(self.name()),
            lambda: ast.NonePattern(HERE),
        ]
        if self.depth < 6:
            choices += [
                lambda: ast.SomePattern(self.pattern(), HERE),
                lambda: ast.TuplePattern(self.several(self.pattern), HERE),
            ]
        return self.pick(choices)

    def type(self) -> ast.Type:
        choices: list[Callable[[], ast.Type]] = [
            lambda: ast.TensorType(self.several(self.dimension), self.name(), HERE),
            lambda: ast.NamedType(
                self.several(self.name, 1),
                self.maybe(lambda: self.several(self.dimension, 1)),
                HERE,
            ),
        ]
        if self.depth < 5:
            choices += [
                lambda: ast.TupleType(self.several(self.type), HERE),
                lambda: ast.ArrayType(self.type(), self.expr(), HERE),
                self.optional,
            ]
        return self.pick(choices)

    def optional(self) -> ast.Type:
        inner = self.type()
        return inner if isinstance(inner, ast.OptionalType) else ast.OptionalType(inner, HERE)

    # Statements.

    def body(self) -> ast.Body:
        statements = list(self.several(self.stmt))
        if self.random.random() < 0.2:
            statements.append(ast.Return(None, HERE))
        return ast.Body(tuple(statements), HERE)

    def stmt(self) -> ast.Stmt:
        simple: list[Callable[[], ast.Stmt]] = [
            lambda: ast.Let(self.pattern(), self.maybe(self.type), self.expr(), HERE),
            lambda: ast.LetIndexed(self.name(), self.several(self.left, 1), self.expr(), HERE),
            lambda: ast.Var(self.name(), self.maybe(self.type), self.expr(), HERE),
            lambda: ast.Assign(self.name(), self.expr(), HERE),
            lambda: ast.Return(self.expr(), HERE),
            lambda: ast.Yield(self.expr(), HERE),
        ]
        loops: list[Callable[[], ast.Stmt]] = [
            lambda: ast.StaticFor(
                self.pattern(), self.expr(), self.maybe(self.expr), self.body(), HERE
            ),
            lambda: ast.While(self.expr(), self.body(), HERE),
            lambda: ast.For(
                self.maybe(self.name), self.name(), self.expr(), self.expr(), self.body(), HERE
            ),
        ]
        return self.pick(simple + loops if self.depth < 4 else simple)

    def left(self) -> ast.Name | ast.Spread:
        return self.pick([self.name, self.name, self.spread])

    # Items.

    def generics(self) -> tuple[ast.Generic, ...]:
        def generic() -> ast.Generic:
            pack = self.random.random() < 0.3
            return ast.Generic(self.name(), pack, self.name(), self.maybe(self.dimension), HERE)

        return self.several(generic)

    def where(self) -> tuple[ast.Fact, ...]:
        def fact() -> ast.Fact:
            op = self.random.choice(["==", "!=", "<", "<=", ">", ">="])
            return ast.Fact(op, self.expr(), self.expr(), HERE)

        return self.several(fact)

    def head(self) -> tuple[bool, ast.Name]:
        return self.random.random() < 0.5, self.name()

    def function(self) -> ast.Item:
        def param() -> ast.Param:
            return ast.Param(self.name(), self.type(), self.maybe(self.expr), HERE)

        kind = self.random.choice(["fn", "op", "entry"])
        grad = None
        if kind == "op":
            grad = self.maybe(lambda: ast.Grad(self.name(), self.name(), self.body(), HERE))
        public, name = self.head()
        return ast.Function(
            public, kind, name, self.generics(), self.several(param), self.maybe(self.type),
            self.where(), self.body(), grad, self.doc(), HERE,
        )  # fmt: skip

    def block(self) -> ast.Item:
        def member() -> ast.Member:
            kind = self.random.choice(["param", "buffer", "state", "sub"])
            default = self.maybe(self.expr)
            return ast.Member(kind, self.name(), self.type(), default, self.doc(), HERE)

        public, name = self.head()
        return ast.Block(
            public, name, self.generics(), self.where(), self.several(member),
            self.several(self.item), self.doc(), HERE,
        )  # fmt: skip

    def item(self) -> ast.Item:
        public, name = self.head()
        choices: list[Callable[[], ast.Item]] = [
            lambda: ast.Const(public, name, self.maybe(self.type), self.expr(), self.doc(), HERE),
            lambda: ast.Alias(public, name, self.generics(), self.type(), self.doc(), HERE),
            lambda: ast.Struct(
                public, name, self.generics(), self.several(self.field), self.doc(), HERE
            ),
            lambda: ast.Enum(public, name, self.several(self.name), self.doc(), HERE),
            self.function,
            self.function,
        ]
        return self.pick(choices if self.depth > 2 else [*choices, self.block])

    def field(self) -> ast.StructField:
        return ast.StructField(self.name(), self.type(), HERE)

    def file(self) -> ast.File:
        def use() -> ast.Use:
            return ast.Use(
                self.several(self.name, 1),
                self.several(lambda: ast.UseName(self.name(), self.maybe(self.name))),
                HERE,
            )

        return ast.File(
            self.several(self.name, 1), self.several(use), self.several(self.item), HERE
        )
