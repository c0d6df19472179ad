"""Binding generics: roots, defaults, optional members, the manifest, an entry's generics."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from linnet.dtypes import DType
from linnet.ir.core import TensorType
from linnet.ir.instantiate import (
    Argument,
    BlockInstance,
    bind_entry,
    entries,
    instantiate,
    parameters,
)
from tests.ir.programs import compiled

SOURCE = """
module net

enum Pooling { Mean, Max }
struct Pair { left: f32 right: f32 }

pub block Scale<N: Dim, T: Float = bf16> {
    param weight: Tensor[N; T]
    param shift: Tensor[N; T] = none
    pub fn forward(x: Tensor[N; T]) -> Tensor[N; T] { return x * weight }
}

pub block Head<N: Dim, M: Dim> {
    sub inner: Scale<N, f32>
    buffer table: Tensor[N, M; i8]
    pub fn forward(x: Tensor[N; f32]) -> Tensor[N; f32] { return inner.forward(x) }
}

pub block Net<N: Dim, Heads: Dim, M: Dim = Heads + 1, T: Float = f32>
where Heads > 0, N % Heads == 0
{
    sub scales: [Scale<N, T>; Heads]
    state cache: Tensor[2, N; T]
    sub head: Head<N, M> = none

    pub entry forward<B: Dim, S: Dim>(x: Tensor[B, 2 * S, N; T]) -> Tensor[B, 2 * S, N; T]
    where S <= 8 { return x }
    pub entry step(x: Tensor[N; T], at: i32) -> Tensor[N; T] { return x + cast<T>(at) }
    pub entry any<*S: Shape, U: Float>(x: Tensor[*S, N; U]) -> Tensor[*S, N; U] { return x }
    pub entry choose<K: Dim>(p: Pair, m: Tensor[K; f32]?, how: Pooling) -> f32 { return p.left }
    pub entry free<K: Dim, L: Dim = K + 1>() -> Tensor[K, L; f32] { return fill([K, L], 0) }
}

