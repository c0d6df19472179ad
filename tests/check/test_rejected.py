# ruff: noqa: E501 (a case reads best on one line)
"""Sources that the checker must refuse, by code: one mistake, one error, nothing that follows."""

from __future__ import annotations

import pytest

from linnet.check import check_text

REJECTED: list[tuple[str, str, str]] = [
    # --- names and modules ------------------------------------------------------------------
    ("E1201", "local", "fn f(x: f32) -> f32 { return y }"),
    ("E1201", "function", "fn f(x: f32) -> f32 { return g(x) }"),
    ("E1201", "type", "fn f(x: Thing) -> f32 { return 1.0 }"),
    ("E1201", "dtype", "fn f(x: Tensor[4; float]) -> f32 { return 1.0 }"),
    ("E1201", "dimension", "fn f(x: Tensor[N; f32]) -> f32 { return 1.0 }"),
    ("E1201", "pack", "fn f(x: Tensor[*S; f32]) -> f32 { return 1.0 }"),
    ("E1201", "assigned", "fn f(x: f32) -> f32 { y = x return x }"),
    ("E1201", "used after its scope", """
        fn f() -> i64 {
            static for i in 0..3 { let y = i + 1 }
            return y
        }"""),
    ("E1201", "imported", "use std.linalg::{matmull}"),
    ("E1201", "generic argument", "fn f(x: f32) -> f64 { return cast<double>(x) }"),
    ("E1201", "where", "fn f<N: Dim>(x: Tensor[N; f32]) -> f32 where M > 0 { return 1.0 }"),
    ("E1202", "no such module", "use std.nn.linaer::{Linear}"),
    ("E1202", "no such package", "use numpy::{dot}"),
    ("E1202", "no package around the file", "use crate.other::{f}"),
    ("E1203", "function", "use std.random::{mix}"),
    ("E1204", "two functions", "fn f() -> i64 { return 1 }\nfn f() -> i64 { return 2 }"),
    ("E1204", "a block and a constant", "const A = 1\nblock A { }"),
    ("E1204", "an import and an item",
     "use std.linalg::{dot}\nfn dot() -> i64 { return 1 }"),
    ("E1204", "two imports", "use std.linalg::{dot}\nuse std.linalg::{outer as dot}"),
    ("E1205", "parameters", "fn f(x: f32, x: f32) -> f32 { return 1.0 }"),
    ("E1205", "generics", "fn f<N: Dim, N: Dim>(x: Tensor[N; f32]) -> f32 { return 1.0 }"),
    ("E1205", "members", "block B { param w: Tensor[2; f32]\nparam w: Tensor[2; f32] }"),
    ("E1205", "member and method",
     "block B { param w: Tensor[2; f32]\nfn w() -> i64 { return 1 } }"),
    ("E1205", "member and generic", "block B<w: Dim> { param w: Tensor[2; f32] }"),
    ("E1205", "methods", "block B { fn f() -> i64 { return 1 } fn f() -> i64 { return 1 } }"),
    ("E1205", "fields", "struct P { x: f32 x: f32 }"),
    ("E1205", "variants", "enum E { A, B, A }"),
    ("E1205", "parameter and generic", "fn f<x: Dim>(x: f32) -> f32 { return 1.0 }"),
    ("E1205", "method's generic and the block's",
     "block B<N: Dim> { fn f<N: Dim>(x: Tensor[N; f32]) -> i64 { return 1 } }"),
    ("E1205", "names of a pattern", "fn f(p: (f32, f32)) -> f32 { let (a, a) = p return a }"),
    ("E1207", "function", "fn sqrt(x: f32) -> f32 { return x }"),
    ("E1207", "local", "fn f(x: f32) -> f32 { let exp = x return x }"),
    ("E1207", "parameter", "fn f(max: f32) -> f32 { return 1.0 }"),
    ("E1207", "generic", "fn f<f32: Dim>() -> i64 { return 1 }"),
    ("E1207", "member", "block B { param cast: Tensor[2; f32] }"),
    ("E1207", "import", "use std.linalg::{dot as max}"),
    ("E1207", "kind", "type Dim = f32"),
    ("E1207", "index", "fn f(x: Tensor[4; f32]) -> Tensor[4; f32] { let y[exp] = x[exp] return y }"),
    ("E1208", "type as value", "fn f() -> f32 { return f32 }"),
    ("E1208", "function as value", "fn g() -> f32 { return 1.0 }\nfn f() -> f32 { return g }"),
    ("E1208", "dtype generic as value", "fn f<T: Float>(x: T) -> T { return T }"),
    ("E1208", "block as value",
     "block A { }\nblock B { sub a: A\nfn f() -> i64 { let x = a return 1 } }"),
    ("E1208", "block as a parameter's type", "block A { }\nfn f(x: A) -> i64 { return 1 }"),
    ("E1208", "block as a parameter's type, by an alias",
     "block A { }\ntype B = A\nfn f(x: B) -> i64 { return 1 }"),
    ("E1208", "constant as type", "const N = 1\nfn f(x: N) -> i64 { return 1 }"),
    ("E1208", "dimension as dtype", "fn f<N: Dim>(x: Tensor[N; N]) -> i64 { return 1 }"),
    ("E1208", "dimension as type", "fn f<N: Dim>(x: N) -> i64 { return 1 }"),
    ("E1208", "enum as value", "enum E { A }\nfn f() -> E { return E }"),
    # --- types ------------------------------------------------------------------------------
    ("E2101", "tuple for a tensor", "fn f(x: f32) -> f32 { return (x, x) }"),
    ("E2101", "optional for a tensor", "fn f(x: f32?) -> f32 { return x }"),
    ("E2101", "tensor for an optional", "fn f(x: f32) -> f32? { return x }"),
    ("E2101", "optional in arithmetic", "fn f(x: f32?) -> f32 { return x + 1 }"),
    ("E2101", "nothing returned", "fn f(x: f32) -> f32 { return }"),
    ("E2101", "a value from a function without result", "fn f(x: f32) { return x }"),
    ("E2101", "text", 'fn f() -> f32 { return "text" }'),
    ("E2101", "argument",
     "fn g(x: (f32, f32)) -> f32 { return 1.0 }\nfn f(x: f32) -> f32 { return g(x) }"),
    ("E2101", "number for a tuple", "fn g(x: (f32, f32)) -> f32 { return 1.0 }\n"
     "fn f() -> f32 { return g(1) }"),
    ("E2101", "optional sub-block called", """
        block A { fn f() -> i64 { return 1 } }
        block B { sub a: A = none
            fn f() -> i64 { return a.f() } }"""),
    ("E2101", "list as a value", "fn f() -> Tensor[2; f32] { return [1, 2] }"),
    ("E2101", "optional twice", "type A = f32?\nfn f(x: A?) -> i64 { return 1 }"),
    ("E2102", "too many", "fn g(x: f32) -> f32 { return x }\nfn f(x: f32) -> f32 { return g(x, x) }"),
    ("E2102", "missing", "fn g(x: f32, y: f32) -> f32 { return x }\nfn f(x: f32) -> f32 { return g(x) }"),
    ("E2102", "unknown keyword",
     "fn g(x: f32) -> f32 { return x }\nfn f(x: f32) -> f32 { return g(x, y = x) }"),
    ("E2102", "given twice",
     "fn g(x: f32) -> f32 { return x }\nfn f(x: f32) -> f32 { return g(x, x = x) }"),
    ("E2102", "positional after keyword",
     "fn g(x: f32, y: f32) -> f32 { return x }\nfn f(x: f32) -> f32 { return g(x = x, x) }"),
    ("E2102", "prelude", "fn f(x: f32) -> f32 { return exp(x, x) }"),
    ("E2102", "prelude keyword", "fn f(x: f32) -> f32 { return exp(x = x) }"),
    ("E2102", "concat of one",
     "fn f(x: Tensor[2; f32]) -> Tensor[2; f32] { return concat(x, axis = 0) }"),
    ("E2102", "a struct's field missing",
     "struct P { x: f32 y: f32 }\nfn f(x: f32) -> P { return P(x = x) }"),
    ("E2102", "a struct's fields by position",
     "struct P { x: f32 y: f32 }\nfn f(x: f32) -> P { return P(x, x) }"),
    ("E2103", "operator", "fn f(x: bf16, y: f32) -> f32 { return x + y }"),
    ("E2103", "result", "fn f(x: bf16) -> f32 { return x }"),
    ("E2103", "argument", "fn g(x: f32) -> f32 { return x }\nfn f(x: f16) -> f32 { return g(x) }"),
    ("E2103", "one generic, two dtypes",
     "fn g<T: Float>(x: T, y: T) -> T { return x }\n"
     "fn f(x: f16, y: f32) -> f16 { return g(x, y) }"),
    ("E2103", "select", "fn f(c: bool, x: f32, y: f64) -> f32 { return select(c, x, y) }"),
    ("E2103", "concat", "fn f(x: Tensor[2; f32], y: Tensor[2; f16]) -> Tensor[4; f32] {"
     " return concat(x, y, axis = 0) }"),
    ("E2103", "accumulator",
     "fn f(x: Tensor[4; bf16]) -> f32 { return sum<f32>[i] x[i] }"),
    ("E2103", "a let of a number is i64", "fn f(x: f32) -> f32 { let n = 2 return x * n }"),
    ("E2104", "arithmetic on bool", "fn f(x: bool) -> bool { return x + x }"),
    ("E2104", "exp of an integer", "fn f(x: i32) -> i32 { return exp(x) }"),
    ("E2104", "remainder of floats", "fn f(x: f32) -> f32 { return x % x }"),
    ("E2104", "bits of floats", "fn f(x: f32) -> f32 { return x & x }"),
    ("E2104", "shift of floats", "fn f(x: f32) -> f32 { return shl(x, x) }"),
    ("E2104", "order of bools", "fn f(x: bool) -> bool { return x < x }"),
    ("E2104", "generic of any dtype", "fn f<T: DType>(x: T) -> T { return x + x }"),
    ("E2104", "exp of a numeric generic", "fn f<T: Numeric>(x: T) -> T { return exp(x) }"),
    ("E2104", "minus on bool", "fn f(x: bool) -> bool { return -x }"),
    ("E2104", "sum of bool", "fn f(x: Tensor[4; bool]) -> bool { return sum[i] x[i] }"),
    ("E2104", "any of numbers", "fn f(x: Tensor[4; f32]) -> f32 { return any[i] x[i] }"),
    ("E2104", "enums compared", "enum E { A, B }\nfn f(x: E, y: E) -> bool { return x == y }"),
    ("E2105", "float for an integer", "fn f(x: i32) -> i32 { return x + 1.5 }"),
    ("E2105", "too large", "fn f(x: i8) -> i8 { return x + 200 }"),
    ("E2105", "negative for unsigned", "fn f(x: u8) -> u8 { return x * -1 }"),
    ("E2105", "number for bool", "fn f() -> bool { return 1 }"),
    ("E2105", "beyond i64", "fn f() -> i64 { return 9223372036854775808 }"),
    ("E2105", "constant arithmetic beyond i64",
     "fn f() -> i64 { return 9223372036854775807 + 1 }"),
    ("E2105", "f16", "fn f(x: f16) -> f16 { return x * 100000 }"),
    ("E2105", "integer generic", "fn f<T: Integer>(x: T) -> T { return x + 1000 }"),
    ("E2106", "local", "fn f(x: f32) -> f32 { return x(1) }"),
    ("E2106", "dtype", "fn f(x: f32) -> f64 { return f64(x) }"),
    ("E2106", "block", "block A { }\nfn f() -> i64 { return A() }"),
    ("E2106", "sub-block", """
        block A { }
        block B { sub a: A
            fn f() -> i64 { return a() } }"""),
    ("E2106", "member of a sub-block", """
        block A { param w: Tensor[2; f32] }
        block B { sub a: A
            fn f() -> i64 { return a.w() } }"""),
    ("E2106", "method of a value", "fn f(x: f32) -> f32 { return x.sum() }"),
    ("E2106", "constant", "const N = 1\nfn f() -> i64 { return N() }"),
    ("E2107", "field", "struct P { x: f32 }\nfn f(p: P) -> f32 { return p.y }"),
    ("E2107", "field of a tensor", "fn f(x: f32) -> f32 { return x.shape }"),
    ("E2107", "method", """
        block A { fn f() -> i64 { return 1 } }
        block B { sub a: A
            fn f() -> i64 { return a.g() } }"""),
    ("E2107", "member", """
        block A { param w: f32 }
        block B { sub a: A
            fn f() -> f32 { return a.b } }"""),
    ("E2107", "variant", "enum E { A, B }\nfn f() -> E { return E.C }"),
    ("E2107", "an array's method", """
        block A { fn f() -> i64 { return 1 } }
        block B { sub a: [A; 3]
            fn f() -> i64 { return a.f() } }"""),
    ("E2107", "another block's state", """
        block A { state s: Tensor[2; f32] }
        block B { sub a: A
            fn f() -> Tensor[2; f32] { return a.s } }"""),
    ("E2108", "let", "fn f(x: f32) -> f32 { let y = x y = x return y }"),
    ("E2108", "parameter", "fn f(x: f32) -> f32 { x = x return x }"),
    ("E2108", "weight",
     "block B { param w: Tensor[2; f32]\nfn f() -> i64 { w = w return 1 } }"),
    ("E2108", "generic", "fn f<N: Dim>(x: Tensor[N; f32]) -> f32 { N = 1 return 1.0 }"),
    ("E2108", "constant", "const N = 1\nfn f() -> f32 { N = 1 return 1.0 }"),
    ("E2108", "loop variable", "fn f() -> f32 { static for i in 0..3 { i = 1 } return 1.0 }"),
    ("E2109", "dtype", "fn f(x: f32, y: f64) -> f32 { var z = x z = y return z }"),
    ("E2109", "shape", "fn f(x: Tensor[2; f32], y: Tensor[3; f32]) -> Tensor[2; f32] {"
     " var z = x z = y return z }"),
    ("E2109", "shape grown in a loop", """
        fn f(x: Tensor[2; f32]) -> Tensor[2; f32] {
            var z = x
            static for i in 0..3 { z = concat(z, x, axis = 0) }
            return z
        }"""),
    ("E2109", "state", """
        block B { state s: Tensor[2; f32]
            fn f(x: Tensor[3; f32]) -> i64 { s = x return 1 } }"""),
    ("E2110", "dimension", "fn g<N: Dim>() -> Tensor[N; f32] { return fill([N], 1.0) }\n"
     "fn f() -> i64 { let x = g() return 1 }"),
    ("E2110", "dtype", "fn g<T: Float>() -> T { return 1.0 }\nfn f() -> i64 { let x = g() return 1 }"),
    ("E2110", "product of two", "fn g<N: Dim, M: Dim>(x: Tensor[N * M; f32]) -> i64 { return 1 }\n"
     "fn f(x: Tensor[6; f32]) -> i64 { return g(x) }"),
    ("E2110", "cast without a dtype", "fn f(x: f32) -> f64 { return cast(x) }"),
    ("E2110", "from none", "fn g<N: Dim>(x: Tensor[N; f32]? = none) -> i64 { return 1 }\n"
     "fn f() -> i64 { return g() }"),
    ("E2111", "too many", "fn g<N: Dim>(x: Tensor[N; f32]) -> i64 { return 1 }\n"
     "fn f(x: Tensor[6; f32]) -> i64 { return g<6, 7>(x) }"),
    ("E2111", "dtype for a dimension", "fn g<N: Dim>(x: Tensor[N; f32]) -> i64 { return 1 }\n"
     "fn f(x: Tensor[6; f32]) -> i64 { return g<f32>(x) }"),
    ("E2111", "dimension for a dtype", "fn g<T: Float>(x: T) -> i64 { return 1 }\n"
     "fn f(x: f32) -> i64 { return g<6>(x) }"),
    ("E2111", "missing for a block", "block A<N: Dim> { }\nblock B { sub a: A }"),
    ("E2111", "too many for a block", "block A<N: Dim> { }\nblock B { sub a: A<1, 2> }"),
    ("E2111", "no such kind", "fn f<N: Size>() -> i64 { return 1 }"),
    ("E2111", "a shape without its star", "fn f<S: Shape>(x: Tensor[*S; f32]) -> i64 { return 1 }"),
    ("E2111", "a star without a shape", "fn f<*N: Dim>(x: f32) -> i64 { return 1 }"),
    ("E2111", "Tensor alone", "fn f(x: Tensor) -> i64 { return 1 }"),
    ("E2111", "generics of an enum", "enum E { A }\nfn f(x: E<1>) -> i64 { return 1 }"),
    ("E2111", "prelude", "fn f(x: f32) -> f32 { return exp<f32>(x) }"),
    ("E2112", "argument", "fn g<T: Float>(x: T) -> T { return x }\nfn f(x: i32) -> i32 { return g(x) }"),
    ("E2112", "written", "fn g<T: Float>(x: T) -> T { return x }\n"
     "fn f(x: i32) -> i32 { return g<i32>(x) }"),
    ("E2112", "a wider generic", "fn g<T: Float>(x: T) -> T { return x }\n"
     "fn f<T: Numeric>(x: T) -> T { return g(x) }"),
    ("E2112", "block", "block A<T: Float> { }\nblock B { sub a: A<i8> }"),
    ("E2112", "default", "block A<T: Float = i8> { }"),
    ("E2113", "result", "fn f() -> f32 { return none }"),
    ("E2113", "without context", "fn f() -> f32 { let x = none return 1.0 }"),
    ("E2113", "argument", "fn g(x: f32) -> f32 { return x }\nfn f() -> f32 { return g(none) }"),
    ("E2114", "if of a number", "fn f(x: i32) -> i32 { return if x { 1 } else { 2 } }"),
    ("E2114", "if of a tensor",
     "fn f(x: Tensor[2; bool]) -> i32 { return if x { 1 } else { 2 } }"),
    ("E2114", "while", "fn f(x: i32) -> i32 { while x { } return 1 }"),
    ("E2114", "select", "fn f(x: i32) -> i32 { return select(x, x, x) }"),
    ("E2115", "if", "fn f(c: bool, x: f32, y: f64) -> f32 { let z = if c { x } else { y } return x }"),
    ("E2115", "shapes", "fn f(c: bool, x: Tensor[2; f32], y: Tensor[3; f32]) -> i64 {"
     " let z = if c { x } else { y } return 1 }"),
    ("E2115", "match", "fn f(x: f32?, y: f64) -> i64 {"
     " let z = match x { some(v) => v, none => y } return 1 }"),
    ("E2116", "and of tensors", "fn f(x: Tensor[2; bool]) -> Tensor[2; bool] { return x && x }"),
    ("E2116", "or of numbers", "fn f(x: i32, y: i32) -> bool { return x || y }"),
    ("E2116", "not of a number", "fn f(x: i32) -> bool { return !x }"),
    ("E2116", "not of a literal", "fn f() -> bool { return !1 }"),
    ("E2117", "tuple of another length", "fn f(p: (f32, f32)) -> f32 { let (a, b, c) = p return a }"),
    ("E2117", "tuple of a tensor", "fn f(p: f32) -> f32 { let (a, b) = p return a }"),
    ("E2117", "match of a tensor", "fn f(x: f32) -> f32 { return match x { some(v) => v, none => x } }"),
    ("E2117", "variant of another enum",
     "enum E { A }\nfn f(x: E) -> i64 { return match x { A => 1, C => 2 } }"),
    ("E2117", "variant twice",
     "enum E { A, B }\nfn f(x: E) -> i64 { return match x { A => 1, B => 3, A => 2 } }"),
    ("E2117", "some in a let", "fn f(x: f32?) -> f32 { let some(v) = x return v }"),
    ("E2117", "case twice", "fn f(x: f32?) -> f32 {"
     " return match x { some(v) => v, none => 1.0, none => 2.0 } }"),
    ("E2117", "a block that is always there", """
        block A { fn f() -> i64 { return 1 } }
        block B { sub a: A
            fn f() -> i64 { return match a { some(x) => x.f(), none => 2 } } }"""),
    ("E2118", "none", "fn f(x: f32?) -> f32 { return match x { some(v) => v } }"),
    ("E2118", "some", "fn f(x: f32?) -> f32 { return match x { none => 1.0 } }"),
    ("E2118", "variant", "enum E { A, B }\nfn f(x: E) -> i64 { return match x { A => 1 } }"),
    ("E2118", "nothing at all", "enum E { A, B }\nfn f(x: E) -> i64 { return match x { } }"),
    ("E2119", "direct", "fn f(x: f32) -> f32 { return f(x) }"),
    ("E2119", "indirect", "fn f(x: f32) -> f32 { return g(x) }\nfn g(x: f32) -> f32 { return f(x) }"),
    ("E2119", "method", "block B { fn f() -> i64 { return f() } }"),
    ("E2119", "block in itself", "block B { sub b: B }"),
    ("E2119", "block in a block in itself", "block A { sub b: B }\nblock B { sub a: [A; 2] }"),
    ("E2120", "no return", "fn f(x: f32) -> f32 { let _y = x }"),
    ("E2120", "empty", "fn f(x: f32) -> f32 { }"),
    ("E2120", "statements after", "fn f(x: f32) -> f32 { return x let y = x }"),
    ("E2120", "in a loop", "fn f(x: f32) -> f32 { static for i in 0..3 { return x } return x }"),
    ("E2120", "only in a loop", "fn f(x: f32) -> f32 { while true { return x } }"),
    ("E2120", "no return and no result", "fn f(x: f32) { let _y = x }"),
    ("E2120", "yield outside of a scan", "fn f(x: f32) -> f32 { yield x return x }"),
    ("E2120", "scan without yield", "fn f(x: f32) -> f32 { let y = for i in 0..3 { } return x }"),
    ("E2120", "yield without a name", "fn f(x: f32) -> f32 { for i in 0..3 { yield x } return x }"),
    ("E2121", "tensor", "fn f(x: Tensor[2; f32]) -> f32 { static for y in x { } return 1.0 }"),
    ("E2121", "one block", """
        block A { }
        block B { sub a: A
            fn f() -> i64 { static for x in a { } return 1 } }"""),
    ("E2121", "runtime range", "fn f(n: i64) -> f32 { static for i in 0..n { } return 1.0 }"),
    ("E2122", "constant", "const A = A + 1"),
    ("E2122", "constants", "const A = B\nconst B = A"),
    ("E2122", "alias", "type A = A?"),
    ("E2122", "struct", "struct S { x: S? }"),
    ("E2123", "dimension of a runtime value",
     "fn f(n: i64) -> i64 { let x = fill([n], 1.0) return 1 }"),
    ("E2123", "float dimension", "fn f(x: Tensor[1.5; f32]) -> i64 { return 1 }"),
    ("E2123", "float constant as dimension",
     "const E = 1.5\nfn f(x: Tensor[E; f32]) -> i64 { return 1 }"),
    ("E2123", "typed constant as dimension",
     "const E: f32 = 1.5\nfn f(x: Tensor[E; f32]) -> i64 { return 1 }"),
    ("E2123", "loop bound", "fn f(n: i64) -> i64 { for i in 0..n { } return 1 }"),
    ("E2123", "where", "fn f(n: i64) -> i64 where n > 0 { return 1 }"),
    ("E2123", "generic argument", "fn g<N: Dim>() -> i64 { return 1 }\nfn f(n: i64) -> i64 { return g<n>() }"),
    ("E2123", "count of blocks", "block A { }\nblock B { sub a: [A; true] }"),
    # --- shapes -----------------------------------------------------------------------------
    ("E2201", "two extents", "fn f(x: Tensor[2; f32], y: Tensor[3; f32]) -> Tensor[2; f32] {"
     " let z[i] = x[i] + y[i] return z }"),
    ("E2201", "symbolic", "fn f<N: Dim, M: Dim>(x: Tensor[N; f32], y: Tensor[M; f32]) -> f32 {"
     " return sum[i] x[i] * y[i] }"),
    ("E2201", "packs", "fn f<*S: Shape, *R: Shape>(x: Tensor[*S; f32], y: Tensor[*R; f32]) ->"
     " Tensor[*S; f32] { let z[*s] = x[*s] + y[*s] return z }"),
    ("E2201", "diagonal", "fn f<N: Dim, M: Dim>(x: Tensor[N, M; f32]) -> Tensor[N; f32] {"
     " let z[i] = x[i, i] return z }"),
    ("E2202", "result", "fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N + 1; f32] { return x }"),
    ("E2202", "argument", "fn g(x: Tensor[2; f32]) -> i64 { return 1 }\n"
     "fn f(x: Tensor[3; f32]) -> i64 { return g(x) }"),
    ("E2202", "rank", "fn g(x: Tensor[2; f32]) -> i64 { return 1 }\n"
     "fn f(x: Tensor[2, 1; f32]) -> i64 { return g(x) }"),
    ("E2202", "one generic, two extents",
     "fn g<N: Dim>(x: Tensor[N; f32], y: Tensor[N; f32]) -> i64 { return 1 }\n"
     "fn f(x: Tensor[2; f32], y: Tensor[3; f32]) -> i64 { return g(x, y) }"),
    ("E2202", "concat", "fn f(x: Tensor[2, 3; f32], y: Tensor[2, 4; f32]) -> i64 {"
     " let z = concat(x, y, axis = 0) return 1 }"),
    ("E2202", "number for a tensor", "fn f() -> Tensor[2; f32] { return 1.0 }"),
    ("E2202", "scalar for a tensor", "fn f(x: f32) -> Tensor[2; f32] { return x }"),
    ("E2202", "no multiple", "fn g<N: Dim>(x: Tensor[3 * N; f32]) -> i64 { return 1 }\n"
     "fn f(x: Tensor[7; f32]) -> i64 { return g<2>(x) }"),
    ("E2203", "constant", "fn f(x: Tensor[6; f32]) -> Tensor[4; f32] { return reshape(x, [4]) }"),
    ("E2203", "not known to divide", "fn f<N: Dim, H: Dim>(x: Tensor[N; f32]) -> i64 where H > 0 {"
     " let y = reshape(x, [H, N / H]) return 1 }"),
    ("E2203", "pack", "fn f<*S: Shape>(x: Tensor[*S; f32]) -> i64 {"
     " let y = reshape(x, [4]) return 1 }"),
    ("E2204", "too many", "fn f(x: Tensor[2; f32]) -> f32 { return x[0, 0] }"),
    ("E2204", "too few in index notation",
     "fn f(x: Tensor[2, 2; f32]) -> Tensor[2; f32] { let y[i] = x[i] return y }"),
    ("E2204", "of a scalar", "fn f(x: f32) -> f32 { return x[0] }"),
    ("E2204", "a pack sliced", "fn f<*S: Shape>(x: Tensor[*S, 4; f32]) -> i64 {"
     " let y = x[:, 0] return 1 }"),
    ("E2205", "dimension", "fn f<N: Dim, M: Dim>(x: Tensor[N / M; f32]) -> i64 { return 1 }"),
    ("E2205", "zero", "fn f(x: Tensor[4 / 0; f32]) -> i64 { return 1 }"),
    ("E2205", "remainder", "fn f<N: Dim, M: Dim>(x: Tensor[N; f32]) -> i64 where N % M == 0 { return 1 }"),
    ("E2206", "function", "fn g<N: Dim>(x: Tensor[N; f32]) -> i64 where N > 4 { return 1 }\n"
     "fn f(x: Tensor[3; f32]) -> i64 { return g(x) }"),
    ("E2206", "symbolic", "fn g<N: Dim>(x: Tensor[N; f32]) -> i64 where N % 2 == 0 { return 1 }\n"
     "fn f<N: Dim>(x: Tensor[N; f32]) -> i64 { return g(x) }"),
    ("E2206", "sub-block", "block A<N: Dim> where N > 0 { }\nblock B<N: Dim> { sub a: A<N> }"),
    ("E2206", "array of sub-blocks", "block A<N: Dim> where N > 0 { }\nblock B { sub a: [A<0>; 2] }"),
    ("E2207", "constant", "fn f(x: Tensor[2; f32], y: Tensor[3; f32]) -> i64 { let z = x + y return 1 }"),
    ("E2207", "symbolic", "fn f<N: Dim, M: Dim>(x: Tensor[N; f32], y: Tensor[M; f32]) -> i64 {"
     " let z = x * y return 1 }"),
    ("E2207", "select", "fn f(c: Tensor[2; bool], x: Tensor[3; f32]) -> i64 {"
     " let z = select(c, x, 0) return 1 }"),
    ("E2207", "broadcast_to", "fn f(x: Tensor[2; f32]) -> i64 { let z = broadcast_to(x, [3]) return 1 }"),
    ("E2207", "broadcast_to a smaller shape",
     "fn f(x: Tensor[2, 2; f32]) -> i64 { let z = broadcast_to(x, [2]) return 1 }"),
    ("E2208", "type", "fn f(x: Tensor[2 - 3; f32]) -> i64 { return 1 }"),
    ("E2208", "fill", "fn f() -> i64 { let x = fill([0 - 1], 1.0) return 1 }"),
    ("E2208", "iota", "fn f() -> i64 { let x = iota(-4) return 1 }"),
    ("E2208", "generic argument", "fn g<N: Dim>() -> i64 { return 1 }\nfn f() -> i64 { return g<-1>() }"),
    ("E2208", "symbolic", "fn f<N: Dim>(x: Tensor[N; f32]) -> i64 { let y = fill([-N - 1], 1.0) return 1 }"),
    ("E2208", "count of blocks", "block A { }\nblock B { sub a: [A; -1] }"),
    ("E2208", "loop", "fn f() -> i64 { for i in -1..3 { } return 1 }"),
    ("E2209", "beyond the end", "fn f(x: Tensor[4; f32]) -> f32 { return x[4] }"),
    ("E2209", "negative", "fn f(x: Tensor[4; f32]) -> f32 { return x[-1] }"),
    ("E2209", "slice beyond the end", "fn f(x: Tensor[4; f32]) -> i64 { let y = x[2:5] return 1 }"),
    ("E2209", "slice backwards", "fn f(x: Tensor[4; f32]) -> i64 { let y = x[3:2] return 1 }"),
    ("E2209", "negative slice", "fn f(x: Tensor[4; f32]) -> i64 { let y = x[-2:] return 1 }"),
    ("E2209", "step zero", "fn f(x: Tensor[4; f32]) -> i64 { let y = x[::0] return 1 }"),
    ("E2209", "symbolic step", "fn f<N: Dim>(x: Tensor[4; f32]) -> i64 { let y = x[::N] return 1 }"),
    ("E2209", "not known to be in range", "fn f<N: Dim>(x: Tensor[N; f32]) -> f32 { return x[0] }"),
    ("E2209", "float", "fn f(x: Tensor[4; f32]) -> f32 { return x[1.5] }"),
    ("E2209", "runtime float", "fn f(x: Tensor[4; f32], i: f32) -> f32 { return x[i] }"),
    ("E2209", "tensor", "fn f(x: Tensor[4; f32], i: Tensor[2; i32]) -> i64 { let y = x[i] return 1 }"),
    ("E2209", "two ellipses", "fn f(x: Tensor[4, 4; f32]) -> i64 { let y = x[..., ...] return 1 }"),
    ("E2209", "affine", "fn f<N: Dim>(x: Tensor[N; f32], y: Tensor[N; f32]) -> Tensor[N; f32] {"
     " let z[i] = y[i] + x[i + 1] return z }"),
    ("E2209", "constant in index notation",
     "fn f(x: Tensor[2, 3; f32]) -> Tensor[2; f32] { let z[i] = x[i, 3] return z }"),
    ("E2209", "an array's element", """
        block A { fn f() -> i64 { return 1 } }
        block B { sub a: [A; 3]
            fn f() -> i64 { return a[3].f() } }"""),
    ("E2210", "permutation twice", "fn f(x: Tensor[2, 3; f32]) -> i64 { let y = permute(x, [0, 0]) return 1 }"),
    ("E2210", "permutation too short",
     "fn f(x: Tensor[2, 3; f32]) -> i64 { let y = permute(x, [0]) return 1 }"),
    ("E2210", "axis", "fn f(x: Tensor[2; f32]) -> i64 { let y = concat(x, x, axis = 1) return 1 }"),
    ("E2210", "symbolic axis",
     "fn f<N: Dim>(x: Tensor[2; f32]) -> i64 { let y = concat(x, x, axis = N) return 1 }"),
    ("E2210", "scalars joined", "fn f(x: f32) -> i64 { let y = concat(x, x, axis = 0) return 1 }"),
    # --- index notation ---------------------------------------------------------------------
    ("E3101", "neither", "fn f(x: Tensor[2, 3; f32]) -> Tensor[2; f32] { let z[i] = x[i, j] return z }"),
    ("E3101", "pack", "fn f<*S: Shape>(x: Tensor[*S; f32]) -> f32 { return sum[i] x[*s] }"),
    ("E3101", "in a gather", "fn f(x: Tensor[4; f32], y: Tensor[3; i32]) -> Tensor[4; f32] {"
     " let z[i] = x[i] + x[y[j]] return z }"),
    ("E3102", "unused", "fn f(x: Tensor[2; f32]) -> Tensor[2; f32] { let z[i] = sum[k] x[i] return z }"),
    ("E3103", "unused", "fn f(x: Tensor[2; f32]) -> i64 { let z[i, j] = x[i] return 1 }"),
    ("E3103", "pack", "fn f(x: Tensor[2; f32]) -> i64 { let z[*s, i] = x[i] return 1 }"),
    ("E3104", "index as a value",
     "fn f(x: Tensor[2; f32]) -> Tensor[2; f32] { let z[i] = x[i] * i return z }"),
    ("E3104", "whole tensor", "fn f(x: Tensor[2; f32]) -> i64 { let z[i] = x return 1 }"),
    ("E3104", "slice", "fn f(x: Tensor[2, 3; f32]) -> i64 { let z[i] = x[i, :] return 1 }"),
    ("E3104", "reshape", "fn f(x: Tensor[2; f32]) -> i64 { let z[i] = reshape(x[i], [1]) return 1 }"),
    ("E3104", "an argument that varies",
     "fn g(x: f32) -> f32 { return x }\n"
     "fn f(x: Tensor[2; f32]) -> Tensor[2; f32] { let z[i] = g(x[i]) return z }"),
    ("E3104", "a condition that varies",
     "fn f(x: Tensor[2; f32]) -> i64 { let z[i] = if x[i] > 0 { x[i] } else { 0 } return 1 }"),
    ("E3104", "a tuple", "fn f(x: Tensor[2; f32]) -> i64 { let z[i] = (x[i], x[i]) return 1 }"),
    ("E3104", "an index in a dimension",
     "fn f(x: Tensor[2; f32]) -> i64 { let z[i] = x[i] + iota<f32>(i)[i] return 1 }"),
    ("E3104", "a subject that varies",
     "fn f(x: Tensor[2; f32], y: f32?) -> i64 {"
     " let z[i] = match some(x[i]) { some(v) => v, none => x[i] } return 1 }"),
    ("E3105", "outputs", "fn f(x: Tensor[2, 2; f32]) -> i64 { let z[i, i] = x[i, i] return 1 }"),
    ("E3105", "reduced", "fn f(x: Tensor[2, 2; f32]) -> f32 { return sum[k, k] x[k, k] }"),
    ("E3105", "an output reduced",
     "fn f(x: Tensor[2; f32]) -> Tensor[2; f32] { let z[i] = sum[i] x[i] return z }"),
    ("E3105", "reduced within its reduction",
     "fn f(x: Tensor[2; f32]) -> f32 { return sum[k] x[k] * (sum[k] x[k]) }"),
    ("E3106", "plain for a pack", "fn f<*S: Shape>(x: Tensor[*S; f32]) -> i64 { let z[s] = x[s] return 1 }"),
    ("E3106", "pack for plain", "fn f<N: Dim>(x: Tensor[N; f32]) -> i64 { let z[i] = x[*i] return 1 }"),
    ("E3106", "pack without its star",
     "fn f<*S: Shape>(x: Tensor[*S; f32]) -> i64 { let z[*s] = x[s] return 1 }"),
    ("E3106", "pack as a dimension", "fn f<*S: Shape>(x: Tensor[S; f32]) -> i64 { return 1 }"),
    ("E3106", "two packs", "fn f<*S: Shape, *R: Shape>(x: Tensor[*S, *R; f32]) -> i64 { return 1 }"),
    ("E3106", "dimension as a pack", "fn f<N: Dim>(x: Tensor[*N; f32]) -> i64 { return 1 }"),
    # --- members ----------------------------------------------------------------------------
    ("E4101", "block as a param", "block A { }\nblock B { param a: A }"),
    ("E4101", "tensor as a sub", "block B { sub a: Tensor[2; f32] }"),
    ("E4101", "tuple as a param", "block B { param a: (f32, f32) }"),
    ("E4101", "optional state", "block B { state a: Tensor[2; f32]? }"),
    ("E4101", "optional buffer", "block B { buffer a: Tensor[2; f32]? }"),
    ("E4101", "array of tensors", "block B { param a: [f32; 3] }"),
    ("E4102", "number", "block B { param a: f32 = 1.0 }"),
    ("E4102", "sub", "block A { }\nblock B { sub a: A = 1 }"),
    ("E4102", "state", "block B { state a: Tensor[2; f32] = fill([2], 0.0) }"),
]


@pytest.mark.parametrize(
    ("code", "source"),
    [pytest.param(code, source, id=f"{code} {name}") for code, name, source in REJECTED],
)
def test_rejected(code: str, source: str):
    result = check_text(f"module m\n{source}\n")
    assert [d.code for d in result.diagnostics] == [code]
    assert result.program is None


def test_every_code_of_the_checker_is_covered():
    reported = {code for code, _, _ in REJECTED}
    names = "1201-1205 1207-1208 2101-2123 2201-2210 3101-3106 4101-4102"
    for part in names.split():
        first, last = map(int, part.split("-"))
        for number in range(first, last + 1):
            assert f"E{number}" in reported
