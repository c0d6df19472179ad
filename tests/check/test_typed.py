# ruff: noqa: E501 (sources read best on one line)
"""What the typed program says: all that lowering need not look up or infer any more."""

from __future__ import annotations

from linnet.check import check_text, typed
from linnet.check.dims import Dim
from linnet.dtypes import DType

N, M = Dim.var("N"), Dim.var("M")
F32 = typed.TensorT((), DType.F32)


def program(source: str) -> typed.Program:
    return check_text(f"module m\n{source}\n").require()


def function(source: str, name: str = "f") -> typed.Function:
    return program(source).functions[f"crate::{name}"]


def result(source: str) -> typed.Expr:
    """What `f` returns."""
    last = function(source).body[-1]
    assert isinstance(last, typed.Return) and last.value is not None
    return last.value


# --- calls ----------------------------------------------------------------------------------


def test_arguments_stand_in_order_with_defaults_filled_in():
    call = result(
        "fn g(a: f32, b: f32 = 2, c: bool = true) -> f32 { return a }\n"
        "fn f(x: f32, y: f32) -> f32 { return g(c = false, a = x) }"
    )
    assert isinstance(call, typed.Call)
    a, b, c = call.args
    assert isinstance(a, typed.Local) and a.name == "x"
    assert isinstance(b, typed.Literal) and b.value == 2.0 and isinstance(b.value, float)
    assert isinstance(c, typed.Literal) and c.value is False


def test_every_generic_argument_is_written_out():
    call = result(
        "fn g<*S: Shape, N: Dim, K: Dim = 2 * N, T: Float = bf16>(x: Tensor[*S, 3 * N; T]) -> Tensor[*S, K; T] { return fill([*S, K], 0) }\n"
        "fn f<N: Dim, M: Dim>(x: Tensor[N, M, 6 * M; f32]) -> Tensor[N, M, 4 * M; f32] { return g(x) }"
    )
    assert isinstance(call, typed.Call)
    assert call.function == "crate::g"
    assert call.generics == (("S", (N, M)), ("N", 2 * M), ("K", 4 * M), ("T", DType.F32))
    assert call.type == typed.TensorT((N, M, 4 * M), DType.F32)


def test_a_default_is_in_the_caller_s_generics():
    call = result(
        "fn g<N: Dim, T: Float>(x: Tensor[N; T], y: T = N, z: Tensor[N; T]? = none) -> T { return y }\n"
        "fn f<M: Dim>(x: Tensor[2 * M; f32]) -> f32 { return g(x) }"
    )
    assert isinstance(call, typed.Call)
    _, y, z = call.args
    assert isinstance(y, typed.DimValue) and y.dim == 2 * M and y.type == F32
    assert isinstance(z, typed.NoneValue)
    assert z.type == typed.OptionalT(typed.TensorT((2 * M,), DType.F32))


def test_methods_name_their_block():
    blocks = """
        block A<N: Dim> { param w: Tensor[N; f32]
            fn f() -> Tensor[N; f32] { return w } }
        block B<N: Dim> {
            sub one: A<2 * N>
            sub many: [A<N>; 3]
            fn own() -> Tensor[N; f32] { return many[2].f() }
            entry all() -> Tensor[2 * N; f32] { let _x = own() return one.f() }
        }"""
    methods = program(blocks).functions
    own = methods["crate::B.own"].body[-1]
    assert isinstance(own, typed.Return) and isinstance(own.value, typed.Call)
    assert own.value.block == typed.SubBlock(typed.SelfBlock(), "many", Dim.const(2))
    assert own.value.function == "crate::A.f" and own.value.generics == ()
    call_own, call_one = methods["crate::B.all"].body
    assert isinstance(call_own, typed.Let) and isinstance(call_own.value, typed.Call)
    assert call_own.value.block == typed.SelfBlock()
    assert isinstance(call_one, typed.Return) and call_one.value is not None
    assert call_one.value.type == typed.TensorT((2 * N,), DType.F32)


# --- numbers --------------------------------------------------------------------------------


def test_literals_have_their_place_s_dtype():
    add = result("fn f<T: Float>(x: T) -> T { return x + 1 }")
    assert isinstance(add, typed.Prim) and add.op == "add"
    one = add.args[1]
    assert isinstance(one, typed.Literal)
    assert one.value == 1.0 and one.type.dtype == typed.DTypeVar("T", "Float")


def test_literals_among_themselves_are_folded():
    three = result("fn f() -> f32 { return 1 + 2.0 }")
    assert isinstance(three, typed.Literal) and three.value == 3.0


def test_a_compile_time_integer_leaves_no_statement():
    f = function(
        "fn f<N: Dim>(x: Tensor[2 * N; f32]) -> Tensor[2, N; f32] { let half = 2 * N / 2 return reshape(x, [2, half]) }"
    )
    assert len(f.body) == 1


