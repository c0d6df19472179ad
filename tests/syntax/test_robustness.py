"""Whatever the text, the front end ends soon, raises nothing and reports inside the text."""

from __future__ import annotations

import inspect
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import linnet
from linnet.diagnostics import MAX_ERRORS, Diagnostics, SourceFile, render, to_json
from linnet.syntax import ast, decode_source, parse, tokenize
from linnet.syntax.tokens import KEYWORDS, RESERVED
from tests.syntax import unparse
from tests.syntax.trees import parsed, tree

SOURCES = [
    path.read_text(encoding="utf-8")
    for path in sorted(Path(linnet.__file__).parent.rglob("*.linnet"))
]
PIECES = [
    *sorted(KEYWORDS), *sorted(RESERVED), *"()[]{}<>,;:.=+-*/%!&|^?", "::", "..", "...", "==",
    "!=", "<=", ">=", "=>", "->", "&&", "||", "x", "sum", "max", "Tensor", "grad", "f32",
    "3", "1.5", "0x", '"s"', '"', "'", "$", "#", "é", "/*", "*/", "//", "///", "/**", "\n", "\n",
]  # fmt: skip


def read(text: str) -> tuple[ast.File, Diagnostics]:
    """Parses, and holds what must hold of any text."""
    diagnostics = Diagnostics()
    source = SourceFile("text", text)
    file = parse(source, diagnostics)
    assert len(diagnostics.errors) <= MAX_ERRORS
    for found in diagnostics:
        assert found.span is not None
        assert 0 <= found.span.start <= found.span.end <= len(text)
    rendered = render(diagnostics)
    assert all(c == "\n" or c.isprintable() for c in rendered)
    rendered.encode("utf-8")
    to_json(diagnostics)
    if not list(diagnostics):
        again = parsed(unparse.file(file))
        assert tree(again) == tree(file)
    return file, diagnostics


@settings(max_examples=200)
@given(st.text(st.characters(codec=None)))
def test_any_text(text: str) -> None:
    read(text)
    read("module m\nfn f() {" + text)


@settings(max_examples=200)
@given(st.binary())
def test_any_bytes(data: bytes) -> None:
    diagnostics = Diagnostics()
    source = decode_source(data, "file", diagnostics)
    assert source is not None
    parse(source, diagnostics)
    render(diagnostics)


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PIECES), max_size=60), st.sampled_from(["", "module m\n"]))
def test_any_tokens(pieces: list[str], start: str) -> None:
    read(start + " ".join(pieces))


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_any_tokens_in_a_body(pieces: list[str]) -> None:
    read(f"module m\nblock B {{\n    fn f() -> f32 {{\n        {' '.join(pieces)}\n    }}\n}}\n")


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_real_sources_with_random_changes(seed: int) -> None:
    random = Random(seed)
    text = random.choice(SOURCES)
    for _ in range(random.randint(1, 8)):
        place = random.randrange(len(text) + 1)
        end = min(len(text), place + random.choice([0, 0, 1, 5, 200]))
        piece = random.choice([random.choice(PIECES), chr(random.randrange(0x110000)), ""])
        text = text[:place] + piece + text[end:]
    read(text)


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_a_token_left_out_gives_one_message(seed: int) -> None:
    random = Random(seed)
    text = random.choice(SOURCES)
    tokens = tokenize(SourceFile("text", text), Diagnostics())
    token = random.choice([t for t in tokens if t.kind != "end"])
    _, diagnostics = read(text[: token.span.start] + text[token.span.end :])
    assert len(diagnostics.errors) <= 1


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_a_character_that_is_none_gives_one_message(seed: int) -> None:
    random = Random(seed)
    text = random.choice(SOURCES)
    tokens = tokenize(SourceFile("text", text), Diagnostics())
    place = random.choice([t for t in tokens if t.kind not in ("doc", "string")]).span.start
    _, diagnostics = read(f"{text[:place]} $ {text[place:]}")
    assert [d.code for d in diagnostics] == ["E1001"]


# --- depth and length -----------------------------------------------------------------------


def in_body(text: str) -> str:
    return f"module m\nfn f() -> f32 {{ return {text} }}"


