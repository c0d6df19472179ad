"""GGUF, llama.cpp's format: typed metadata, tensor descriptions, the bytes; memory-mapped.

Read here rather than by the gguf library because a model server reads strangers' files: every
count and length is held against the bytes that are left, so that no header can ask for more work
or memory than its own size. Tensors go by their Transformers names where the architecture is
known, with the order of rows that Transformers has.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from linnet.dtypes import DType
from linnet.weights.checkpoint import CheckpointError, TensorInfo
from linnet.weights.floats import NUMPY, convert
from linnet.weights.llama_cpp import transformers_names
from linnet.weights.quants import FORMATS, BlockFormat
from linnet.weights.safetensors import MappedFile

PLAIN: dict[int, DType] = {
    0: DType.F32, 1: DType.F16, 24: DType.I8, 25: DType.I16, 26: DType.I32, 27: DType.I64,
    28: DType.F64, 30: DType.BF16,
}  # fmt: skip
_UNSUPPORTED = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 34: "TQ1_0",
    35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
_SCALARS: dict[int, struct.Struct] = {
    0: struct.Struct("<B"), 1: struct.Struct("<b"), 2: struct.Struct("<H"), 3: struct.Struct("<h"),
    4: struct.Struct("<I"), 5: struct.Struct("<i"), 6: struct.Struct("<f"), 7: struct.Struct("<?"),
    10: struct.Struct("<Q"), 11: struct.Struct("<q"), 12: struct.Struct("<d"),
}  # fmt: skip
_STRING, _ARRAY = 8, 9
MAX_DEPTH = 4
"""How deep arrays may stand in arrays."""
CHUNK = 1 << 20
"""Values dequantised at a time."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor as the file describes it; `shape` with the outermost axis first."""

    name: str
    shape: tuple[int, ...]
    kind: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    version: int
    metadata: dict[str, object]
    tensors: dict[str, GgufTensor]


class _Reader:
    """A position in the bytes; every read is held against what is left."""

    def __init__(self, data: memoryview, where: str):
        self.data, self.where, self.at = data, where, 0

    def bad(self, why: str) -> CheckpointError:
        return CheckpointError(f"{self.where}: at byte {self.at}: {why}")

    def need(self, size: int, what: str) -> None:
        if size > len(self.data) - self.at:
            raise self.bad(f"{what} takes {size} bytes, {len(self.data) - self.at} are left")

    def scalar(self, kind: int) -> int | float | bool:
        form = _SCALARS[kind]
        self.need(form.size, "a value")
        if kind == 7 and self.data[self.at] > 1:
            raise self.bad(f"a bool of {self.data[self.at]}")
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def count(self, what: str, smallest: int) -> int:
        """A number of things of at least `smallest` bytes each."""
        value = int(self.scalar(10))
        if value * smallest > len(self.data) - self.at:
            raise self.bad(f"{value} {what} don't fit into the rest of the file")
        return value

    def text(self, what: str) -> str:
        length = self.count(f"bytes of {what}", 1)
        raw = bytes(self.data[self.at : self.at + length])
        try:
            value = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.bad(f"{what} is no UTF-8") from error
        self.at += length
        return value

    def value(self, kind: int, depth: int = 0) -> object:
        if kind in _SCALARS:
            return self.scalar(kind)
        if kind == _STRING:
            return self.text("text")
        if kind != _ARRAY:
            raise self.bad(f"unknown metadata type {kind}")
        if depth >= MAX_DEPTH:
            raise self.bad(f"arrays nested more than {MAX_DEPTH} deep")
        item = int(self.scalar(4))
        if item in _SCALARS:
            form = _SCALARS[item]
            length = self.count("array items", form.size)
            items = struct.unpack_from(f"<{length}{form.format[-1]}", self.data, self.at)
            self.at += length * form.size
            return list(items)
        length = self.count("array items", 8 if item == _STRING else 12)
        return [self.value(item, depth + 1) for _ in range(length)]


