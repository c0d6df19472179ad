# ruff: noqa: E501
"""What a person reads: whole messages, as `linnet check` prints them.

Each case is a title, a source, and what is printed for it.
"""

from __future__ import annotations

import pytest

from linnet.diagnostics import Diagnostics, SourceFile, render
from linnet.syntax import parse

MESSAGES = r"""
### a forgotten module line
use std.linalg::matmul
fn f() -> i64 { return 1 }
---
error[E1102]: a file starts with its `module` line
 --> m.linnet:1:1
  |
1 | use std.linalg::matmul
  | ^^^
  = help: put `module name` first, as in `module tiny_lm`

### an empty file

---
error[E1102]: a file starts with its `module` line
 --> m.linnet:2:1
  |
2 |
  | ^
  = help: put `module name` first, as in `module tiny_lm`

### a script of another language
# a model
import torch
module m
---
error[E1001]: `#` (U+0023) cannot stand in a source
 --> m.linnet:1:1
  |
1 | # a model
  | ^^^^^^^^^
  = help: a comment starts with `//`

### a semicolon, said once
module m
fn f() -> i64 {
    let a = 1;
    let b = 2;
    return a + b;
}
---
error[E1101]: there are no semicolons
 --> m.linnet:3:14
  |
3 |     let a = 1;
  |              ^
  = help: leave them out: statements delimit themselves

### a compound assignment
module m
fn f() -> i64 {
    var a = 1
    a += 1
    return a
}
---
error[E1101]: there is no `+=`
 --> m.linnet:4:7
  |
4 |     a += 1
  |       ^^
  = help: write `a = a + …`

### a short declaration
module m
fn f() -> i64 {
    a := 1
    return a
}
---
error[E1101]: there is no `:=`
 --> m.linnet:3:7
  |
3 |     a := 1
  |       ^^
  = help: a new name is `let a = …`, a new value for a `var` is `a = …`

### self as a parameter and as a value
module m
block B {
    fn f(self, x: f32) -> f32 { return x }
    fn g(x: f32) -> f32 {
        self.y = x
        return self.w * x
    }
}
---
error[E1101]: a method takes no `self`
 --> m.linnet:3:10
  |
3 |     fn f(self, x: f32) -> f32 { return x }
  |          ^^^^
  = help: inside a block, its members and methods are bare names

error[E1101]: there is no `self`
 --> m.linnet:5:9
  |
5 |         self.y = x
  |         ^^^^
  = help: inside a block, its members and methods are bare names

error[E1101]: there is no `self`
 --> m.linnet:6:16
  |
6 |         return self.w * x
  |                ^^^^
  = help: inside a block, its members and methods are bare names

### a bare expression
module m
fn f(x: f32) -> f32 {
    print(x)
    return x
}
---
error[E1101]: a bare expression is no statement
 --> m.linnet:3:5
  |
3 |     print(x)
  |     ^^^^^^^^
  = help: name it with `let`, or give it back with `return`

### an element that is assigned
module m
fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] {
    x[0] = 1
    return x
}
---
error[E1101]: this can't be assigned
 --> m.linnet:3:5
  |
3 |     x[0] = 1
  |     ^^^^
  = help: a tensor is not changed in place: define a new one, `let y[i] = …`

### a field that is assigned
module m
block B {
    fn f(x: f32) -> f32 {
        cache.key = x
        return x
    }
}
---
error[E1101]: this can't be assigned
 --> m.linnet:4:9
  |
4 |         cache.key = x
  |         ^^^^^^^^^
  = help: only a `var` or the block's own `state` is assigned, by its bare name

### a declaration without its word
module m
fn f() -> f32 {
    x: f32 = 1
    return x
}
---
error[E1101]: this can't be assigned
 --> m.linnet:3:5
  |
3 |     x: f32 = 1
  |     ^
  = help: declare it with `let` or `var`

### a loop over things
module m
block B {
    fn f(x: f32) -> f32 {
        for layer in layers { }
        for i in range(3) { }
        return x
    }
}
---
error[E1101]: expected `..` after the first index, found `{`
 --> m.linnet:4:29
  |
4 |         for layer in layers { }
  |                             ^
  = help: a runtime loop runs over a range, as in `0..N`; over an array of blocks it is `static for`

error[E1101]: expected `..` after the first index, found `{`
 --> m.linnet:5:27
  |
5 |         for i in range(3) { }
  |                           ^
  = help: a runtime loop runs over a range, as in `0..N`; over an array of blocks it is `static for`

### a colon before the result
module m
fn f(x: f32): f32 { return x }
---
error[E1101]: expected `->`, `where` or `{`, found `:`
 --> m.linnet:2:13
  |
2 | fn f(x: f32): f32 { return x }
  |             ^
  = help: the result's type follows `->`

### no arrow before the result
module m
fn f(x: f32) f32 { return x }
---
error[E1101]: expected `->`, `where` or `{`, found `f32`
 --> m.linnet:2:14
  |
2 | fn f(x: f32) f32 { return x }
  |              ^^^
  = help: the result's type follows `->`

### a parameter without a type
module m
fn f(x) -> f32 { return x }
---
error[E1101]: expected `:` after the parameter's name, found `)`
 --> m.linnet:2:7
  |
2 | fn f(x) -> f32 { return x }
  |       ^
  = help: every parameter has a type

### a generic without a kind
module m
fn f<N>(x: Tensor[N; f32]) -> f32 { return 1 }
---
error[E1101]: expected `:` after the generic's name, found `>`
 --> m.linnet:2:7
  |
2 | fn f<N>(x: Tensor[N; f32]) -> f32 { return 1 }
  |       ^
  = help: say what it is, as in `H: Dim` or `T: Float`

### a tensor without a dtype
module m
fn f(x: Tensor[4, 4]) -> f32 { return 1 }
---
error[E1101]: expected `;` before the tensor's dtype, found `]`
 --> m.linnet:2:20
  |
2 | fn f(x: Tensor[4, 4]) -> f32 { return 1 }
  |                    ^
  = help: as in `Tensor[B, S, H; bf16]`

### statements in a branch
module m
fn f(x: f32) -> f32 {
    let y = if x < 0 {
        let z = x + 1
        z
    } else { x }
    return y
}
---
error[E1101]: expected a value, found `let`
 --> m.linnet:4:9
  |
4 |         let z = x + 1
  |         ^^^
  = help: a branch is one value: name its parts with `let` before it

### an assignment in a branch
module m
fn f(x: f32) -> f32 {
    var y = x
    if x < 0 { y = 0 }
    let z = if x < 0 { y = 1 } else { y }
    return y
}
---
error[E1101]: expected a statement, found `if`
 --> m.linnet:4:5
  |
4 |     if x < 0 { y = 0 }
  |     ^^
  = help: `if` is a value: give it a name, as in `let x = if …`

error[E1101]: expected `}` after the branch's value, found `=`
 --> m.linnet:5:26
  |
5 |     let z = if x < 0 { y = 1 } else { y }
  |                          ^
  = help: a branch is a value, not an assignment: `x = if c { a } else { x }`

### a branch without an else
module m
fn f(x: f32) -> f32 { return if x < 0 { -x } }
---
error[E1101]: expected `else` after the first branch, found `}`
 --> m.linnet:2:46
  |
2 | fn f(x: f32) -> f32 { return if x < 0 { -x } }
  |                                              ^
  = help: an `if` is a value, so it needs both branches

### an if among operators
module m
fn f(x: f32) -> f32 { return 1 + if x < 0 { 1 } else { 2 } }
---
error[E1101]: expected a value, found `if`
 --> m.linnet:2:34
  |
2 | fn f(x: f32) -> f32 { return 1 + if x < 0 { 1 } else { 2 } }
  |                                  ^^
  = help: put the `if` in parentheses

### words of Python
module m
fn f(a: bool, b: bool) -> bool {
    let c = if a and b { a } else { b }
    let d = not c
    return a or d
}
---
error[E1101]: expected `{` after the condition, found `and`
 --> m.linnet:3:18
  |
3 |     let c = if a and b { a } else { b }
  |                  ^^^
  = help: `and` is `&&`

error[E1101]: a bare expression is no statement
 --> m.linnet:4:17
  |
4 |     let d = not c
  |                 ^
  = help: `not` is `!`

error[E1101]: a bare expression is no statement
 --> m.linnet:5:14
  |
5 |     return a or d
  |              ^^
  = help: `or` is `||`

### power and identity
module m
fn f(x: f32) -> f32 {
    let y = x ** 2
    let z = y === x
    return y
}
---
error[E1101]: expected a value, found `*`
 --> m.linnet:3:16
  |
3 |     let y = x ** 2
  |                ^
  = help: there is no `**`: write the product out

error[E1101]: expected a value, found `=`
 --> m.linnet:4:17
  |
4 |     let z = y === x
  |                 ^
  = help: comparison is `==`

### a variable that is mutable by mut
module m
fn f() -> i64 {
    let mut x = 1
    return x
}
---
error[E1103]: `mut` is reserved syntax that this version doesn't support
 --> m.linnet:3:9
  |
3 |     let mut x = 1
  |         ^^^
  = help: what changes is declared by `var`

### a reserved word as a name, said once
module m
fn f(random: f32) -> f32 {
    let state = random * 2
    return state + random
}
---
error[E1004]: `random` is reserved and can't name a parameter
 --> m.linnet:2:6
  |
2 | fn f(random: f32) -> f32 {
  |      ^^^^^^

error[E1004]: `state` is a keyword and can't name a variable
 --> m.linnet:3:9
  |
3 |     let state = random * 2
  |         ^^^^^

### a method in a method
module m
fn f() -> f32 {
    fn g() -> f32 { return 1 }
    return g()
}
---
error[E1101]: expected a statement, found `fn`
 --> m.linnet:3:5
  |
3 |     fn g() -> f32 { return 1 }
  |     ^^
  = help: functions are declared outside of one another

### a body that is left open
module m
block B {
    fn f() -> f32 {
        return 1

    fn g() -> f32 { return 2 }
}
---
error[E1101]: expected `}` to close the body, found `fn`
 --> m.linnet:6:5
  |
6 |     fn g() -> f32 { return 2 }
  |     ^^
  = note: it opens here
 --> m.linnet:3:19
  |
3 |     fn f() -> f32 {
  |                   -

### a body that the file's end leaves open
module m
fn f() -> f32 {
    return 1
---
error[E1101]: expected `}` to close the body, found the end of the file
 --> m.linnet:4:1
  |
4 |
  | ^
  = note: it opens here
 --> m.linnet:2:15
  |
2 | fn f() -> f32 {
  |               -

### a bracket that is left open
module m
fn f(x: f32) -> f32 {
    let y = max(x,
                min(x, 1)
    return y
}
---
error[E1101]: expected `,` or `)` to close the arguments, found `return`
 --> m.linnet:5:5
  |
5 |     return y
  |     ^^^^^^
  = note: it opens here
 --> m.linnet:3:16
  |
3 |     let y = max(x,
  |                -

### a brace too many
module m
fn f() -> f32 { return 1 } }
fn g() -> f32 { return 2 }
---
error[E1101]: expected `const`, `type`, `struct`, `enum`, `fn`, `op`, `entry` or `block`, found `}`
 --> m.linnet:2:28
  |
2 | fn f() -> f32 { return 1 } }
  |                            ^

### a member without its kind
module m
block B {
    weight: Tensor[4; f32]
    param bias: Tensor[4; f32],
    param scale: Tensor[4; f32]
}
---
error[E1101]: expected a member, a method or `}`, found `weight`
 --> m.linnet:3:5
  |
3 |     weight: Tensor[4; f32]
  |     ^^^^^^
  = help: say what `weight` is: `param`, `buffer`, `state` or `sub`

error[E1101]: expected a member, a method or `}`, found `,`
 --> m.linnet:4:31
  |
4 |     param bias: Tensor[4; f32],
  |                               ^
  = help: members delimit themselves: leave the comma out

### what another language calls an item
module m
def f(x): return x
class B { }
fn g() -> i64 { return 1 }
---
error[E1101]: expected `const`, `type`, `struct`, `enum`, `fn`, `op`, `entry` or `block`, found `def`
 --> m.linnet:2:1
  |
2 | def f(x): return x
  | ^^^
  = help: a function is `fn name(…) -> Type { … }`

### a late import
module m
fn f() -> i64 { return 1 }
use std.linalg::matmul
---
error[E1101]: imports stand before all else
 --> m.linnet:3:1
  |
3 | use std.linalg::matmul
  | ^^^

### a scan bound to a tuple
module m
fn f() -> f32 {
    let (a, b) = for i in 0..3 { yield i }
    return a
}
---
error[E1101]: expected a value, found `for`
 --> m.linnet:3:18
  |
3 |     let (a, b) = for i in 0..3 { yield i }
  |                  ^^^
  = help: a scan is bound to one name: `let ys = for i in 0..N { … yield y }`

### an operator of matrices
module m
fn f(a: f32, b: f32) -> f32 { return a @ b }
---
error[E1001]: `@` (U+0040) cannot stand in a source
 --> m.linnet:2:40
  |
2 | fn f(a: f32, b: f32) -> f32 { return a @ b }
  |                                        ^
  = help: there are no decorators; a matrix product is `matmul` of `std.linalg`

### another alphabet
module m
fn größe() -> f32 { return 1 }
---
error[E1001]: `ö` (U+00F6) cannot stand in a source
 --> m.linnet:2:6
  |
2 | fn größe() -> f32 { return 1 }
  |      ^^^
  = help: names use the letters A to Z, digits and `_` alone

### a text in single quotes
module m
const A = 'text'
---
error[E1001]: `'` (U+0027) cannot stand in a source
 --> m.linnet:2:11
  |
2 | const A = 'text'
  |           ^^^^^^
  = help: text stands between double quotes: "…"

### a text that is never closed
module m
const A = "text
const B = 1
---
error[E1003]: this text is never closed
 --> m.linnet:2:11
  |
2 | const A = "text
  |           ^^^^^
  = help: close it with `"` on the same line

### escapes
module m
const A = "C:\path\new"
---
error[E1003]: `\p` is no escape
 --> m.linnet:2:14
  |
2 | const A = "C:\path\new"
  |              ^^
  = help: the escapes are \n \t \r \0 \\ \" and \u{1F600}

### a comment that is never closed
module m
/* one /* two */
fn f() -> i64 { return 1 }
---
error[E1002]: this block comment is never closed
 --> m.linnet:2:1
  |
2 | /* one /* two */
  | ^^
  = help: close it with `*/`; comments nest, so each `/*` needs its own

### numbers
module m
const A = 0b102
const B = 1.
const C = 12px
const D = 1e999
---
error[E1005]: `0b102` is no number
 --> m.linnet:2:11
  |
2 | const A = 0b102
  |           ^^^^^
  = help: hexadecimal is 0xff, binary 0b1010

error[E1005]: `1.` is no number
 --> m.linnet:3:11
  |
3 | const B = 1.
  |           ^^
  = help: write `1.0`

error[E1005]: `12px` is no number
 --> m.linnet:4:11
  |
4 | const C = 12px
  |           ^^^^
  = help: integers are 42, 1_000, 0xff, 0b1010; floats 1.5, 1e-5

error[E1005]: `1e999` is beyond the range of f64
 --> m.linnet:5:11
  |
5 | const D = 1e999
  |           ^^^^^

### reserved syntax
module m
trait T { fn f() -> f32 }
async fn f() -> f32 { return 1 }
extern fn g() -> f32
fn h() -> f32 { return await f() }
---
error[E1103]: `trait` is reserved syntax that this version doesn't support
 --> m.linnet:2:1
  |
2 | trait T { fn f() -> f32 }
  | ^^^^^

error[E1103]: `async` is reserved syntax that this version doesn't support
 --> m.linnet:3:1
  |
3 | async fn f() -> f32 { return 1 }
  | ^^^^^

error[E1103]: `extern` is reserved syntax that this version doesn't support
 --> m.linnet:4:1
  |
4 | extern fn g() -> f32
  | ^^^^^^

error[E1103]: `await` is reserved syntax that this version doesn't support
 --> m.linnet:5:24
  |
5 | fn h() -> f32 { return await f() }
  |                        ^^^^^

### nothing between brackets
module m
fn f<>(x: f32) -> f32 where { return x[] + sum[] x + g<>(x) }
---
error[E1101]: expected a generic, found `>`
 --> m.linnet:2:6
  |
2 | fn f<>(x: f32) -> f32 where { return x[] + sum[] x + g<>(x) }
  |      ^

### nesting without end
module m
fn f(x: f32) -> f32 {
    return ((((((((((((((((((((((((((((((((((((((((((((((((((x))))))))))))))))))))))))))))))))))))))))))))))))))
}
---
error[E1101]: nested more than 48 deep
 --> m.linnet:3:59
  |
3 |     return ((((((((((((((((((((((((((((((((((((((((((((((((((x))))))))))))))))))))))))))))))))))))))))))))))))))
  |                                                           ^
  = help: name the inner parts with `let`

### twice optional
module m
fn f(x: f32??) -> f32 { return 1 }
---
error[E1101]: a type is optional once
 --> m.linnet:2:13
  |
2 | fn f(x: f32??) -> f32 { return 1 }
  |             ^
  = help: leave out one `?`

### a grad that is no op's
module m
fn f(x: f32) -> f32 { return x } grad(y, dy) { return dy }
---
error[E1101]: only an `op` has a `grad`
 --> m.linnet:2:34
  |
2 | fn f(x: f32) -> f32 { return x } grad(y, dy) { return dy }
  |                                  ^^^^
"""


def cases() -> dict[str, tuple[str, str]]:
    found = {}
    for part in MESSAGES.split("\n### ")[1:]:
        title, _, rest = part.partition("\n")
        source, _, printed = rest.partition("---\n")
        found[title] = (source, printed.strip("\n"))
    return found


@pytest.mark.parametrize(("source", "printed"), cases().values(), ids=cases())
def test_what_is_printed(source: str, printed: str) -> None:
    diagnostics = Diagnostics()
    parse(SourceFile("m.linnet", source), diagnostics)
    assert render(diagnostics.final()) == printed
