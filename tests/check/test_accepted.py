# ruff: noqa: E501 (a case reads best on one line)
"""Sources that the checker must accept, feature by feature, without a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

import linnet
from linnet.check import check_file, check_text
from linnet.diagnostics import render

SOURCES = Path(linnet.__file__).parent

WHOLE_MODEL = """
module tiny_lm

use std.nn.attention::{attention, causal_mask}
use std.nn.embedding::{Embedding}
use std.nn.linear::{Linear}
use std.nn.mlp::{SwiGlu}
use std.nn.norm::{RmsNorm}

pub block Layer<H: Dim, Heads: Dim, Inner: Dim, T: Float = bf16>
where Heads > 0, H % Heads == 0
{
    sub norm: RmsNorm<H, T>
    sub qkv: Linear<H, 3 * H, T>
    sub out: Linear<H, H, T>
    sub mlp_norm: RmsNorm<H, T>
    sub mlp: SwiGlu<H, Inner, T>

    pub fn forward<B: Dim, S: Dim>(x: Tensor[B, S, H; T]) -> Tensor[B, S, H; T] {
        let p = qkv.forward(norm.forward(x))
        let q = heads<B, S, Heads, H / Heads, T>(p[:, :, 0:H])
        let k = heads<B, S, Heads, H / Heads, T>(p[:, :, H:2 * H])
        let v = heads<B, S, Heads, H / Heads, T>(p[:, :, 2 * H:3 * H])
        let a = attention(q, k, v, rsqrt(cast<f32>(H / Heads)), some(causal_mask<S, S>()))
        let y = x + out.forward(reshape(permute(a, [0, 2, 1, 3]), [B, S, H]))
        return y + mlp.forward(mlp_norm.forward(y))
    }
}

pub block Model<Vocab: Dim, H: Dim, Heads: Dim, Inner: Dim, Layers: Dim, T: Float = bf16>
where Heads > 0, H % Heads == 0
{
    sub embedding: Embedding<Vocab, H, T>
    sub layers: [Layer<H, Heads, Inner, T>; Layers]
    sub norm: RmsNorm<H, T>
    sub lm_head: Linear<H, Vocab, T>

    pub entry forward<B: Dim, S: Dim>(tokens: Tensor[B, S; i32]) -> Tensor[B, S, Vocab; T] {
        var x = embedding.forward(tokens)
        static for layer in layers { x = layer.forward(x) }
        return lm_head.forward(norm.forward(x))
    }
}

