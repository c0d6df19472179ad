"""SafeTensors: what is written by the library is read back; what is no file of it is refused."""

from __future__ import annotations

import json
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save, save_file
from safetensors.torch import save_file as save_torch

from linnet.dtypes import DType
from linnet.weights import CheckpointError, open_checkpoint
from linnet.weights.floats import NUMPY, to_bf16
from linnet.weights.safetensors import read_header

TENSORS = {
    "a": np.arange(12, dtype=np.float32).reshape(3, 4) / 7,
    "b.weight": np.array([1, -2, 3], np.int32),
    "half": np.array([[1.5], [-0.25]], np.float16),
    "scalar": np.array(2.5, np.float64),
    "empty": np.zeros((0, 4), np.float32),
    'ödd "name" \\ {} []': np.array([True, False]),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "model.safetensors", {"format": "pt", "é{": "}"})
    return tmp_path / "model.safetensors"


def test_reads_what_the_library_wrote(file: Path) -> None:
    checkpoint = open_checkpoint(file)
    assert set(checkpoint.names()) == set(TENSORS)
    assert checkpoint.metadata == {"format": "pt", "é{": "}"}
    for name, expected in TENSORS.items():
        assert checkpoint.info(name).shape == expected.shape
        mapped = checkpoint.mapped(name)
        assert mapped is not None
        assert not mapped.flags.writeable
        np.testing.assert_array_equal(mapped, expected)


def test_bf16_is_given_as_its_bits(tmp_path: Path) -> None:
    tensor = torch.tensor([[1.0, -2.5]], dtype=torch.bfloat16)
    save_torch({"a": tensor}, tmp_path / "m.safetensors")
    checkpoint = open_checkpoint(tmp_path / "m.safetensors")
    assert checkpoint.info("a").dtype == DType.BF16
    mapped = checkpoint.mapped("a")
    assert mapped is not None
    np.testing.assert_array_equal(mapped, tensor.view(torch.int16).numpy().view(np.uint16))


@pytest.mark.parametrize("target", [DType.F16, DType.BF16, DType.F32, DType.F64])
def test_converts_floats_while_reading(file: Path, target: DType) -> None:
    out = np.empty((3, 4), NUMPY[target])
    open_checkpoint(file).read_into("a", out, target)
    expected = to_bf16(TENSORS["a"]) if target == DType.BF16 else TENSORS["a"].astype(out.dtype)
    np.testing.assert_array_equal(out, expected)


