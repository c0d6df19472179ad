# ruff: noqa: E501 (sources read best on one line)
"""Names across modules and packages: imports, privacy, cycles, and what one mistake leaves whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.check import CheckResult, check_file
from linnet.diagnostics import render


def check(folder: Path, **modules: str) -> CheckResult:
    """Checks a package; a module is named as its path, `__` for `/`."""
    (folder / "linnet.toml").write_text('[package]\nname = "p"\nversion = "0"\n')
    for name, text in modules.items():
        file = folder / "src" / f"{name.replace('__', '/')}.linnet"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"module {name.replace('__', '.')}\n{text}\n")
    return check_file(folder)


def codes(result: CheckResult) -> list[str]:
    return [d.code for d in result.diagnostics]


USER = "fn f(x: f32) -> f32 { return twice(x) }"


def test_items_of_another_module(tmp_path: Path):
    result = check(
        tmp_path,
        lib=f"use crate.deep.math::{{twice}}\n{USER}",
        deep__math="pub fn twice(x: f32) -> f32 { return x * FACTOR }\nconst FACTOR = 2",
    )
    assert not result.diagnostics, render(result.diagnostics)
    assert "crate.deep.math::twice" in result.require().functions


def test_a_dependency(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    check(tmp_path / "b", lib="pub fn twice(x: f32) -> f32 { return x * 2 }")
    check(tmp_path / "a", lib=f"use b::{{twice}}\n{USER}")
    manifest = tmp_path / "a" / "linnet.toml"
    manifest.write_text(manifest.read_text() + '[dependencies]\nb = { path = "../b" }\n')
    result = check_file(tmp_path / "a")
    assert not result.diagnostics, render(result.diagnostics)
    assert "b::twice" in result.require().functions


@pytest.mark.parametrize(
    ("use", "item"),
    [
        ("use crate.m::{twice}", "fn twice(x: f32) -> f32 { return x * 2 }"),
        ("use crate.m::{S as twice}", "struct S { x: f32 }"),
        (
            "use crate.m\nfn twice(x: f32) -> f32 { return m.g(x) }",
            "fn g(x: f32) -> f32 { return x }",
        ),
    ],
)
def test_a_private_item(tmp_path: Path, use: str, item: str):
    result = check(tmp_path, lib=f"{use}\nfn h() -> i64 {{ return 1 }}", m=item)
    assert codes(result) == ["E1203"]
    assert "declare it `pub` in `crate.m`" in render(result.diagnostics)


def test_a_private_method(tmp_path: Path):
    block = (
        "pub block A { fn hidden() -> i64 { return 1 }\npub fn shown() -> i64 { return hidden() } }"
    )
    use = "use crate.m::{A}\nblock B { sub a: A\nfn f() -> i64 { return a.%s() } }"
    assert codes(check(tmp_path, lib=use % "shown", m=block)) == []
    assert codes(check(tmp_path, lib=use % "hidden", m=block)) == ["E1203"]


def test_a_private_method_in_its_own_module(tmp_path: Path):
    block = "block A { fn hidden() -> i64 { return 1 } }\nblock B { sub a: A\nfn f() -> i64 { return a.hidden() } }"
    assert codes(check(tmp_path, lib=block)) == []


def test_modules_that_import_each_other(tmp_path: Path):
    result = check(
        tmp_path,
        lib="use crate.m::{twice}\npub fn one() -> f32 { return twice(1) }",
        m="use crate::{one}\npub fn twice(x: f32) -> f32 { return x + one() }",
    )
    assert "E1206" in codes(result)
    assert codes(result).count("E1206") == 1


def test_a_module_that_imports_itself(tmp_path: Path):
    result = check(
        tmp_path, lib="use crate::{f}\nfn g() -> i64 { return f() }\nfn f() -> i64 { return 1 }"
    )
    assert set(codes(result)) <= {"E1206", "E1204"}
    assert "E1206" in codes(result)


def test_a_module_that_is_missing_leaves_the_rest_to_be_checked(tmp_path: Path):
    result = check(
        tmp_path,
        lib="use crate.gone::{twice, Thing, gone}\nuse crate.lost\n"
        f"{USER}\nfn g(x: Thing) -> f32 {{ return lost.h(x) }}\nfn h(x: f32) -> i32 {{ return x }}",
    )
    assert codes(result) == ["E1202", "E1202", "E2103"]


def test_mistakes_of_an_imported_module_are_reported_there(tmp_path: Path):
    result = check(
        tmp_path,
        lib=f"use crate.m::{{twice}}\n{USER}",
        m="pub fn twice(x: f32) -> f32 { return y }",
    )
    assert codes(result) == ["E1201"]
    assert result.diagnostics[0].span is not None
    assert result.diagnostics[0].span.source.name.endswith("m.linnet")


def test_recursion_through_modules_cannot_be(tmp_path: Path):
    result = check(
        tmp_path,
        lib=f"use crate.m::{{twice}}\n{USER}\nfn loop(x: f32) -> f32 {{ return loop(twice(x)) }}",
        m="pub fn twice(x: f32) -> f32 { return x * 2 }",
    )
    assert codes(result) == ["E2119"]


def test_a_file_that_is_not_there(tmp_path: Path):
    assert codes(check_file(tmp_path / "gone.linnet")) == ["E1202"]


def test_a_broken_manifest(tmp_path: Path):
    (tmp_path / "linnet.toml").write_text("[package\n")
    assert codes(check_file(tmp_path)) == ["E5001"]


def test_unused_imports_warn(tmp_path: Path):
    result = check(
        tmp_path,
        lib="use crate.m\nuse crate.m::{twice}\nfn f() -> i64 { return 1 }",
        m="pub fn twice(x: f32) -> f32 { return x * 2 }",
    )
    assert codes(result) == ["W1001", "W1001"]
    assert result.ok
    assert [d.code for d in result.require().diagnostics] == ["W1001", "W1001"]
