"""Who may import whom: the layers of the house, and where frameworks may be used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import linnet

ROOT = Path(linnet.__file__).parent
FRAMEWORKS = {
    "torch": ("torch",),
    "jax": ("jax",),
    "jaxlib": ("jax",),
    "flax": ("jax",),
    "onnxruntime": ("onnx",),
    "onnx": ("onnx", "emit"),
    "transformers": (),
    "keras": (),
    "keras_hub": (),
}
"""The folders that import each; `bench/methods`, which runs other stacks, may import any."""
MAY_IMPORT = {
    "syntax": {"diagnostics", "dtypes"},
    "check": {"syntax", "packages", "diagnostics", "dtypes"},
    "ir": {"check", "syntax", "dtypes", "diagnostics", "outline"},
    "emit": {"ir", "check", "dtypes", "outline", "syntax"},
    "weights": {"dtypes"},
    "text": {"weights"},
}
"""What each folder may import besides itself."""
RUNTIMES = {"torch", "jax", "onnx"}
ON_TOP = {"bench", "nest", "cli", "serve", "conversation", "generate", "backends"}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def folder(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """The dotted names that a file imports, and whether that happens as it is loaded; imports for
    type checkers alone are left out."""

    def visit(node: ast.AST, at_load: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, at_load
            yield from ((f"{node.module}.{alias.name}", at_load) for alias in node.names)
        inside = at_load and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), True)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_each_file_imports_only_what_lies_below_it(path: Path) -> None:
    mine = folder(path)
    method = path.is_relative_to(ROOT / "bench" / "methods")
    for name, at_load in imported(path):
        top, _, rest = name.partition(".")
        if top in FRAMEWORKS and not method:
            assert mine in FRAMEWORKS[top], f"{name} is imported in {mine}"
        if top != "linnet" or not rest:
            continue
        other = rest.partition(".")[0]
        if mine in MAY_IMPORT:
            assert other in {mine, *MAY_IMPORT[mine]}, f"{mine} imports linnet.{other}"
        if mine in RUNTIMES:
            assert other not in (RUNTIMES - {mine}) | ON_TOP, f"{mine} imports linnet.{other}"
        if mine in ON_TOP and not method:
            assert not (other in RUNTIMES and at_load), f"{mine} needs a framework to be imported"
        if mine == "serve":
            assert other not in RUNTIMES, "the engine knows the runtimes' interface only"
