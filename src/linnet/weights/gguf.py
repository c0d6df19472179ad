"""GGUF, llama.cpp's format: typed metadata, tensor descriptions, the bytes; memory-mapped.

Read here rather than by the gguf library because a model server reads strangers' files: every
count and length is held against the bytes that are left and against fixed limits, so that no header
can ask for more work or memory than a real one takes. Tensors go by their Transformers names where
the architecture is known, with the order of rows that Transformers has.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from linnet.dtypes import DType
from linnet.weights.checkpoint import (
    MAX_SIZE,
    MAX_TENSORS,
    CheckpointError,
    TensorInfo,
    check_target,
    quoted,
)
from linnet.weights.floats import NUMPY, convert
from linnet.weights.llama_cpp import transformers_names
from linnet.weights.mapping import MappedFile, fill_rows
from linnet.weights.quants import FORMATS

MAX_HEADER = 64 << 20
"""Bytes of metadata and tensor descriptions; a vocabulary of 262,000 tokens takes 15 MB."""
MAX_VALUES = 1 << 22
"""Values in the metadata, the items of its arrays counted; that vocabulary has 1.3 million."""
MAX_DEPTH = 4
"""How deep arrays may stand in arrays."""
NESTED = 256
"""How many values an array in an array counts as: real metadata has hardly any."""
MAX_RANK = 8
"""Axes of a tensor; ggml has four."""

PLAIN: dict[int, DType] = {
    0: DType.F32, 1: DType.F16, 24: DType.I8, 25: DType.I16, 26: DType.I32, 27: DType.I64,
    28: DType.F64, 30: DType.BF16,
}  # fmt: skip
UNSUPPORTED = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S",
    22: "IQ2_S", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}  # fmt: skip
_SCALARS: dict[int, struct.Struct] = {
    0: struct.Struct("<B"), 1: struct.Struct("<b"), 2: struct.Struct("<H"), 3: struct.Struct("<h"),
    4: struct.Struct("<I"), 5: struct.Struct("<i"), 6: struct.Struct("<f"), 7: struct.Struct("<?"),
    10: struct.Struct("<Q"), 11: struct.Struct("<q"), 12: struct.Struct("<d"),
}  # fmt: skip
_BOOL, _STRING, _ARRAY = 7, 8, 9


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as the file describes it: the outermost axis first, `kind` by GGUF's number;
    `first` and `last` count from the start of the file."""

    name: str
    shape: tuple[int, ...]
    kind: int
    first: int
    last: int

    @property
    def info(self) -> TensorInfo:
        if self.kind in PLAIN:
            return TensorInfo(self.shape, PLAIN[self.kind])
        return TensorInfo(self.shape, DType.F32, FORMATS[self.kind].name)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    version: int
    metadata: dict[str, object]
    tensors: dict[str, StoredTensor]


# --- the header -----------------------------------------------------------------------------


