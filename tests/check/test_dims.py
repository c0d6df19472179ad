"""Dimensions: the normal form agrees with integer arithmetic, and what is proven is true."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.check.dims import Dim, DimError, Facts, compare, dim_max, dim_min, solve

H, Heads, Hk, B, S, N, D, i = map(Dim.var, ["H", "Heads", "Hk", "B", "S", "N", "D", "i"])
NAMES = ["A", "B", "C"]
OPERATORS = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": lambda a, b: dim_min(a, b) if isinstance(a, Dim) else min(a, b),
    "max": lambda a, b: dim_max(a, b) if isinstance(a, Dim) else max(a, b),
}

leaves = st.integers(0, 6) | st.sampled_from(NAMES)
trees = st.recursive(
    leaves, lambda t: st.tuples(st.sampled_from(sorted(OPERATORS)), t, t), max_leaves=7
)


def as_dim(tree) -> Dim:
    if isinstance(tree, int):
        return Dim.const(tree)
    if isinstance(tree, str):
        return Dim.var(tree)
    op, left, right = tree
    return OPERATORS[op](as_dim(left), as_dim(right))


def as_int(tree, env: dict[str, int]) -> int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    op, left, right = tree
    return OPERATORS[op](as_int(left, env), as_int(right, env))


ENVS = [dict(zip(NAMES, values, strict=True)) for values in itertools.product(range(5), repeat=3)]


@settings(max_examples=200, deadline=None)
@given(trees)
def test_the_normal_form_has_the_value_of_what_was_written(tree):
    dim = as_dim(tree)
    for env in ENVS:
        try:
            expected = as_int(tree, env)
        except ZeroDivisionError:
            continue
        try:
            assert dim.evaluate(env) == expected
        except DimError:
            pytest.fail(f"{dim} divides by zero at {env}, what was written does not")


comparisons = st.tuples(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), trees, trees)


@settings(max_examples=200, deadline=None)
@given(st.lists(comparisons, max_size=3), comparisons)
def test_what_is_proven_holds_wherever_the_facts_do(known, question):
    facts = Facts()
    for op, a, b in known:
        facts = facts.with_fact(op, as_dim(a), as_dim(b))
    op, a, b = question
    if not facts.proves(op, as_dim(a), as_dim(b)):
        return
    for env in ENVS:
        try:
            if all(compare(o, as_int(x, env), as_int(y, env)) for o, x, y in known):
                assert compare(op, as_int(a, env), as_int(b, env))
        except ZeroDivisionError:
            continue  # The checker proves every divisor positive before it asks.


@settings(max_examples=100, deadline=None)
@given(st.lists(comparisons.filter(lambda c: c[0] == "=="), max_size=3), trees)
def test_simplifying_keeps_the_value_wherever_the_facts_hold(known, tree):
    facts = Facts()
    for op, a, b in known:
        facts = facts.with_fact(op, as_dim(a), as_dim(b))
    simple = facts.simplify(as_dim(tree))
    for env in ENVS:
        try:
            if all(as_int(x, env) == as_int(y, env) for _, x, y in known):
                assert simple.evaluate(env) == as_int(tree, env)
        except (ZeroDivisionError, DimError):
            continue


HEADS = Facts().with_fact(">", Heads, 0).with_fact("==", H % Heads, 0)
EVEN = HEADS.with_fact("==", (H // Heads) % 2, 0)
INDEX = Facts().with_fact("<", i, N)
PROVEN = [
    (HEADS, "==", Heads * (H // Heads), H),
    (HEADS, "==", B * S * Heads * (H // Heads), B * S * H),
    (HEADS, "==", (B * H) // Heads, B * (H // Heads)),
    (HEADS, "==", (3 * H) % Heads, 0),
    (HEADS.with_fact(">", H, 0), ">", H // Heads, 0),
    (HEADS, "==", H // Heads * 2 * Heads - H, H),
    (EVEN, "==", 2 * ((H // Heads) // 2), H // Heads),
    (EVEN, "==", 2 * Heads * (H // Heads // 2), H),
    (HEADS.with_fact("==", Heads % Hk, 0).with_fact(">", Hk, 0), "==", Hk * (Heads // Hk), Heads),
    (Facts(), "<=", H // 2, H),
    (Facts().with_fact("==", H % 2, 0), "<=", H // 2, H),
    (Facts(), "<=", H // 2 + H // 2, H),
    (Facts(), "<=", dim_min(H, S), S),
    (Facts(), ">=", dim_max(H, S), H),
    (Facts(), "==", dim_max(H, S) + dim_min(H, S), S + H),
    (INDEX, "<", 2 * i + 1, 2 * N),
    (INDEX, ">", N, 0),
    (Facts().with_fact(">", B, 0).with_fact(">", S, 0), ">", B * S, 0),
    (Facts().with_fact("==", N * D, H).with_fact(">", H, 0), ">", N, 0),
    (Facts().with_fact("!=", H, 0), ">", H, 0),
    (Facts().with_fact("==", N, S + 1), ">", N, S),
]
NOT_PROVEN = [
    (Facts(), "==", Heads * (H // Heads), H),
    (HEADS, "==", S % Heads, 0),
    (INDEX, "<", 2 * i + 2, 2 * N),
    (INDEX, "<", i + 1, N),
    (Facts(), ">", H, 0),
    (Facts().signed("H"), ">=", H, 0),
]


@pytest.mark.parametrize(("facts", "op", "a", "b"), PROVEN)
def test_proven(facts, op, a, b):
    assert facts.proves(op, a, b)


@pytest.mark.parametrize(("facts", "op", "a", "b"), NOT_PROVEN)
def test_not_proven(facts, op, a, b):
    assert not facts.proves(op, a, b)


def test_refutes_what_can_never_hold():
    assert INDEX.refutes(">=", i, N)
    assert not INDEX.refutes("==", i, 0)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (3 * H + 1, "3 * H + 1"),
        ((6 * H + 3) // 2, "3 * H + 1"),
        ((2 * H) // 4, "H / 2"),
        ((H + 1) // 2, "(H + 1) / 2"),
        (S * (H // Heads), "(H / Heads) * S"),
        (1 - H, "-H + 1"),
        (Dim.const(0), "0"),
        (dim_min(H, S), "min(H, S)"),
    ],
)
def test_prints_as_source(dim, text):
    assert str(dim) == text


def test_solves_for_generics():
    assert solve([(3 * N, 3 * H)], frozenset({"N"}), Facts()) == {"N": H}
    assert solve([(3 * N, H)], frozenset({"N"}), Facts()) == {}
    assert solve([(N * D, H), (N, Heads)], frozenset({"N", "D"}), HEADS) == {
        "N": Heads,
        "D": H // Heads,
    }
    assert solve([(N + 1, S)], frozenset({"N"}), Facts()) == {"N": S - 1}