def test_a_let_of_a_constant_integer_is_a_value():
    f = function("const W = 4\nfn f() -> i64 { let n = W + 1 return n }")
    let = f.body[0]
    assert isinstance(let, typed.Let) and isinstance(let.value, typed.Literal)
    assert let.value.value == 5 and let.value.type.dtype == DType.I64


def test_comparing_dimensions_is_decided_or_kept():
    decided = result("fn f<N: Dim>(_x: Tensor[N; f32]) -> bool where N > 2 { return N > 1 }")
    assert isinstance(decided, typed.Literal) and decided.value is True
    kept = result("fn f<N: Dim>(_x: Tensor[N; f32]) -> bool { return N > 1 }")
    assert isinstance(kept, typed.DimCompare)
    assert (kept.op, kept.left, kept.right) == (">", N, Dim.const(1))


def test_a_constant_stands_where_it_is_used():
    text = "const EPS: f32 = 1e-5\nfn f() -> f32 { return EPS }"
    constant = result(text)
    assert isinstance(constant, typed.Literal) and constant.span.location.startswith("<text>:3:")


# --- locals and loops -----------------------------------------------------------------------


def test_local_names_are_unique():
    f = function("fn f(x: f32) -> f32 { let x = x + 1 let x = x * 2 return x }")
    names = [
        s.pattern.name
        for s in f.body[:2]
        if isinstance(s, typed.Let) and isinstance(s.pattern, typed.BindName)
    ]
    assert names == ["x.1", "x.2"]
    last = f.body[-1]
    assert isinstance(last, typed.Return) and isinstance(last.value, typed.Local)
    assert last.value.name == "x.2"


def test_a_loop_s_variable_is_a_dimension_of_its_own():
    f = function(
        "fn f<i: Dim>(x: Tensor[i; f32]) -> f32 { var y: f32 = 0"
        " static for j in 0..i { y = y + x[j] static for j in 0..j { y = y + j } }"
        " static for j in 0..3 { y = y + j } return y }"
    )
    outer, later = (s for s in f.body if isinstance(s, typed.StaticForRange))
    inner = outer.body[1]
    assert isinstance(inner, typed.StaticForRange)
    assert (outer.name, inner.name, later.name) == ("j", "j.1", "j")
    assert inner.stop == Dim.var("j")


def test_patterns():
    f = function(
        "fn f(p: (f32, (i32, bool))) -> i32 { let (_, (n, b)) = p return if b { n } else { 0 } }"
    )
    let = f.body[0]
    assert isinstance(let, typed.Let) and isinstance(let.pattern, typed.BindTuple)
    ignored, rest = let.pattern.items
    assert isinstance(ignored, typed.BindName) and ignored.name is None
    assert isinstance(rest, typed.BindTuple)


def test_a_scan_s_type_is_stacked():
    f = function(
        "fn f<N: Dim>(x: Tensor[N + 2, 3; f32]) -> (Tensor[N; i64], Tensor[N, 3; f32]) { let ys = for i in 2..N + 2 { yield (i, x[i]) } return ys }"
    )
    scan = f.body[0]
    assert isinstance(scan, typed.For) and isinstance(scan.body[-1], typed.Yield)
    assert scan.result_type == typed.TupleT(
        (typed.TensorT((N,), DType.I64), typed.TensorT((N, Dim.const(3)), DType.F32))
    )


# --- shapes and indices ---------------------------------------------------------------------


def test_slices_have_an_item_for_each_of_the_shape():
    cut = result(
        "fn f<*S: Shape, N: Dim>(x: Tensor[*S, N, 6; f32], i: i32) -> Tensor[*S, 2; f32] { return x[..., i, 1:5:2] }"
    )
    assert isinstance(cut, typed.Slice)
    keep, at, part = cut.items
    assert isinstance(keep, typed.Keep)
    assert isinstance(at, typed.At) and isinstance(at.index, typed.Local)
    assert part == typed.Range(Dim.const(1), Dim.const(5), 2)


def test_a_comprehension_knows_its_extents():
    f = function(
        "fn f<*S: Shape, N: Dim>(x: Tensor[*S, 2 * N; f32], w: Tensor[N; f32]) -> Tensor[N, *S; f32] { let y[n, *s] = x[*s, 2 * n + 1] * w[n] return y }"
    )
    let = f.body[0]
    assert isinstance(let, typed.Let) and isinstance(let.value, typed.Comprehension)
    pack = typed.Pack("S")
    assert let.value.indices == (("n", N), ("s", (pack,)))
    assert let.value.type == typed.TensorT((N, pack), DType.F32)
    product = let.value.body
    assert isinstance(product, typed.Prim) and isinstance(product.args[0], typed.Access)
    assert product.args[0].subscripts == (
        typed.PackSubscript("s"),
        typed.Affine((("n", Dim.const(2)),), Dim.const(1)),
    )