def read_header(data: memoryview, where: str) -> GgufHeader:
    """The metadata and tensor descriptions of a GGUF file's bytes.

    Raises `CheckpointError` for anything that is not a whole, little-endian GGUF of version 2
    or 3.
    """
    reader = _Reader(data[:MAX_HEADER], where)
    reader.need(24, "a GGUF header")
    if bytes(data[:4]) != b"GGUF":
        raise CheckpointError(f"{where} is no GGUF file: it starts with {bytes(data[:4])!r}")
    reader.at = 4
    version = reader.integer(4)
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        why = "it is big-endian" if swapped in (2, 3) else "versions 2 and 3 are read"
        raise CheckpointError(f"{where}: GGUF version {version}: {why}")
    tensor_count = reader.count("tensors", 24)
    if tensor_count > MAX_TENSORS:
        raise reader.bad(f"{tensor_count} tensors are over the limit of {MAX_TENSORS}")
    pair_count = reader.count("metadata entries", 13)
    metadata: dict[str, object] = {}
    for _ in range(pair_count):
        key = reader.text("a metadata key")
        if key in metadata:
            raise reader.bad(f"the metadata key {quoted(key)} stands twice")
        metadata[key] = reader.value(reader.integer(4))
    described = [_describe(reader) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment.bit_count() != 1 or alignment > 1 << 20:
        raise CheckpointError(
            f"{where}: `general.alignment` must be a power of two, found {str(alignment)[:40]}"
        )
    start = -(-reader.at // alignment) * alignment
    tensors: dict[str, StoredTensor] = {}
    for name, shape, kind, offset in described:
        if name in tensors:
            raise CheckpointError(f"{where}: the tensor {quoted(name)} stands twice")
        if offset % alignment:
            raise CheckpointError(
                f"{where}: {quoted(name)} starts at {offset}, which {alignment} doesn't divide"
            )
        first = start + offset
        last = first + _nbytes(name, shape, kind, where)
        if last > len(data):
            raise CheckpointError(
                f"{where}: {quoted(name)} ends at byte {last}, the file at {len(data)}: the file "
                "is incomplete"
            )
        tensors[name] = StoredTensor(name, shape, kind, first, last)
    return GgufHeader(version, metadata, tensors)


class _Reader:
    """A position in the bytes; every read is held against what is left."""

    def __init__(self, data: memoryview, where: str):
        self.data, self.where, self.at, self.values = data, where, 0, 0

    def bad(self, why: str) -> CheckpointError:
        return CheckpointError(f"{self.where}: at byte {self.at}: {why}")

    def need(self, size: int, what: str) -> None:
        left = len(self.data) - self.at
        if size > left:
            limit = " of the header's limit" if len(self.data) == MAX_HEADER else ""
            raise self.bad(f"{what} takes {size} bytes, {left}{limit} are left")

    def scalar(self, kind: int) -> int | float | bool:
        form = _SCALARS[kind]
        self.need(form.size, "a value")
        if kind == _BOOL and self.data[self.at] > 1:
            raise self.bad(f"a bool of {self.data[self.at]}")
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def integer(self, kind: int) -> int:
        return int(self.scalar(kind))

    def count(self, what: str, smallest: int) -> int:
        """A number of things of at least `smallest` bytes each."""
        value = self.integer(10)
        if value * smallest > len(self.data) - self.at:
            raise self.bad(f"{value} {what} don't fit into the rest of the file")
        return value

    def text(self, what: str) -> str:
        length = self.count(f"bytes of {what}", 1)
        try:
            value = str(self.data[self.at : self.at + length], "utf-8")
        except UnicodeDecodeError as error:
            raise self.bad(f"{what} is no UTF-8") from error
        self.at += length
        return value

    def value(self, kind: int, depth: int = 0) -> object:
        """A metadata value of GGUF's type of that number; arrays as lists."""
        if kind == _ARRAY:
            return self.array(depth)
        self.spend(1)
        if kind == _STRING:
            return self.text("text")
        if kind not in _SCALARS:
            raise self.bad(f"unknown metadata type {kind}")
        return self.scalar(kind)

    def array(self, depth: int) -> list[object]:
        if depth >= MAX_DEPTH:
            raise self.bad(f"arrays nested more than {MAX_DEPTH} deep")
        item = self.integer(4)
        if item in _SCALARS:
            form = _SCALARS[item]
            length = self.count("array items", form.size)
            self.spend(length)
            items = struct.unpack_from(f"<{length}{form.format[-1]}", self.data, self.at)
            self.at += length * form.size
            return list(items)
        length = self.count("array items", 8 if item == _STRING else 12)
        if item == _STRING:
            self.spend(length)
            return [self.text("text") for _ in range(length)]
        self.spend(length * NESTED)
        return [self.value(item, depth + 1) for _ in range(length)]

    def spend(self, values: int) -> None:
        self.values += values
        if self.values > MAX_VALUES:
            raise self.bad(f"more than {MAX_VALUES} metadata values")


def _describe(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    name = reader.text("a tensor's name")
    rank = reader.integer(4)
    if rank > MAX_RANK:
        raise reader.bad(f"the tensor {quoted(name)} has {rank} axes")
    shape = tuple(reader.integer(10) for _ in range(rank))[::-1]
    kind = reader.integer(4)
    return name, shape, kind, reader.integer(10)


def _nbytes(name: str, shape: tuple[int, ...], kind: int, where: str) -> int:
    """The bytes that a tensor takes; raises `CheckpointError` for one that can't be read."""

    def bad(why: str) -> CheckpointError:
        return CheckpointError(f"{where}: {quoted(name)} {why}")

    if math.prod(n or 1 for n in shape) * 8 > MAX_SIZE:
        raise bad(f"of {list(shape)} is too large")
    if kind in PLAIN:
        return math.prod(shape) * PLAIN[kind].itemsize
    form = FORMATS.get(kind)
    if form is None:
        called = UNSUPPORTED.get(kind, f"number {kind}")
        known = ", ".join([*(f.name for f in FORMATS.values()), *(str(d) for d in PLAIN.values())])
        raise bad(f"is of the type {called}, which is not supported: {known} are")
    if not shape or shape[-1] % form.values:
        row = shape[-1] if shape else 1
        raise bad(f"has rows of {row} values, {form.name} comes in blocks of {form.values}")
    return math.prod(shape) // form.values * form.size


# --- the checkpoint -------------------------------------------------------------------------


class GgufCheckpoint:
    """A mapped GGUF file."""

    def __init__(self, path: Path):
        self.path = path
        self._file = MappedFile(path)
        header = read_header(self._file.data.data, str(path))
        self.metadata: Mapping[str, object] = header.metadata
        parts = header.metadata.get("split.count", 1)
        if isinstance(parts, int) and parts > 1:
            raise CheckpointError(
                f"{path} is one of {parts} parts: join them with `llama-gguf-split --merge`"
            )
        self._tensors: dict[str, tuple[StoredTensor, int | None]] = {}
        """By public name: the tensor, and the heads whose rows llama.cpp has reordered."""
        named = transformers_names(header.metadata, list(header.tensors), str(path))
        for name, (stored, heads) in named.items():
            tensor = header.tensors[stored]
            if heads and (len(tensor.shape) not in (1, 2) or tensor.shape[0] % (2 * heads)):
                raise CheckpointError(
                    f"{path}: {quoted(stored)} is {list(tensor.shape)}, which {heads} heads don't "
                    "divide"
                )
            if heads and len(tensor.shape) == 1 and tensor.kind not in PLAIN:
                raise CheckpointError(f"{path}: {quoted(stored)} is a quantised bias")
            self._tensors[name] = (tensor, heads)

    def names(self) -> list[str]:
        return list(self._tensors)

    def info(self, name: str) -> TensorInfo:
        return self._tensors[name][0].info

    def mapped(self, name: str) -> np.ndarray | None:
        tensor, heads = self._tensors[name]
        if tensor.kind not in PLAIN or heads:
            return None
        raw = self._file.data[tensor.first : tensor.last]
        return raw.view(NUMPY[PLAIN[tensor.kind]]).reshape(tensor.shape)

    def read_into(self, name: str, out: np.ndarray, dtype: DType) -> None:
        tensor, heads = self._tensors[name]
        check_target(name, tensor.info, out, dtype)
        if not out.size:
            return
        order = _original_rows(tensor.shape[0], heads) if heads else None
        count = tensor.shape[0] if heads else out.size // _block(tensor.kind)
        stored = self._file.data[tensor.first : tensor.last].reshape(count, -1)

        def values(piece: slice) -> np.ndarray:
            rows = stored[piece] if order is None else stored[order[piece]]
            return _decode(rows, tensor.kind, dtype)

        fill_rows(out, count, values)
        self._file.release(tensor.first, tensor.last)

    def blocks(self, name: str) -> tuple[str, np.ndarray] | None:
        """A quantised matrix as it is stored: its format's name and `[rows, blocks, bytes]`, rows
        in Transformers' order; None where the stored bytes are the values."""
        tensor, heads = self._tensors[name]
        if tensor.kind in PLAIN or len(tensor.shape) != 2:
            return None
        form = FORMATS[tensor.kind]
        stored = self._file.data[tensor.first : tensor.last]
        stored = stored.reshape(tensor.shape[0], -1, form.size)
        if heads:
            stored = stored[_original_rows(tensor.shape[0], heads)]
        return form.name, stored

    def close(self) -> None:
        self._tensors = {}
        self._file.close()


def _block(kind: int) -> int:
    """How many values are stored together."""
    return 1 if kind in PLAIN else FORMATS[kind].values


def _decode(rows: np.ndarray, kind: int, dtype: DType) -> np.ndarray:
    """Rows of stored bytes as rows of values."""
    if kind in PLAIN:
        return convert(np.ascontiguousarray(rows).view(NUMPY[PLAIN[kind]]), PLAIN[kind], dtype)
    form = FORMATS[kind]
    with np.errstate(over="ignore", invalid="ignore"):  # Scales can be infinite or NaN.
        values = form.decode(rows.reshape(-1, form.size))
    return convert(values.reshape(len(rows), -1), DType.F32, dtype)


def _original_rows(rows: int, heads: int) -> np.ndarray:
    """For each row of Transformers' order, where llama.cpp has it: each head's rows stand there
    as pairs (i, i + half), side by side."""
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)
