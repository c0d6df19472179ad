"""Loading, memory and exporting on ONNX Runtime, on a small Llama."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnxruntime as ort

import linnet.onnx
from linnet.onnx.packed import carry, quantise, values
from linnet.onnx.session import to_array
from tests.onnx.models import GENERICS, load, tokens, weights

TOKENS, STEP = tokens(2, 5), tokens(2, 1, seed=2)


def pointers(model) -> dict[str, int]:
    return {path: value.data_ptr() for path, value in model._states.items()}


def test_steps_write_into_the_states_own_memory() -> None:
    model = load()
    model.run_entry("prefill", [TOKENS, 0])
    before = pointers(model)
    assert len(before) == 2 * GENERICS["Layers"]
    model.run_entry("decode", [STEP, 5])
    model.run_entry("decode_rows", [STEP, np.array([6, 6], np.int32)])
    assert pointers(model) == before
    assert not model._spare
    for bound in model._by_form.values():
        for session in bound.sessions.values():
            assert all(state.in_place for state in session.emitted.states)


def test_a_step_takes_no_longer_for_a_larger_cache() -> None:
    """A cache of 4 MiB a layer takes milliseconds to copy; a step here takes less than one."""

    def step_s(positions: int) -> float:
        model = load(generics={"MaxSeq": positions})
        times = []
        for i in range(30):
            started = time.perf_counter()
            model.run_entry("decode", [STEP, i])
            times.append(time.perf_counter() - started)
        return min(times[3:])

    small, large = step_s(64), step_s(16_384)
    assert large < 3 * small + 1e-3


def test_sessions_share_the_weights_memory() -> None:
    model = load()
    for entry, inputs in [("prefill", [TOKENS, 0]), ("decode", [STEP, 5]), ("forward", [TOKENS])]:
        model.run_entry(entry, inputs)
    seen: dict[str, set[int]] = {}
    for bound in model._by_form.values():
        given = model.weights.values(bound.module, bound.emitted)
        for name, value in given.items():
            path = bound.emitted.weights[name].path
            seen.setdefault(path, set()).add(value.data_ptr())
    assert all(len(found) == 1 for found in seen.values())
    held = model.state_dict()
    assert {held["embedding.weight"].data_ptr()} == seen["embedding.weight"]
    joined = next(p for p in seen if p.endswith("q_k_v_weight") and "layers.1." in p)
    assert {held["layers.1.attention.q.weight"].data_ptr()} == seen[joined]


def test_the_graph_chooses_the_likeliest() -> None:
    model = load()
    logits = model.run_entry("decode", [STEP, 0])
    assert logits in model._likeliest
    np.testing.assert_array_equal(model.argmax(logits), model.to_numpy(logits).argmax(-1))


def test_prepacked_weights_give_the_same() -> None:
    plain, packed = load(), load(prepack=True)
    for entry, inputs in [("prefill", [TOKENS, 0]), ("decode", [STEP, 5])]:
        found = packed.to_numpy(packed.run_entry(entry, inputs))
        expected = plain.to_numpy(plain.run_entry(entry, inputs))
        np.testing.assert_allclose(found, expected, atol=2e-6)


def test_reset() -> None:
    model = load()
    first = model.to_numpy(model.run_entry("decode", [STEP, 0]))
    model.run_entry("decode", [STEP, 1])
    model.reset_state()
    assert all(not to_array(state).any() for state in model._states.values())
    np.testing.assert_array_equal(model.to_numpy(model.run_entry("decode", [STEP, 0])), first)


def test_what_a_model_says_of_itself() -> None:
    model = load()
    assert model.name == "onnx" and model.dtype == "f32"
    assert model.generics["MaxSeq"] == GENERICS["MaxSeq"]
    assert "GroupQueryAttention" in model.generated_source("decode")
    assert '"linnet.states"' in model.generated_source("prefill", S=4)
    table = weights()
    read = sum(array.nbytes for array in table.values())
    assert read <= model.weight_bytes <= read * 1.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantize": "int3"}, "quantize must be None, int4 or int8, not 'int3'"),
        ({"symmetric": False}, "symmetric=False says how to quantise"),
        ({"provider": "tpu"}, "provider must be one of cpu, cuda, tensorrt, not 'tpu'"),
        ({"device": "gpu"}, "no device 'gpu'"),
        ({"provider": "cuda", "device": "cpu"}, "the provider cuda does not run on cpu"),
        ({"cuda_graphs": True}, "CUDA graphs need provider='cuda'"),
        ({"accuracy_level": 3}, "accuracy_level must be 1 or 4"),
        ({"numerics": "loose"}, "numerics must be one of exact, equivalent, fast"),
        ({"generics": {"Vocab": 0}}, "embedding.weight"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        load(**options)
    assert message in str(caught.value)


@pytest.mark.skipif("CUDAExecutionProvider" in ort.get_available_providers(), reason="has CUDA")
def test_a_provider_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="this onnxruntime has no CUDAExecutionProvider"):
        load(provider="cuda")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([STEP], "`decode` takes 2 inputs"),
        ([STEP, "x"], "`decode`: `pos` must be an array or a number, not 'x'"),
        ([STEP, 1 << 40], "i32 can't hold it"),
        ([STEP.astype(np.int64), 0], "token"),
        ([STEP[:1], 0], "token"),
        ([np.array([["a"]]), 0], "which the language does not have"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: list, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        load().run_entry("decode", inputs)
    assert message in str(caught.value)


def test_results_may_be_inputs() -> None:
    model = load()
    chosen = model.run_entry("generate", [TOKENS], N=1)
    expected = model.to_numpy(model.run_entry("decode", [model.to_numpy(chosen), 5]))
    found = model.to_numpy(model.run_entry("decode", [chosen, 5]))
    np.testing.assert_array_equal(found, expected)


# --- blocks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_rounding_to_blocks(bits: int, symmetric: bool) -> None:
    """No value is further off than half a step of its block, which is a fifteenth (255th) of its
    range; symmetric blocks have steps of twice the furthest value."""
    random = np.random.default_rng(0)
    given = random.standard_normal((6, 96)).astype(np.float32)
    given[0, :32] = 0.0
    packed = quantise("w", given, bits, symmetric)
    blocks = given.reshape(6, 3, 32)
    low, high = np.minimum(blocks.min(2), 0), np.maximum(blocks.max(2), 0)
    if symmetric:
        steps = 2 * np.abs(blocks).max(2) / (2**bits - (0 if bits == 4 else 2))
        slack = 1.0 if bits == 4 else 0.5  # The far end of 4 bits is one step short.
    else:
        steps, slack = (high - low) / (2**bits - 1), 0.5 + 0.5  # and half for the zero point
    off = np.abs(values(packed).reshape(6, 3, 32) - blocks).max(2)
    assert (off <= slack * steps * 1.001).all()
    assert 0 < packed.error < (0.12 if bits == 4 else 0.01)
    assert packed.nbytes < given.nbytes / (4 if bits == 4 else 3)


@pytest.mark.parametrize("form", ["Q4_0", "Q4_1", "Q8_0"])
def test_carried_blocks_hold_what_the_file_does(form: str) -> None:
    from linnet.weights.quants import FORMATS

    block = next(f for f in FORMATS.values() if f.name == form)
    random = np.random.default_rng(1)
    stored = random.integers(0, 256, (5, 4, block.size), np.uint8)
    scales = random.uniform(0.001, 0.1, (5, 4)).astype(np.float16)
    stored[:, :, 0:2] = scales[:, :, None].view(np.uint8)
    if form == "Q4_1":
        least = random.uniform(-1, 0, (5, 4)).astype(np.float16)
        stored[:, :, 2:4] = least[:, :, None].view(np.uint8)
    expected = block.decode(stored.reshape(-1, block.size)).reshape(5, 128)
    np.testing.assert_array_equal(values(carry("w", form, stored)), expected)


@pytest.mark.parametrize("accuracy", [1, 4])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("quantize", ["int4", "int8"])
def test_a_model_in_blocks(quantize: str, symmetric: bool, accuracy: int) -> None:
    """Is the model of the blocks' values: to the rounding of what they multiply to 8 bits."""
    packed = load(quantize=quantize, symmetric=symmetric, accuracy_level=accuracy)
    table = {**weights(), **{p: values(w) for p, w in packed.weights.packed.items()}}
    plain = load(weights=table)
    assert packed.name == f"onnx-{quantize}"
    assert set(packed.quantisation) == set(packed.weights.packed)
    assert all(0 < error < 0.12 for error in packed.quantisation.values())
    bound = 2e-5 if accuracy == 1 else 0.15
    for entry, inputs in [("prefill", [TOKENS, 0]), ("decode", [STEP, 5])]:
        found = packed.to_numpy(packed.run_entry(entry, inputs))
        np.testing.assert_allclose(
            found, plain.to_numpy(plain.run_entry(entry, inputs)), atol=bound, rtol=0
        )


