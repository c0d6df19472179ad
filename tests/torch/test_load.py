"""Loading: what fits, what doesn't, and where weights lie in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import linnet.torch
from linnet.check import check_text
from linnet.diagnostics import LinnetError
from linnet.dtypes import DType
from linnet.weights import WeightsError
from tests.torch.models import GENERICS, LLAMA, PROGRAM, llama_weights, tokens


def load(weights=None, **options):
    options = {"root": "Llama", "generics": GENERICS, **options}
    return linnet.torch.load(PROGRAM, weights=llama_weights() if weights is None else weights,
                             **options)  # fmt: skip


# --- weights --------------------------------------------------------------------------------


def test_state_dict_goes_by_parameter_path() -> None:
    given = llama_weights()
    model = load(given)
    assert set(model.state_dict()) == set(given)
    for path, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), given[path])


def test_joined_weights_are_one_buffer_that_the_parameters_are_views_of() -> None:
    model = load()
    model.run_entry("prefill", [tokens(2, 3), 0])
    model.run_entry("decode", [tokens(2, 1), 3])
    bound = list(model._bound.values())
    held = {path: model._derived.of(b.module) for b in bound for path in b.module.derived}
    joined = [t[path] for path, t in held.items() if "q_k_v_weight" in path or "gate_up" in path]
    assert len(joined) >= 6
    memory = {t.untyped_storage().data_ptr() for t in model.state_dict().values()}
    assert {t.untyped_storage().data_ptr() for t in joined} <= memory
    query = model.state_dict()["layers.0.attention.q.weight"]
    query[0, 0] = 7.0
    (whole,) = [
        t[p] for p, t in held.items() if p.startswith("@layers.0.") and "q_k_v_weight" in p
    ][:1]
    assert whole[0, 0] == 7.0 and whole.shape == (24 + 8 + 8, 24)


def test_entries_share_what_was_derived() -> None:
    model = load()
    model.run_entry("prefill", [tokens(2, 3), 0])
    before = len(model._derived.tensors)
    for length in (4, 5):
        model.run_entry("prefill", [tokens(2, length), 0])
    model.run_entry("decode", [tokens(2, 1), 5])
    assert len(model._derived.tensors) == before


def test_weights_that_do_not_fit_are_all_named() -> None:
    given = llama_weights()
    del given["layers.1.mlp.up.weight"]
    given["layers.0.attention.q.weight"] = given["layers.0.attention.q.weight"][:5]
    given["layers.2.surplus"] = given["norm.weight"]
    with pytest.raises(WeightsError) as error:
        load(given)
    for text in ("`layers.1.mlp.up.weight`", "expected [24, 24], found [5, 24]",
                 "`layers.2.surplus`"):  # fmt: skip
        assert text in str(error.value)


def test_dtypes_are_converted_only_on_request() -> None:
    given = {p: w.astype(np.float64) for p, w in llama_weights().items()}
    with pytest.raises(WeightsError, match="give a dtype to convert"):
        load(given)
    model = load(given, dtype="f32")
    assert model.dtype == DType.F32
    given = {p: torch.from_numpy(w).to(torch.bfloat16) for p, w in llama_weights().items()}
    model = load(given, dtype="bf16", generics={**GENERICS, "T": "bf16"})
    assert model.dtype == DType.BF16
    for path, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, given[path], rtol=0, atol=0)


def test_a_dtype_binds_the_dtype_generic() -> None:
    generics = {name: value for name, value in GENERICS.items() if name != "T"}
    model = load(dtype="f16", generics=generics)
    assert model.state_dict()["norm.weight"].dtype == torch.float16
    assert model.run_entry("decode", [tokens(2, 1), 0]).dtype == torch.float16


def test_weights_come_from_safetensors(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file(llama_weights(), tmp_path / "model.safetensors")
    expected = load().run_entry("forward", [tokens(1, 4)])
    for path in (tmp_path, tmp_path / "model.safetensors"):
        found = load(path).run_entry("forward", [tokens(1, 4)])
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_weights_can_be_made() -> None:
    given = llama_weights()
    made = load(lambda path, shape: given[path])
    expected = load(given).run_entry("forward", [tokens(1, 4)])
    torch.testing.assert_close(made.run_entry("forward", [tokens(1, 4)]), expected)


def test_a_head_is_used_where_the_checkpoint_has_one() -> None:
    given = llama_weights()
    given["lm_head.weight"] = np.zeros_like(given["embedding.weight"])
    model = load(given)
    assert not model.run_entry("forward", [tokens(1, 4)]).any()


def test_a_step_reads_the_weights_without_the_table_it_looks_up_in() -> None:
    generics = {**GENERICS, "Batch": 1}
    tied = load(generics=generics)
    assert tied.weight_bytes == sum(w.nbytes for w in llama_weights().values())
    given = llama_weights()
    given["lm_head.weight"] = given["embedding.weight"]
    untied = load(given, generics=generics)
    assert untied.weight_bytes == tied.weight_bytes


# --- options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compile": "xla"}, "compile must be one of True, False, 'inductor', 'cudagraphs'"),
        ({"numerics": "loose"}, "numerics must be one of exact, equivalent, fast"),
        ({"device": "tpu"}, "no device 'tpu'|device must be cpu or cuda"),
        ({"compile": "cudagraphs"}, "CUDA graphs need a CUDA device"),
        ({"root": "Lama"}, "has no block `Lama`|no block 'Lama'"),
        ({"generics": {"Vocab": 3}}, "needs a value for `H: Dim`"),
        ({"generics": {**GENERICS, "Heads": 5}}, "Heads"),
        ({"dtype": "f8"}, "f8"),
        ({"weights": "/nowhere"}, "no checkpoint at /nowhere"),
    ],
)
def test_options_that_do_not_fit(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(**options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA GPU here")
def test_a_device_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no CUDA device is available here"):
        load(device="cuda")


def test_weights_are_needed() -> None:
    with pytest.raises(ValueError, match="has 29 weights: give a checkpoint"):
        linnet.torch.load(LLAMA, root="Llama", generics=GENERICS)


def test_a_source_with_errors_gives_its_diagnostics(tmp_path: Path) -> None:
    path = tmp_path / "bad.linnet"
    path.write_text("module bad\npub entry f(x: f32) -> f32 { return y }\n")
    with pytest.raises(LinnetError, match="E1201"):
        linnet.torch.load(path)


# --- running --------------------------------------------------------------------------------

MODEL = load()


@pytest.mark.parametrize(
    ("entry", "inputs", "message"),
    [
        ("decod", [], "has no entry `decod`; its entries: `forward`, `next_token`, `prefill`"),
        ("decode", [tokens(2, 1)], r"takes 2 inputs \(token, pos\), 1 given"),
        ("decode", [tokens(3, 1), 0], r"`token` must be .*Tensor\[2, 1; i32\]"),
        ("decode", [tokens(2, 1).astype(np.int64), 0], r"not Tensor\[2, 1; i64\]"),
        ("decode", [tokens(2, 1), 0.5], "`pos` must be an integer that i32 holds, not 0.5"),
        ("decode", [tokens(2, 1), 2**40], "`pos` must be an integer that i32 holds"),
        ("decode", [tokens(2, 1), "0"], "`pos` must be an array, a tensor or a number"),
        ("prefill", [tokens(2, 17), 0], "S <= MaxSeq"),
        ("decode", [torch.zeros(2, 1, dtype=torch.complex64), 0], "complex64"),
        ("generate", [tokens(2, 3)], "`N` does not follow from the inputs"),
    ],
)
def test_inputs_that_do_not_fit(entry: str, inputs: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MODEL.run_entry(entry, inputs)


def test_inputs_may_be_tensors_arrays_lists_and_numbers() -> None:
    step = tokens(2, 1)
    expected = MODEL.run_entry("decode", [step, 3])
    for given in ([torch.from_numpy(step), torch.tensor(3, dtype=torch.int32)],
                  [step.tolist(), np.int32(3)], [step, np.array(3, np.int32)]):  # fmt: skip
        torch.testing.assert_close(MODEL.run_entry("decode", given), expected, rtol=0, atol=0)


def test_an_entry_is_generated_once_for_each_form_of_its_inputs() -> None:
    model = load()
    for position in range(4):
        model.run_entry("decode", [tokens(2, 1), position])
    assert len(model._by_form) == 1
    model.run_entry("prefill", [tokens(2, 3), 0])
    model.run_entry("prefill", [tokens(2, 4), 0])
    assert len(model._by_form) == 3


def test_states_start_at_zero_and_go_back_to_it() -> None:
    model = load()
    first = model.run_entry("decode", [tokens(2, 1), 0])
    assert any(state.any() for state in model.states.values())
    model.reset_state()
    assert not any(state.any() for state in model.states.values())
    torch.testing.assert_close(model.run_entry("decode", [tokens(2, 1), 0]), first)


def test_calling_a_model_runs_forward() -> None:
    torch.testing.assert_close(
        MODEL(tokens(1, 4)), MODEL.run_entry("forward", [tokens(1, 4)]), rtol=0, atol=0
    )


def test_results_stay_as_they_are_when_the_model_runs_on() -> None:
    model = load()
    first = model.run_entry("decode", [tokens(2, 1), 0])
    kept = first.clone()
    model.run_entry("decode", [tokens(2, 1, seed=8), 1])
    torch.testing.assert_close(first, kept, rtol=0, atol=0)


def test_it_says_what_it_is() -> None:
    assert MODEL.name == "torch"
    assert MODEL.generics["MaxSeq"] == 16 and "T" not in MODEL.generics
    assert str(MODEL.entries["decode"]).startswith(
        "decode(token: Tensor[2, 1; i32], pos: i32) -> Tensor[2, 40; f32]"
    )
    text = str(MODEL)
    assert text.startswith("Llama\n  embedding: Embedding\n    param weight: f32[40, 24]\n")
    assert "  layers.0…2: Layer\n" in text
    assert "      state key_cache: f32[2, 2, 16, 4]\n" in text


SMALL = """\
module small