def test_a_reduction_by_itself_is_a_comprehension_without_indices():
    total = result("fn f<N: Dim>(x: Tensor[N; bf16]) -> f32 { return sum<f32>[i] cast<f32>(x[i]) }")
    assert isinstance(total, typed.Comprehension) and total.indices == ()
    assert isinstance(total.body, typed.Reduce)
    assert total.body.indices == (("i", N),) and total.type == F32


def test_concat_counts_its_axis_from_the_end():
    joined = result(
        "fn f<*S: Shape>(x: Tensor[*S, 2, 3; f32]) -> Tensor[*S, 4, 3; f32] { return concat(x, x, axis = -2) }"
    )
    assert isinstance(joined, typed.Prim) and joined.axes == (-2,)


# --- optionals, enums, structs --------------------------------------------------------------


def test_an_optional_child_is_matched_as_a_block():
    source = """
        block A { param w: f32
            fn f() -> f32 { return w } }
        block B { sub a: A = none
            entry g() -> f32 { return match a { some(x) => x.f(), none => 0 } } }"""
    p = program(source)
    (member,) = p.blocks["crate::B"].members
    assert member.optional and member.type == typed.BlockT("crate::A", ())
    last = p.functions["crate::B.g"].body[-1]
    assert isinstance(last, typed.Return) and isinstance(last.value, typed.MatchSub)
    call = last.value.some
    assert isinstance(call, typed.Call) and call.block == typed.BoundBlock(last.value.name)


def test_an_optional_weight_reads_as_an_optional():
    source = "block B { param w: f32 = none\nentry f() -> f32 { return match w { some(v) => v, none => 0 } } }"
    last = program(source).functions["crate::B.f"].body[-1]
    assert isinstance(last, typed.Return) and isinstance(last.value, typed.MatchOptional)
    assert last.value.subject.type == typed.OptionalT(F32)
    (member,) = program(source).blocks["crate::B"].members
    assert member.type == F32 and member.optional


def test_an_enum_s_cases_stand_in_its_order():
    match = result("enum E { A, B }\nfn f(x: E) -> i64 { return match x { B => 2, A => 1 } }")
    assert isinstance(match, typed.MatchEnum)
    assert [arm.value for arm in match.arms if isinstance(arm, typed.Literal)] == [1, 2]


def test_a_struct_s_fields_stand_in_its_order():
    made = result("struct P { x: f32 n: i64 }\nfn f(x: f32) -> P { return P(n = 1, x = x) }")
    assert isinstance(made, typed.MakeTuple) and made.type == typed.StructT(
        "crate::P", (("x", F32), ("n", typed.TensorT((), DType.I64)))
    )
    assert isinstance(made.items[0], typed.Local)


# --- the program ----------------------------------------------------------------------------


def test_a_block_s_outside():
    p = program(
        "/// A layer.\npub block A<N: Dim, T: Float = f32>\nwhere N > 1\n{\n"
        "    /// Its weight.\n    param w: Tensor[N; T]\n    state s: Tensor[2; T]\n"
        "    pub entry f() -> T { s = s * 1 return w[0] }\n    fn g() -> i64 { return 1 }\n}"
    )
    block = p.blocks["crate::A"]
    assert [(g.name, g.kind, g.default) for g in block.generics] == [
        ("N", "Dim", None),
        ("T", "Float", DType.F32),
    ]
    assert block.where == (typed.Fact(">", N, Dim.const(1)),)
    assert [(m.kind, m.name) for m in block.members] == [("param", "w"), ("state", "s")]
    assert dict(block.methods) == {"f": "crate::A.f", "g": "crate::A.g"}
    assert (block.doc or "").strip() == "A layer."
    assert (block.members[0].doc or "").strip() == "Its weight."
    assert p.functions["crate::A.f"].block == "crate::A"
    assert dict(p.exports) == {"A": "crate::A"}


def test_a_gradient_binds_its_names():
    f = function(
        "op f(x: f32, n: i32) -> f32 { return x * x } grad(y, dy) { return dy * 2 * x + 0 * y }"
    )
    assert f.grad is not None
    assert (f.grad.result, f.grad.cotangent) == ("y", "dy")
    last = f.grad.body[-1]
    assert isinstance(last, typed.Return) and last.value is not None and last.value.type == F32


def test_only_what_is_reached_is_in_the_program():
    p = program("use std.linalg::{dot}\nfn f(x: Tensor[2; f32]) -> f32 { return dot(x, x) }")
    assert {key.partition("::")[0] for key in p.functions} == {"crate", "std.linalg"}
