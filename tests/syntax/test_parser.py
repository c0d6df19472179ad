"""Tokens to trees: how operators group, what each form becomes, what belongs to what."""

from __future__ import annotations

import itertools

import pytest

from linnet.diagnostics import Diagnostics, SourceFile
from linnet.syntax import ast, parse
from linnet.syntax.expressions import PRECEDENCE
from tests.syntax.trees import expression, parsed, statements, tree
from tests.syntax.unparse import TIGHT, expr


def grouped(text: str) -> str:
    """An expression with parentheses around every operator."""

    def show(node: ast.Expr) -> str:
        match node:
            case ast.Binary():
                return f"({show(node.left)} {node.op} {show(node.right)})"
            case ast.Unary():
                return f"({node.op}{show(node.operand)})"
            case ast.Reduction():
                indices = ", ".join(i.text for i in node.indices)
                return f"({node.op}[{indices}] {show(node.body)})"
        return expr(node, TIGHT)

    return show(expression(text))


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.product(PRECEDENCE, repeat=2)), ids=str
)
def test_of_two_operators_the_tighter_groups_first(first: str, second: str) -> None:
    """All group to the left among equals."""
    left = f"((1 {first} 2) {second} 3)"
    right = f"(1 {first} (2 {second} 3))"
    expected = left if PRECEDENCE[first] >= PRECEDENCE[second] else right
    assert grouped(f"1 {first} 2 {second} 3") == expected


def test_the_order_of_the_operators() -> None:
    levels = sorted({*PRECEDENCE.values()})
    order = [" ".join(sorted(op for op in PRECEDENCE if PRECEDENCE[op] == n)) for n in levels]
    assert order == ["||", "&&", "!= ==", "< <= > >=", "|", "^", "&", "+ -", "% * /"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-a * b", "((-a) * b)"),
        ("!a && b", "((!a) && b)"),
        ("- - a", "(-(-a))"),
        ("-!+a", "(-(!(+a)))"),
        ("-x[0].y", "(-x[0].y)"),
        ("a - -b", "(a - (-b))"),
        ("a -b", "(a - b)"),
        # A reduction reaches as far right as it can.
        ("sum[k] a * b + c", "(sum[k] ((a * b) + c))"),
        ("c + sum[k] a * b + d", "(c + (sum[k] ((a * b) + d)))"),
        ("2 * sum[k] a < b", "(2 * (sum[k] (a < b)))"),
        ("(sum[k] a) * b", "((sum[k] a) * b)"),
        ("-sum[k] a + b", "(-(sum[k] (a + b)))"),
        ("max[i, j] sum[k] a", "(max[i, j] (sum[k] a))"),
        ("max(a, b) + sum", "(max(a, b) + sum)"),
    ],
)
def test_how_a_text_groups(text: str, expected: str) -> None:
    assert grouped(text) == expected


@pytest.mark.parametrize(
    ("text", "is_call"),
    [
        ("f<N>(x)", True),
        ("f<H / 2, T>(x)", True),
        ("f < N > (x)", True),
        ("a.f<N>(x)", True),
        ("cast<f32>(x)", True),
        ("f<(a < b)>(x)", True),
        ("f<g<N>(y)>(x)", True),
        ("f<*S>(x)", True),
        ("f<[B, S]>(x)", True),
        ("f<N,>(x)", True),
        ("f<a | b>(x)", True),
        ("a < b", False),
        ("a < b > c", False),
        ("a < b && c > (d)", False),
        ("a < b == c > (d)", False),
        ("a < (b > (c))", False),
        ("(a) < b > (c)", False),
        ("a[0] < b > (c)", False),
        ("f(a) < b > (c)", False),
        ("1 < b > (c)", False),
        ("a <= b > (c)", False),
        ("a < b >= (c)", False),
    ],
)
def test_a_generic_call_is_told_from_comparisons(text: str, is_call: bool) -> None:
    node = expression(text)
    if is_call:
        assert isinstance(node, ast.Call) and node.generics is not None
    else:
        assert isinstance(node, ast.Binary)


def test_a_comparison_may_stand_before_a_brace() -> None:
    node = expression("if a < b { c } else if a > (b) { d } else { e }")
    assert isinstance(node, ast.IfExpr) and isinstance(node.condition, ast.Binary)
    assert isinstance(node.otherwise, ast.IfExpr)


