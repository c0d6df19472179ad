"""Statements of generated Python: lines and suites, and loops over layers made of repetitions.

`reroll` turns

    x = layer_forward(model.layers[0], x)
    x = layer_forward(model.layers[1], x)

into

    for layer in model.layers:
        x = layer_forward(layer, x)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from linnet.emit.code import fit

INDENT = 4


@dataclass(frozen=True, slots=True)
class Line:
    """One statement; `comment` stands at its end."""

    text: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """A header that ends in a colon, and what is indented below it."""

    header: str
    body: tuple[Statement, ...]


Statement = Line | Suite


def render(statements: Sequence[Statement], indent: int = 0) -> Iterator[str]:
    """Statements as lines of text."""
    for statement in statements:
        if isinstance(statement, Line):
            lines = fit(statement.text, indent)
            if statement.comment:
                yield " " * indent + f"# {statement.comment}"
            yield from lines if statement.text else [""]
        else:
            yield from fit(statement.header, indent)
            yield from render(statement.body or (Line("pass"),), indent + INDENT)


def reroll(
    statements: Sequence[Statement], arrays: Mapping[str, int], taken: set[str]
) -> list[Statement]:
    """Makes loops of statements that differ by the index into an array of blocks alone.

    `arrays` gives the length of each array by its expression (`model.layers`); the names in
    `taken` are not used for loop variables.
    """
    found: list[Statement] = [
        Suite(s.header, tuple(reroll(s.body, arrays, taken))) if isinstance(s, Suite) else s
        for s in statements
    ]
    for array in sorted(arrays, key=lambda text: -text.count(".")):
        found = _reroll_one(found, array, arrays[array], taken)
    return found


def _reroll_one(
    statements: list[Statement], array: str, length: int, taken: set[str]
) -> list[Statement]:
    indexed = re.compile(rf"(?<![\w.]){re.escape(array)}\[(\d+)\]")
    found: list[Statement] = []
    at = 0
    while at < len(statements):
        run = _longest_run(statements, at, indexed)
        if run is None:
            found.append(statements[at])
            at += 1
            continue
        period, first, count = run
        variable = _singular(array.rsplit(".", 1)[-1], taken)
        whole = first == 0 and count == length
        over = array if whole else f"{array}[{first or ''}:{first + count}]"
        body = tuple(
            _substituted(statement, indexed, variable) for statement in statements[at : at + period]
        )
        found.append(Suite(f"for {variable} in {over}:", body))
        at += period * count
    return found


def _longest_run(
    statements: list[Statement], at: int, indexed: re.Pattern[str]
) -> tuple[int, int, int] | None:
    """Period, first index and number of repetitions of what starts at a place."""
    left = len(statements) - at
    for period in range(1, left // 2 + 1):
        indices = _indices(statements[at : at + period], indexed)
        if len(indices) > 1:
            return None
        if not indices or not _indices(statements[at : at + 1], indexed):
            continue
        (first,) = indices
        pattern = [_text(_substituted(s, indexed, "\0")) for s in statements[at : at + period]]
        count = 1
        while (count + 1) * period <= left:
            group = statements[at + count * period : at + (count + 1) * period]
            if _indices(group, indexed) != {first + count}:
                break
            if [_text(_substituted(s, indexed, "\0")) for s in group] != pattern:
                break
            count += 1
        if count > 1:
            return period, first, count
    return None


def _indices(statements: Sequence[Statement], indexed: re.Pattern[str]) -> set[int]:
    return {int(i) for statement in statements for i in indexed.findall(_text(statement))}


def _text(statement: Statement) -> str:
    if isinstance(statement, Line):
        return f"{statement.text}  # {statement.comment}"
    return "\n".join([statement.header, *map(_text, statement.body), "end"])


def _substituted(statement: Statement, indexed: re.Pattern[str], variable: str) -> Statement:
    if isinstance(statement, Line):
        return replace(statement, text=indexed.sub(lambda _: variable, statement.text))
    return Suite(
        indexed.sub(lambda _: variable, statement.header),
        tuple(_substituted(inner, indexed, variable) for inner in statement.body),
    )


def _singular(name: str, taken: set[str]) -> str:
    """A name for one of `layers`: `layer`."""
    base = name[:-1] if name.endswith("s") and len(name) > 2 else f"one_{name}"
    found, count = base, 1
    while found in taken:
        count += 1
        found = f"{base}_{count}"
    return found