def read_header(data: memoryview, where: str) -> GgufHeader:
    """The metadata and tensor descriptions of a GGUF file's bytes.

    Raises `CheckpointError` for anything that is not a whole, little-endian GGUF of version 2
    or 3.
    """
    reader = _Reader(data, where)
    reader.need(24, "a GGUF header")
    if bytes(data[:4]) != b"GGUF":
        raise CheckpointError(f"{where} is no GGUF file: it starts with {bytes(data[:4])!r}")
    reader.at = 4
    version = int(reader.scalar(4))
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        why = "it is big-endian" if swapped in (2, 3) else "versions 2 and 3 are read"
        raise CheckpointError(f"{where}: GGUF version {version}: {why}")
    tensor_count = reader.count("tensors", 24)
    pair_count = reader.count("metadata entries", 13)
    metadata: dict[str, object] = {}
    for _ in range(pair_count):
        key = reader.text("a metadata key")
        if key in metadata:
            raise reader.bad(f"the metadata key `{key[:100]}` stands twice")
        metadata[key] = reader.value(int(reader.scalar(4)))
    described = [_describe(reader) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment > 1 << 20:
        raise CheckpointError(f"{where}: `general.alignment` is {alignment!r}")
    start = -(-reader.at // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, kind, offset in described:
        if name in tensors:
            raise CheckpointError(f"{where}: the tensor `{name[:100]}` stands twice")
        first = start + offset
        last = first + _nbytes(name, shape, kind, where)
        if last > len(data):
            raise CheckpointError(
                f"{where}: `{name[:100]}` ends at byte {last}, the file at {len(data)}: the file "
                "is incomplete"
            )
        tensors[name] = GgufTensor(name, shape, kind, first, last)
    return GgufHeader(version, metadata, tensors)


def _describe(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    name = reader.text("a tensor's name")
    rank = int(reader.scalar(4))
    if rank > 8:
        raise reader.bad(f"the tensor `{name[:100]}` has {rank} axes")
    shape = tuple(int(reader.scalar(10)) for _ in range(rank))[::-1]
    kind = int(reader.scalar(4))
    return name, shape, kind, int(reader.scalar(10))


def _nbytes(name: str, shape: tuple[int, ...], kind: int, where: str) -> int:
    if kind in PLAIN:
        return math.prod(shape) * PLAIN[kind].itemsize
    form = FORMATS.get(kind)
    if form is None:
        called = _UNSUPPORTED.get(kind, f"number {kind}")
        known = ", ".join([*(f.name for f in FORMATS.values()), *(str(d) for d in PLAIN.values())])
        raise CheckpointError(
            f"{where}: `{name[:100]}` is of the type {called}, which is not supported: {known} are"
        )
    if not shape or shape[-1] % form.values:
        raise CheckpointError(
            f"{where}: `{name[:100]}` has rows of {shape[-1] if shape else 0} values, {form.name} "
            f"comes in blocks of {form.values}"
        )
    return math.prod(shape) // form.values * form.size


class GgufCheckpoint:
    """A mapped GGUF file."""

    def __init__(self, path: Path):
        self.path = path
        self._file = MappedFile(path)
        self._data = self._file.data
        header = read_header(self._data.data, str(path))
        self.metadata: Mapping[str, object] = header.metadata
        self._tensors: dict[str, tuple[GgufTensor, int | None]] = {}
        """By public name: the tensor, and the heads whose rows llama.cpp has reordered."""
        for name, (stored, heads) in transformers_names(
            header.metadata, list(header.tensors), str(path)
        ).items():
            tensor = header.tensors[stored]
            if heads and (len(tensor.shape) != 2 or tensor.shape[0] % (2 * heads)):
                raise CheckpointError(
                    f"{path}: `{stored}` is {tensor.shape}, which {heads} heads don't divide"
                )
            self._tensors[name] = (tensor, heads)

    def names(self) -> list[str]:
        return list(self._tensors)

    def info(self, name: str) -> TensorInfo:
        tensor, _ = self._tensors[name]
        if tensor.kind in PLAIN:
            return TensorInfo(tensor.shape, PLAIN[tensor.kind])
        return TensorInfo(tensor.shape, DType.F32, FORMATS[tensor.kind].name)

    def mapped(self, name: str) -> np.ndarray | None:
        tensor, heads = self._tensors[name]
        if tensor.kind not in PLAIN or heads:
            return None
        raw = self._data[tensor.first : tensor.last]
        return raw.view(NUMPY[PLAIN[tensor.kind]]).reshape(tensor.shape)

    def read_into(self, name: str, out: np.ndarray, dtype: DType) -> None:
        tensor, heads = self._tensors[name]
        raw = self._data[tensor.first : tensor.last]
        form = FORMATS.get(tensor.kind)
        if not tensor.shape:
            out[...] = convert(raw.view(NUMPY[PLAIN[tensor.kind]])[0], PLAIN[tensor.kind], dtype)
            return
        rows = raw.reshape(math.prod(tensor.shape[:-1]), -1) if tensor.shape[-1] else raw[:0]
        if heads:
            rows = rows[_original_rows(tensor.shape[0], heads)]
        flat = out.reshape(len(rows), tensor.shape[-1]) if len(rows) else out
        if len(rows) and not np.shares_memory(flat, out):
            raise ValueError("the array to read into must be contiguous")
        step = max(1, CHUNK // max(tensor.shape[-1], 1))

        def fill(at: int) -> None:
            part = rows[at : at + step]
            flat[at : at + step] = _decode(part, tensor, form, dtype)

        starts = range(0, len(rows), step)
        if len(starts) > 1:
            with ThreadPoolExecutor(max_workers=2) as pool:
                list(pool.map(fill, starts))
        else:
            list(map(fill, starts))
        self._file.release(tensor.first, tensor.last)


def _decode(
    rows: np.ndarray, tensor: GgufTensor, form: BlockFormat | None, dtype: DType
) -> np.ndarray:
    if form is None:
        kind = PLAIN[tensor.kind]
        return convert(np.ascontiguousarray(rows).view(NUMPY[kind]), kind, dtype)
    values = form.decode(rows.reshape(-1, form.size))
    return convert(values.reshape(len(rows), -1), DType.F32, dtype)


def _original_rows(rows: int, heads: int) -> np.ndarray:
    """For each row of Transformers' order, where llama.cpp has it: each head's rows stand there
    as pairs (i, i + half), side by side."""
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)
