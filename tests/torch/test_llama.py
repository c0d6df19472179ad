"""The Llama source in PyTorch at a tiny size: against NumPy, and its entries against one another.

Each entry is compared with the interpreter over library bodies. A layer's sums have at most 24
terms of numbers about 1, and there are three layers: 1e-5 is some hundred times the rounding.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import linnet.torch
from linnet.dtypes import DType
from linnet.ir.core import TensorType
from linnet.ir.instantiate import bind_entry
from linnet.ir.interpreter import run
from linnet.ir.lower import lower
from linnet.torch import TorchModel
from tests.torch.models import GENERICS, LLAMA, PROGRAM, llama_weights, tokens

CLOSE = 1e-5


def i32(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


ENTRIES = {
    "forward": [tokens(3, 5)],
    "next_token": [tokens(3, 5)],
    "prefill": [tokens(2, 5), 0],
    "prefill later": [tokens(2, 5), 7],
    "decode": [tokens(2, 1), 5],
    "prefill_slots": [tokens(3, 5), i32(1, -1, 0), i32(5, 2, 3)],
    "prefill_packed": [tokens(1, 6), i32(1, 1, 1, 0, 0, -1), i32(0, 1, 2, 0, 1, -1),
                       i32(0, 0, 0, 1, 1, -1), i32(2, 4)],
    "decode_rows": [tokens(2, 1), i32(7, -1)],
    "decode_first": [tokens(1, 1), i32(0), i32(7)],
    "decode_first of all": [tokens(2, 1), i32(-1, 1), i32(0, 15)],
    "prefill_slot": [tokens(1, 5), 1, 3, 2],
    "prefill_slot at the end": [tokens(1, 5), 0, 11, 4],
    "copy_row": [1, 0],
    "generate": [tokens(2, 4)],
    "generate_until": [tokens(2, 4), 5],
    "sample": [tokens(2, 4), np.array([0, 42]), 0.8],
}  # fmt: skip


def load(numerics: str = "fast", **options: object) -> TorchModel:
    generics = {**GENERICS, **options.pop("generics", {})}  # type: ignore[dict-item]
    return linnet.torch.load(
        PROGRAM, root="Llama", generics=generics, weights=llama_weights(), numerics=numerics,
        **options,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture(scope="module", params=["exact", "equivalent", "fast"])
def model(request: pytest.FixtureRequest) -> TorchModel:
    return load(request.param)


@pytest.mark.parametrize("name", ENTRIES)
def test_entry_computes_what_the_interpreter_says(model: TorchModel, name: str) -> None:
    entry, given = name.split()[0], ENTRIES[name]
    generics = {"N": 6} if entry in ("generate", "generate_until", "sample") else {}
    random = np.random.default_rng(3)
    states = {path: random.standard_normal(s.shape) for path, s in model.states.items()}
    for path, array in states.items():
        model.states[path].copy_(torch.from_numpy(array))
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
        np.testing.assert_allclose(model.states[path].numpy(), reference, CLOSE, CLOSE)


def last_logits(model: TorchModel, prompt: np.ndarray) -> np.ndarray:
    return model.to_numpy(model.run_entry("forward", [prompt]))[:, -1]


def test_prefill_and_decode_give_what_forward_gives(model: TorchModel) -> None:
    model.reset_state()
    prompt = tokens(2, 9)
    found = [model.run_entry("prefill", [prompt[:, :4], 0])]
    found.append(model.run_entry("prefill", [prompt[:, 4:7], 4]))
    found += [model.run_entry("decode", [prompt[:, i : i + 1], i]) for i in (7, 8)]
    for logits, end in zip(found, (4, 7, 8, 9), strict=True):
        expected = last_logits(model, prompt[:, :end])
        np.testing.assert_allclose(model.to_numpy(logits), expected, CLOSE, CLOSE)


def test_rows_at_positions_of_their_own_give_what_forward_gives(model: TorchModel) -> None:
    model.reset_state()
    first, second = tokens(1, 6, seed=5), tokens(1, 4, seed=6)
    padded = np.zeros((2, 6), np.int32)
    padded[0], padded[1, :4] = first[0], second[0]
    logits = model.to_numpy(model.run_entry("prefill_slots", [padded, i32(1, 0), i32(6, 4)]))
    for row, prompt in zip(logits, (first, second), strict=True):
        np.testing.assert_allclose(row, last_logits(model, prompt)[0], CLOSE, CLOSE)
    step = i32(7, 9).reshape(2, 1)
    logits = model.to_numpy(model.run_entry("decode_rows", [step, i32(4, 6)]))
    for row, prompt, token in zip(logits, (second, first), step, strict=True):
        longer = np.concatenate([prompt, token[None]], 1)
        np.testing.assert_allclose(row, last_logits(model, longer)[0], CLOSE, CLOSE)


def test_packed_prompts_give_what_forward_gives(model: TorchModel) -> None:
    model.reset_state()
    first, second = tokens(1, 4, seed=5), tokens(1, 3, seed=6)
    packed = np.concatenate([first, second, i32(0)[None]], 1)
    rows, positions = i32(1, 1, 1, 1, 0, 0, 0, -1), i32(0, 1, 2, 3, 0, 1, 2, -1)
    segments, ends = i32(0, 0, 0, 0, 1, 1, 1, -1), i32(3, 6)
    given = [packed, rows, positions, segments, ends]
    logits = model.to_numpy(model.run_entry("prefill_packed", given))
    for row, prompt in zip(logits, (first, second), strict=True):
        np.testing.assert_allclose(row, last_logits(model, prompt)[0], CLOSE, CLOSE)
    logits = model.to_numpy(model.run_entry("decode_rows", [i32(7, 9).reshape(2, 1), i32(3, 4)]))
    longer = np.concatenate([second, i32(7)[None]], 1)
    np.testing.assert_allclose(logits[0], last_logits(model, longer)[0], CLOSE, CLOSE)


def test_generate_gives_the_tokens_of_single_steps(model: TorchModel) -> None:
    prompt = tokens(2, 4)
    model.reset_state()
    chosen = [model.argmax(model.run_entry("prefill", [prompt, 0]))]
    for position in range(4, 9):
        step = chosen[-1].astype(np.int32).reshape(2, 1)
        chosen.append(model.argmax(model.run_entry("decode", [step, position])))
    model.reset_state()
    found = model.to_numpy(model.run_entry("generate", [prompt], N=6))
    np.testing.assert_array_equal(found, np.stack(chosen, 1))
    until, count = model.run_entry("generate_until", [prompt, -1], N=6)
    np.testing.assert_array_equal(model.to_numpy(until), found)
    assert int(count) == 6


@pytest.mark.parametrize("numerics", ["equivalent", "fast"])
def test_inductor_gives_the_same(numerics: str) -> None:
    """Pieces are compiled once for three layers; a long prompt runs as generated."""
    eager = load(numerics, generics={"Batch": 1})
    compiled = load(numerics, generics={"Batch": 1}, compile="inductor", compile_rows=4)
    prompt = tokens(1, 7)
    for entry, given in [("prefill", [prompt, 0]), ("decode", [prompt[:, :1], 7]),
                         ("decode", [prompt[:, 1:2], 8])]:  # fmt: skip
        expected = eager.to_numpy(eager.run_entry(entry, given))
        found = compiled.to_numpy(compiled.run_entry(entry, given))
        np.testing.assert_allclose(found, expected, CLOSE, CLOSE)
    for path, state in compiled.states.items():
        np.testing.assert_allclose(state.numpy(), eager.states[path].numpy(), CLOSE, CLOSE)
    bound = [b for key, b in compiled._bound.items() if key[0] == "decode"]  # type: ignore[index]
    assert [piece.seconds > 0 for piece in bound[0].pieces] == [True] * 3
    assert compiled.compile_s > 0


@pytest.mark.parametrize(("dtype", "close"), [("bf16", 0.15), ("f16", 0.02)])
def test_narrow_weights_give_nearly_the_same(dtype: str, close: float) -> None:
    """Logits about 1 after three layers: some roundings by 2⁻⁸ (bf16) or 2⁻¹¹ (f16) each."""
    wide = load()
    narrow = load(dtype=dtype, generics={"T": dtype})
    prompt = tokens(2, 6)
    expected = wide.to_numpy(wide.run_entry("prefill", [prompt, 0]))
    found = narrow.to_numpy(narrow.run_entry("prefill", [prompt, 0]))
    np.testing.assert_allclose(found, expected, atol=close)
    assert narrow.run_entry("decode", [prompt[:, :1], 6]).dtype == getattr(
        torch, {"bf16": "bfloat16", "f16": "float16"}[dtype]
    )


@pytest.mark.gpu
@pytest.mark.parametrize("compile", [False, "inductor", "cudagraphs"])
def test_a_gpu_gives_the_same(compile: bool | str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    host, device = load(), load(device="cuda", compile=compile)
    prompt = tokens(2, 5)
    steps = [("prefill", [prompt, 0]), *(("decode", [prompt[:, :1], i]) for i in range(5, 12))]
    for entry, given in steps:
        expected = host.to_numpy(host.run_entry(entry, given))
        found = device.to_numpy(device.run_entry(entry, given))
        np.testing.assert_allclose(found, expected, 1e-3, 1e-3)


def test_a_source_file_is_taken_too() -> None:
    model = linnet.torch.load(LLAMA, root="Llama", generics=GENERICS, weights=llama_weights())
    assert model.run_entry("decode", [tokens(2, 1), 0]).shape == (2, 40)
