"""Modules of one program: what they may take from each other, and what they may not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from linnet.check import check_file
from linnet.diagnostics import render

CASES = {
    "a package of modules": """
        //@ linnet.toml
        [package]
        name = "nets"
        version = "0.1.0"
        language = "0.1"
        //@ src/lib.linnet
        module nets
        use crate.layers.dense::{Dense}
        use crate.scale
        pub block Net<H: Dim> {
            sub first: Dense<H, 2 * H>
            pub entry forward(x: Tensor[H; f32]) -> Tensor[2 * H; f32] {
                return first.forward(x) * scale.FACTOR
            }
        }
        //@ src/layers/dense.linnet
        module nets.layers.dense
        use std.nn.linear::{linear}
        pub block Dense<In: Dim, Out: Dim> {
            param weight: Tensor[Out, In; f32]
            pub fn forward(x: Tensor[In; f32]) -> Tensor[Out; f32] { return linear(x, weight) }
        }
        //@ src/scale.linnet
        module nets.scale
        pub const FACTOR = 0.5
    """,
    "a package that depends on another": """
        //@ linnet.toml
        [package]
        name = "app"
        version = "0.1.0"
        language = "0.1"
        [dependencies]
        parts = { path = "parts" }
        //@ src/lib.linnet
        module app
        use parts::{half}
        use parts.more::{third}
        pub fn f(x: f32) -> f32 { return half(x) + third(x) }
        //@ parts/linnet.toml
        [package]
        name = "parts"
        version = "0.1.0"
        language = "0.1"
        //@ parts/src/lib.linnet
        module parts
        pub fn half(x: f32) -> f32 { return x / 2 }
        //@ parts/src/more.linnet
        module parts.more
        pub fn third(x: f32) -> f32 { return x / 3 }
    """,
    "two modules that import each other": """
        //@ linnet.toml
        [package]
        name = "p"
        version = "0.1.0"
        language = "0.1"
        //@ src/lib.linnet
        module p
        use crate.a::{f}
        pub fn h() -> i64 { return f() }
        //@ src/a.linnet
        module p.a
        use crate.b::{g}
        pub fn f() -> i64 { return g() }
        //@ src/b.linnet
        module p.b
        use crate.a //~ E1206
        pub fn g() -> i64 { return 1 }
    """,
    "a module that imports itself": """
        //@ linnet.toml
        [package]
        name = "p"
        version = "0.1.0"
        language = "0.1"
        //@ src/lib.linnet
        module p
        use crate.a::{f}
        pub fn h() -> i64 { return f() }
        //@ src/a.linnet
        module p.a
        use crate.a //~ E1206
        pub fn f() -> i64 { return 1 }
    """,
    "a private item of another file": """
        //@ linnet.toml
        [package]
        name = "p"
        version = "0.1.0"
        language = "0.1"
        //@ src/lib.linnet
        module p
        use crate.a::{f} //~ E1203
        pub fn h() -> i64 { return f() }
        //@ src/a.linnet
        module p.a
        fn f() -> i64 { return 1 }
    """,
    "a dependency that isn't declared": """
        //@ linnet.toml
        [package]
        name = "p"
        version = "0.1.0"
        language = "0.1"
        //@ src/lib.linnet
        module p
        use q::{f} //~ E1202
        pub fn h() -> i64 { return f() }
    """,
    "a module that has no file": """
        //@ linnet.toml
        [package]
        name = "p"
        version = "0.1.0"
        language = "0.1"
        //@ src/lib.linnet
        module p
        use crate.layers::{f} //~ E1202
        pub fn h() -> i64 { return f() }
    """,
    "a mistake in an imported module": """
        //@ linnet.toml
        [package]
        name = "p"
        version = "0.1.0"
        language = "0.1"
        //@ src/lib.linnet
        module p
        use crate.a::{f}
        pub fn h() -> f32 { return f(2) }
        //@ src/a.linnet
        module p.a
        pub fn f(x: f32) -> f32 { return x & 1 } //~ E2104
    """,
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_a_program_of_several_files(text: str, tmp_path: Path) -> None:
    expected = []
    for part in re.split(r"^ *//@ ", text, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, encoding="utf-8")
        for number, line in enumerate(body.splitlines(), 1):
            expected += [(name, number, code) for code in re.findall(r"//~ (\w+)", line)]
    diagnostics = check_file(tmp_path).diagnostics
    found = [
        (d.span.source.name, d.span.source.position(d.span.start)[0], d.code)
        for d in diagnostics
        if d.span
    ]
    assert len(found) == len(diagnostics)
    shown = f"\n{render(diagnostics)}"
    assert [code for _, _, code in found] == [code for _, _, code in expected], shown
    for (file, number, _), (name, line, _) in zip(found, expected, strict=True):
        assert file.endswith(name) and number == line, shown
