"""GGUF: headers held against their bytes, blocks against the gguf library bit for bit."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import quants
from hypothesis import given
from hypothesis import strategies as st

from linnet.dtypes import DType
from linnet.weights import CheckpointError, open_checkpoint
from linnet.weights.gguf import GgufCheckpoint, read_header
from linnet.weights.quants import FORMATS


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: FORMATS[kind].name)
def test_blocks_are_decoded_bit_for_bit(kind: int) -> None:
    form = FORMATS[kind]
    blocks = np.random.default_rng(kind).integers(0, 256, (200, form.size), dtype=np.uint8)
    with np.errstate(all="ignore"):  # Random bytes make scales that are NaN or infinite.
        found = form.decode(blocks)
        expected = quants.dequantize(blocks.reshape(1, -1), gguf.GGMLQuantizationType(kind))
    np.testing.assert_array_equal(found, expected.reshape(found.shape))


def write_llama(path: Path, heads: int = 4, kv_heads: int = 2) -> dict[str, np.ndarray]:
    """A tiny llama as llama.cpp's converter writes it; gives the tensors as Transformers has
    them."""
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_name("tiny")
    tensors = {
        "token_embd.weight": ("model.embed_tokens.weight", (8, 32)),
        "blk.0.attn_q.weight": ("model.layers.0.self_attn.q_proj.weight", (32, 32)),
        "blk.0.attn_k.weight": ("model.layers.0.self_attn.k_proj.weight", (16, 32)),
        "blk.0.ffn_norm.weight": ("model.layers.0.post_attention_layernorm.weight", (32,)),
    }
    originals = {}
    for stored, (public, shape) in tensors.items():
        values = random.standard_normal(shape, np.float32)
        originals[public] = values
        count = {"blk.0.attn_q.weight": heads, "blk.0.attn_k.weight": kv_heads}.get(stored)
        if count:
            half = shape[0] // count // 2
            values = values.reshape(count, 2, half, 32).swapaxes(1, 2).reshape(shape)
        if stored == "token_embd.weight":
            quantised = quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            originals[public] = quants.dequantize(quantised, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(stored, quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(stored, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return originals


def test_a_llama_has_transformers_names_and_rows(tmp_path: Path) -> None:
    originals = write_llama(tmp_path / "tiny.gguf")
    checkpoint = open_checkpoint(tmp_path / "tiny.gguf")
    assert sorted(checkpoint.names()) == sorted(originals)
    assert checkpoint.metadata["general.name"] == "tiny"
    for name, expected in originals.items():
        out = np.empty(checkpoint.info(name).shape, np.float32)
        checkpoint.read_into(name, out, DType.F32)
        np.testing.assert_array_equal(out, expected, err_msg=name)
    assert checkpoint.info("model.embed_tokens.weight").quantisation == "Q8_0"
    assert checkpoint.mapped("model.embed_tokens.weight") is None
    assert checkpoint.mapped("model.layers.0.post_attention_layernorm.weight") is not None


def test_heads_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    write_llama(tmp_path / "tiny.gguf")
    data = (tmp_path / "tiny.gguf").read_bytes()
    at = data.index(b"llama.attention.head_count") + len("llama.attention.head_count") + 4
    damaged = data[:at] + (5).to_bytes(4, "little") + data[at + 4 :]
    (tmp_path / "bad.gguf").write_bytes(damaged)
    with pytest.raises(CheckpointError, match="5 heads don't divide"):
        open_checkpoint(tmp_path / "bad.gguf")


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_llama(path)
    return path.read_bytes()


def test_a_file_cut_short_is_refused(valid: bytes) -> None:
    for size in range(0, len(valid) - 1, 37):
        with pytest.raises(CheckpointError):
            read_header(memoryview(valid[:size]), "file")


@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(valid: bytes, data: st.DataObject) -> None:
    damaged = bytearray(valid)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, 700))] = data.draw(st.integers(0, 255))
    try:
        read_header(memoryview(damaged), "file")
    except CheckpointError:
        pass


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    try:
        read_header(memoryview(b"GGUF\x03\0\0\0" + tail), "file")
    except CheckpointError:
        pass


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GGUF", "a GGUF header takes 24 bytes"),
        (b"GGML" + bytes(40), "is no GGUF file"),
        (b"GGUF" + (9).to_bytes(4, "little") + bytes(40), "version 9"),
        (b"GGUF" + (3).to_bytes(4, "big") + bytes(40), "it is big-endian"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 16, "tensors don't fit"),
        (b"GGUF\x03\0\0\0" + bytes(8) + b"\xff" * 8, "metadata entries don't fit"),
    ],
)
def test_a_bad_header_says_why(data: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_header(memoryview(data), "file")


def test_an_unknown_quantisation_is_refused_by_name(valid: bytes) -> None:
    at = valid.index(b"token_embd.weight") + len("token_embd.weight") + 4 + 16
    damaged = valid[:at] + (10).to_bytes(4, "little") + valid[at + 4 :]
    with pytest.raises(CheckpointError, match="of the type Q2_K, which is not supported"):
        read_header(memoryview(damaged), "file")


@pytest.mark.weights
def test_the_real_file_is_decoded_bit_for_bit(smollm2_gguf: Path) -> None:
    checkpoint = GgufCheckpoint(smollm2_gguf)
    reader = gguf.GGUFReader(smollm2_gguf)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    assert len(checkpoint.names()) == len(stored) == 272
    for public, name in {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.layers.29.mlp.down_proj.weight": "blk.29.ffn_down.weight",
        "model.norm.weight": "output_norm.weight",
    }.items():
        tensor = stored[name]
        out = np.empty(checkpoint.info(public).shape, np.float32)
        checkpoint.read_into(public, out, DType.F32)
        expected = quants.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(out, expected.reshape(out.shape))