def test_a_large_tensor_is_read_whole(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((1025, 1031), np.float32)
    save_file({"a": values}, tmp_path / "m.safetensors")
    checkpoint = open_checkpoint(tmp_path / "m.safetensors")
    for dtype in (DType.F32, DType.F16):
        out = np.empty(values.shape, NUMPY[dtype])
        checkpoint.read_into("a", out, dtype)
        np.testing.assert_array_equal(out, values.astype(out.dtype))


# --- headers --------------------------------------------------------------------------------


def header(table: object, data: bytes = b"") -> bytes:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str = "F32", shape: object = (1,), offsets: object = (0, 4)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


SHOULD_BE = 'go on with "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, found '

BAD = {
    "short": (b"123", "file: 3 bytes are too few for a SafeTensors header"),
    "long": (
        (1 << 60).to_bytes(8, "little"),
        "its header would be 1152921504606846976 bytes, the file has 8: it is damaged, incomplete "
        "or no SafeTensors file",
    ),
    "list": (header([]), "at byte 8: its header should go on with `{`, found `[]`"),
    "deep": (header(b"[" * 100_000), "should go on with `{`, found `[[[["),
    "unclosed": (header(b"{"), f"at byte 9: its header should {SHOULD_BE}``"),
    "number": (header({"a": 1}), f'at byte 9: its header should {SHOULD_BE}`"a": 1}}`'),
    "trailing": (header(b"{}{"), "at byte 10: its header should go on with nothing, found `{`"),
    "no comma": (header(b'{"a": {"dtype": "F32" "shape": []}}'), SHOULD_BE),
    "extra comma": (header(b"{,}"), SHOULD_BE),
    "negative": (header({"a": entry(shape=[-1])}), SHOULD_BE),
    "fraction": (header({"a": entry(shape=[1.5])}), SHOULD_BE),
    "field": (header({"a": {**entry(), "more": 1}}), SHOULD_BE),
    "twice": (
        header(b'{"a": {"dtype": "F32", "dtype": "F32", "shape": []}}'),
        "tensor `a`: it needs a dtype, a shape and data_offsets",
    ),
    "dtype": (
        header({"a": entry(dtype="F8_E4M3")}),
        "tensor `a`: dtype `F8_E4M3` is not read; BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, "
        "BF16, F32, F64 are",
    ),
    "digits": (
        header(b'{"a": {"dtype": "F32", "shape": [1 2], "data_offsets": [0, 4]}}'),
        "tensor `a`: its numbers can't be read",
    ),
    "many digits": (header({"a": entry(shape=[10**4000])}), "tensor `a`: its shape is too large"),
    "too many digits": (
        header(b'{"a": {"dtype": "F32", "shape": [' + b"9" * 9999 + b'], "data_offsets": [0, 4]}}'),
        "tensor `a`: its numbers can't be read",
    ),
    "huge but empty": (
        header({"a": entry(shape=[0, 1 << 61], offsets=[0, 0])}),
        "tensor `a`: its shape is too large",
    ),
    "rank": (header({"a": entry(shape=[1] * 40)}), "its numbers can't be read: more than 32"),
    "offsets": (header({"a": entry(offsets=[0])}), "data_offsets must be two numbers, found 1"),
    "size": (header({"a": entry(shape=[2])}), "tensor `a`: f32[2] takes 8 bytes, it has 4"),
    "backwards": (header({"a": entry(offsets=[4, 0])}, bytes(4)), "takes 4 bytes, it has -4"),
    "cut": (
        header({"a": entry()}),
        "tensor `a`: it ends at byte 73, the file at 69: the file is incomplete",
    ),
    "gap": (
        header({"a": entry("U8", [1], [1, 2])}, b"12"),
        "`a` overlaps another tensor or leaves a gap",
    ),
    "overlap": (
        header({"a": entry(), "b": entry()}, bytes(4)),
        "`b` overlaps another tensor or leaves a gap",
    ),
    "rest": (header({}, b"1"), "its tensors end at byte 10, the file at 11: it is damaged"),
    "name": (
        header(b'{"a": ' + json.dumps(entry()).encode() + b', "a": ' + json.dumps(entry()).encode()
               + b"}", bytes(4)),
        "`a` stands twice in its header",
    ),
    "escape": (header(b'{"\\q": ' + json.dumps(entry()).encode() + b"}"), "damaged: Invalid \\e"),
    "encoding": (header(b'{"\xff": ' + json.dumps(entry()).encode() + b"}"), "is damaged: 'utf-8'"),
    "metadata": (
        header({"__metadata__": {"a": 1}}),
        'go on with "__metadata__": {"text": "text"}, once, found `"__metadata__": {"a": 1}}`',
    ),
    "metadata twice": (header(b'{"__metadata__": {}, "__metadata__": {}}'), "once, found"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_header_says_what_and_where(case: str) -> None:
    data, message = BAD[case]
    with pytest.raises(CheckpointError) as error:
        read_header(data, "file")
    assert message in str(error.value)


@pytest.mark.parametrize("text", [b"{}", b"{ } \n", b'{"__metadata__":{}}'])
def test_a_file_of_no_tensors_is_one(text: bytes) -> None:
    assert read_header(header(text), "file") == ({}, {})


def test_fields_may_stand_in_any_order() -> None:
    text = b'{ "a" : {"data_offsets":[ 0 , 4 ] , "shape" : [ 1 ],"dtype":"F32" } }   '
    tensors, _ = read_header(header(text, bytes(4)), "file")
    assert tensors["a"].info.shape == (1,)
    assert (tensors["a"].first, tensors["a"].last) == (8 + len(text), 12 + len(text))


@pytest.mark.parametrize(
    "unit",
    [b"[[],[],", b'{"a":{', b'"a":{},', b'"__metadata__":{"":"",', b"\\", b'{"', b" "],
)
def test_a_hostile_header_costs_little(unit: bytes) -> None:
    data = header(b'{"a":' + unit * (8_000_000 // len(unit)))
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(CheckpointError):
        read_header(data, "file")
    assert time.process_time() - started < 5
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


VALID = save(TENSORS, {"format": "pt"})


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(CheckpointError):
        read_header(data, "file")


@given(st.text(alphabet='{}[]":, \\0123aF_dtypeshadofsmu', max_size=300))
def test_any_near_json_is_read_or_refused(text: str) -> None:
    with suppress(CheckpointError):
        read_header(header(text.encode()), "file")


@given(st.integers(0, len(VALID) - 1), st.integers(0, 255), st.integers(0, len(VALID)))
def test_a_damaged_file_is_read_or_refused(at: int, byte: int, cut: int) -> None:
    damaged = bytearray(VALID)
    damaged[at] = byte
    with suppress(CheckpointError):
        read_header(bytes(damaged[:cut]), "file")


@given(st.integers(8, len(VALID) - 1), st.integers(0, 255))
def test_what_is_read_the_library_reads_alike(at: int, byte: int) -> None:
    damaged = bytearray(VALID)
    damaged[at] = byte
    try:
        tensors, _ = read_header(bytes(damaged), "file")
    except CheckpointError:
        return
    expected = load(bytes(damaged))
    assert {n: t.info.shape for n, t in tensors.items()} == {
        n: t.shape for n, t in expected.items()
    }