enum Mode { Twice, Square }
struct Pair { sum: Tensor[2; f32], count: i32 }

pub entry main<N: Dim>(
    x: Tensor[N; f32],
    mode: Mode,
    bias: Tensor[N; f32]? = none,
    both: (u32, bool),
) -> (Tensor[N; f32], u32) {
    let (word, flag) = both
    let y = match mode { Mode.Twice => x + x, Mode.Square => x * x }
    let z = match bias { some(b) => y + b, none => y }
    return (z, if flag { word * 3000000000 } else { word + 1 })
}
"""


def test_inputs_of_every_kind() -> None:
    model = linnet.torch.load(check_text(SMALL))
    x = np.arange(3, dtype=np.float32)
    word = np.array(7, np.uint32)
    found, number = model.run_entry("main", [x, "Twice", None, (word, True)])
    np.testing.assert_array_equal(found.numpy(), x + x)
    assert number.dtype == torch.uint32 and int(number) == 7 * 3000000000 % 2**32
    found, number = model.run_entry("main", [x, "Square", x, (word, False)])
    np.testing.assert_array_equal(found.numpy(), x * x + x)
    assert int(number) == 8
    with pytest.raises(ValueError, match="`mode` must be one of Twice, Square, not 'Half'"):
        model.run_entry("main", [x, "Half", None, (word, True)])
    with pytest.raises(ValueError, match="`both` must be a tuple of 2 values"):
        model.run_entry("main", [x, "Twice", None, word])


# --- the source alone -----------------------------------------------------------------------

ALONE = """\
import sys
sys.path.insert(0, {folder!r})
import numpy, torch, decode
assert not any(name.partition(".")[0] == "linnet" for name in sys.modules)
weights = {{k: torch.from_numpy(v) for k, v in numpy.load({weights!r}).items()}}
model = decode.new_model(weights)
token = torch.tensor([[3], [4]], dtype=torch.int32)
for position in range(3):
    logits = decode.decode(model, token, torch.tensor(position, dtype=torch.int32))
