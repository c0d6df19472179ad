"""llama.cpp's names: against the gguf library's own table, both ways."""

from __future__ import annotations

import gguf
import pytest

from linnet.weights import CheckpointError
from linnet.weights.llama_cpp import ARCHITECTURES, transformers_names

LIBRARY = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2,
           "qwen3": gguf.MODEL_ARCH.QWEN3}  # fmt: skip


def metadata(architecture: str, **more: object) -> dict[str, object]:
    return {
        "general.architecture": architecture,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        **more,
    }


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_names_are_the_converters_own(architecture: str) -> None:
    table = gguf.get_tensor_name_map(LIBRARY[architecture], 12)
    parts = [f"blk.11.{part}" for part in ARCHITECTURES[architecture].layer]
    stored = [f"{part}.weight" for part in ("token_embd", "output_norm", "output", *parts)]
    names = transformers_names(metadata(architecture), stored, "file")
    assert len(names) == len(stored)
    for public, (name, _) in names.items():
        assert table.get_name(public, (".weight",)) == name
        assert public.startswith(("model.", "lm_head."))


def test_only_queries_and_keys_of_llama_are_reordered() -> None:
    stored = [f"blk.0.attn_{part}" for part in ("q.weight", "k.weight", "q.bias", "v.weight")]
    stored += ["attn_q.weight", "blk.0.attn_q.weight.scale"]
    heads = dict(transformers_names(metadata("llama"), stored, "file").values())
    assert heads == {"blk.0.attn_q.weight": 4, "blk.0.attn_k.weight": 2, "blk.0.attn_q.bias": 4,
                     "blk.0.attn_v.weight": None, "attn_q.weight": None,
                     "blk.0.attn_q.weight.scale": None}  # fmt: skip
    assert all(h is None for _, h in
               transformers_names(metadata("qwen2"), stored, "file").values())  # fmt: skip


def test_rotary_tables_are_left_to_the_model() -> None:
    stored = ["rope_freqs.weight", "blk.3.attn_rot_embd.weight", "output.weight"]
    assert list(transformers_names(metadata("llama"), stored, "file")) == ["lm_head.weight"]


@pytest.mark.parametrize("architecture", ["mamba", "", None, [], 7])
def test_an_unknown_architecture_keeps_its_names(architecture: object) -> None:
    given = {"general.architecture": architecture}
    assert transformers_names(given, ["output.weight"], "file") == {
        "output.weight": ("output.weight", None)
    }


def test_heads_of_keys_are_those_of_queries_unless_given() -> None:
    names = transformers_names(
        {"general.architecture": "llama", "llama.attention.head_count": 8},
        ["blk.0.attn_k.weight"],
        "file",
    )
    assert names["model.layers.0.self_attn.k_proj.weight"] == ("blk.0.attn_k.weight", 8)


@pytest.mark.parametrize("heads", [None, 0, -1, True, 1.0, "4", [4, 4], 1 << 20])
def test_a_number_of_heads_that_is_none_is_refused(heads: object) -> None:
    with pytest.raises(CheckpointError, match=r"file: `llama\.attention\.head_count` must be a nu"):
        transformers_names(metadata("llama", **{"llama.attention.head_count": heads}), [], "file")


def test_two_tensors_of_one_name_are_refused() -> None:
    with pytest.raises(CheckpointError) as error:
        transformers_names(metadata("llama"), ["output.weight", "lm_head.weight"], "file")
    assert (
        str(error.value) == "file: `output.weight` and `lm_head.weight` are both `lm_head.weight`"
    )
