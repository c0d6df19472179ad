"""The Llama source on XLA at a tiny size: every entry against the interpreter.

A layer's sums have at most 24 terms of numbers about 1, and there are three layers: 1e-5 is some
hundred times the rounding.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest

import linnet.jax
from linnet.dtypes import DType
from linnet.ir.core import TensorType
from linnet.ir.instantiate import bind_entry
from linnet.ir.interpreter import run
from linnet.ir.lower import lower
from linnet.jax import XlaModel
from linnet.jax.arrays import place
from tests.torch.models import GENERICS, LLAMA, PROGRAM, llama_weights, tokens

CLOSE = 1e-5


def i32(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


ENTRIES = {
    "forward": [tokens(3, 5)],
    "next_token": [tokens(3, 5)],
    "prefill": [tokens(2, 5), 0],
    "prefill later": [tokens(2, 5), 7],
    "prefill of all": [tokens(2, 16), 0],
    "decode": [tokens(2, 1), 5],
    "decode at the end": [tokens(2, 1), 15],
    "prefill_slots": [tokens(3, 5), i32(1, -1, 0), i32(5, 2, 3)],
    "prefill_packed": [tokens(1, 6), i32(1, 1, 1, 0, 0, -1), i32(0, 1, 2, 0, 1, -1),
                       i32(0, 0, 0, 1, 1, -1), i32(2, 4)],
    "decode_rows": [tokens(2, 1), i32(7, -1)],
    "generate": [tokens(2, 4)],
    "generate_until": [tokens(2, 4), 5],
    "sample": [tokens(2, 4), np.array([0, 42]), 0.8],
}  # fmt: skip


def load(numerics: str = "fast", **options) -> XlaModel:
    generics = {**GENERICS, **options.pop("generics", {})}
    options = {"cache": False, "weights": llama_weights(), **options}
    return linnet.jax.load(PROGRAM, root="Llama", generics=generics, numerics=numerics, **options)


@pytest.fixture(scope="module", params=["exact", "equivalent", "fast"])
def model(request: pytest.FixtureRequest) -> XlaModel:
    return load(request.param)


@pytest.mark.parametrize("name", ENTRIES)
def test_entry_computes_what_the_interpreter_says(model: XlaModel, name: str) -> None:
    entry, given = name.split()[0], ENTRIES[name]
    generics = {"N": 6} if entry in ("generate", "generate_until", "sample") else {}
    random = np.random.default_rng(3)
    states = {p: random.standard_normal(s.shape, np.float32) for p, s in model.states.items()}
    model.states = {path: place(array.copy(), model.device) for path, array in states.items()}
    declared = model.instance.program.functions[f"{model.instance.key}.{entry}"].params
    arrays = [
        np.asarray(x, "int32" if str(p.type.dtype) == "i32" else "float32")  # type: ignore[union-attr]
        if isinstance(x, (int, float))
        else x
        for p, x in zip(declared, given, strict=True)
    ]
    found = model.run_entry(entry, given, **generics)
    kinds = {"int32": "i32", "int64": "i64", "float32": "f32"}
    types = [TensorType(x.shape, DType(kinds[str(x.dtype)])) for x in arrays]
    bound = bind_entry(model.instance, entry, types, generics)
    module = lower(model.instance, entry, bound, types)
    expected, new = run(module, arrays, llama_weights(), states)
    results = found if isinstance(found, tuple) else (found,)
    for result, reference in zip(results, expected, strict=True):
        np.testing.assert_allclose(model.to_numpy(result), reference, CLOSE, CLOSE)
    for path, reference in new.items():
        np.testing.assert_allclose(np.asarray(model.states[path]), reference, CLOSE, CLOSE)


def test_steps_give_what_forward_gives(model: XlaModel) -> None:
    model.reset_state()
    prompt = tokens(2, 9)
    found = [model.run_entry("prefill", [prompt[:, :4], 0])]
    found.append(model.run_entry("prefill", [prompt[:, 4:7], 4]))
    found += [model.run_entry("decode", [prompt[:, i : i + 1], i]) for i in (7, 8)]
    whole = model.to_numpy(model.run_entry("forward", [prompt]))
    for logits, end in zip(found, (4, 7, 8, 9), strict=True):
        np.testing.assert_allclose(model.to_numpy(logits), whole[:, end - 1], CLOSE, CLOSE)


def test_a_whole_generation_in_one_program_gives_the_tokens_of_single_steps() -> None:
    model = load()
    prompt = tokens(2, 4)
    chosen = [model.argmax(model.run_entry("prefill", [prompt, 0]))]
    for position in range(4, 9):
        step = chosen[-1].astype(np.int32).reshape(2, 1)
        chosen.append(model.argmax(model.run_entry("decode", [step, position])))
    expected = np.stack(chosen, 1)
    model.reset_state()
    found, count = model.run_entry("generate_until", [prompt, -1], N=6)
    np.testing.assert_array_equal(model.to_numpy(found), expected)
    assert int(count) == 6
    both = [int(t) for t in expected[0] if t in expected[1]]
    stop = both[0] if both else int(expected[0, 2])
    rows, count = model.run_entry("generate_until", [prompt, stop], N=6)
    for row, whole in zip(model.to_numpy(rows), expected, strict=True):
        until = list(whole).index(stop) if stop in whole else 6
        assert list(row[:until]) == list(whole[:until])
        assert (row[until:] == stop).all()
    assert 1 <= int(count) <= 6


@pytest.mark.parametrize(
    ("entry", "generics"),
    [
        ("decode", {}), ("prefill", {"S": 5}), ("decode_rows", {}),
        ("prefill_slots", {"M": 2, "S": 4}), ("prefill_packed", {"P": 8, "M": 2}),
        ("generate", {"S": 4, "N": 3}), ("generate_until", {"S": 4, "N": 3}),
    ],
)  # fmt: skip
def test_no_step_copies_a_cache(entry: str, generics: dict[str, int]) -> None:
    """The executable's own plan: each new cache takes the old one's memory, and all else that a
    step needs is less than one layer's cache of keys."""
    sizes = {"MaxSeq": 2048, "Batch": 2, "H": 384}
    model = load(generics=sizes, weights=llama_weights(**sizes))
    executable = model.executable(entry, **generics)
    caches = [state.nbytes for state in model.states.values()]
    memory = executable.memory
    assert memory.aliased == sum(caches)
    assert memory.outputs - memory.aliased < caches[0]
    assert memory.temporaries < caches[0]
    assert "= f32[2,2,2048,64]{3,2,1,0} copy(" not in executable.optimised


