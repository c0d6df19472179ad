"""SafeTensors: a length, a JSON header, the bytes; one file or many, memory-mapped.

The header is read here rather than by the safetensors library because numpy has no bf16 for the
library to give, and because a view of the mapped file is what a runtime wants.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from linnet.dtypes import DType
from linnet.weights.checkpoint import CheckpointError, TensorInfo
from linnet.weights.floats import NUMPY, convert

MAX_HEADER = 100 << 20
"""The format's own limit on a header's length, in bytes."""
CHUNK = 1 << 20
"""Elements converted at a time."""

DTYPES: dict[str, DType] = {
    "BOOL": DType.BOOL, "I8": DType.I8, "I16": DType.I16, "I32": DType.I32, "I64": DType.I64,
    "U8": DType.U8, "U16": DType.U16, "U32": DType.U32, "U64": DType.U64,
    "F16": DType.F16, "BF16": DType.BF16, "F32": DType.F32, "F64": DType.F64,
}  # fmt: skip


class MappedFile:
    """A file's bytes in memory, read-only; pages come in when they are touched."""

    def __init__(self, path: Path):
        with path.open("rb") as handle:
            try:
                self._mapping = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:  # Nothing can be mapped of an empty file.
                raise CheckpointError(f"{path} is empty") from error
        self.data = np.frombuffer(self._mapping, np.uint8)

    def release(self, first: int, last: int) -> None:
        """Gives the pages wholly within these bytes back: they were read, and would count as the
        process's memory beside the copy that was made of them."""
        page = mmap.PAGESIZE
        start = -(-first // page) * page
        length = last // page * page - start
        if length > 0 and hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED, start, length)


@dataclass(frozen=True, slots=True)
class _Entry:
    info: TensorInfo
    file: MappedFile
    first: int
    last: int

    @property
    def data(self) -> np.ndarray:
        """The tensor's bytes, a view of the mapped file."""
        return self.file.data[self.first : self.last]


def read_header(
    data: Sequence[int] | memoryview | bytes, where: str
) -> tuple[dict[str, tuple[TensorInfo, int, int]], dict[str, str]]:
    """Tensors (with the first byte and the byte after the last, in `data`) and the metadata.

    Raises `CheckpointError` for anything that is not a whole SafeTensors file.
    """
    size = len(data)
    if size < 8:
        raise CheckpointError(f"{where}: {size} bytes are too few for a SafeTensors header")
    length = int.from_bytes(bytes(data[:8]), "little")
    if length > MAX_HEADER or length > size - 8:
        raise CheckpointError(
            f"{where}: its header would be {length} bytes, the file has {size}: it is damaged, "
            "incomplete or no SafeTensors file"
        )
    try:
        header = json.loads(bytes(data[8 : 8 + length]).decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: its header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{where}: its header is no JSON object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise CheckpointError(f"{where}: `__metadata__` must map text to text")
    start = 8 + length
    tensors = {
        name: _entry(name, entry, start, size, where) for name, entry in header.items()
    }
    end = start
    for name, (_, first, last) in sorted(tensors.items(), key=lambda item: item[1][1:]):
        if first != end:
            raise CheckpointError(f"{where}: `{name}` overlaps another tensor or leaves a gap")
        end = last
    if end != size:
        raise CheckpointError(
            f"{where}: its tensors end at byte {end}, the file at {size}: it is damaged"
        )
    return tensors, metadata


def _entry(
    name: str, entry: object, start: int, size: int, where: str
) -> tuple[TensorInfo, int, int]:
    def bad(why: str) -> CheckpointError:
        return CheckpointError(f"{where}: tensor `{name[:200]}`: {why}")

    if not isinstance(entry, dict):
        raise bad("its description is no object")
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise bad(f"unknown dtype {dtype!r}; known are {', '.join(DTYPES)}")
    if not _is_integers(shape) or len(shape) > 32:
        raise bad(f"its shape must be a list of integers from 0 up, found {str(shape)[:100]}")
    if not _is_integers(offsets) or len(offsets) != 2:
        raise bad("`data_offsets` must be two integers")
    first, last = start + offsets[0], start + offsets[1]
    info = TensorInfo(tuple(shape), DTYPES[dtype])
    expected = math.prod(shape) * info.dtype.itemsize
    if last - first != expected:
        raise bad(f"{dtype}{shape} takes {expected} bytes, it has {last - first}")
    if last > size:
        raise bad(f"it ends at byte {last}, the file at {size}: the file is incomplete")
    return info, first, last


def _is_integers(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 62 for v in value
    )


class SafeTensorsCheckpoint:
    """One or more mapped files as one checkpoint."""

    def __init__(self, path: Path, entries: dict[str, _Entry], metadata: Mapping[str, object]):
        self.path = path
        self._entries = entries
        self.metadata = metadata

    @staticmethod
    def from_files(path: Path, files: Sequence[Path]) -> SafeTensorsCheckpoint:
        entries: dict[str, _Entry] = {}
        metadata: dict[str, object] = {}
        for file in files:
            mapped = MappedFile(file)
            tensors, file_metadata = read_header(mapped.data.data, str(file))
            metadata |= file_metadata
            for name, (info, first, last) in tensors.items():
                if name in entries:
                    raise CheckpointError(f"{file}: `{name}` stands in another file too")
                entries[name] = _Entry(info, mapped, first, last)
        return SafeTensorsCheckpoint(path, entries, metadata)

    @staticmethod
    def from_index(path: Path) -> SafeTensorsCheckpoint:
        """The shards that a `model.safetensors.index.json` names, all of them whole."""
        try:
            index = json.loads(path.read_text(encoding="utf-8"))
            weight_map = index["weight_map"]
            names = {str(k): str(v) for k, v in weight_map.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{path}: no index with a `weight_map`: {error}") from error
        folder = path.parent.resolve()
        files = []
        for shard in sorted(set(names.values())):
            file = (folder / shard).resolve()
            if Path(shard).name != shard or shard in ("", ".", ".."):
                raise CheckpointError(f"{path}: the shard {shard!r} leads out of its directory")
            if not file.is_file():
                raise CheckpointError(f"{path}: the shard {shard} is missing")
            files.append(folder / shard)
        checkpoint = SafeTensorsCheckpoint.from_files(path, files)
        missing = sorted(names.keys() - set(checkpoint.names()))
        if missing:
            raise CheckpointError(f"{path}: no shard holds {', '.join(missing[:5])}")
        return checkpoint

    def names(self) -> list[str]:
        return list(self._entries)

    def info(self, name: str) -> TensorInfo:
        return self._entries[name].info

    def mapped(self, name: str) -> np.ndarray:
        entry = self._entries[name]
        return entry.data.view(NUMPY[entry.info.dtype]).reshape(entry.info.shape)

    def read_into(self, name: str, out: np.ndarray, dtype: DType) -> None:
        entry = self._entries[name]
        source, values = entry.info.dtype, self.mapped(name)
        if source == dtype:
            np.copyto(out, values)
        elif not values.ndim:
            out[...] = convert(values, source, dtype)
        else:
            rows = max(1, CHUNK * len(values) // max(values.size, 1))
            for at in range(0, len(values), rows):
                out[at : at + rows] = convert(values[at : at + rows], source, dtype)
        entry.file.release(entry.first, entry.last)
