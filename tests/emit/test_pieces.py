"""What a module is cut into to be compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

import linnet
from linnet.check import check_file, check_text
from linnet.emit.source import entry_module
from linnet.emit.torch import Emitted, TorchTarget, emit
from linnet.ir.verify import verify

PROGRAM = check_file(Path(linnet.__file__).parent / "nest/models/llama/model.linnet").require()
GENERICS = {"Vocab": 40, "H": 24, "Heads": 6, "KvHeads": 2, "Inner": 20, "Layers": 3, "MaxSeq": 96}


def emitted(entry: str, mode: str = "inductor", **generics: int) -> Emitted:
    module = entry_module(PROGRAM, entry, {**GENERICS, **generics}, root="Llama")
    verify(module)
    return emit(module, TorchTarget(mode=mode))


def test_a_step_is_a_loop_over_a_compiled_layer() -> None:
    found = emitted("decode")
    assert list(found.pieces) == ["llama_extend_begin", "layer_extend", "llama_decode_end"]
    body = found.source[found.source.index("def decode(") :].partition('    """\n')[2]
    assert body.startswith(
        "    cosine, sine, x = llama_extend_begin(model, pos, token)\n"
        "    for layer in model.layers:\n"
        "        x = layer_extend(layer, x, cosine, sine, pos)\n"
        "    return llama_decode_end(model, x)\n"
    )
    assert found.source.endswith(
        'PIECES = ["llama_extend_begin", "layer_extend", "llama_decode_end"]\n\n'
        "# What these call as it is, since it looks at the values of tensors.\n"
        'OPAQUE = ["cached_attention"]\n'
    )


def test_a_piece_names_what_it_uses_of_its_block() -> None:
    found = emitted("decode")
    assert found.pieces["layer_extend"] == (
        "attention_norm.weight", "attention.o.weight", "mlp_norm.weight", "mlp.down.weight",
        "attention.q_k_v_weight", "mlp.gate_up_weight", "attention.key_cache",
        "attention.value_cache",
    )  # fmt: skip
    places = set(found.places)
    for place in found.pieces["layer_extend"]:
        assert {f"layers.{i}.{place}" for i in range(3)} <= places


def test_a_long_prompt_is_not_compiled() -> None:
    assert not emitted("prefill", S=65).pieces
    assert "cached_attention(query" in emitted("prefill", S=65).source
    assert "layer_extend" in emitted("prefill", S=64).pieces


def test_a_loop_at_run_time_is_left_to_python() -> None:
    found = emitted("generate", S=70, N=4)
    assert "layer_extend_2" in found.pieces and "layer_extend" not in found.pieces
    assert "    for i in range(3):\n" in found.source


def test_a_model_without_layers_is_one_piece() -> None:
    source = "module m\npub entry main<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] {{ return {} }}"
    module = entry_module(check_text(source.format("exp(x) + x")).require(), "main", {"N": 4})
    assert list(emit(module, TorchTarget(mode="inductor")).pieces) == ["main"]


@pytest.mark.parametrize(
    ("entry", "generics", "capturable"),
    [
        ("decode", {}, True),
        ("decode_rows", {"Batch": 4}, True),
        ("prefill", {"S": 65}, False),
        ("generate", {"S": 4, "N": 4}, False),
    ],
)
def test_what_can_be_captured_in_a_graph(
    entry: str, generics: dict[str, int], capturable: bool
) -> None:
    module = entry_module(PROGRAM, entry, {**GENERICS, **generics}, root="Llama")
    target = TorchTarget(device="cuda", mode="cudagraphs")
    found = emit(module, target)
    assert found.capturable == capturable
    assert 'device = torch.device("cuda")' in found.source


def test_pieces_are_made_for_compiled_targets_alone() -> None:
    found = emitted("decode", mode="eager")
    assert not found.pieces and "PIECES" not in found.source
