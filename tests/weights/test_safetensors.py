"""SafeTensors: what is written by the library is read back; what is no file of it is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from linnet.dtypes import DType
from linnet.weights import CheckpointError, open_checkpoint
from linnet.weights.floats import from_bf16, to_bf16
from linnet.weights.safetensors import read_header

TENSORS = {
    "a": np.arange(12, dtype=np.float32).reshape(3, 4) / 7,
    "b.weight": np.array([1, -2, 3], np.int32),
    "half": np.array([[1.5], [-0.25]], np.float16),
    "scalar": np.array(2.5, np.float64),
    "empty": np.zeros((0, 4), np.float32),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "model.safetensors", {"format": "pt"})
    return tmp_path / "model.safetensors"


def test_reads_what_the_library_wrote(file: Path) -> None:
    checkpoint = open_checkpoint(file)
    assert set(checkpoint.names()) == set(TENSORS)
    assert checkpoint.metadata == {"format": "pt"}
    for name, expected in TENSORS.items():
        assert checkpoint.info(name).shape == expected.shape
        mapped = checkpoint.mapped(name)
        assert mapped is not None
        assert not mapped.flags.writeable
        np.testing.assert_array_equal(mapped, expected)


@pytest.mark.parametrize("target", [DType.F16, DType.BF16, DType.F32, DType.F64])
def test_converts_floats_while_reading(file: Path, target: DType) -> None:
    held = {DType.F16: np.float16, DType.BF16: np.uint16, DType.F32: np.float32,
            DType.F64: np.float64}[target]  # fmt: skip
    out = np.empty((3, 4), held)
    open_checkpoint(file).read_into("a", out, target)
    expected = to_bf16(TENSORS["a"]) if target == DType.BF16 else TENSORS["a"].astype(held)
    np.testing.assert_array_equal(out, expected)


def test_integers_are_not_converted(file: Path) -> None:
    with pytest.raises(ValueError, match="i32 is not converted to f32"):
        open_checkpoint(file).read_into("b.weight", np.empty(3, np.float32), DType.F32)


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    save_file({"a": TENSORS["a"]}, tmp_path / "one.safetensors")
    save_file({"half": TENSORS["half"]}, tmp_path / "two.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "half": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    for path in (tmp_path, tmp_path / "model.safetensors.index.json"):
        assert sorted(open_checkpoint(path).names()) == ["a", "half"]


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "../one.safetensors"}, "leads out of its directory"),
        ({"a": "missing.safetensors"}, "missing.safetensors is missing"),
        ({"b": "one.safetensors"}, "no shard holds b"),
        (["one.safetensors"], "no index"),
    ],
)
def test_a_bad_index_is_refused(tmp_path: Path, weight_map: object, message: str) -> None:
    save_file({"a": TENSORS["a"]}, tmp_path / "one.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(index)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.bin", b"\x80\x02}q\x00.", "is a pickle, which runs code"),
        ("x.pt", b"PK\x03\x04", "is a pickle, which runs code"),
        ("x.txt", b"hello", "is no checkpoint"),
        ("x.safetensors", b"", "is empty"),
    ],
)
def test_what_is_no_checkpoint_is_refused(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path / name)


def header(table: object, data: bytes = b"") -> bytes:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"123", "3 bytes are too few"),
        ((1 << 60).to_bytes(8, "little"), "its header would be"),
        (header(b"{"), "no JSON"),
        (header(b"[" * 100_000), "no JSON"),
        (header([]), "no JSON object"),
        (header({"a": 1}), "its description is no object"),
        (header({"a": {"dtype": "F31", "shape": [], "data_offsets": [0, 4]}}), "unknown dtype"),
        (header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}), "its shape"),
        (header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}), "data_offsets"),
        (header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}), "takes 8 bytes"),
        (header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}), "is incomplete"),
        (
            header({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}}, b"12"),
            "leaves a gap",
        ),
        (header({}, b"1"), "is damaged"),
        (header({"__metadata__": {"a": 1}}), "must map text to text"),
    ],
)
def test_a_bad_header_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_header(data, "file")


VALID = save(TENSORS)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read_header(data, "file")
    except CheckpointError:
        pass


@given(st.integers(0, len(VALID) - 1), st.integers(0, 255), st.integers(0, len(VALID)))
def test_a_damaged_file_is_read_or_refused(at: int, byte: int, cut: int) -> None:
    damaged = bytearray(VALID)
    damaged[at] = byte
    try:
        read_header(bytes(damaged[:cut]), "file")
    except CheckpointError:
        pass


@given(st.floats(width=32))
def test_bf16_is_the_nearest(value: float) -> None:
    bits = to_bf16(np.array([value], np.float32))
    back = from_bf16(bits)[0]
    if np.isnan(value):
        assert np.isnan(back)
        return
    neighbours = from_bf16(np.clip(bits.astype(np.int64) + [[-1], [0], [1]], 0, 65535)
                           .astype(np.uint16)).ravel()  # fmt: skip
    finite = neighbours[np.isfinite(neighbours)]
    if np.isfinite(back):
        distances = np.abs(finite.astype(np.float64) - value)
        assert abs(float(back) - value) == distances.min()
