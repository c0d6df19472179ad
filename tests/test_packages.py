"""Modules and packages: which file an import means, and what is wrong where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from linnet import packages
from linnet.diagnostics import Diagnostics, render
from linnet.packages import Sources, load_program, load_text

MANIFEST = '[package]\nname = "p"\nversion = "0.1.0"\nlanguage = "0.1"\n'


def write(root: Path, files: dict[str, str]) -> Path:
    """Files below a folder; a source gets its module line, a package its manifest."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".linnet" and not text.startswith("module"):
            text = f"module m\n{text}"
        path.write_text(text, encoding="utf-8")
    return root


def load(path: Path) -> tuple[Sources, list[str]]:
    """The program, and what was reported, as `code message | help`."""
    diagnostics = Diagnostics()
    sources = load_program(path, diagnostics)
    render(diagnostics)
    return sources, [
        f"{d.code} {d.message}" + (f" | {d.help}" if d.help else "") for d in diagnostics
    ]


def imports(sources: Sources, module: str) -> list[str | None]:
    return [sources.imported(module, use) for use in sources.files[module].uses]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the working directory."""
    monkeypatch.chdir(tmp_path)
    return Path(os.path.realpath(tmp_path))


# --- what is found --------------------------------------------------------------------------


def test_a_file_on_its_own_reaches_the_library(here: Path) -> None:
    write(here, {"a.linnet": "use std.nn.mlp::SwiGlu\nuse std.linalg"})
    sources, reported = load(Path("a.linnet"))
    assert reported == []
    assert sources.root == "crate"
    assert imports(sources, "crate") == ["std.nn.mlp", "std.linalg"]
    assert "std.nn.linear" in sources.files, "what the library imports is read too"
    assert sources.files["crate"].span.source.name == "a.linnet"
    assert sources.files["std.linalg"].span.source.name == "<std>/linalg.linnet"


def test_a_text_reaches_the_library_and_itself() -> None:
    diagnostics = Diagnostics()
    sources = load_text("module m\nuse std.linalg::dot\nuse crate::f", "text", diagnostics)
    assert not list(diagnostics)
    assert imports(sources, "crate") == ["std.linalg", "crate"]


def test_a_package_and_its_modules(here: Path) -> None:
    write(
        here,
        {
            "linnet.toml": MANIFEST,
            "src/lib.linnet": "use crate.a::x\nuse crate.b.c::y\nuse std.linalg::dot",
            "src/a.linnet": "use crate.b.c::y\nuse crate::z",
            "src/b/c.linnet": "",
            "src/unused.linnet": "this is never read",
        },
    )
    sources, reported = load(here)
    assert reported == []
    assert set(sources.files) == {"crate", "crate.a", "crate.b.c", "std.linalg"}
    assert imports(sources, "crate") == ["crate.a", "crate.b.c", "std.linalg"]
    assert imports(sources, "crate.a") == ["crate.b.c", "crate"]
    assert sources.files["crate.b.c"].span.source.name == "src/b/c.linnet"


def test_a_file_in_a_package_belongs_to_it(here: Path) -> None:
    write(
        here,
        {
            "linnet.toml": MANIFEST,
            "src/lib.linnet": "",
            "src/b/c.linnet": "use crate.d",
            "src/d.linnet": "use crate",
        },
    )
    sources, reported = load(Path("src/b/c.linnet"))
    assert reported == []
    assert sources.root == "crate.b.c"
    assert set(sources.files) == {"crate.b.c", "crate.d", "crate"}


def test_a_file_is_read_by_its_own_name(here: Path) -> None:
    write(here, {"linnet.toml": MANIFEST, "src/a.linnet": "const A = 1"})
    write(here, {"src/a.old": "module m\nconst B = 1", "src/my-model.v2.linnet": "const C = 1"})
    for name, item in {
        "src/a.linnet": "A",
        "src/a.old": "B",
        "src/my-model.v2.linnet": "C",
    }.items():
        sources, reported = load(Path(name))
        assert reported == []
        assert [i.name.text for i in sources.files[sources.root].items] == [item]


def test_modules_that_import_each_other_are_read_once(here: Path) -> None:
    write(
        here,
        {
            "linnet.toml": MANIFEST,
            "src/lib.linnet": "use crate.a",
            "src/a.linnet": "use crate.b",
            "src/b.linnet": "use crate.a\nuse crate.b",
        },
    )
    sources, reported = load(here)
    assert reported == []
    assert imports(sources, "crate.b") == ["crate.a", "crate.b"]


def test_dependencies_by_key(here: Path) -> None:
    write(
        here,
        {
            "app/linnet.toml": MANIFEST + '[dependencies]\nlayers = { path = "../lib" }\n',
            "app/src/lib.linnet": "use layers::x\nuse layers.a::y",
            "lib/linnet.toml": MANIFEST,
            "lib/src/lib.linnet": "use crate.a::y",
            "lib/src/a.linnet": "use std.linalg::dot",
        },
    )
    sources, reported = load(Path("app"))
    assert reported == []
    assert set(sources.files) == {"crate", "layers", "layers.a", "std.linalg"}
    assert imports(sources, "layers") == ["layers.a"]


def test_two_packages_of_one_key_stay_apart(here: Path) -> None:
    dependency = '[dependencies]\nx = {{ path = "{}" }}\n'
    write(
        here,
        {
            "a/linnet.toml": MANIFEST + dependency.format("../b"),
            "a/src/lib.linnet": "use x",
            "b/linnet.toml": MANIFEST + dependency.format("../c"),
            "b/src/lib.linnet": "use x",
            "c/linnet.toml": MANIFEST + dependency.format("../a"),
            "c/src/lib.linnet": "use x",
        },
    )
    sources, reported = load(Path("a"))
    assert reported == []
    assert imports(sources, "crate") == ["x"]
    assert imports(sources, "x") == ["x.2"]
    assert imports(sources, "x.2") == ["crate"], "a package in a ring of packages is itself"


def test_the_library_is_checked_as_any_file() -> None:
    sources, reported = load(packages.STD / "nn" / "linear.linnet")
    assert reported == []
    assert sources.root == "std.nn.linear"


def test_links_within_a_package_are_followed(here: Path) -> None:
    write(
        here, {"p/linnet.toml": MANIFEST, "p/src/lib.linnet": "use crate.b", "p/src/a.linnet": ""}
    )
    (here / "p/src/b.linnet").symlink_to("a.linnet")
    (here / "link").symlink_to("p")
    for path in (Path("p"), Path("link"), Path("link/src/lib.linnet")):
        sources, reported = load(path)
        assert reported == []
        assert imports(sources, "crate") == ["crate.b"]


# --- what is not ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (
            "std.nn.linaer::linear",
            "E1202 there is no module `std.nn.linaer` | did you mean `std.nn.linear`?",
        ),
        ("std", "E1202 there is no module `std` | there are `std.linalg`"),
        ("torch.nn", "E1202 there is no package `torch` | a path starts with `std`, `crate`"),
        ("super.a", "E1202 there is no package `super` | a path starts with `std`, `crate`"),
        (
            "crate.a",
            "E1202 there is no module `crate.a`: this file is in no package | put it in a package: "
            "a directory with `linnet.toml` and `src/lib.linnet`",
        ),
        ("std." + "a" * 300, "E1202 there is no module `std.aaa"),
        ("std.nn.__init__", "E1202 there is no module `std.nn.__init__`"),
    ],
)
def test_an_import_from_a_file_on_its_own(here: Path, use: str, expected: str) -> None:
    write(here, {"a.linnet": f"use {use}"})
    sources, (reported,) = load(Path("a.linnet"))
    assert reported.startswith(expected)
    assert imports(sources, "crate") == [None]


def test_an_import_that_a_package_lacks(here: Path) -> None:
    write(
        here,
        {
            "linnet.toml": MANIFEST,
            "src/lib.linnet": "use crate.layer::x\nuse crate.zzz::x\nuse crate.layers::x",
            "src/layers.linnet": "",
        },
    )
    sources, reported = load(here)
    assert reported == [
        "E1202 there is no module `crate.layer` | did you mean `crate.layers`?",
        "E1202 there is no module `crate.zzz` | there are `crate.layers`, `crate`",
    ]
    assert imports(sources, "crate") == [None, None, "crate.layers"]


def test_an_import_is_reported_where_it_stands(here: Path) -> None:
    write(here, {"a.linnet": "use std.zzz::x"})
    diagnostics = Diagnostics()
    load_program(Path("a.linnet"), diagnostics)
    assert render(diagnostics).startswith(
        "error[E1202]: there is no module `std.zzz`\n"
        " --> a.linnet:2:5\n"
        "  |\n"
        "2 | use std.zzz::x\n"
        "  |     ^^^^^^^\n"
    )


@pytest.mark.parametrize("path", ["missing.linnet", "missing", "a\0b", "x" * 5000, "a.linnet/b"])
def test_a_path_to_nothing(here: Path, path: str) -> None:
    write(here, {"a.linnet": ""})
    sources, (reported,) = load(Path(path))
    assert reported.startswith("E1202 there is no file ")
    assert sources.files == {}


def test_a_file_that_cannot_be_opened(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here, {"a.linnet": ""})

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    sources, reported = load(Path("a.linnet"))
    assert reported == ["E1202 cannot read a.linnet: Permission denied"]
    assert sources.files == {}
    monkeypatch.setattr(Path, "is_file", refuse)
    assert load(Path("a.linnet"))[1] == ["E1202 there is no file a.linnet"]


def test_a_name_that_no_terminal_shows(here: Path) -> None:
    name = os.fsdecode(b"a\xff\n\x1b.linnet")
    write(here, {name: "fn"})
    diagnostics = Diagnostics()
    load_program(Path(name), diagnostics)
    assert r"--> a\u{dcff}\u{a}\u{1b}.linnet:2:3" in render(diagnostics)


def test_a_package_without_its_root_module(here: Path) -> None:
    write(here, {"linnet.toml": MANIFEST})
    assert load(here)[1] == [
        "E1202 there is no file src/lib.linnet | a package's root module is `src/lib.linnet`"
    ]


def test_mistakes_of_every_module_are_reported(here: Path) -> None:
    write(
        here,
        {"linnet.toml": MANIFEST, "src/lib.linnet": "use crate.a\nfn", "src/a.linnet": "block"},
    )
    assert [r[:5] for r in load(here)[1]] == ["E1101", "E1101"]


# --- what leaves its package ----------------------------------------------------------------


def test_a_link_out_of_a_package(here: Path) -> None:
    write(here, {"p/linnet.toml": MANIFEST, "p/src/lib.linnet": "use crate.a\nuse crate.b.c"})
    write(here, {"secret.linnet": "", "other/c.linnet": ""})
    (here / "p/src/a.linnet").symlink_to("../../secret.linnet")
    (here / "p/src/b").symlink_to("../../other")
    sources, reported = load(Path("p"))
    assert reported == [
        "E1202 `crate.a` leads out of its package",
        "E1202 `crate.b.c` leads out of its package",
    ]
    assert set(sources.files) == {"crate"}


def test_a_folder_of_sources_that_lies_elsewhere(here: Path) -> None:
    write(here, {"p/linnet.toml": MANIFEST, "other/lib.linnet": ""})
    (here / "p/src").symlink_to("../other")
    assert load(Path("p"))[1] == ["E5001 p/linnet.toml: its `src` leads out of the package"]


def test_links_that_go_in_circles(here: Path) -> None:
    write(
        here,
        {
            "p/linnet.toml": MANIFEST + '[dependencies]\nx = { path = "../loop" }\n',
            "p/src/lib.linnet": "use crate.a",
        },
    )
    (here / "p/src/a.linnet").symlink_to("a.linnet")
    (here / "loop").symlink_to("loop")
    assert [r.partition(":")[0] for r in load(Path("p"))[1]] == [
        "E5001 loop/linnet.toml",
        "E1202 there is no module `crate.a` | did you mean `crate`?",
    ]
    assert load(Path("loop"))[1] == ["E1202 there is no file loop"]


# --- linnet.toml ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 'has no `[package]` table | begin with `[package]` and `name = "…"`'),
        ("package = 3", 'has no `[package]` table | begin with `[package]` and `name = "…"`'),
        ("[package]\nversion = '1'", '`package.name` is missing | add `name = "…"` under'),
        ("[package]\nname = ''", "`package.name` is missing"),
        ("[package]\nname = 3", "`package.name` must be text, found 3"),
        ("[package]\nname = 'p'\nversion = 1.0", "`package.version` must be text, found 1.0"),
        ("[package]\nname = 'p'\nlanguage = [1]", "`package.language` must be text, found [1]"),
        ("[package", "is not valid TOML: Expected ']'"),
        ("a = 1\na = 2", "is not valid TOML: Cannot overwrite a value"),
        ("a = " + "1" * 5000, "is not valid TOML: "),
        ("a = " + "[" * 5000, "is not valid TOML: "),
        (MANIFEST + "dependencies = 3", None),
        ("dependencies = 3\n" + MANIFEST, "`dependencies` must be a table"),
        (MANIFEST + "[dependencies]\nx = '../x'", 'the dependency `x` must be `{ path = "…" }`'),
        (MANIFEST + "[dependencies]\nx = {}", 'the dependency `x` must be `{ path = "…" }`'),
        (MANIFEST + "[dependencies]\nx = { path = 3 }", "the dependency `x` must be `{ path"),
        (MANIFEST + '[dependencies]\nx = { path = "a\\u0000b" }', "the dependency `x` must be"),
        (MANIFEST + "[dependencies]\nstd = { path = 'x' }", "the dependency `std` needs another"),
        (MANIFEST + "[dependencies]\ncrate = { path = 'x' }", "the dependency `crate` needs anot"),
        (MANIFEST + "[dependencies]\ntype = { path = 'x' }", "the dependency `type` needs another"),
        (MANIFEST + "[dependencies]\n'a-b' = { path = 'x' }", "the dependency `a-b` needs another"),
        (MANIFEST + "[dependencies]\n'é' = { path = 'x' }", "the dependency `é` needs another"),
    ],
)
def test_a_manifest_that_is_wrong(here: Path, text: str, expected: str | None) -> None:
    write(here, {"linnet.toml": text, "src/lib.linnet": ""})
    _, reported = load(here)
    if expected is None:  # A key of `[package]` that says nothing here.
        assert reported == []
        return
    (found,) = reported
    assert found.startswith(f"E5001 linnet.toml: {expected}")


def test_a_manifest_that_is_no_text(here: Path) -> None:
    write(here, {"src/lib.linnet": ""})
    (here / "linnet.toml").write_bytes(b"\xff\xfe")
    (found,) = load(here)[1]
    assert found.startswith("E5001 linnet.toml: is not valid TOML")


def test_a_broken_manifest_is_all_that_is_reported(here: Path) -> None:
    write(here, {"linnet.toml": "[package", "src/lib.linnet": "use crate.a", "src/a.linnet": ""})
    for path in (here, Path("src/lib.linnet")):
        sources, (found,) = load(path)
        assert found.startswith("E5001")
        assert sources.files == {}


def test_a_folder_that_is_no_package(here: Path) -> None:
    assert load(here)[1] == [
        "E5001 linnet.toml: cannot be read: No such file or directory | "
        "a package has a `linnet.toml`"
    ]


def test_a_dependency_that_is_not_there(here: Path) -> None:
    write(
        here,
        {
            "linnet.toml": MANIFEST + "[dependencies]\nx = { path = 'x' }\ny = { path = 'x' }",
            "src/lib.linnet": "",
        },
    )
    assert load(here)[1] == [
        "E5001 x/linnet.toml: cannot be read: No such file or directory | "
        "a package has a `linnet.toml`"
    ]


def test_a_chain_of_packages_has_an_end(here: Path) -> None:
    for number in range(packages.MAX_PACKAGES + 1):
        after = f"[dependencies]\nx = {{ path = '../{number + 1}' }}"
        write(here, {f"{number}/linnet.toml": MANIFEST + after, f"{number}/src/lib.linnet": ""})
    (found,) = load(Path("0"))[1]
    assert found == "E5001 100/linnet.toml: this program takes in more than 100 packages"
