"""Checkpoints: named tensors in files, whatever the format, mapped and never executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from linnet.dtypes import DType


class CheckpointError(ValueError):
    """A file that is no checkpoint, or a damaged one; says what is wrong and where."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A stored tensor; `dtype` is its element type, or its float meaning where quantised."""

    shape: tuple[int, ...]
    dtype: DType
    quantisation: str | None = None
    """`Q4_1` and the like: the values are computed when read, and convert to any float dtype."""


class Checkpoint(Protocol):
    """Tensors by name, read on demand."""

    path: Path

    def names(self) -> list[str]: ...

    def info(self, name: str) -> TensorInfo:
        """Raises `KeyError` for an unknown name."""
        ...

    def mapped(self, name: str) -> np.ndarray | None:
        """A read-only view of the file's own memory (bf16 as `uint16` bits), or None where the
        stored bytes are not the values."""
        ...

    def read_into(self, name: str, out: np.ndarray, dtype: DType) -> None:
        """Writes the values into `out`, which has the tensor's shape and holds `dtype` as
        `floats.NUMPY` says. Peak memory beyond `out` is a few MiB."""
        ...

    @property
    def metadata(self) -> Mapping[str, object]: ...


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Opens a SafeTensors file, directory or index, or a GGUF file.

    Raises `CheckpointError` for anything else, and for files that are damaged or incomplete.
    """
    from linnet.weights.gguf import GgufCheckpoint
    from linnet.weights.safetensors import SafeTensorsCheckpoint

    path = Path(path)
    if path.is_dir():
        return _open_directory(path)
    if not path.exists():
        raise CheckpointError(f"no checkpoint at {path}")
    if path.name.endswith(".safetensors.index.json"):
        return SafeTensorsCheckpoint.from_index(path)
    with path.open("rb") as file:
        start = file.read(16)
    if start[:4] == b"GGUF":
        return GgufCheckpoint(path)
    if path.suffix == ".safetensors" or start[8:9] == b"{":
        return SafeTensorsCheckpoint.from_files(path, [path])
    if path.suffix in (".bin", ".pt", ".pth", ".pkl", ".ckpt") or start[:2] in (b"PK", b"\x80\x02"):
        raise CheckpointError(
            f"{path} is a pickle, which runs code when it is loaded: convert it to SafeTensors"
        )
    raise CheckpointError(
        f"{path} is no checkpoint: give a .safetensors file, a directory of them, a "
        ".safetensors.index.json, or a .gguf file"
    )


def _open_directory(path: Path) -> Checkpoint:
    from linnet.weights.gguf import GgufCheckpoint
    from linnet.weights.safetensors import SafeTensorsCheckpoint

    index = path / "model.safetensors.index.json"
    if index.is_file():
        return SafeTensorsCheckpoint.from_index(index)
    files = sorted(path.glob("*.safetensors"))
    if files:
        return SafeTensorsCheckpoint.from_files(path, files)
    gguf = sorted(path.glob("*.gguf"))
    if len(gguf) == 1:
        return GgufCheckpoint(gguf[0])
    if gguf:
        listed = ", ".join(file.name for file in gguf)
        raise CheckpointError(f"{path} holds several GGUF files, name one: {listed}")
    raise CheckpointError(f"{path} holds no .safetensors and no .gguf file")
