"""The documentation: every Linnet source is proven, every Python example runs, and what a console
example shows is what the command prints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linnet.check import check_text
from linnet.cli import app
from linnet.diagnostics import render

ROOT = Path(__file__).parent.parent
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SLOW = ("linnet run", "linnet serve", "linnet bench", "make ")
"""Commands that download or measure; the tests of what they do are elsewhere."""


@dataclass(frozen=True)
class Example:
    page: str
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page} {self.language} {self.number}"


def examples(language: str) -> list[Example]:
    found = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, match in enumerate(_FENCE.finditer(path.read_text(encoding="utf-8")), 1):
            if match[1] == language:
                page = path.relative_to(ROOT).as_posix()
                found.append(Example(page, number, language, match[2]))
    return found


def source_of(module: str) -> str:
    """A source that the pages show, by its module line."""
    return next(e.text for e in examples("linnet") if e.text.startswith(f"module {module}\n"))


@pytest.mark.parametrize("example", examples("linnet"), ids=str)
def test_sources_are_proven(example: Example) -> None:
    result = check_text(example.text, example.page)
    assert result.ok, render(result.diagnostics)


@pytest.mark.weights
@pytest.mark.parametrize("example", examples("python"), ids=str)
def test_python_runs(example: Example, smollm2_gguf: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module in re.findall(r'"(\w+)\.linnet"', example.text):
        (tmp_path / f"{module}.linnet").write_text(source_of(module))
    exec(compile(example.text, example.page, "exec"), {})


BROKEN = "module broken\n\nfn f(x: bf16, y: f32) -> bf16 {\n    return x + y\n}\n"


@pytest.mark.parametrize("example", examples("console"), ids=str)
def test_commands_print_what_is_shown(example: Example, tmp_path, monkeypatch) -> None:
    command, _, shown = example.text.partition("\n")
    assert command.startswith("$ ")
    command = command.removeprefix("$ ")
    if command.startswith(SLOW):
        assert not shown, "figures on a page are not kept true by a test: leave them out"
        return
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.linnet").write_text(BROKEN)
    for module in re.findall(r"(\w+)\.linnet", command):
        if module != "broken":
            (tmp_path / f"{module}.linnet").write_text(source_of(module))
    result = CliRunner().invoke(app, command.removeprefix("linnet ").split())
    assert result.output.strip() == shown.strip()


def test_every_code_is_documented() -> None:
    page = (ROOT / "docs/language/diagnostics.md").read_text(encoding="utf-8")
    used = set()
    for path in (ROOT / "src/linnet").rglob("*.py"):
        used |= set(re.findall(r'"([EW]\d{4})"', path.read_text(encoding="utf-8")))
    assert used - set(re.findall(r"^\| ([EW]\d{4}) ", page, re.MULTILINE)) == set()


def test_links_lead_somewhere() -> None:
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path}: {target}"
