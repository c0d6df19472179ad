"""The language, case by case: what is accepted, and what is rejected by which code where.

A `.linnet` file here holds many cases. `//# title` starts one; `//~ CODE` stands on the line where
a diagnostic with that code must start. A case without marks is accepted without a word. A case
begins with `module case` unless it says `//! no module`. Each file in `accept/` is one case.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from linnet.check import check_text
from linnet.diagnostics import render

_MARK = re.compile(r"//~ ((?:[EW]\d{4} ?)+)")


@dataclass(frozen=True)
class Case:
    file: str
    title: str
    text: str
    expected: Counter[tuple[int, str]]

    def __str__(self) -> str:
        return f"{self.file}: {self.title}"


def read_cases() -> list[Case]:
    folder = Path(__file__).parent
    cases = [
        Case("accept", path.stem, path.read_text(encoding="utf-8"), Counter())
        for path in sorted((folder / "accept").glob("*.linnet"))
    ]
    for path in sorted(folder.glob("*.linnet")):
        for part in re.split(r"^//# ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            title, _, text = part.partition("\n")
            if "//! no module" not in text:
                text = "module case\n" + text
            marks = Counter(
                (number, code)
                for number, line in enumerate(text.splitlines(), 1)
                if (mark := _MARK.search(line))
                for code in mark[1].split()
            )
            cases.append(Case(path.stem, title, text, marks))
    return cases


CASES = read_cases()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case) -> None:
    diagnostics = check_text(case.text, "case").diagnostics
    expects_warnings = any(code.startswith("W") for _, code in case.expected)
    found = Counter(
        (d.span.source.position(d.span.start)[0] if d.span else 0, d.code)
        for d in diagnostics
        if d.is_error or expects_warnings
    )
    assert found == case.expected, f"\n{render(diagnostics)}"


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 200


def test_titles_are_unique() -> None:
    assert not [title for title, count in Counter(map(str, CASES)).items() if count > 1]
