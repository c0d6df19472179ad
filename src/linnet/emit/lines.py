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


def reroll_arrays(
    statements: Sequence[Statement], arrays: Sequence[str], name: str, length: int, taken: set[str]
) -> list[Statement]:
    """Makes loops of statements that differ by one index alone, into several lists of one length:
    `arrays` are their expressions, the one whose elements are to be named after `name` first.

        x, states[0] = layer_forward(model["layers"][0], states[0], x)

    and so on becomes

        for i, layer in enumerate(model["layers"]):
            x, states[i] = layer_forward(layer, states[i], x)
    """
    found: list[Statement] = [
        replace(s, body=tuple(reroll_arrays(s.body, arrays, name, length, taken)))
        if isinstance(s, Suite)
        else s
        for s in statements
    ]
    lists = "|".join(rf"(?<=(?<![\w.]){re.escape(array)})" for array in arrays)
    indexed = re.compile(rf"(?:{lists})\[(\d+)\]")
    rolled: list[Statement] = []
    at = 0
    while at < len(found):
        run = _longest_run(found, at, indexed)
        if run is None:
            rolled.append(found[at])
            at += 1
            continue
        period, first, count = run
        body = found[at : at + period]
        rolled.append(_loop(body, indexed, arrays[0], name, (first, count, length), taken))
        at += period * count
    return rolled


def _loop(
    body: Sequence[Statement],
    indexed: re.Pattern[str],
    array: str,
    name: str,
    extent: tuple[int, int, int],
    taken: set[str],
) -> Suite:
    """A loop over the elements of one list, and over positions where there are other lists."""
    first, count, length = extent
    whole = first == 0 and count == length
    index = next(n for n in ("i", "j", "k", "at", "position") if n not in taken)
    element = re.compile(rf"(?<![\w.]){re.escape(array)}\[{index}\]")
    variable = _singular(name, taken)
    statements = [_substituted(statement, indexed, f"[{index}]") for statement in body]
    named = any(element.search(_text(statement)) for statement in statements)
    if named and whole:
        statements = [_substituted(statement, element, variable) for statement in statements]
    positioned = any(re.search(rf"\[{index}\]", _text(statement)) for statement in statements)
    if not whole or not named:
        header = f"for {index} in range({f'{first}, ' if first else ''}{first + count}):"
    elif positioned:
        header = f"for {index}, {variable} in enumerate({array}):"
    else:
        header = f"for {variable} in {array}:"
    return Suite(header, tuple(statements))


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