# --- exporting ------------------------------------------------------------------------------


def run_plainly(path: Path, steps: list[dict[str, np.ndarray]]) -> list[np.ndarray]:
    """What plain ONNX Runtime gives for an exported step, its states passed on by hand."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    fed = {v.name for v in session.get_inputs()}
    states = {
        v.name: np.zeros(v.shape, np.float32)
        for v in session.get_inputs()
        if v.name.endswith("cache")
    }
    results = []
    for step in steps:
        assert fed == {*states, *step}
        found = dict(zip(names, session.run(None, {**states, **step}), strict=True))
        states = {name: found[f"{name}.new"] for name in states}
        results.append(found["result"])
    return results


@pytest.mark.parametrize("limit", [2_000_000_000, 1000])
@pytest.mark.parametrize("quantize", [None, "int4"])
def test_an_exported_model_runs_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, quantize: str | None
) -> None:
    monkeypatch.setattr("linnet.onnx.exporting.LIMIT", limit)
    model = load(quantize=quantize)
    path = linnet.onnx.export(model, "decode", tmp_path / "step.onnx")
    parts = ["step.onnx"] + (["step.onnx.data"] if limit == 1000 else [])
    assert sorted(file.name for file in tmp_path.iterdir()) == parts
    expected = [model.to_numpy(model.run_entry("decode", [STEP, i])) for i in range(3)]
    steps = [{"token": STEP, "pos": np.array(i, np.int32)} for i in range(3)]
    for found, wanted in zip(run_plainly(path, steps), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-6)


def test_exporting_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.onnx"):
        linnet.onnx.export(load(), "decode", tmp_path / "step.pb")