pub entry loss(x: f32) -> f32 { return x * x }
"""
PROGRAM = compiled(SOURCE)


def net(present: object = lambda path: True, **generics: object) -> BlockInstance:
    return instantiate(PROGRAM, None, {"N": 6, "Heads": 2, **generics}, present)  # type: ignore[arg-type]


def test_defaults_are_applied_in_order() -> None:
    assert dict(net().generics) == {"N": 6, "Heads": 2, "M": 3, "T": DType.F32}
    assert net(T="bf16").generics["T"] == DType.BF16
    assert net(T=DType.F16, M=7).generics["M"] == 7


@pytest.mark.parametrize(
    ("generics", "message"),
    [
        ({"N": 6}, "`Net` needs a value for `Heads: Dim`"),
        ({}, "`Net` needs a value for `N: Dim`, `Heads: Dim`"),
        ({"N": 6, "Heads": 2, "W": 3}, "`Net` has no generic `W`; its generics are N, Heads, M"),
        ({"N": 6, "Heads": 4}, "`Net` needs N % Heads == 0; with Heads = 4, N = 6"),
        ({"N": 6, "Heads": 0}, "division by zero|Heads > 0"),
        ({"N": -1, "Heads": 2}, "`N` must be an integer of at least 0, not -1"),
        ({"N": True, "Heads": 2}, "`N` must be an integer of at least 0, not True"),
        ({"N": 6.0, "Heads": 2}, "`N` must be an integer"),
        ({"N": 6, "Heads": 2, "T": "i32"}, "`T` must be one of bf16, f16, f32, f64, not 'i32'"),
        ({"N": 6, "Heads": 2, "T": 3}, "`T` must be one of"),
    ],
)  # fmt: skip
def test_generics_that_do_not_fit_are_named(generics: Mapping[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        instantiate(PROGRAM, None, generics)
    found = str(caught.value)
    assert any(part in found for part in message.split("|")), found


def test_the_root_is_the_only_public_block_with_entries() -> None:
    assert net().key.endswith("::Net")
    assert instantiate(PROGRAM, "Scale", {"N": 2}).key.endswith("::Scale")
    with pytest.raises(ValueError, match="has no block `Nest`; it has `Scale`, `Head`, `Net`"):
        instantiate(PROGRAM, "Nest")
    two = compiled(
        "pub block A { pub entry f(x: f32) -> f32 { return x } }\n"
        "pub block B { pub entry f(x: f32) -> f32 { return x } }"
    )
    with pytest.raises(ValueError, match="several blocks with entries: `A`, `B`"):
        instantiate(two)
    none = compiled("pub fn f(x: f32) -> f32 { return x }")
    with pytest.raises(ValueError, match="no public block with entries"):
        instantiate(none)


def test_free_entries_need_no_block() -> None:
    module = compiled("pub entry f(x: f32) -> f32 { return x }\npub fn g(x: f32) -> f32 {return x}")
    assert list(entries(instantiate(module))) == ["f"]
    assert list(entries(net())) == ["loss", "forward", "step", "any", "choose", "free"]


def test_the_manifest_is_in_declaration_order() -> None:
    specs = [
        (s.path, s.shape, s.dtype.value, s.kind, s.optional) for s in parameters(net(T="bf16"))
    ]
    assert specs == [
        ("scales.0.weight", (6,), "bf16", "param", False),
        ("scales.0.shift", (6,), "bf16", "param", True),
        ("scales.1.weight", (6,), "bf16", "param", False),
        ("scales.1.shift", (6,), "bf16", "param", True),
        ("cache", (2, 6), "bf16", "state", False),
        ("head.inner.weight", (6,), "f32", "param", False),
        ("head.inner.shift", (6,), "f32", "param", True),
        ("head.table", (6, 3), "i8", "buffer", False),
    ]


def test_optional_members_are_there_when_the_checkpoint_has_them() -> None:
    def paths(*there: str) -> list[str]:
        return [spec.path for spec in parameters(net(lambda path: path in there))]

    always = ["scales.0.weight", "scales.1.weight", "cache"]
    assert paths() == always
    assert paths("scales.1.shift") == [*always[:2], "scales.1.shift", "cache"]
    # One weight of an optional child is enough; the others are then missing, not optional.
    assert paths("head.table") == [*always, "head.inner.weight", "head.table"]


def test_instances_of_one_form_are_alike() -> None:
    plain = net(lambda path: False)
    left, right = plain.children["scales"]  # type: ignore[misc]
    assert left.form == right.form
    mixed = net(lambda path: path == "scales.1.shift")
    left, right = mixed.children["scales"]  # type: ignore[misc]
    assert left.form != right.form


def test_signatures_keep_the_entry_s_own_generics() -> None:
    shown = {name: str(entry) for name, entry in entries(net()).items()}
    assert shown == {
        "loss": "loss(x: f32) -> f32",
        "forward": "forward<B: Dim, S: Dim>(x: Tensor[B, 2 * S, 6; f32]) -> "
        "Tensor[B, 2 * S, 6; f32]",
        "step": "step(x: Tensor[6; f32], at: i32) -> Tensor[6; f32]",
        "any": "any<S: Shape, U: Float>(x: Tensor[*S, 6; U]) -> Tensor[*S, 6; U]",
        "choose": "choose<K: Dim>(p: Pair, m: Tensor[K; f32]?, how: Pooling) -> f32",
        "free": "free<K: Dim, L: Dim>() -> Tensor[K, L; f32]",
    }


def tensor(*shape: int, dtype: str = "f32") -> TensorType:
    return TensorType(shape, DType(dtype))


def test_generics_follow_from_the_inputs() -> None:
    assert bind_entry(net(), "forward", [tensor(3, 10, 6)]) == {"B": 3, "S": 5}
    assert bind_entry(net(), "any", [tensor(1, 2, 3, 6, dtype="bf16")]) == {
        "S": (1, 2, 3),
        "U": DType.BF16,
    }
    assert bind_entry(net(), "any", [tensor(6)]) == {"S": (), "U": DType.F32}
    pair = (tensor(), tensor())
    assert bind_entry(net(), "choose", [pair, tensor(4), "Max"]) == {"K": 4}
    assert bind_entry(net(), "choose", [pair, None, "Max"], {"K": 0}) == {"K": 0}
    assert bind_entry(net(), "free", [], {"K": 2}) == {"K": 2, "L": 3}
    assert bind_entry(net(), "loss", [tensor()]) == {}


PAIR = (tensor(), tensor())


@pytest.mark.parametrize(
    ("entry", "arguments", "explicit", "message"),
    [
        ("backward", [], {}, "`Net` has no entry `backward`; its entries: `loss`, `forward`"),
        ("forward", [], {}, "`forward` takes 1 inputs (x), 0 given"),
        ("forward", [tensor(3, 10)], {},
         "`x` must be Tensor[B, 2 * S, 6; f32], not Tensor[3, 10; f32]"),
        ("forward", [tensor(3, 10, 6, dtype="i32")], {}, "not Tensor[3, 10, 6; i32]"),
        ("forward", [tensor(3, 9, 6)], {}, "`S` does not follow from the inputs; give its value"),
        ("forward", [tensor(3, 10, 5)], {},
         "= Tensor[3, 10, 6; f32], not Tensor[3, 10, 5; f32] (with N = 6, B = 3, S = 5)"),
        ("forward", [tensor(3, 20, 6)], {}, "`forward` needs S <= 8; with S = 10 it is not so"),
        ("forward", [tensor(3, 10, 6)], {"S": 4},
         "`x` must be Tensor[B, 2 * S, N; T] = Tensor[3, 8, 6; f32]"),
        ("forward", [tensor(3, 10, 6)], {"Q": 4},
         "`forward` has no generic `Q`; its generics are B, S"),
        ("step", [tensor(6), tensor(1, dtype="i32")], {}, "`at` must be i32, not Tensor[1; i32]"),
        ("any", [tensor(2, 6, dtype="i32")], {},
         "`x` must be Tensor[*S, 6; U], not Tensor[2, 6; i32]"),
        ("choose", [PAIR, None, "Max"], {}, "`K` does not follow"),
        ("choose", [PAIR, None, "Min"], {"K": 1}, "`how` must be Pooling, not 'Min'"),
        ("choose", [tensor(), None, "Max"], {"K": 1}, "`p` must be Pair, not f32"),
        ("free", [], {"K": -1}, "`K` must be an integer of at least 0"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit_are_named(
    entry: str, arguments: list[Argument], explicit: Mapping[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        bind_entry(net(), entry, arguments, explicit)
