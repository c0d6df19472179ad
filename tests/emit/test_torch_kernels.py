"""Every kernel of the table against the body it stands for.

A case calls one library op. What the interpreter makes of its body is compared with the emitted
source for every target: `exact` kernels give the same bits; the others may be off by the rounding
of sums in another order. With K terms in a sum of numbers about 1, f32 gives K · 2⁻²³; results in
f16 and bf16 are rounded once or twice more, by half a unit in the last place each (2⁻¹¹, 2⁻⁸).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from linnet.check import check_text
from linnet.dtypes import DType
from linnet.emit.torch import EXPANDED_OPS, KEPT_OPS, TorchTarget, emit_torch, explain
from linnet.emit.torch_kernels import KERNELS
from linnet.emit.torch_target import NUMERICS
from linnet.ir.core import Module, TensorType
from linnet.ir.instantiate import bind_entry, instantiate
from linnet.ir.interpreter import round_bf16
from linnet.ir.lower import lower
from linnet.ir.passes import optimise
from tests.emit.running import Outcome

TERMS = 64
"""More than any sum here has."""
ABSOLUTE = {"f32": TERMS * 2.0**-23, "bf16": 3 * 2.0**-8, "f16": 3 * 2.0**-11}
PLACES = (("cpu", "eager"), ("cpu", "inductor"), ("cuda", "eager"), ("cuda", "cudagraphs"))
SEEN: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class Case:
    op: str
    call: str
    inputs: dict[str, str | np.ndarray]
    """The types of float inputs, in which `T` stands for the dtype; arrays of the others."""
    result: str
    dtypes: tuple[str, ...] = ("f32", "bf16", "f16")
    exact: bool = False

    @property
    def source(self) -> str:
        return self.op.partition("::")[0]


def i32(*numbers: int, shape: tuple[int, ...] | None = None) -> np.ndarray:
    found = np.array(numbers, np.int32)
    return found.reshape(shape) if shape is not None else found


CAUSAL = "causal_mask<4, 4>()"
MASK = np.array([[1, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]], bool)
QUERY, KEY = "Tensor[2, 4, {q}, 8; T]", "Tensor[2, {h}, {k}, 8; T]"


def attention(op: str, rest: str, q: int, k: int, h: int, **given: np.ndarray) -> Case:
    inputs = {
        "q": QUERY.format(q=q),
        "k": KEY.format(h=h, k=k),
        "v": KEY.format(h=h, k=k),
        **given,
    }
    call = f"{op}(q, k, v, 0.3{rest})"
    return Case(f"std.nn.attention::{op}", call, inputs, QUERY.format(q=q))


def write(op: str, value: str, positions: str, **given: np.ndarray) -> Case:
    inputs = {"c": "Tensor[3, 2, 6, 4; T]", "v": value, **given}
    call = f"{op}(c, v, {positions})"
    return Case(f"std.nn.cache::{op}", call, inputs, "Tensor[3, 2, 6, 4; T]", exact=True)


SCALAR = np.int32
CASES: dict[str, Case] = {
    "linear, one row": Case(
        "std.nn.linear::linear", "linear(x, w)",
        {"x": "Tensor[1, 1, 24; T]", "w": "Tensor[16, 24; T]"}, "Tensor[1, 1, 16; T]",
    ),
    "linear, one row, bias": Case(
        "std.nn.linear::linear", "linear(x, w, some(b))",
        {"x": "Tensor[1, 24; T]", "w": "Tensor[16, 24; T]", "b": "Tensor[16; T]"},
        "Tensor[1, 16; T]",
    ),
    "linear, a vector": Case(
        "std.nn.linear::linear", "linear(x, w)",
        {"x": "Tensor[24; T]", "w": "Tensor[16, 24; T]"}, "Tensor[16; T]",
    ),
    "linear, rows, bias": Case(
        "std.nn.linear::linear", "linear(x, w, some(b))",
        {"x": "Tensor[2, 3, 24; T]", "w": "Tensor[16, 24; T]", "b": "Tensor[16; T]"},
        "Tensor[2, 3, 16; T]",
    ),
    "embedding": Case(
        "std.nn.embedding::embedding", "embedding(i, w)",
        {"i": i32(3, 0, 4, 4, shape=(2, 2)), "w": "Tensor[5, 8; T]"}, "Tensor[2, 2, 8; T]",
        exact=True,
    ),
    "rms_norm": Case(
        "std.nn.norm::rms_norm", "rms_norm(x, w, 1e-5)",
        {"x": "Tensor[2, 3, 24; T]", "w": "Tensor[24; T]"}, "Tensor[2, 3, 24; T]",
    ),
    "layer_norm": Case(
        "std.nn.norm::layer_norm", "layer_norm(x, w, some(b), 1e-5)",
        {"x": "Tensor[3, 24; T]", "w": "Tensor[24; T]", "b": "Tensor[24; T]"}, "Tensor[3, 24; T]",
    ),
    "layer_norm, no bias": Case(
        "std.nn.norm::layer_norm", "layer_norm(x, w)",
        {"x": "Tensor[3, 24; T]", "w": "Tensor[24; T]"}, "Tensor[3, 24; T]",
    ),
    **{
        name: Case(
            f"std.nn.activations::{name}", f"{name}(x)", {"x": "Tensor[3, 24; T]"},
            "Tensor[3, 24; T]", exact=name == "relu",
        )
        for name in ("relu", "sigmoid", "silu", "gelu", "gelu_erf")
    },
    "softmax": Case(
        "std.nn.softmax::softmax", "softmax(x)", {"x": "Tensor[3, 24; T]"}, "Tensor[3, 24; T]",
    ),
    "causal_mask": Case(
        "std.nn.attention::causal_mask", "causal_mask<3, 5>()", {}, "Tensor[3, 5; bool]",
        dtypes=("f32",), exact=True,
    ),
    "attention": attention("attention", "", 3, 6, 4),
    "attention, mask": attention("attention", ", some(m)", 3, 6, 4, m=MASK),
    "attention, causal": attention("attention", f", some({CAUSAL})", 4, 4, 4),
    "attention_rows": attention("attention_rows", ", m", 3, 6, 4, m=np.stack([MASK, ~MASK])),
    "grouped_attention": attention("grouped_attention", "", 3, 6, 2),
    "grouped_attention, mask": attention("grouped_attention", ", some(m)", 3, 6, 2, m=MASK),
    "grouped_attention, causal": attention("grouped_attention", f", some({CAUSAL})", 4, 4, 2),
    "grouped_attention, one query": attention(
        "grouped_attention", ", some(m)", 1, 6, 2, m=MASK[:1]
    ),
    "grouped_attention, one query, all": attention("grouped_attention", "", 1, 6, 2),
    "grouped_attention_rows": attention(
        "grouped_attention_rows", ", m", 3, 6, 2, m=np.stack([MASK, ~MASK])
    ),
    "grouped_attention_rows, one query": attention(
        "grouped_attention_rows", ", m", 1, 6, 2, m=np.stack([MASK[:1], MASK[1:2]])
    ),
    **{
        f"cached_attention, {q} at {at}": attention(
            "cached_attention", ", at", q, 6, h, at=np.array(at, np.int32)
        )
        for q, at, h in
        [
            *[(1, 0, 2), (1, 4, 2), (1, 5, 4), (1, 6, 2), (1, -1, 2)],
            *[(3, 0, 2), (3, 2, 2), (3, 3, 4), (3, 5, 2), (3, -1, 2), (6, 1, 2)],
        ]
    },
    "cached_attention_rows": attention(
        "cached_attention_rows", ", at", 1, 6, 2, at=i32(4, -1)
    ),
    **{
        f"write_at {at}": write("write_at", "Tensor[3, 2, 1, 4; T]", "at", at=np.array(at, SCALAR))
        for at in (-1, 0, 5, 6)
    },
    **{
        f"write_span {n} at {at}": write(
            "write_span", f"Tensor[3, 2, {n}, 4; T]", "at", at=np.array(at, SCALAR)
        )
        for n, at in
        [(1, -1), (1, 3), (3, 0), (3, 3), (3, 5), (3, -2), (3, 9), (6, 0), (6, 2), (8, -1)]
    },
    "write_span, at a constant": write("write_span", "Tensor[3, 2, 4, 4; T]", "1"),
    "write_rows": write("write_rows", "Tensor[3, 2, 1, 4; T]", "at", at=i32(5, -1, 0)),
    "write_slot": write(
        "write_slot", "Tensor[1, 2, 3, 4; T]", "s, at",
        s=np.array(1, SCALAR), at=np.array(2, SCALAR),
    ),
    "write_slot, none": write(
        "write_slot", "Tensor[1, 2, 3, 4; T]", "s, at",
        s=np.array(-1, SCALAR), at=np.array(2, SCALAR),
    ),
    "write_slots": write(
        "write_slots", "Tensor[2, 2, 4, 4; T]", "s, 0", s=i32(2, 0),
    ),
    "write_slots, padding": write(
        "write_slots", "Tensor[3, 2, 4, 4; T]", "s, at", s=i32(-1, 0, 7), at=np.array(4, SCALAR),
    ),
    "write_slots, none of them": write(
        "write_slots", "Tensor[2, 2, 4, 4; T]", "s, at", s=i32(-1, 3), at=np.array(1, SCALAR),
    ),
    "write_slots, one twice": write(
        "write_slots", "Tensor[3, 2, 2, 4; T]", "s, at", s=i32(1, 1, -1), at=np.array(1, SCALAR),
    ),
    "write_tokens, none of them": write(
        "write_tokens", "Tensor[1, 2, 2, 4; T]", "r, p", r=i32(-1, 3), p=i32(0, 0),
    ),
    "write_tokens": write(
        "write_tokens", "Tensor[1, 2, 5, 4; T]", "r, p",
        r=i32(0, 0, 2, -1, 3), p=i32(1, 2, 5, -1, 0),
    ),
    "argmax": Case(
        "std.nn.decoding::argmax", "argmax(x)",
        {"x": np.array([[1, 3, 3, 2], [-1, -1, -2, -1]], np.float32)}, "Tensor[2; i32]",
        dtypes=("f32",), exact=True,
    ),
}  # fmt: skip


NAMES = {"int32": "i32", "bool": "bool", "float32": "f32"}


def module_of(case: Case, dtype: str) -> tuple[Module, list[np.ndarray]]:
    """A case as an entry of its own, and values for its inputs."""
    random = np.random.default_rng(0)
    names, params, arrays, types = {case.op.partition("::")[2]}, [], [], []
    if CAUSAL in case.call:
        names.add("causal_mask")
    for name, given in case.inputs.items():
        if isinstance(given, np.ndarray):
            array, kind = given, DType(NAMES[str(given.dtype)])
        else:
            shape = tuple(map(int, given.partition("[")[2].partition(";")[0].split(",")))
            array, kind = random.standard_normal(shape).astype(np.float32), DType(dtype)
            array = round_bf16(array) if dtype == "bf16" else array
            array = array.astype(np.float16) if dtype == "f16" else array
        extents = ", ".join(map(str, array.shape))
        params.append(f"{name}: Tensor[{extents}; {kind}]" if extents else f"{name}: {kind}")
        arrays.append(array)
        types.append(TensorType(array.shape, kind))
    text = (
        f"module case\nuse {case.source}::{{{', '.join(sorted(names))}}}\n"
        f"pub entry main({', '.join(params)}) -> {case.result.replace('T]', f'{dtype}]')} {{\n"
        f"    return {case.call}\n}}\n"
    )
    instance = instantiate(check_text(text).require())
    generics = bind_entry(instance, "main", types, {})
    return lower(instance, "main", generics, types), arrays


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, c in CASES.items() for d in c.dtypes])
def test_kernels_compute_what_their_body_does(name: str, dtype: str) -> None:
    case = CASES[name]
    lowered, arrays = module_of(case, dtype)
    tolerance = 0.0 if case.exact else ABSOLUTE[dtype] * (4 if "norm" in name else 1)
    sources = set()
    for numerics in NUMERICS:
        module = optimise(lowered, numerics, expand=EXPANDED_OPS, keep=KEPT_OPS)
        for device, mode in PLACES:  # wherever it is for, the source is run as it is
            target = TorchTarget(device, mode, numerics)
            SEEN.update((row.op, row.kernel) for row in explain(module, target))
            source = emit_torch(module, target).partition("import torch")[2]
            if source not in sources:
                sources.add(source)
                Outcome(module, arrays, target=target).assert_close(tolerance, tolerance)


def test_every_kernel_is_tested_here() -> None:
    wanted = {(op, kernel.name) for op, kernels in KERNELS.items() for kernel in kernels}
    if len(SEEN) > 1:  # the tests above ran, all of them
        assert wanted - SEEN == set()


def test_explain_names_the_kernel_and_why() -> None:
    module, _ = module_of(CASES["linear, one row"], "f32")
    (row,) = explain(module, TorchTarget(mode="inductor"))
    assert row.kernel == "few_rows"
    assert "reads the weight once" in row.why
    (row,) = explain(module, TorchTarget(numerics="exact"))
    assert (row.kernel, row.why) == (
        "its body", "no kernel fits these types on cpu, eager, exact",
    )  # fmt: skip