numpy.save({result!r}, logits.numpy())
"""


def test_generated_source_runs_with_torch_alone(tmp_path: Path) -> None:
    model = load()
    source = model.generated_source("decode")
    (tmp_path / "decode.py").write_text(source)
    np.savez(tmp_path / "weights.npz", allow_pickle=False, **llama_weights())
    result = tmp_path / "logits.npy"
    script = ALONE.format(
        folder=str(tmp_path), weights=str(tmp_path / "weights.npz"), result=str(result)
    )
    subprocess.run([sys.executable, "-I", "-c", script], check=True)
    for position in range(3):
        expected = model.run_entry("decode", [np.array([[3], [4]], np.int32), position])
    np.testing.assert_array_equal(np.load(result), expected.numpy())


def test_source_is_given_for_generics_by_name() -> None:
    model = load()
    source = model.generated_source("prefill", S=5)
    assert "def prefill(model, tokens, pos):" in source
    assert "tokens: i32[2, 5], pos: i32[] -> f32[2, 40]" in source
    with pytest.raises(ValueError, match=r"`tokens` is not settled; give its generics \(S\)"):
        model.generated_source("prefill")
    model.run_entry("prefill", [tokens(2, 3), 0])
    assert "tokens: i32[2, 3]" in model.generated_source("prefill")


def test_emitting_imports_no_framework() -> None:
    script = (
        "import sys, linnet.emit.torch, linnet.emit.source\n"
        "assert not {'torch', 'numpy'} & set(sys.modules), 'a framework is imported'"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
