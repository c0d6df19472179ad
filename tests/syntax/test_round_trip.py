"""Tree to text to tree: every tree the grammar can say is read back as it was."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import linnet
from linnet.diagnostics import Diagnostics, SourceFile
from linnet.syntax import ast, tokenize
from tests.syntax import trees, unparse

SOURCES = sorted(Path(linnet.__file__).parent.rglob("*.linnet"))
SPACE = [" ", "\n", "\t", "\r\n", " /* /* */ */ ", " // x\n", " /***/", " //// x\n"]

seeds = st.integers(0, 2**32)


@settings(max_examples=200)
@given(seeds)
def test_a_file(seed: int) -> None:
    file = trees.Maker(seed).file()
    assert trees.tree(trees.parsed(unparse.file(file))) == trees.tree(file)


@settings(max_examples=500)
@given(seeds)
def test_an_expression(seed: int) -> None:
    node = trees.Maker(seed).expr()
    assert trees.tree(trees.expression(unparse.expr(node))) == trees.tree(node)


@settings(max_examples=100)
@given(seeds)
def test_white_space_and_comments_mean_nothing(seed: int) -> None:
    file = trees.Maker(seed).file()
    random = Random(seed)
    text = unparse.file(file)
    tokens = tokenize(SourceFile("text", text), Diagnostics())
    spaced = [t.text + ("\n" if t.kind == "doc" else random.choice(SPACE)) for t in tokens]
    assert trees.tree(trees.parsed("".join(spaced))) == trees.tree(file)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_real_source(path: Path) -> None:
    file = trees.parsed(path.read_text(encoding="utf-8"))
    assert trees.tree(trees.parsed(unparse.file(file))) == trees.tree(file)


def test_the_random_trees_hold_every_kind_of_node() -> None:
    found: Counter[str] = Counter()

    def count(node: object) -> None:
        if isinstance(node, tuple):
            if node and isinstance(node[0], str):
                found[node[0]] += 1
            for part in node:
                count(part)

    for seed in range(200):
        count(trees.tree(trees.Maker(seed).file()))
    kinds = {name for name, kind in vars(ast).items() if hasattr(kind, "__dataclass_fields__")}
    rare = {kind: found[kind] for kind in kinds - {"Span", "ErrorExpr"} if found[kind] < 10}
    assert not rare
