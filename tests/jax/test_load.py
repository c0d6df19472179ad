"""Loading for XLA: weights placed once, inputs and options checked, programs kept on disk."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import numpy as np
import pytest

import linnet.jax
from linnet.check import check_text
from linnet.jax import cache as caches
from linnet.jax.cache import ExecutableCache
from linnet.weights import WeightsError
from tests.jax.test_llama import load
from tests.torch.models import GENERICS, llama_weights, tokens

NUMBERS = check_text("""\
module numbers

pub entry count(x: Tensor[3; i64], y: u64) -> (Tensor[3; i64], u64, f64) {
    return (x + 4294967296, y, cast<f64>(1) / 3)
}

pub entry maybe<N: Dim>(x: Tensor[N; f32], y: Tensor[N; f32]? = none) -> Tensor[N; f32] {
    return match y { some(z) => x + z, none => x }
}
""").require()


# --- weights --------------------------------------------------------------------------------


def test_state_dict_goes_by_parameter_path() -> None:
    given = llama_weights()
    model = load()
    assert set(model.state_dict()) == set(given)
    for path, array in model.state_dict().items():
        np.testing.assert_array_equal(np.asarray(array), given[path])


def test_weights_are_placed_once_and_joined_ones_share_their_memory() -> None:
    sizes = {"H": 48, "Inner": 32}  # rows of 64 bytes
    model = load(device="cpu", generics=sizes, weights=llama_weights(**sizes))
    model.run_entry("prefill", [tokens(2, 3), 0])
    model.run_entry("decode", [tokens(2, 1), 3])
    first, second = model._bound.values()
    held = [dict(zip((s.path for s in b.emitted.weights), b.weights, strict=True))
            for b in (first, second)]  # fmt: skip
    for path in held[0].keys() & held[1].keys():
        assert held[0][path] is held[1][path]
    joined = {p: x for p, x in held[1].items() if "q_k_v_weight" in p or "gate_up" in p}
    assert len(joined) == 6
    starts = {x.unsafe_buffer_pointer() for x in model.state_dict().values()}
    assert {x.unsafe_buffer_pointer() for x in joined.values()} <= starts


def test_weights_that_do_not_fit_are_all_named() -> None:
    given = llama_weights()
    del given["layers.1.mlp.up.weight"]
    given["layers.0.attention.q.weight"] = given["layers.0.attention.q.weight"][:5]
    with pytest.raises(WeightsError) as error:
        load(weights=given)
    assert "`layers.1.mlp.up.weight`" in str(error.value)
    assert "expected [24, 24], found [5, 24]" in str(error.value)


# --- options and inputs ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"numerics": "quick"}, "numerics must be one of exact, equivalent, fast, not 'quick'"),
        ({"device": "cpu:99"}, "no device 'cpu:99': there are 1 of 'cpu'"),
        ({"device": "abacus"}, "no device 'abacus'"),
    ],
)
def test_options_are_checked(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(**options)


@pytest.mark.parametrize(
    ("entry", "inputs", "message"),
    [
        ("decode", [tokens(2, 1)], "`decode` takes 2 inputs"),
        ("decode", [tokens(2, 2), 0], "token"),
        ("decode", [tokens(2, 1).astype(np.float32), 0], "token"),
        ("decode", [tokens(2, 1), 0.5], "`decode`: `pos` must be an integer that i32 holds"),
        ("decode", [tokens(2, 1), 2**40], "`decode`: `pos` must be an integer that i32 holds"),
        ("decode", ["text", 0], "must be an array or a number"),
        ("dance", [], "dance"),
    ],
)
def test_inputs_are_checked(entry: str, inputs: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MODEL.run_entry(entry, inputs)


MODEL = load()


def test_inputs_may_change_after_the_call() -> None:
    step = tokens(2, 1).copy()
    MODEL.reset_state()
    expected = MODEL.to_numpy(MODEL.run_entry("decode", [step.copy(), 0]))
    MODEL.reset_state()
    logits = MODEL.run_entry("decode", [step, 0])
    step[:] = 0
    np.testing.assert_array_equal(MODEL.to_numpy(logits), expected)


def test_64_bit_types_are_kept_and_other_code_is_left_alone() -> None:
    model = linnet.jax.load(NUMBERS, cache=False)
    x, y, third = model.run_entry("count", [np.array([1, 2, -(2**40)]), 2**63])
    assert (x.dtype, y.dtype, third.dtype) == ("int64", "uint64", "float64")
    np.testing.assert_array_equal(np.asarray(x), [1 + 2**32, 2 + 2**32, 2**32 - 2**40])
    assert int(y) == 2**63 and float(third) == 1 / 3
    assert not jax.config.read("jax_enable_x64")
    assert jax.numpy.arange(3).dtype == "int32"


def test_optional_inputs_and_arrays_of_jax() -> None:
    model = linnet.jax.load(NUMBERS, cache=False)
    x = jax.numpy.arange(3.0)
    np.testing.assert_array_equal(np.asarray(model.run_entry("maybe", [x, None])), [0, 1, 2])
    np.testing.assert_array_equal(np.asarray(model.run_entry("maybe", [x, x])), [0, 2, 4])


def test_results_and_states_stay_on_the_device() -> None:
    MODEL.reset_state()
    logits = MODEL.run_entry("prefill", [tokens(2, 3), 0])
    assert isinstance(logits, jax.Array) and logits.devices() == {MODEL.device}
    before = dict(MODEL.states)
    MODEL.run_entry("decode", [MODEL.argmax(logits).astype(np.int32)[:, None], 3])
    assert all(state.is_deleted() for state in before.values())  # given to the program
    assert not any(state.is_deleted() for state in MODEL.states.values())


def test_what_a_model_says_of_itself() -> None:
    assert MODEL.name == "xla" and MODEL.generics["MaxSeq"] == GENERICS["MaxSeq"]
    assert str(MODEL.entries["decode"]).startswith("decode(token: Tensor[2, 1; i32], pos: i32)")
    assert MODEL.generated_source("prefill", S=4).startswith("module @Llama_prefill {")
    assert "layers.0…2" in str(MODEL) or "layers" in str(MODEL)
    assert MODEL.compile_s > 0


# --- programs on disk -----------------------------------------------------------------------


def decoded(folder: Path, numerics: str = "fast") -> np.ndarray:
    model = load(numerics, cache=folder)
    return model.to_numpy(model.run_entry("decode", [tokens(2, 1), 0]))


def test_programs_are_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = decoded(tmp_path)
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert kept and not any(name.startswith(".") for name in kept)
    from linnet.jax import program

    monkeypatch.setattr(program, "compile_text", None)  # nothing is compiled the second time
    np.testing.assert_array_equal(decoded(tmp_path), expected)
    monkeypatch.undo()
    decoded(tmp_path, "exact")
    assert len(list(tmp_path.iterdir())) > len(kept)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "other content"])
def test_damaged_files_are_written_again(tmp_path: Path, damage: str) -> None:
    expected = decoded(tmp_path)
    sizes = {}
    for path in tmp_path.iterdir():
        data = sizes[path] = path.read_bytes()
        middle = len(data) // 2
        path.write_bytes({
            "cut": data[:middle],
            "changed": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "empty": b"",
            "other content": b"",
        }[damage])  # fmt: skip
        if damage == "other content":  # whole, but not what this JAX can load
            ExecutableCache(tmp_path).put(path.name, b"nothing that XLA wrote")
    np.testing.assert_array_equal(decoded(tmp_path), expected)
    for path in sizes:
        assert ExecutableCache(tmp_path).get(path.name)[:64] != b"nothing that XLA wrote"  # type: ignore[index]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    assert decoded(blocked / "folder").shape == (2, 40)


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    kept = ExecutableCache(tmp_path, limit=500)
    for i, name in enumerate("abc"):
        kept.put(name, bytes(100))
        os.utime(tmp_path / name, (i, i))
    assert kept.get("a") == bytes(100)  # used just now
    kept.put("d", bytes(100))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c", "d"]


def test_a_key_depends_on_all_that_an_executable_does(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"xla_allow_excess_precision": True}
    key = caches.cache_key
    keys = {key("text", "cpu", flags), key("other", "cpu", flags)}
    keys |= {key("text", "cuda", flags), key("text", "cpu", {})}
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    keys.add(key("text", "cpu", flags))
    monkeypatch.setattr(caches, "_processor", lambda: "another processor")
    keys.add(key("text", "cpu", flags))
    assert len(keys) == 6


def test_argmax_takes_the_first_of_equals_and_nan_for_the_largest() -> None:
    rows = np.array([[1, 3, 3, 2], [0, np.nan, 5, np.nan], [-1, -2, -1, -3]], np.float32)
    found = MODEL.argmax(jax.numpy.asarray(rows))
    assert (found.tolist(), found.dtype) == ([1, 1, 0], np.int64)