fn heads<B: Dim, S: Dim, N: Dim, D: Dim, T: Float>(x: Tensor[B, S, N * D; T]) -> Tensor[B, N, S, D; T] {
    return permute(reshape(x, [B, S, N, D]), [0, 2, 1, 3])
}
"""

ACCEPTED: list[tuple[str, str]] = [
    # --- numbers ----------------------------------------------------------------------------
    ("a literal takes the dtype beside it", "fn f(x: bf16) -> bf16 { return 2 * x + 0.5 }"),
    ("a literal takes the result's dtype", "fn f() -> u8 { return 255 }"),
    ("an integer literal is a float where one is due", "fn f() -> f32 { return 1 }"),
    ("literals on both sides", "fn f(x: f32) -> f32 { return x * (1 + 2.5) }"),
    ("a literal inside a function of literals", "fn f(x: f32) -> f32 { return x * sqrt(2.0) }"),
    ("on the left too", "fn f(x: f32) -> f32 { return sqrt(2.0) * x }"),
    ("compared", "fn f(x: f32) -> bool { return sqrt(2.0) < x }"),
    ("the smallest i64", "fn f() -> i64 { return -9223372036854775808 }"),
    ("a negative literal", "fn f(x: i8) -> i8 { return x * -128 }"),
    ("a generic that can hold it", "fn f<T: Numeric>(x: T) -> T { return x * 2 + 1 }"),
    ("a float generic", "fn f<T: Float>(x: T) -> T { return x * 0.5 + 1 }"),
    ("a dimension as a value",
     "fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] { return x / N }"),
    ("a dimension times a float",
     "fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] { return x * (N * 0.5) }"),
    ("a dimension as the result", "fn f<N: Dim>(_x: Tensor[N; f32]) -> i64 { return N + 1 }"),
    ("a let of a dimension shapes",
     "fn f<N: Dim>(x: Tensor[2 * N; f32]) -> Tensor[2, N; f32] {"
     " let half = 2 * N / 2 return reshape(x, [2, half]) }"),
    ("a constant as a dimension and as a number",
     "const W = 4\nfn f(x: Tensor[W; f32]) -> Tensor[W; f32] { return x * W }"),
    ("a constant with a type as a dimension",
     "const W: i32 = 4\nfn f(x: Tensor[W; i32]) -> Tensor[4; i32] { return x * W }"),
    ("constants of constants", "const A = 2 * B\nconst B = 3\n"
     "fn f(x: Tensor[6; f32]) -> Tensor[A; f32] { return x }"),
    ("a typed constant", "const EPS: f32 = 1e-5\nfn f(x: f32) -> f32 { return x + EPS }"),
    ("a bool constant", "const ON = true\nfn f(x: bool) -> bool { return x && ON }"),
    ("a let of a number is i64", "fn f() -> i64 { let n = 3 return n * 2 }"),
    ("a let with a type", "fn f() -> f32 { let n: f32 = 3 return n }"),
    ("min and max of dimensions",
     "fn f<N: Dim, M: Dim>(x: Tensor[min(N, M); f32]) -> Tensor[min(M, N); f32] { return x }"),
    ("bits of constants", "const MASK = 0xff & 0x0f\nfn f(x: i32) -> i32 { return x & MASK }"),
    ("a float constant in a default",
     "fn g(x: f32, eps: f32 = 1e-5) -> f32 { return x + eps }\n"
     "fn f(x: f32) -> f32 { return g(x) + g(x, eps = 0) }"),
    ("comparing dimensions", "fn f<N: Dim>(x: Tensor[N; f32], y: f32) -> f32 {"
     " return if N > 0 { x[0] } else { y } }"),
    ("cast of a dimension", "fn f<N: Dim>(_x: Tensor[N; f32]) -> f32 { return rsqrt(cast<f32>(N)) }"),
    # --- types ------------------------------------------------------------------------------
    ("a tuple taken apart", "fn f(p: (f32, (i32, bool))) -> i32 { let (_, (n, _)) = p return n }"),
    ("a tuple given back", "fn f(x: f32) -> (f32, i64) { return (x, 1) }"),
    ("a struct", """
        struct Stats<N: Dim> { mean: Tensor[N; f32] count: i64 }
        fn make<N: Dim>(x: Tensor[N; f32]) -> Stats<N> { return Stats(count = 1, mean = x) }
        fn f(x: Tensor[4; f32]) -> Tensor[4; f32] { return make(x).mean }"""),
    ("an enum", """
        enum Pooling { Mean, Max }
        fn f(p: Pooling, x: f32, y: f32) -> f32 { return match p { Max => max(x, y), Mean => x } }
        fn g(x: f32) -> f32 { return f(Pooling.Mean, x, x) }"""),
    ("an enum's variants by their full name", """
        enum Pooling { Mean, Max }
        fn f(p: Pooling) -> i64 { return match p { Pooling.Mean => 1, Pooling.Max => 2 } }"""),
    ("an alias with generics", """
        type Hidden<B: Dim, T: Float = f32> = Tensor[B, 64; T]
        fn f(x: Hidden<2>) -> Tensor[2, 64; f32] { return x }"""),
    ("an alias of a block", """
        use std.nn.linear::{Linear}
        type Square<N: Dim> = Linear<N, N, f32>
        block B { sub a: Square<2>
            sub more: [Square<2>; 3]
            entry f(x: Tensor[2; f32]) -> Tensor[2; f32] { return more[0].forward(a.forward(x)) } }"""),
    ("an alias of a dtype", "type Real = f32\nfn f(x: Tensor[2; Real]) -> Real { return cast<Real>(x[0]) }"),
    ("an optional", """
        fn f(x: f32? = none) -> f32 { return match x { some(v) => v, none => 0 } }
        fn g(x: f32) -> f32 { return f() + f(some(x)) + f(none) + f(x = some(1)) }"""),
    ("an optional tuple", "fn f(x: (f32, f32)?) -> f32 {"
     " return match x { some((a, b)) => a + b, none => 0 } }"),
    ("none in a branch before some",
     "fn g(x: Tensor[4; f32]? = none) -> f32 { return match x { some(v) => v[0], none => 0 } }\n"
     "fn f(c: bool, x: Tensor[4; f32]) -> f32 { return g(if c { none } else { some(x) }) }"),
    ("none in a branch, its type from the other",
     "fn f(c: bool, x: f32) -> f32 { let y = if c { none } else { some(x) }"
     " return match y { some(v) => v, none => 0 } }"),
    ("an optional generic from some",
     "fn g<N: Dim, T: Float>(x: Tensor[N; T]? = none) -> i64 { return match x { some(_) => N, none => 0 } }\n"
     "fn f(x: Tensor[4; f32]) -> i64 { return g(some(x)) }"),
    ("an optional of a literal", "fn g<T: Float>(x: T?) -> i64 { return match x { some(_) => 1, none => 0 } }\n"
     "fn f() -> i64 { return g(some(1.5)) }"),
    # --- generics ---------------------------------------------------------------------------
    ("inferred through arithmetic",
     "fn g<N: Dim>(x: Tensor[3 * N + 1; f32]) -> Tensor[N; f32] { return x[0:N] }\n"
     "fn f(x: Tensor[7; f32]) -> Tensor[2; f32] { return g(x) }"),
    ("inferred by exact division",
     "fn g<N: Dim, D: Dim>(x: Tensor[N * D; f32], y: Tensor[N; f32]) -> Tensor[D; f32] where N > 0 {"
     " return reshape(x, [N, D])[0] * y[0] }\n"
     "fn f<H: Dim, K: Dim>(x: Tensor[H; f32], y: Tensor[K; f32]) -> Tensor[H / K; f32]"
     " where K > 0, H % K == 0 { return g(x, y) }"),
    ("a pack", "fn g<*S: Shape, H: Dim>(x: Tensor[*S, H; f32]) -> Tensor[H, *S; f32] {"
     " let y[h, *s] = x[*s, h] return y }\n"
     "fn f(x: Tensor[2, 3, 4; f32]) -> Tensor[4, 2, 3; f32] { return g(x) }"),
    ("an empty pack", "fn g<*S: Shape>(x: Tensor[*S, 4; f32]) -> Tensor[*S; f32] { return x[..., 0] }\n"
     "fn f(x: Tensor[4; f32]) -> f32 { return g(x) }"),
    ("a written pack", "fn g<*S: Shape>() -> Tensor[*S; f32] { return fill([*S], 0) }\n"
     "fn f() -> Tensor[2, 3; f32] { return g<[2, 3]>() }\n"
     "fn h<*S: Shape>() -> Tensor[*S; f32] { return g<*S>() }"),
    ("the leading ones written",
     "fn g<N: Dim, T: Float>(x: Tensor[N; T]) -> T { return sum[i] x[i] }\n"
     "fn f(x: Tensor[4; f32]) -> f32 { return g<4>(x) }"),
    ("a default", "fn g<N: Dim = 4>() -> Tensor[N; f32] { return fill([N], 1) }\n"
     "fn f() -> Tensor[4; f32] { return g() }"),
    ("a default of another", "block A<N: Dim, M: Dim = 2 * N> { param w: Tensor[M; f32]\n"
     "fn f() -> Tensor[M; f32] { return w } }\n"
     "block B { sub a: A<3>\nentry g() -> Tensor[6; f32] { return a.f() } }"),
    ("a literal's dtype from where the result goes",
     "fn g<T: Float>(x: T) -> T { return x }\nfn f() -> f32 { return g(1.5) }"),
    ("a literal's dtype from the generic's default",
     "fn g<T: Float = f32>(x: T) -> T { return x }\nfn f() -> f32 { let y = g(1.5) return y }"),
    ("where clauses in any order", "fn f<N: Dim, M: Dim>(x: Tensor[N; f32]) -> Tensor[M, N / M; f32]"
     " where N % M == 0, M > 0 { return reshape(x, [M, N / M]) }"),
    ("a where from constants", "fn g<N: Dim>(x: Tensor[N; f32]) -> f32 where N % 2 == 0, N > 0 { return x[0] }\n"
     "fn f(x: Tensor[4; f32]) -> f32 { return g(x) }"),
    ("a method's own where", """
        block A<N: Dim> {
            param w: Tensor[N; f32]
            fn first() -> f32 where N > 0 { return w[0] }
            entry f() -> f32 where N > 1 { return first() }
        }"""),
    # --- shapes -----------------------------------------------------------------------------
    ("broadcasting", "fn f<N: Dim>(x: Tensor[N, 1; f32], y: Tensor[4; f32], z: f32) -> Tensor[N, 4; f32] {"
     " return x * y + z }"),
    ("broadcasting against one", "fn f<N: Dim>(x: Tensor[N; f32], y: Tensor[1; f32]) -> Tensor[N; f32] {"
     " return y - x }"),
    ("broadcast_to", "fn f(x: f32) -> Tensor[2, 3; f32] { return broadcast_to(x, [2, 3]) }"),
    ("slices", "fn f(x: Tensor[4, 6; f32]) -> Tensor[2, 3; f32] { return x[1:3, ::2] }"),
    ("a row", "fn f(x: Tensor[4, 6; f32]) -> Tensor[6; f32] { return x[3] }"),
    ("the last", "fn f<N: Dim>(x: Tensor[N; f32]) -> f32 where N > 0 { return x[N - 1] }"),
    ("a runtime position", "fn f(x: Tensor[4, 6; f32], i: i32) -> Tensor[4; f32] { return x[:, i] }"),
    ("an ellipsis that stands for none",
     "fn f(x: Tensor[4, 6; f32]) -> f32 { return x[..., 1, 2] }"),
    ("concat", "fn f<A: Dim, B: Dim>(x: Tensor[2, A; f32], y: Tensor[2, B; f32]) -> Tensor[2, A + B + A; f32] {"
     " return concat(x, y, x, axis = -1) }"),
    ("concat along the last axis", "fn f(x: Tensor[2, 3; f32]) -> Tensor[2, 6; f32] { return concat(x, x) }"),
    ("concat behind a pack", "fn f<*S: Shape>(x: Tensor[*S, 2; f32]) -> Tensor[*S, 4; f32] {"
     " return concat(x, x, axis = -1) }"),
    ("reshape with a pack", "fn f<*S: Shape, H: Dim>(x: Tensor[*S, 2 * H; f32]) -> Tensor[*S, 2, H; f32] {"
     " return reshape(x, [*S, 2, H]) }"),
    ("dimensions equal as polynomials",
     "fn f<N: Dim>(x: Tensor[(N + 1) * (N + 1); f32]) -> Tensor[N * N + 2 * N + 1; f32] { return x }"),
    ("a difference that exists", "fn f<N: Dim>(x: Tensor[N - 1; f32]) -> Tensor[N - 1; f32] { return x + 1 }"),
    ("a difference that is passed on", "fn g<M: Dim>(x: Tensor[M; f32]) -> Tensor[M; f32] { return x }\n"
     "fn f<N: Dim>(x: Tensor[N - 1; f32]) -> Tensor[N - 1; f32] { return g(x) }"),
    ("what an if knows", "fn f<N: Dim>(x: Tensor[N; f32]) -> f32 {"
     " return if N >= 2 { x[1] } else { 0 } }"),
    ("fill and iota", "fn f<N: Dim>() -> Tensor[N; f32] { return fill<f32>([N], 2) * iota<f32>(N) }"),
    ("fill with its result's dtype", "fn f() -> Tensor[2; bf16] { return fill([2], 0) }"),
    # --- index notation ---------------------------------------------------------------------
    ("a product", "fn f<M: Dim, K: Dim, N: Dim>(a: Tensor[M, K; f32], b: Tensor[K, N; f32]) -> Tensor[M, N; f32] {"
     " let c[m, n] = sum[k] a[m, k] * b[k, n] return c }"),
    ("a diagonal", "fn f<N: Dim>(a: Tensor[N, N; f32]) -> Tensor[N; f32] { let d[i] = a[i, i] return d }"),
    ("a gather", "fn f<B: Dim, V: Dim>(x: Tensor[B, V; f32], y: Tensor[B; i64]) -> Tensor[B; f32] {"
     " let p[b] = x[b, y[b]] return p }"),
    ("a computed gather", "fn f<B: Dim, V: Dim>(x: Tensor[V; f32], y: Tensor[B; i64]) -> Tensor[B; f32] {"
     " let p[b] = x[y[b] + 1] return p }"),
    ("a position", "fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] { let y[i] = x[i] * iota<f32>(N)[i] return y }"),
    ("reductions in one another", "fn f<N: Dim>(x: Tensor[N, N; f32]) -> f32 { return max[i] sum[j] x[i, j] }"),
    ("two reductions by one name", "fn f<N: Dim>(x: Tensor[N; f32]) -> f32 { return (sum[i] x[i]) + (prod[i] x[i]) }"),
    ("a reduction that stands by itself", "fn f<N: Dim>(x: Tensor[N; bool]) -> bool { return any[i] x[i] }"),
    ("logic element by element", "fn f<N: Dim>(x: Tensor[N; f32], y: Tensor[N; bool]) -> Tensor[N; bool] {"
     " let z[i] = x[i] > 0 && !y[i] || y[i] return z }"),
    ("affine accesses", "fn f<N: Dim>(x: Tensor[2 * N + 2; f32], y: Tensor[N; f32], w: Tensor[3; f32]) -> Tensor[N; f32] {"
     " let z[i] = y[i] + sum[k] x[2 * i + k] * w[k] return z }"),
    ("backwards", "fn f<N: Dim>(x: Tensor[N; f32], y: Tensor[N; f32]) -> Tensor[N; f32] {"
     " let z[i] = y[i] * x[N - 1 - i] return z }"),
    ("a minus first", "fn f<N: Dim>(x: Tensor[N; f32], y: Tensor[N; f32]) -> Tensor[N; f32] {"
     " let z[i] = y[i] * x[-i + (N - 1)] return z }"),
    ("affine with a division", "fn f<N: Dim>(x: Tensor[N; f32], y: Tensor[N / 2; f32]) -> Tensor[N / 2; f32] {"
     " let z[i] = y[i] * x[i + N / 2] return z }"),
    ("a fixed element", "fn f<N: Dim>(x: Tensor[N, 2; f32]) -> Tensor[N; f32] { let z[i] = x[i, 1] return z }"),
    ("a call on the whole", "use std.nn.softmax::{softmax}\n"
     "fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] { let z[i] = softmax(x)[i] * 2 return z }"),
    ("an if that does not vary", "fn f<N: Dim>(x: Tensor[N; f32], c: bool) -> Tensor[N; f32] {"
     " let z[i] = if c { x[i] } else { 0 } return z }"),
    ("a match that does not vary", "fn f<N: Dim>(x: Tensor[N; f32], y: Tensor[N; f32]?) -> Tensor[N; f32] {"
     " let z[i] = match y { some(v) => v[i] * x[i], none => x[i] } return z }"),
    ("an accumulator", "fn f<N: Dim, T: Float>(x: Tensor[N; T]) -> T {"
     " return cast<T>(sum<f32>[i] cast<f32>(x[i])) }"),
    ("sum as a name", "fn f(x: f32) -> f32 { let sum = x + 1 return sum }"),
    ("max as a call and as a reduction",
     "fn f<N: Dim>(x: Tensor[N; f32], y: f32) -> f32 { return max(max[i] x[i], y) }"),
    # --- statements -------------------------------------------------------------------------
    ("shadowing", "fn f(x: f32) -> f32 { let x = x + 1 let x = x * 2 return x }"),
    ("a loop over blocks", """
        block A { param w: f32
            fn f(x: f32) -> f32 { return x * w } }
        block B<N: Dim> {
            sub a: [A; N]
            entry f(x: f32) -> f32 { var y = x static for a_i in a { y = a_i.f(y) } return y }
        }"""),
    ("a loop over numbers", """
        block A { param w: f32
            fn f(x: f32) -> f32 { return x * w } }
        block B<N: Dim> {
            sub a: [A; N]
            entry f(x: Tensor[N; f32]) -> f32 {
                var y: f32 = 0
                static for i in 0..N { y = y + a[i].f(x[i]) + i }
                return y
            }
        }"""),
    ("a loop within a loop", """
        fn f<N: Dim>(x: Tensor[N, N; f32]) -> f32 {
            var y: f32 = 0
            static for i in 0..N { static for j in i..N { y = y + x[i, j] } }
            return y
        }"""),
    ("a loop's variable with a generic's name", """
        fn f<i: Dim>(x: Tensor[i; f32]) -> f32 {
            var y: f32 = 0
            static for j in 0..i { y = y + x[j] }
            return y
        }"""),
    ("while", "fn f(x: f32) -> f32 { var y = x var n = 0 while y > 1 && n < 9 { y = y / 2 n = n + 1 } return y }"),
    ("a runtime loop", "fn f<N: Dim>(x: Tensor[N; f32]) -> f32 { var y: f32 = 0 for i in 0..N { y = y + x[i] } return y }"),
    ("a scan", "fn f<N: Dim>(x: Tensor[N, 2; f32]) -> Tensor[N, 2; f32] {"
     " var y = fill<f32>([2], 0) let ys = for i in 0..N { y = y + x[i] yield y } return ys }"),
    ("a scan of tuples", "fn f<N: Dim>(x: Tensor[N; f32]) -> (Tensor[N; f32], Tensor[N; i64]) {"
     " let ys = for i in 0..N { yield (x[i], i) } return ys }"),
    ("nothing to give back", "block B { state n: i64\n entry tick() { n = n + 1 return } }"),
    ("state", """
        block B<N: Dim> {
            state s: Tensor[N; f32]
            entry push(x: f32) -> Tensor[N; f32] where N > 0 {
                let moved = concat(s[1:], broadcast_to(x, [1]), axis = 0)
                s = moved
                return s
            }
        }"""),
    # --- blocks -----------------------------------------------------------------------------
    ("an optional weight", """
        use std.nn.linear::{linear}
        block B { param w: Tensor[3, 2; f32]
            param b: Tensor[3; f32] = none
            entry f(x: Tensor[2; f32]) -> Tensor[3; f32] { return linear(x, w, b) } }"""),
    ("an optional child", """
        use std.nn.linear::{Linear}
        block B { sub head: Linear<2, 2, f32> = none
            entry f(x: Tensor[2; f32]) -> Tensor[2; f32] {
                return match head { some(h) => h.forward(x), none => x } } }"""),
    ("a child's weight", """
        use std.nn.linear::{Linear}
        block B { sub head: Linear<2, 2, f32>
            entry f() -> Tensor[2, 2; f32] { return head.weight } }"""),
    ("a grandchild of an array", """
        use std.nn.linear::{Linear}
        block A { sub up: Linear<2, 2, f32> }
        block B { sub a: [A; 3]
            entry f(x: Tensor[2; f32]) -> Tensor[2; f32] { return a[2].up.forward(x) + a[0].up.weight[0] } }"""),
    ("items in a block", """
        block B {
            const W = 4
            enum Mode { On, Off }
            param w: Tensor[W; f32]
            fn f(m: Mode) -> Tensor[W; f32] { return match m { On => w, Off => w * 0 } }
            entry g() -> Tensor[W; f32] { return f(Mode.On) }
        }"""),
    ("a buffer", "block B { buffer b: Tensor[2; f32]\nentry f() -> Tensor[2; f32] { return b } }"),
    ("an op and its gradient", """
        op square<*S: Shape, T: Float>(x: Tensor[*S; T]) -> Tensor[*S; T] { return x * x }
        grad(y, dy) { return 2 * x * dy + 0 * y }"""),
    ("two gradients", """
        op product(x: f32, n: i32, y: f32) -> f32 { return x * y * cast<f32>(n) }
        grad(_z, dz) { return (dz * y * cast<f32>(n), dz * x * cast<f32>(n)) }"""),
    ("an entry without a block", "entry loss(x: f32) -> f32 { return x }"),
    ("a parameter named as a weight elsewhere", """
        block B { param w: f32
            entry f(x: f32) -> f32 { let w = w * x return w } }"""),
    # --- modules ----------------------------------------------------------------------------
    ("an import by another name", "use std.linalg::{dot as inner}\n"
     "fn f(x: Tensor[2; f32]) -> f32 { return inner(x, x) }"),
    ("a single import", "use std.linalg::dot\nfn f(x: Tensor[2; f32]) -> f32 { return dot(x, x) }"),
    ("a module by its name", "use std.linalg\nfn f(x: Tensor[2; f32]) -> f32 { return linalg.dot(x, x) }"),
    ("a module's types by its name", "use std.nn.linear\n"
     "block B { sub a: linear.Linear<2, 2, f32>\n"
     "entry f(x: Tensor[2; f32]) -> Tensor[2; f32] { return linear.linear(x, a.weight) } }"),
]


@pytest.mark.parametrize(
    "source", [pytest.param(source, id=name) for name, source in ACCEPTED]
)
def test_accepted(source: str):
    result = check_text(f"module m\n{source}\n")
    assert not result.diagnostics, render(result.diagnostics)
    assert result.ok


def test_the_whole_model_of_the_language_page():
    result = check_text(WHOLE_MODEL)
    assert not result.diagnostics, render(result.diagnostics)
    assert set(result.require().exports) == {"Layer", "Model"}


@pytest.mark.parametrize(
    "path",
    sorted(SOURCES.rglob("*.linnet")),
    ids=lambda path: path.relative_to(SOURCES).as_posix(),
)
def test_what_linnet_ships(path: Path):
    result = check_file(path)
    assert not result.diagnostics, render(result.diagnostics)