@pytest.mark.parametrize(("dtype", "close"), [("bf16", 0.15), ("f16", 0.02)])
def test_narrow_weights_give_nearly_the_same(dtype: str, close: float) -> None:
    """Logits about 1 after three layers: some roundings by 2⁻⁸ (bf16) or 2⁻¹¹ (f16) each."""
    wide = load()
    narrow = load(dtype=dtype, generics={"T": dtype})
    prompt = tokens(2, 6)
    expected = wide.to_numpy(wide.run_entry("prefill", [prompt, 0]))
    logits = narrow.run_entry("prefill", [prompt, 0])
    np.testing.assert_allclose(narrow.to_numpy(logits), expected, atol=close)
    assert narrow.to_numpy(logits).dtype == np.float32
    assert str(logits.dtype) == {"bf16": "bfloat16", "f16": "float16"}[dtype]
    assert narrow.dtype == dtype


@pytest.mark.gpu
def test_a_gpu_gives_the_same() -> None:
    try:
        jax.devices("cuda")
    except RuntimeError:
        pytest.skip("needs a CUDA GPU and JAX for it")
    host, device = load(device="cpu"), load(device="cuda")
    prompt = tokens(2, 5)
    steps = [("prefill", [prompt, 0]), *(("decode", [prompt[:, :1], i]) for i in range(5, 12))]
    for entry, given in steps:
        expected = host.to_numpy(host.run_entry(entry, given))
        found = device.to_numpy(device.run_entry(entry, given))
        np.testing.assert_allclose(found, expected, 1e-3, 1e-3)


def test_a_source_file_is_taken_too() -> None:
    model = linnet.jax.load(
        LLAMA, root="Llama", generics=GENERICS, weights=llama_weights(), cache=False
    )
    assert model.run_entry("decode", [tokens(2, 1), 0]).shape == (2, 40)
