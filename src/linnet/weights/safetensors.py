"""SafeTensors: a length, a JSON header, the bytes; one file or many, memory-mapped.

The header is read here rather than by the safetensors library because numpy has no bf16 for the
library to give, and because a view of the mapped file is what a runtime wants. It is matched entry
by entry against the one form that the format has, and never parsed as JSON at large: a hostile
header costs no more than the tensors that it really describes.

Format: https://huggingface.co/docs/safetensors, "Format".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
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
from linnet.weights.mapping import MappedFile, fill_rows

MAX_HEADER = 100 << 20
"""The format's own limit on a header's length, in bytes."""
MAX_METADATA = 16 << 20
"""Bytes of text beside the tensors; training tools keep some hundred kB there."""
MAX_INDEX = 64 << 20
"""Bytes of an index file."""
MAX_RANK = 32
"""Axes that a numpy array can have in every version."""

DTYPES: dict[bytes, DType] = {
    b"BOOL": DType.BOOL, b"I8": DType.I8, b"I16": DType.I16, b"I32": DType.I32, b"I64": DType.I64,
    b"U8": DType.U8, b"U16": DType.U16, b"U32": DType.U32, b"U64": DType.U64,
    b"F16": DType.F16, b"BF16": DType.BF16, b"F32": DType.F32, b"F64": DType.F64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as the file describes it; `first` and `last` count from the start of the file."""

    info: TensorInfo
    first: int
    last: int


# --- the header -----------------------------------------------------------------------------

# Possessive quantifiers (`*+`) throughout: a match takes time linear in its length.
_SPACE = rb"[ \t\n\r]*+"
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_INTEGERS = rb"\[[ \t\n\r0-9,]*+\]"
_COLON = _SPACE + rb":" + _SPACE
_COMMA = _SPACE + rb"(?:," + _SPACE + rb"(?=\")|(?=\}))"
_FIELD = (
    rb'(?:"dtype"' + _COLON + rb'"(?P<dtype>\w*+)"'
    rb'|"shape"' + _COLON + rb"(?P<shape>" + _INTEGERS + rb")"
    rb'|"data_offsets"' + _COLON + rb"(?P<offsets>" + _INTEGERS + rb"))" + _COMMA
)  # fmt: skip
_ENTRY = re.compile(
    rb"(?P<name>"
    + _TEXT
    + rb")"
    + _COLON
    + rb"\{"
    + _SPACE
    + rb"(?:"
    + _FIELD
    + rb"){3}\}"
    + _COMMA
)
_METADATA = re.compile(
    rb'"__metadata__"' + _COLON
    + rb"(\{" + _SPACE + rb"(?:" + _TEXT + _COLON + _TEXT + _COMMA + rb")*+\})" + _COMMA
)  # fmt: skip
_OPEN, _CLOSE = re.compile(_SPACE + rb"\{" + _SPACE), re.compile(rb"\}" + _SPACE)
_FORM = '"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}'
_METADATA_FORM = '"__metadata__": {"text": "text"}, once'


def read_header(
    data: memoryview | bytes, where: str
) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """The tensors and the metadata of a SafeTensors file's bytes.

    Raises `CheckpointError` for anything that is not a whole SafeTensors file.
    """
    size = len(data)
    if size < 8:
        raise CheckpointError(f"{where}: {size} bytes are too few for a SafeTensors header")
    length = int.from_bytes(bytes(data[:8]), "little")
    start = 8 + length
    if length > MAX_HEADER or start > size:
        raise CheckpointError(
            f"{where}: its header would be {length} bytes, the file has {size}: it is damaged, "
            "incomplete or no SafeTensors file"
        )
    tensors, metadata = _entries(data, start, where)
    end = start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].first, item[1].last)):
        if tensor.first != end:
            raise CheckpointError(
                f"{where}: {quoted(name)} overlaps another tensor or leaves a gap"
            )
        end = tensor.last
    if end != size:
        raise CheckpointError(
            f"{where}: its tensors end at byte {end}, the file at {size}: it is damaged"
        )
    return tensors, metadata


def _entries(
    data: memoryview | bytes, start: int, where: str
) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """What stands in the header, which ends before byte `start`."""

    def expected(at: int, what: str) -> CheckpointError:
        found = bytes(data[at : min(at + 60, start)]).decode("utf-8", "replace")
        return CheckpointError(
            f"{where}: at byte {at}: its header should go on with {what}, found {quoted(found)}"
        )

    tensors: dict[str, StoredTensor] = {}
    metadata: dict[str, str] | None = None
    match = _OPEN.match(data, 8, start)
    if not match:
        raise expected(8, "`{`")
    at = match.end()
    while not (end := _CLOSE.match(data, at, start)):
        if metadata is None and (match := _METADATA.match(data, at, start)):
            metadata = _metadata(match, where)
        elif match := _ENTRY.match(data, at, start):
            name, tensor = _tensor(match, start, len(data), where)
            if name in tensors:
                raise CheckpointError(f"{where}: {quoted(name)} stands twice in its header")
            tensors[name] = tensor
            if len(tensors) > MAX_TENSORS:
                raise CheckpointError(f"{where}: more than {MAX_TENSORS} tensors")
        else:
            is_metadata = bytes(data[at : at + 14]) == b'"__metadata__"'
            raise expected(at, _METADATA_FORM if is_metadata else _FORM)
        at = match.end()
    if end.end() != start:
        raise expected(end.end(), "nothing")
    return tensors, metadata or {}


