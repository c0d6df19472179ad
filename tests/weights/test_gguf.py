"""GGUF: headers held against their bytes, tensors against what was written."""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import quants
from hypothesis import given
from hypothesis import strategies as st

from linnet.dtypes import DType
from linnet.weights import CheckpointError, open_checkpoint, read_tensor
from linnet.weights.floats import NUMPY, to_bf16
from linnet.weights.gguf import MAX_HEADER, MAX_VALUES, read_header
from linnet.weights.quants import FORMATS


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_llama(path: Path, heads: int = 4, kv_heads: int = 2) -> dict[str, np.ndarray]:
    """A tiny llama as llama.cpp's converter writes it; gives the tensors as Transformers has
    them."""
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_name("tiny")
    writer.add_array("nested", [[1, 2], [3]])
    writer.add_token_list(["a", "b"])
    tensors = {
        "token_embd.weight": ("model.embed_tokens.weight", (8, 32)),
        "blk.0.attn_q.weight": ("model.layers.0.self_attn.q_proj.weight", (32, 32)),
        "blk.0.attn_k.weight": ("model.layers.0.self_attn.k_proj.weight", (16, 32)),
        "blk.0.attn_k.bias": ("model.layers.0.self_attn.k_proj.bias", (16,)),
        "blk.0.ffn_norm.weight": ("model.layers.0.post_attention_layernorm.weight", (32,)),
    }
    originals = {}
    for stored, (public, shape) in tensors.items():
        values = random.standard_normal(shape, np.float32)
        originals[public] = values
        count = {"attn_q": heads, "attn_k": kv_heads}.get(stored.split(".")[-2])
        if count:
            half = shape[0] // count // 2
            values = values.reshape(count, 2, half, *shape[1:]).swapaxes(1, 2).reshape(shape)
        if stored == "token_embd.weight":
            quantised = quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            originals[public] = quants.dequantize(quantised, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(stored, quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(stored, values)
    finish(writer)
    return originals


# --- tensors --------------------------------------------------------------------------------


def test_a_llama_has_transformers_names_and_rows(tmp_path: Path) -> None:
    originals = write_llama(tmp_path / "tiny.gguf")
    checkpoint = open_checkpoint(tmp_path / "tiny.gguf")
    assert sorted(checkpoint.names()) == sorted(originals)
    assert checkpoint.metadata["general.name"] == "tiny"
    assert checkpoint.metadata["tokenizer.ggml.tokens"] == ["a", "b"]
    assert checkpoint.metadata["nested"] == [[1, 2], [3]]
    for name, expected in originals.items():
        np.testing.assert_array_equal(read_tensor(checkpoint, name), expected, err_msg=name)
    assert checkpoint.info("model.embed_tokens.weight").quantisation == "Q8_0"
    for name, is_stored in {
        "model.embed_tokens.weight": False,
        "model.layers.0.self_attn.q_proj.weight": False,
        "model.layers.0.post_attention_layernorm.weight": True,
    }.items():
        assert (checkpoint.mapped(name) is not None) == is_stored


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_rows_of_any_number_of_heads_are_restored(tmp_path: Path, heads: int) -> None:
    originals = write_llama(tmp_path / "tiny.gguf", heads, heads)
    checkpoint = open_checkpoint(tmp_path / "tiny.gguf")
    for name in ("q_proj.weight", "k_proj.weight", "k_proj.bias"):
        name = f"model.layers.0.self_attn.{name}"
        np.testing.assert_array_equal(read_tensor(checkpoint, name), originals[name])


@pytest.mark.parametrize("target", [DType.F32, DType.F16, DType.BF16, DType.F64])
@pytest.mark.parametrize("kind", [2, 3, 6, 7, 8], ids=lambda kind: FORMATS[kind].name)
def test_a_large_tensor_is_decoded_whole(tmp_path: Path, kind: int, target: DType) -> None:
    quantisation = gguf.GGMLQuantizationType(kind)
    values = np.random.default_rng(0).standard_normal((700, 1024), np.float32)
    stored = quants.quantize(values, quantisation)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "test")
    writer.add_tensor("a", stored, raw_dtype=quantisation)
    finish(writer)
    found = read_tensor(open_checkpoint(tmp_path / "m.gguf"), "a", target)
    expected = quants.dequantize(stored, quantisation)
    expected = to_bf16(expected) if target == DType.BF16 else expected.astype(NUMPY[target])
    np.testing.assert_array_equal(found, expected)


PLAIN_ARRAYS = {
    "f16": np.array([[1.5, -2.0]], np.float16), "f32": np.array([1.0], np.float32),
    "f64": np.array([1e300, 2.0]), "i8": np.array([-1, 2, 3], np.int8),
    "i16": np.array([-300], np.int16), "i32": np.array([1 << 20], np.int32),
    "i64": np.array([-1 << 40], np.int64), "empty": np.zeros((0, 3), np.float32),
    "scalar": np.array(2.5, np.float32), "deep": np.zeros((2, 1, 2, 1, 2), np.float32),
}  # fmt: skip


def test_plain_types_pass_through(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "test")
    for name, values in PLAIN_ARRAYS.items():
        writer.add_tensor(name, values)
    finish(writer)
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    for name, values in PLAIN_ARRAYS.items():
        assert checkpoint.info(name).shape == values.shape
        for found in (read_tensor(checkpoint, name), checkpoint.mapped(name)):
            assert found is not None and found.dtype == values.dtype
            np.testing.assert_array_equal(found, values)


def test_scales_without_bounds_are_no_warning(tmp_path: Path, recwarn) -> None:
    stored = np.full((1, 18), 0xFF, np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "test")
    writer.add_tensor("a", stored, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    finish(writer)
    assert np.isnan(read_tensor(open_checkpoint(tmp_path / "m.gguf"), "a", DType.F16)).all()
    assert not recwarn.list


def test_heads_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    write_llama(tmp_path / "tiny.gguf")
    data = (tmp_path / "tiny.gguf").read_bytes()
    at = data.index(b"llama.attention.head_count") + len("llama.attention.head_count") + 4
    (tmp_path / "bad.gguf").write_bytes(data[:at] + struct.pack("<I", 5) + data[at + 4 :])
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(tmp_path / "bad.gguf")
    assert str(error.value).endswith(
        "`blk.0.attn_q.weight` is [32, 32], which 5 heads don't divide"
    )


def test_a_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m-00001-of-00003.gguf", "test")
    writer.add_uint16("split.count", 3)
    writer.add_tensor("a", np.zeros(1, np.float32))
    finish(writer)
    with pytest.raises(CheckpointError, match=r"one of 3 parts: join them with `llama-gguf-split"):
        open_checkpoint(tmp_path)


# --- headers --------------------------------------------------------------------------------

START = b"GGUF" + struct.pack("<I", 3)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def header(pairs: Sequence[bytes] = (), tensors: Sequence[bytes] = (), data: bytes = b"") -> bytes:
    """A GGUF file of pairs and tensor descriptions that are bytes already."""
    counts = struct.pack("<QQ", len(tensors), len(pairs))
    described = START + counts + b"".join(pairs) + b"".join(tensors)
    return described + bytes(-len(described) % 32) + data


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str = "a", shape: tuple[int, ...] = (1,), kind: int = 0, at: int = 0) -> bytes:
    """Axes as GGUF has them, the innermost first."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, at)


BAD = {
    "short": (b"GGUF", "file: at byte 0: a GGUF header takes 24 bytes, 4 are left"),
    "other": (b"GGML" + bytes(40), "file is no GGUF file: it starts with b'GGML'"),
    "version": (b"GGUF" + struct.pack("<I", 1) + bytes(40), "version 1: versions 2 and 3 are read"),
    "endian": (b"GGUF" + struct.pack(">I", 3) + bytes(40), "it is big-endian"),
    "tensors": (
        START + b"\xff" * 16,
        "at byte 16: 18446744073709551615 tensors don't fit into the rest of the file",
    ),
    "pairs": (
        START + bytes(8) + b"\xff" * 8,
        "at byte 24: 18446744073709551615 metadata entries don't fit into the rest of the file",
    ),
    "key": (
        header([struct.pack("<Q", 999) + bytes(99)]),
        "at byte 32: 999 bytes of a metadata key don't fit into the rest of the file",
    ),
    "key text": (header([pair("k", 4, bytes(4)), text(b"\xff") + bytes(99)]), "is no UTF-8"),
    "twice": (
        header([pair("k", 0, b"1"), pair("k", 0, b"1")]),
        "the metadata key `k` stands twice",
    ),
    "type": (header([pair("k", 13, bytes(9))]), "at byte 37: unknown metadata type 13"),
    "bool": (header([pair("k", 7, b"\x02")]), "at byte 37: a bool of 2"),
    "array": (
        header([pair("k", 9, struct.pack("<IQ", 4, 1 << 40))]),
        "1099511627776 array items don't fit into the rest of the file",
    ),
    "deep": (
        header([pair("k", 9, struct.pack("<IQ", 9, 1) * 5 + bytes(99))]),
        "arrays nested more than 4 deep",
    ),
    "alignment": (
        header([pair("general.alignment", 4, struct.pack("<I", 33))]),
        "`general.alignment` must be a power of two, found 33",
    ),
    "alignment type": (
        header([pair("general.alignment", 8, text("32"))]),
        "`general.alignment` must be a power of two, found 32",
    ),
    "rank": (header(tensors=[tensor(shape=(1,) * 9)]), "the tensor `a` has 9 axes"),
    "same name": (
        header(tensors=[tensor(), tensor()], data=bytes(4)),
        "the tensor `a` stands twice",
    ),
    "offset": (
        header(tensors=[tensor(at=4)], data=bytes(8)),
        "`a` starts at 4, which 32 doesn't divide",
    ),
    "cut": (
        header(tensors=[tensor(shape=(2,))], data=bytes(4)),
        "`a` ends at byte 72, the file at 68: the file is incomplete",
    ),
    "huge": (header(tensors=[tensor(shape=(1 << 63, 1 << 63))]), "is too large"),
    "huge but empty": (header(tensors=[tensor(shape=(1 << 63, 0))]), "is too large"),
    "kind": (
        header(tensors=[tensor(kind=39)]),
        "`a` is of the type MXFP4, which is not supported: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, "
        "Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, f32, f16, i8, i16, i32, i64, f64, bf16 are",
    ),
    "no kind": (header(tensors=[tensor(kind=99)]), "`a` is of the type number 99, which is not"),
    "block": (
        header(tensors=[tensor(shape=(48, 2), kind=2)]),
        "`a` has rows of 48 values, Q4_0 comes in blocks of 32",
    ),
    "block scalar": (header(tensors=[tensor(shape=(), kind=2)]), "`a` has rows of 1 values"),
    "escapes": (
        header(tensors=[tensor("\x1b[2J", kind=99)]),
        "`\\x1b[2J` is of the type number 99",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_header_says_what_and_where(case: str) -> None:
    data, message = BAD[case]
    with pytest.raises(CheckpointError) as error:
        read_header(memoryview(data), "file")
    assert message in str(error.value)


def test_version_2_is_read() -> None:
    data = header([pair("k", 7, b"\x01")], [tensor()], struct.pack("<f", 2.5))
    found = read_header(memoryview(b"GGUF\x02" + data[5:]), "file")
    assert (found.version, found.metadata) == (2, {"k": True})
    assert found.tensors["a"].shape == (1,)


HOSTILE = {
    "short integers": [pair("k", 9, struct.pack("<IQ", 2, MAX_VALUES + 1)), b"\xff" * 9_000_000],
    "empty texts": [pair("k", 9, struct.pack("<IQ", 8, MAX_VALUES + 1)), bytes(34_000_000)],
    "empty arrays": [pair("k", 9, struct.pack("<IQ", 9, 4_000_000)), bytes(48_000_000)],
    "a long text": [text(b"k"), struct.pack("<IQ", 8, MAX_HEADER), bytes(MAX_HEADER)],
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_header_costs_little(case: str) -> None:
    data = memoryview(START + struct.pack("<QQ", 0, 1) + b"".join(HOSTILE[case]))
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(CheckpointError, match=r"more than 4194304 metadata values|don't fit"):
        read_header(data, "file")
    assert time.process_time() - started < 5
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_llama(path)
    return path.read_bytes()


def test_a_file_cut_short_is_refused(valid: bytes) -> None:
    for size in range(0, len(valid) - 32, 37):
        with pytest.raises(CheckpointError):
            read_header(memoryview(valid[:size]), "file")


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_file_is_read_or_refused(valid: bytes, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(valid)
    for at, byte in changes:
        damaged[at] = byte
    with suppress(CheckpointError):
        read_header(memoryview(damaged), "file")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    for start in (b"", START, START + struct.pack("<QQ", 1, 1)):
        with suppress(CheckpointError):
            read_header(memoryview(start + tail), "file")


KINDS = st.one_of(st.integers(0, 13), st.sampled_from([8, 9, 9]))


@given(st.data())
def test_any_metadata_is_read_or_refused(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(KINDS, min_size=1, max_size=6))
    values = b"".join(struct.pack("<IQ", kind, data.draw(st.integers(0, 3))) for kind in kinds)
    pairs = [pair("k", data.draw(KINDS), values + data.draw(st.binary(max_size=60)))]
    with suppress(CheckpointError):
        read_header(memoryview(header(pairs)), "file")


def test_every_damaged_file_that_opens_can_be_read(tmp_path: Path, valid: bytes) -> None:
    random = np.random.default_rng(0)
    opened = 0
    for _ in range(300):
        damaged = bytearray(valid)
        damaged[random.integers(24, 900)] = random.integers(0, 256)
        (tmp_path / "x.gguf").write_bytes(damaged)
        try:
            checkpoint = open_checkpoint(tmp_path / "x.gguf")
        except CheckpointError:
            continue
        opened += 1
        for name in checkpoint.names():
            read_tensor(checkpoint, name)
            checkpoint.mapped(name)
        checkpoint.close()
    assert opened


# --- the real model -------------------------------------------------------------------------


@pytest.mark.weights
def test_the_real_file_is_decoded_bit_for_bit(smollm2_gguf: Path) -> None:
    checkpoint = open_checkpoint(smollm2_gguf)
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(smollm2_gguf).tensors}
    assert len(checkpoint.names()) == len(stored) == 272
    for public, (name, heads) in {
        "model.embed_tokens.weight": ("token_embd.weight", 0),
        "model.layers.29.mlp.down_proj.weight": ("blk.29.ffn_down.weight", 0),
        "model.layers.7.self_attn.q_proj.weight": ("blk.7.attn_q.weight", 9),
        "model.layers.7.self_attn.k_proj.weight": ("blk.7.attn_k.weight", 3),
        "model.norm.weight": ("output_norm.weight", 0),
    }.items():
        info = checkpoint.info(public)
        expected = quants.dequantize(stored[name].data, stored[name].tensor_type)
        expected = expected.reshape(info.shape)
        if heads:
            half = info.shape[0] // heads // 2
            expected = expected.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(info.shape)
        np.testing.assert_array_equal(read_tensor(checkpoint, public), expected)