@pytest.mark.parametrize("text", ["sum[k] x", "sum<f32>[k] x", "any[i, j,] x", "min[k] x"])
def test_what_starts_a_reduction(text: str) -> None:
    assert isinstance(expression(text), ast.Reduction)


@pytest.mark.parametrize("text", ["sum", "max(a, b)", "sum<f32>(x)", "all + 1", "min.x", "sum < k"])
def test_what_starts_none(text: str) -> None:
    assert not isinstance(expression(text), ast.Reduction)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("x[0]", "IntLiteral"),
        ("x[:]", ":"),
        ("x[1:]", "start:"),
        ("x[:1]", ":stop"),
        ("x[0:1]", "start:stop"),
        ("x[::2]", "::step"),
        ("x[: :2]", "::step"),
        ("x[0::2]", "start::step"),
        ("x[0: :2]", "start::step"),
        ("x[0:1:2]", "start:stop:step"),
        ("x[:1:2]", ":stop:step"),
        ("x[0::]", "start:"),
        ("x[..., *s, k]", "EllipsisMark Spread NameExpr"),
        ("x[:, 0,]", ": IntLiteral"),
        ("x[a < b]", "Binary"),
    ],
)
def test_what_stands_in_an_index(text: str, shape: str) -> None:
    node = expression(text)
    assert isinstance(node, ast.Index)

    def show(part: object) -> str:
        if not isinstance(part, ast.SliceRange):
            return type(part).__name__
        step = ":step" if part.step else ""
        return ("start" if part.start else "") + ":" + ("stop" if part.stop else "") + step

    assert " ".join(map(show, node.components)) == shape


def test_parentheses_and_tuples() -> None:
    assert isinstance(expression("(a)"), ast.NameExpr)
    for text, count in {"()": 0, "(a,)": 1, "(a, b)": 2, "(a, b,)": 2}.items():
        node = expression(text)
        assert isinstance(node, ast.TupleExpr) and len(node.items) == count
    patterns = {"(a)": None, "(a,)": 1, "(a, (b, c))": 2}
    for text, count in patterns.items():
        (let,) = statements(f"let {text} = x")
        assert isinstance(let, ast.Let)
        if count is None:
            assert isinstance(let.pattern, ast.NamePattern)
        else:
            assert isinstance(let.pattern, ast.TuplePattern) and len(let.pattern.items) == count
    types = {"(f32)": None, "(f32,)": 1, "(f32, i64)": 2, "()": 0}
    for text, count in types.items():
        alias = parsed(f"module m type A = {text}").items[0]
        assert isinstance(alias, ast.Alias)
        if count is None:
            assert isinstance(alias.type, ast.NamedType)
        else:
            assert isinstance(alias.type, ast.TupleType) and len(alias.type.items) == count


def test_arguments_by_keyword() -> None:
    call = expression("concat(a, b, axis = -1)")
    assert isinstance(call, ast.Call)
    assert [a.name.text if a.name else None for a in call.args] == [None, None, "axis"]
    call = expression("f(a == b)")
    assert isinstance(call, ast.Call) and call.args[0].name is None


@pytest.mark.parametrize("comma", [",", ""])
def test_cases_delimit_themselves(comma: str) -> None:
    node = expression(
        f"match x {{ some((a, b)) => a + b{comma} Pooling.Mean => -1{comma} none => (c){comma} }}"
    )
    assert isinstance(node, ast.MatchExpr)
    kinds = [type(arm.pattern).__name__ for arm in node.arms]
    assert kinds == ["SomePattern", "NamePattern", "NonePattern"]


def test_statements_delimit_themselves() -> None:
    found = statements(
        "let a = b var c: f32 = a c = c + 1 let d[m, *s] = a[m, *s] while c < 1 { c = 2 } "
        "for i in 0..N { } let ys = for i in 0..N { yield i } static for l in layers { } "
        "static for i in 0..N { } return c"
    )
    assert [type(s).__name__ for s in found] == [
        "Let", "Var", "Assign", "LetIndexed", "While", "For", "For", "StaticFor", "StaticFor",
        "Return",
    ]  # fmt: skip
    scan = found[6]
    assert isinstance(scan, ast.For) and scan.result is not None
    assert isinstance(scan.body.statements[0], ast.Yield)


def test_a_bare_return() -> None:
    (bare,) = statements("return")
    assert isinstance(bare, ast.Return) and bare.value is None


