"""Writing an entry as an ONNX file that ONNX Runtime runs by itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import onnx
import onnxruntime as ort

from linnet.emit.onnx_proto import build, check
from linnet.onnx.session import to_array

if TYPE_CHECKING:
    from linnet.onnx.model import OnnxModel

LIMIT = 2_000_000_000
"""Bytes of weights that go into the file itself: protobuf ends at 2 GiB."""
_ALIGNED = 4096
"""Where arrays start in a file of their own: at pages, so that they can be mapped."""


def export(model: OnnxModel, entry: str, path: str | Path, **generics: int) -> Path:
    """Writes an entry with its weights: for generics given by name, or as it was last run.

    path      a `.onnx` file; weights of more than 2 GB go to a file of the same name with `.data`
              added, which has to stay beside it
    generics  the entry's own

    The file's inputs are the entry's, then the states; its outputs the results, then the new
    states, which the caller passes in again: both may be bound to one buffer. What a state is, and
    what inputs have to keep to, is in the metadata (`linnet.states`, `linnet.requires`). Raises
    `ValueError` for an unknown entry and for another suffix.
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise ValueError(f"{path} must end in .onnx")
    bound = model.bound(entry, generics)
    values = model.weights.values(bound.module, bound.emitted)
    proto = build(bound.emitted)
    check(proto)
    total = sum(value.tensor_size_in_bytes() for value in values.values())
    parts = [path] if total <= LIMIT else [path.with_name(f"{path.name}.data"), path]
    temporary = [part.with_name(f".{part.name}.{os.getpid()}.tmp") for part in parts]
    try:
        if total <= LIMIT:
            _embed(proto, values)
        else:
            with temporary[0].open("wb") as file:
                _append(proto, values, file, parts[0].name)
        temporary[-1].write_bytes(proto.SerializeToString())
        for made, part in zip(temporary, parts, strict=True):
            made.replace(part)
    finally:
        for made in temporary:
            with suppress(FileNotFoundError):
                made.unlink()
    return path


def _external(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    external = onnx.TensorProto.EXTERNAL
    return [t for t in proto.graph.initializer if t.data_location == external]


def _embed(proto: onnx.ModelProto, values: Mapping[str, ort.OrtValue]) -> None:
    for tensor in _external(proto):
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT
        tensor.raw_data = _bytes(values[tensor.name])


def _append(
    proto: onnx.ModelProto, values: Mapping[str, ort.OrtValue], file: BinaryIO, name: str
) -> None:
    """Writes the arrays one after the other, and where each of them is."""
    for tensor in _external(proto):
        file.seek(-file.tell() % _ALIGNED, os.SEEK_CUR)
        data = _bytes(values[tensor.name])
        del tensor.external_data[:]
        for key, value in (("location", name), ("offset", file.tell()), ("length", len(data))):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
        file.write(data)


def _bytes(value: ort.OrtValue) -> bytes:
    return np.ascontiguousarray(to_array(value)).tobytes()


__all__ = ["LIMIT", "export"]
