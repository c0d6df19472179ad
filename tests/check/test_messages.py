# ruff: noqa: E501 (messages as they are printed)
"""What a mistake looks like to the person who made it: whole messages, word for word.

Change a message only for a better one, and look at it here as its reader will.
"""

from __future__ import annotations

import pytest

from linnet.check import check_text
from linnet.diagnostics import render

MESSAGES: dict[str, tuple[str, str]] = {
    "a where that is not proven": (
        """
use std.nn.attention::{grouped_attention}

fn f<B: Dim, H: Dim, Hk: Dim, S: Dim, D: Dim>(
    q: Tensor[B, H, S, D; f32],
    k: Tensor[B, Hk, S, D; f32],
) -> Tensor[B, H, S, D; f32]
where Hk > 0
{
    return grouped_attention(q, k, k, 1.0)
}
""",
        """
error[E2206]: `grouped_attention` requires `H % Hk == 0`, which is not proven
  --> m.linnet:11:12
   |
11 |     return grouped_attention(q, k, k, 1.0)
   |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
   = note: it is required here
  --> <std>/nn/attention.linnet:59:15
   |
59 | where Hk > 0, H % Hk == 0
   |               -----------
   = help: add `where H % Hk == 0`
""",
    ),
    "a reshape that lacks a fact": (
        """
pub block Heads<H: Dim, N: Dim>
where N > 0
{
    pub fn split<B: Dim, S: Dim>(x: Tensor[B, S, H; f32]) -> Tensor[B, S, N, H / N; f32] {
        return reshape(x, [B, S, N, H / N])
    }
}
""",
        """
error[E2203]: `reshape` from `[B, S, H]` to `[B, S, N, H / N]` is not proven to keep the number of elements
 --> m.linnet:7:16
  |
7 |         return reshape(x, [B, S, N, H / N])
  |                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = note: there are `B * H * S` elements
 --> m.linnet:7:24
  |
7 |         return reshape(x, [B, S, N, H / N])
  |                        -
  = note: the new shape holds `B * (H / N) * N * S`
 --> m.linnet:7:27
  |
7 |         return reshape(x, [B, S, N, H / N])
  |                           ----------------
  = help: add `where H % N == 0`
""",
    ),
    "an argument of another shape": (
        """
use std.nn.linear::{Linear}

pub block Mlp<H: Dim> {
    sub up: Linear<H, 4 * H, f32>
    sub down: Linear<4 * H, H, f32>

    pub fn forward<B: Dim>(x: Tensor[B, H; f32]) -> Tensor[B, H; f32] {
        return down.forward(x) + up.forward(x)
    }
}
""",
        """
error[E2202]: the argument `x` of `forward` must be `Tensor[B, 4 * H; f32]`, found `Tensor[B, H; f32]`
  --> m.linnet:10:29
   |
10 |         return down.forward(x) + up.forward(x)
   |                             ^
   = note: axis 1 must be `4 * H`, here it is `H`
   = note: `forward` is declared here
  --> <std>/nn/linear.linnet:22:12
   |
22 |     pub fn forward<*S: Shape>(x: Tensor[*S, In; T]) -> Tensor[*S, Out; T] {
   |            -------
""",
    ),
    "two dtypes": (
        """
fn f<N: Dim, T: Float>(x: Tensor[N; T], scale: f32) -> Tensor[N; T] {
    return x * scale
}
""",
        """
error[E2103]: `*` takes one dtype, found `T` and `f32`
 --> m.linnet:4:12
  |
4 |     return x * scale
  |            ^^^^^^^^^
  = note: this is `Tensor[N; T]`
 --> m.linnet:4:12
  |
4 |     return x * scale
  |            -
  = note: this is `f32`
 --> m.linnet:4:16
  |
4 |     return x * scale
  |                -----
  = help: nothing is converted by itself: `cast<T>(scale)`
""",
    ),
    "a broadcast": (
        """
fn f<B: Dim, S: Dim, H: Dim>(x: Tensor[B, S, H; f32], bias: Tensor[S; f32]) -> Tensor[B, S, H; f32] {
    return x + bias
}
""",
        """
error[E2207]: `[B, S, H]` and `[S]` do not broadcast: `H` and `S` are not proven equal, and neither is 1
 --> m.linnet:4:12
  |
4 |     return x + bias
  |            ^^^^^^^^
  = note: this is `Tensor[B, S, H; f32]`
 --> m.linnet:4:12
  |
4 |     return x + bias
  |            -
  = note: this is `Tensor[S; f32]`
 --> m.linnet:4:16
  |
4 |     return x + bias
  |                ----
  = help: add `where H == S`
""",
    ),
    "an optional used as it is": (
        """
fn f<N: Dim>(x: Tensor[N; f32], bias: Tensor[N; f32]? = none) -> Tensor[N; f32] {
    return x + bias
}
""",
        """
error[E2101]: `+` takes tensors, found `Tensor[N; f32]?`
 --> m.linnet:4:16
  |
4 |     return x + bias
  |                ^^^^
  = help: take it apart: `match bias { some(x) => …, none => … }`
""",
    ),
    "a name that is nearly right": (
        """
fn f(input: f32) -> f32 {
    let doubled = input * 2
    return dobled
}
""",
        """
error[E1201]: `dobled` is not declared
 --> m.linnet:5:12
  |
5 |     return dobled
  |            ^^^^^^
  = help: did you mean `doubled`?
""",
    ),
    "an index with two extents": (
        """
fn f<M: Dim, K: Dim, N: Dim>(a: Tensor[M, K; f32], b: Tensor[N, K; f32]) -> Tensor[M, N; f32] {
    let c[m, n] = sum[k] a[m, k] * b[k, n]
    return c
}
""",
        """
error[E2201]: the index `k` runs over `K` and `N`
 --> m.linnet:4:38
  |
4 |     let c[m, n] = sum[k] a[m, k] * b[k, n]
  |                                      ^
  = note: here it runs over `K`
 --> m.linnet:4:31
  |
4 |     let c[m, n] = sum[k] a[m, k] * b[k, n]
  |                               -
  = help: add `where K == N`
""",
    ),
    "a forgotten reduction": (
        """
fn f<M: Dim, K: Dim>(a: Tensor[M, K; f32], x: Tensor[K; f32]) -> Tensor[M; f32] {
    let y[m] = a[m, k] * x[k]
    return y
}
""",
        """
error[E3101]: the index `k` is neither an output index nor reduced
 --> m.linnet:4:21
  |
4 |     let y[m] = a[m, k] * x[k]
  |                     ^
  = help: list it on the left, or reduce over it: `sum[k] …`
""",
    ),
    "an affine access out of range": (
        """
fn f<N: Dim>(x: Tensor[N; f32], w: Tensor[3; f32], at: Tensor[N; f32]) -> Tensor[N; f32] {
    let y[i] = at[i] + sum[k] x[i + k] * w[k]
    return y
}
""",
        """
error[E2209]: `i + k` is not proven to stay within an axis of `N`
 --> m.linnet:4:33
  |
4 |     let y[i] = at[i] + sum[k] x[i + k] * w[k]
  |                                 ^^^^^ up to `N + 1`
  = note: `i` runs over `N`
 --> m.linnet:4:19
  |
4 |     let y[i] = at[i] + sum[k] x[i + k] * w[k]
  |                   -
  = note: `k` runs over `3`
 --> m.linnet:4:44
  |
4 |     let y[i] = at[i] + sum[k] x[i + k] * w[k]
  |                                            -
""",
    ),
    "a sub-block's where": (
        """
block Attention<H: Dim, Heads: Dim> where Heads > 0, H % Heads == 0 { }

pub block Layer<H: Dim, Heads: Dim>
where Heads > 0
{
    sub _attention: Attention<2 * H, Heads>
}
""",
        """
error[E2206]: `Attention<2 * H, Heads>` requires `H % Heads == 0`, here `(2 * H) % Heads == 0`, which is not proven
 --> m.linnet:8:21
  |
8 |     sub _attention: Attention<2 * H, Heads>
  |                     ^^^^^^^^^^^^^^^^^^^^^^^
  = note: it is required here
 --> m.linnet:3:54
  |
3 | block Attention<H: Dim, Heads: Dim> where Heads > 0, H % Heads == 0 { }
  |                                                      --------------
  = help: add `where (2 * H) % Heads == 0`
""",
    ),
    "modules' privacy": (
        """
use std.random::{mix}

fn f(x: i64) -> i64 {
    let (a, _) = mix(x, x, 3)
    return a
}
""",
        """
error[E1203]: `mix` is private to `std.random`
  --> m.linnet:3:18
   |
 3 | use std.random::{mix}
   |                  ^^^
   = note: it is declared here
  --> <std>/random.linnet:98:4
   |
98 | fn mix<*S: Shape>(high: Tensor[*S; i64], low: Tensor[*S; i64], by: i64) -> (Tensor[*S; i64], Tensor[*S; i64]) {
   |    ---
""",
    ),
    "several mistakes, none of them twice": (
        """
fn f<N: Dim>(x: Tensor[N; f32], y: Tensor[N; i32]) -> Tensor[N; f32] {
    let a = x + y
    let b = a * 2
    let c = b[0]
    var d = x
    d = concat(d, d, axis = 0)
    return exp(y)
}
""",
        """
error[E2103]: `+` takes one dtype, found `f32` and `i32`
 --> m.linnet:4:13
  |
4 |     let a = x + y
  |             ^^^^^
  = note: this is `Tensor[N; f32]`
 --> m.linnet:4:13
  |
4 |     let a = x + y
  |             -
  = note: this is `Tensor[N; i32]`
 --> m.linnet:4:17
  |
4 |     let a = x + y
  |                 -
  = help: nothing is converted by itself: `cast<f32>(y)`

error[E2109]: `d` is `Tensor[N; f32]` and can't become `Tensor[2 * N; f32]`
 --> m.linnet:8:9
  |
8 |     d = concat(d, d, axis = 0)
  |         ^^^^^^^^^^^^^^^^^^^^^^
  = note: declared here
 --> m.linnet:7:9
  |
7 |     var d = x
  |         -
  = help: a variable keeps its type: give the new value a name of its own with `let`

error[E2104]: `exp` takes a float, found `Tensor[N; i32]`
 --> m.linnet:9:16
  |
9 |     return exp(y)
  |                ^
  = help: convert it: `cast<f32>(y)`
""",
    ),
    "a variable that would change its shape": (
        """
pub block Cache<N: Dim> {
    state seen: Tensor[N; f32]

    pub entry push(x: Tensor[1; f32]) -> Tensor[N; f32] {
        seen = concat(seen, x, axis = 0)
        return seen
    }
}
""",
        """
error[E2109]: `seen` is `Tensor[N; f32]` and can't become `Tensor[N + 1; f32]`
 --> m.linnet:7:16
  |
7 |         seen = concat(seen, x, axis = 0)
  |                ^^^^^^^^^^^^^^^^^^^^^^^^^
  = note: it is declared here
 --> m.linnet:4:5
  |
4 |     state seen: Tensor[N; f32]
  |     --------------------------
  = help: a variable keeps its type: give the new value a name of its own with `let`
""",
    ),
    "recursion": (
        """
fn even(x: f32) -> f32 { return odd(x) }
fn odd(x: f32) -> f32 { return even(x) }
""",
        """
error[E2119]: recursion: `even` → `odd` → `even`
 --> m.linnet:4:32
  |
4 | fn odd(x: f32) -> f32 { return even(x) }
  |                                ^^^^^^^
  = help: a network has a fixed depth: loop by `static for`, `for` or `while`
""",
    ),
    "a generic that nothing tells": (
        """
use std.nn.attention::{causal_mask}

fn f<S: Dim>(x: Tensor[S; f32]) -> Tensor[S; f32] {
    let mask = causal_mask<S>()
    return select(mask[0], x, 0)
}
""",
        """
error[E2110]: `K` of `causal_mask` can't be inferred from the arguments
  --> m.linnet:6:16
   |
 6 |     let mask = causal_mask<S>()
   |                ^^^^^^^^^^^^^^^^
   = note: `causal_mask` is declared here
  --> <std>/nn/attention.linnet:14:8
   |
14 | pub op causal_mask<Q: Dim, K: Dim>() -> Tensor[Q, K; bool] {
   |        -----------
   = help: write it: `causal_mask<S, K>(…)`
""",
    ),
    "a case that is missing": (
        """
enum Pooling { Mean, Max, Last }

fn f(how: Pooling, x: f32, y: f32) -> f32 {
    return match how { Mean => (x + y) / 2, Max => max(x, y) }
}
""",
        """
error[E2118]: the case `Last` is missing
 --> m.linnet:6:12
  |
6 |     return match how { Mean => (x + y) / 2, Max => max(x, y) }
  |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = help: add `Last => …`
""",
    ),
    "warnings": (
        """
use std.nn.softmax::{softmax}

pub block B {
    param weight: Tensor[2; f32]
    param bias: Tensor[2; f32]

    pub entry f(x: Tensor[2; f32]) -> Tensor[2; f32] {
        let y = x * weight
        return x * weight
    }
}
""",
        """
warning[W1001]: the import `softmax` is never used
 --> m.linnet:3:22
  |
3 | use std.nn.softmax::{softmax}
  |                      ^^^^^^^
  = help: leave it out

warning[W1003]: the param `bias` is never used
 --> m.linnet:7:5
  |
7 |     param bias: Tensor[2; f32]
  |     ^^^^^^^^^^^^^^^^^^^^^^^^^^

warning[W1002]: `y` is never used
  --> m.linnet:10:13
   |
10 |         let y = x * weight
   |             ^
   = help: leave it out, or name it `_y`
""",
    ),
}


@pytest.mark.parametrize(("source", "message"), MESSAGES.values(), ids=MESSAGES)
def test_message(source: str, message: str):
    result = check_text(f"module m\n{source}", "m.linnet")
    assert render(result.diagnostics) == message.strip("\n")