DEEP = {
    "parentheses": in_body("(" * 8000 + "x" + ")" * 8000),
    "open parentheses": in_body("(" * 8000),
    "lists": in_body("[" * 8000),
    "indices": in_body("x[" * 8000),
    "calls": in_body("f(" * 8000),
    "operators at every level": in_body("(a || b && c == d < e | f ^ g & h + i * " * 2000),
    "right operands": in_body("a + b * " * 8000 + "c"),
    "a chain": in_body("+".join(["x"] * 8000)),
    "signs": in_body("-" * 8000 + "x"),
    "called calls": in_body("f" + "()" * 8000),
    "fields": in_body("f" + ".x" * 8000),
    "generic calls": in_body("f<" * 5000 + "x" + ">(y)" * 5000),
    "generic calls that are none": in_body("f<" * 8000 + "x"),
    "generic calls in parentheses": in_body("f<(" * 8000),
    "generic arguments": in_body("f<a, " * 8000),
    "comparisons": in_body("a < b, " * 8000),
    "reductions": in_body("sum[k] " * 8000 + "x"),
    "branches": in_body("if a { " * 10000 + "b" + " } else { c }" * 5000),
    "else if": in_body("if a { b } else " * 10000 + "{ c }"),
    "cases": in_body("match a { b => " * 10000 + "c" + " }" * 5000),
    "some": in_body("some(" * 8000),
    "patterns": f"module m fn f() {{ let {'(' * 8000} = x }}",
    "types": f"module m type A = {'[' * 8000}",
    "tuple types": f"module m type A = {'(' * 8000}",
    "generic types": f"module m type A = {'B<' * 8000}",
    "optional types": f"module m type A = B{'?' * 8000}",
    "loops": "module m fn f() { " + "while a { " * 5000 + "}" * 5000 + " }",
    "blocks": "module m " + "block A { " * 5000 + "}" * 5000,
    "closing braces": "module m " + "} " * 8000,
    "comments": "module m " + "/*" * 8000 + "*/" * 8000,
    "open comments": "/*" * 80000,
    "hexadecimal": in_body("0x" + "a" * 80000 + "g"),
    "binary": in_body("0b" + "1" * 80000 + "2"),
    "digits": in_body("1" * 80000),
    "decimals": in_body("1." + "3" * 80000),
    "underscores": in_body("0x" + "_" * 80000),
    "escapes": in_body('"' + "\\q" * 8000 + '"'),
    "open strings": "module m " + '"\n' * 8000,
    "invalid characters": "module m " + "$ " * 8000,
    "lets on one line": "module m fn f() { " + "let " * 8000,
    "functions on one line": "module m " + "fn ( " * 8000,
    "mistakes in braces": "module m\n" + "fn { { } " * 5000,
    "a million spaces": " " * 1_000_000,
    "one long name": "module " + "a" * 1_000_000,
    "documentation": "module m " + "/// x\n" * 8000,
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_deep_and_long_texts_end_soon(text: str) -> None:
    started = time.process_time()
    read(text)
    # Each takes some tenths of a second; what is not linear would take minutes.
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    "text",
    [t for t in DEEP.values() if "return" in t],
    ids=[k for k in DEEP if "return" in DEEP[k]],
)
def test_parsing_needs_little_of_the_stack(text: str) -> None:
    """The caller may be deep already; and passes over a tree need room of their own."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 400)
    try:
        parse(SourceFile("text", text[:2000]), Diagnostics())
    finally:
        sys.setrecursionlimit(limit)


def test_what_is_within_the_limits_is_read() -> None:
    for text in (
        "+".join(["x"] * 100),
        "-" * 99 + "x",
        "(" * 40 + "x" + ")" * 40,
        "f(" * 40 + "x" + ")" * 40,
        "if a { b } else " * 40 + "{ c }",
    ):
        assert not read(in_body(text))[1].has_errors


def test_two_thousand_lines_are_read_at_once() -> None:
    line = "    let a = f<H / 2, T>(x[:, 0:H], [B, S], axis = -1) + sum<f32>[k] a[m, k] * b[k, n]\n"
    text = "module m\nfn f() -> f32 {\n" + line * 2000 + "    return a\n}\n"
    file = parsed(text)
    function = file.items[0]
    assert isinstance(function, ast.Function)
    assert len(function.body.statements) == 2001


def test_the_front_end_needs_nothing_but_python() -> None:
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import linnet.packages\n"
        "third = {m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(sorted(m for m in third if not m.startswith(('_', 'linnet'))))"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