def _metadata(match: re.Match[bytes], where: str) -> dict[str, str]:
    if match.end() - match.start() > MAX_METADATA:
        raise CheckpointError(f"{where}: its `__metadata__` is over {MAX_METADATA} bytes")
    return _json(match[1], where)


def _json(text: bytes, where: str):
    try:
        return json.loads(text.decode("utf-8"))
    except ValueError as error:  # Of the encoding too.
        raise CheckpointError(f"{where}: text in its header is damaged: {error}") from error


def _tensor(match: re.Match[bytes], start: int, size: int, where: str) -> tuple[str, StoredTensor]:
    name: str = _json(match["name"], where)

    def bad(why: str) -> CheckpointError:
        return CheckpointError(f"{where}: tensor {quoted(name)}: {why}")

    dtype, shape, offsets = (match[field] for field in ("dtype", "shape", "offsets"))
    if dtype is None or shape is None or offsets is None:
        raise bad("it needs a dtype, a shape and data_offsets")
    if dtype not in DTYPES:
        known = ", ".join(key.decode() for key in DTYPES)
        raise bad(f"dtype {quoted(dtype.decode())} is not read; {known} are")
    try:
        axes, bounds = _integers(shape), _integers(offsets)
    except ValueError as error:
        raise bad(f"its numbers can't be read: {error}") from error
    if len(bounds) != 2:
        raise bad(f"data_offsets must be two numbers, found {len(bounds)}")
    info = TensorInfo(axes, DTYPES[dtype])
    if len(axes) > MAX_RANK or math.prod(n or 1 for n in axes) * info.dtype.itemsize > MAX_SIZE:
        raise bad("its shape is too large")
    first, last = start + bounds[0], start + bounds[1]
    expected = math.prod(axes) * info.dtype.itemsize
    if last - first != expected:
        raise bad(f"{info.dtype}{list(axes)} takes {expected} bytes, it has {last - first}")
    if last > size:
        raise bad(f"it ends at byte {last}, the file at {size}: the file is incomplete")
    return name, StoredTensor(info, first, last)


def _integers(text: bytes) -> tuple[int, ...]:
    inside = text[1:-1].strip()
    if not inside:
        return ()
    if inside.count(b",") > MAX_RANK:
        raise ValueError(f"more than {MAX_RANK}")
    return tuple(int(part) for part in inside.split(b","))


# --- the checkpoint -------------------------------------------------------------------------


class SafeTensorsCheckpoint:
    """The tensors of one or more mapped files; `path` is what errors call them together."""

    def __init__(self, path: Path, files: Sequence[Path]):
        self.path = path
        self.metadata: Mapping[str, object] = {}
        self._files: list[MappedFile] = []
        self._tensors: dict[str, tuple[StoredTensor, MappedFile]] = {}
        for file in files:
            mapped = MappedFile(file)
            tensors, metadata = read_header(mapped.data.data, str(file))
            self.metadata = {**self.metadata, **metadata}
            self._files.append(mapped)
            for name, tensor in tensors.items():
                if name in self._tensors:
                    raise CheckpointError(f"{file}: {quoted(name)} stands in another file too")
                self._tensors[name] = (tensor, mapped)

    @staticmethod
    def from_index(path: Path) -> SafeTensorsCheckpoint:
        """The shards that a `model.safetensors.index.json` names, all of them whole."""
        shards = _shards(path)
        files = [path.parent / shard for shard in sorted(set(shards.values()))]
        for file in files:
            if not file.is_file():
                raise CheckpointError(f"{path}: the shard {file.name} is missing")
        checkpoint = SafeTensorsCheckpoint(path, files)
        missing = sorted(shards.keys() - checkpoint._tensors.keys())
        if missing:
            listed = ", ".join(quoted(name) for name in missing[:5])
            raise CheckpointError(f"{path}: no shard holds {listed}")
        return checkpoint

    def names(self) -> list[str]:
        return list(self._tensors)

    def info(self, name: str) -> TensorInfo:
        return self._tensors[name][0].info

    def mapped(self, name: str) -> np.ndarray:
        tensor, file = self._tensors[name]
        raw = file.data[tensor.first : tensor.last]
        return raw.view(NUMPY[tensor.info.dtype]).reshape(tensor.info.shape)

    def read_into(self, name: str, out: np.ndarray, dtype: DType) -> None:
        tensor, file = self._tensors[name]
        check_target(name, tensor.info, out, dtype)
        stored = self.mapped(name).reshape(-1, 1)
        source = tensor.info.dtype
        fill_rows(out, len(stored), lambda piece: convert(stored[piece], source, dtype))
        file.release(tensor.first, tensor.last)

    def close(self) -> None:
        self._tensors = {}
        for file in self._files:
            file.close()


_SHARD = re.compile(r"[\w.+ -]{1,200}\.safetensors")


def _shards(path: Path) -> dict[str, str]:
    """For each tensor that an index names, the file beside the index that holds it."""
    size = path.stat().st_size
    if size > MAX_INDEX:
        raise CheckpointError(f"{path}: an index of {size} bytes is over the limit of {MAX_INDEX}")
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is no JSON: {error}") from error
    shards = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(shards, dict):
        raise CheckpointError(f"{path}: no index with a `weight_map` from tensors to files")
    for name, shard in shards.items():
        if not isinstance(shard, str) or not _SHARD.fullmatch(shard):
            raise CheckpointError(
                f"{path}: {quoted(name)} must be in a .safetensors file of the same directory, "
                f"found {quoted(str(shard))}"
            )
    return shards
