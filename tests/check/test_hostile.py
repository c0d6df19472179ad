# ruff: noqa: E501 (sources read best on one line)
"""Whatever a file holds, the checker answers with diagnostics, and soon."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.check import CheckResult, check_text
from linnet.diagnostics import Diagnostics, SourceFile, render, to_json
from linnet.syntax.tokens import tokenize
from tests.check.test_accepted import ACCEPTED, SOURCES, WHOLE_MODEL

TEXTS = [f"module m\n{source}\n" for _, source in ACCEPTED]
TEXTS += [WHOLE_MODEL]
TEXTS += [
    (SOURCES / "std" / path).read_text(encoding="utf-8")
    for path in ("random.linnet", "nn/rope.linnet", "nn/linear.linnet", "nn/cache.linnet")
]

SWAPS = [
    ["+", "-", "*", "/", "%", "==", "!=", "<=", ">=", "&&", "||", "&", "|", "^"],
    ["fn", "op", "entry"],
    ["param", "buffer", "state", "sub"],
    ["let", "var"],
    ["true", "false", "none"],
]
VALUES = [
    *("0", "1", "-1", "3", "1.5", "99999999999", "none", "x", "zz", "N", "f32", "bool", "T"),
    *("(x, x)", "x[0]", "x[i]", "some(x)", "-x", "!x", "N / 2", "N % 3", "max(N, 2)", "*S", "[N]"),
    *("sum[k] x[k]", "if c { x } else { 1 }", "match x { some(v) => v, none => 0 }", "x.y", "f(x)"),
]


def mutated(text: str, choice: random.Random) -> str:
    """A source with one to three of its tokens exchanged for others that could stand there."""
    tokens = [t for t in tokenize(SourceFile("m", text), Diagnostics()) if t.kind != "end"]
    words = [t.text for t in tokens]
    names = [t.text for t in tokens if t.kind == "name"]
    for _ in range(choice.randint(1, 3)):
        at = choice.randrange(len(words))
        swap = next((s for s in SWAPS if words[at] in s), None)
        if swap is not None:
            words[at] = choice.choice(swap)
        elif tokens[at].kind in ("name", "int", "float"):
            words[at] = choice.choice([choice.choice(names), choice.choice(VALUES)])
        elif choice.random() < 0.3:
            words[at] = choice.choice(["", *words])
    parts, end = [], 0
    for token, word in zip(tokens, words, strict=True):
        parts += [text[end : token.span.start], word]
        end = token.span.end
    return "".join(parts) + text[end:]


def hold(result: CheckResult) -> None:
    """What is true of every answer."""
    diagnostics = result.diagnostics
    assert result.ok != any(d.is_error for d in diagnostics)
    assert render(diagnostics).count("\n") >= len(diagnostics) - 1
    assert len(to_json(diagnostics)) == len(diagnostics)
    places = [(d.code, d.span.start, d.span.end) for d in diagnostics if d.span]
    assert len(places) == len(set(places))
    for d in diagnostics:
        assert d.span is None or 0 <= d.span.start <= d.span.end <= len(d.span.source.text)
        assert "?" not in d.message.replace("?`", ""), d.message


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(TEXTS), st.randoms(use_true_random=False))
def test_a_mutated_source(text: str, choice: random.Random):
    hold(check_text(mutated(text, choice)))


def chain(count: int, line: str) -> str:
    """`line` for each number, with `{i}` and the next, `{n}`, in it."""
    return "\n".join(line.format(i=i, n=i + 1) for i in range(count))


def nested(depth: int, before: str, inside: str, after: str) -> str:
    return before * depth + inside + after * depth


GENERICS = ", ".join(f"A{i}: Dim" for i in range(40))
HOSTILE = {
    "constants of constants, last first": chain(2000, "const A{i} = A{n} + 1") + "\nconst A2000 = 1",
    "constants squared": "const A0 = 3\n" + chain(60, "const A{n} = A{i} * A{i}"),
    "dimensions squared": "fn f<H: Dim>() -> i64 {\nlet a0 = H + 1\n"
    + chain(60, "let a{n} = a{i} * a{i}") + "\nreturn a60 }",
    "dimensions squared by calls":
        "fn g<N: Dim>(x: Tensor[N; f32]) -> Tensor[N * N; f32] { return fill([N * N], x[0]) }\n"
        "fn f<H: Dim>(a0: Tensor[H + 1; f32]) -> i64 {\n"
        + chain(40, "let a{n} = g(a{i})") + "\nreturn 1 }",
    "divisions of divisions": "fn f<H: Dim>() -> i64 {\nlet a0 = H + 1\n"
    + chain(300, "let a{n} = (a{i} + 1) / 3") + "\nreturn a300 }",
    "divisions multiplied": "fn f<H: Dim>() -> i64 {\nlet a0 = H + 1\n"
    + chain(60, "let a{n} = (a{i} / 2) * (a{i} / 3)") + "\nreturn a60 }",
    "minima of maxima": "fn f<A: Dim, B: Dim, C: Dim>() -> i64 {\nlet a0 = min(A, B)\n"
    + chain(60, "let a{n} = max(min(a{i} + C, B), a{i} * 2)") + "\nreturn a60 }",
    "a sum of minima": f"fn f<{GENERICS}>(x: Tensor["
    + " + ".join(f"min(A{i}, A{(i * 7 + 3) % 40})" for i in range(40)) + "; f32], y: Tensor["
    + " + ".join(f"max(A{i}, A{(i * 11 + 5) % 40})" for i in range(40))
    + "; f32]) -> Tensor[A0; f32] { return x + y }",
    "facts about everything": f"fn f<{GENERICS}>(x: Tensor[A0; f32], y: Tensor[A39 / A3; f32])"
    " -> Tensor[A1; f32] where " + ", ".join(f"A{i} > 0" for i in range(40)) + ", "
    + ", ".join(f"A{i} % A{(i * 7 + 2) % 40} == A{i + 1} / A{(i + 9) % 40}" for i in range(39))
    + " { return x + y }",
    "an index in an index": "fn f(p: Tensor[9; i64]) -> Tensor[9; i64] { let y[i] = "
    + nested(40, "p[1 + ", "p[i]", "]") + " return y }",
    "a number in a function": "fn f(x: f32) -> f32 { return "
    + nested(40, "sqrt(", "2 * 1.5", ")") + " * x }",
    "a match in a match": "fn f(x: f32?) -> f32 { return "
    + nested(20, "match x { some(_) => ", "1", ", none => 0 }") + " }",
    "a loop in a loop": "fn f<N: Dim>(x: f32) -> f32 { var y = x "
    + nested(40, "static for j in 0..N { ", "y = y + j", " }") + " return y }",
    "types of types": chain(25, "type A{i} = (A{n}, A{n})") + "\ntype A25 = f32",
    "structs of structs": chain(25, "struct A{i} {{ a: A{n} b: A{n} }}") + "\nstruct A25 { x: f32 }",
    "tuples of tuples": "fn f(a0: f32) -> i64 {\n" + chain(30, "let a{n} = (a{i}, a{i})")
    + "\nreturn 1 }",
    "blocks of blocks": chain(400, "block A{i} {{ sub a: A{n}\nsub b: A{n} }}") + "\nblock A400 { }",
    "calls of calls": chain(1500, "fn g_{i}(x: f32) -> f32 {{ return g_{n}(x) }}")
    + "\nfn g_1500(x: f32) -> f32 { return x }",
    "a power of a sum": "fn f<A: Dim, B: Dim, C: Dim, D: Dim>() -> i64 { return "
    + " * ".join(["(A + B + C + D)"] * 8) + " }",
    "mistakes without end": "fn f(x: f32) -> f32 {\n" + chain(3000, "let x{i} = y{i} * x")
    + "\nreturn x }",
}  # fmt: skip


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_source(source: str):
    hold(check_text(f"module m\n{source}\n"))