def test_the_parts_of_a_file() -> None:
    file = parsed(
        """
        module a.b
        use std.random
        use std.nn.linear::{linear, Linear as L,}
        use crate.c::d
        /// A number.
        pub const N: i64 = 3
        type Row<H: Dim> = Tensor[H; f32]
        struct Pair { a: f32 b: f32, c: Row<3>? }
        enum Pooling { Mean, Max, }
        pub op f<*S: Shape, H: Dim = 3, T: Float = bf16,>(x: Tensor[*S, H; T], y: i64 = 1,) -> T
        where H > 0, H % 2 == 0,
        { return x } grad(y, dy) { return dy }
        entry loss() -> f32 { return 1 }
        /** What it does.
         *  In two lines. */
        pub block B<H: Dim> where H > 0 {
            /// The weight.
            param w: Tensor[H; f32] = none
            buffer b: Tensor[H; f32]
            const M = 2
            state s: Tensor[H; f32]
            sub c: [C<H>; 3]
            fn f() { return }
            pub entry g() -> f32 { return 1 }
        }
        """
    )
    assert [n.text for n in file.module] == ["a", "b"]
    uses = [
        (
            ".".join(n.text for n in u.path),
            [(n.name.text, n.alias and n.alias.text) for n in u.names],
        )
        for u in file.uses
    ]
    assert uses == [
        ("std.random", []),
        ("std.nn.linear", [("linear", None), ("Linear", "L")]),
        ("crate.c", [("d", None)]),
    ]
    const, _, struct, enum, op, _, block = file.items
    assert isinstance(const, ast.Const) and const.public and const.doc == "A number."
    assert isinstance(struct, ast.Struct) and [f.name.text for f in struct.fields] == [
        "a",
        "b",
        "c",
    ]
    assert isinstance(enum, ast.Enum) and [v.text for v in enum.variants] == ["Mean", "Max"]
    assert isinstance(op, ast.Function) and op.kind == "op" and op.grad is not None
    assert [(g.name.text, g.pack, g.kind.text) for g in op.generics] == [
        ("S", True, "Shape"), ("H", False, "Dim"), ("T", False, "Float"),
    ]  # fmt: skip
    assert [f.op for f in op.where] == [">", "=="]
    assert isinstance(block, ast.Block) and block.doc == "What it does.\nIn two lines."
    assert [m.kind for m in block.members] == ["param", "buffer", "state", "sub"]
    assert block.members[0].doc == "The weight."
    assert isinstance(block.members[0].default, ast.NoneExpr)
    assert [i.name.text for i in block.items] == ["M", "f", "g"]


def test_grad_is_an_ordinary_name_elsewhere() -> None:
    assert isinstance(expression("grad(y, dy)"), ast.Call)
    parsed("module m fn grad(y: f32) -> f32 { return y } op g() -> f32 { return 1 } fn h() { }")


def test_every_span_holds_what_its_node_was_written_as() -> None:
    text = "module m\nfn f(x: f32) -> f32 {\n    let y = g<2>(x)[0] + (1, 2).a\n    return -y\n}\n"
    found: list[ast.Expr] = []

    def collect(node: object) -> None:
        if isinstance(node, tuple):
            for part in node:
                collect(part)
        elif type(node).__module__ == ast.__name__:
            found.append(node)  # type: ignore[arg-type]
            for field in node.__dataclass_fields__:  # type: ignore[attr-defined]
                collect(getattr(node, field))

    collect(parsed(text))
    written = {node.span.text for node in found}
    assert {"let y = g<2>(x)[0] + (1, 2).a", "g<2>(x)[0]", "g<2>(x)", "-y", "return -y"} <= written
    assert {"(1, 2).a", "x: f32", "f32", "y", "2"} <= written
    assert text.strip() in {node.span.text for node in found}


def test_what_could_be_read_is_there_in_spite_of_mistakes() -> None:
    diagnostics = Diagnostics()
    text = "module m use std.a::b fn f() { let = 1 let y = 2 } fn (x) { } const N = 3 "
    file = parse(
        SourceFile("text", text.replace("fn", "\nfn").replace("const", "\nconst")), diagnostics
    )
    assert [d.code for d in diagnostics] == ["E1101", "E1101"]
    assert [i.name.text for i in file.items] == ["f", "N"]
    assert len(file.uses) == 1


def test_the_same_text_gives_the_same_tree() -> None:
    text = "module m\nfn f<N: Dim>(x: Tensor[N; f32]) -> f32 { return sum[n] x[n] }\n"
    assert tree(parsed(text)) == tree(parsed(text))
