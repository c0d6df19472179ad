"""Checkpoints: named tensors in files, whatever the format, mapped and never executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from linnet.dtypes import DType
from linnet.weights.floats import NUMPY

MAX_TENSORS = 1 << 18
"""Tensors in one file; the largest published models have a tenth of that."""
MAX_SIZE = 1 << 62
"""Bytes a tensor can have, its axes of no length counted as one."""


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
        """Writes the values into `out`: contiguous, of the tensor's shape, holding `dtype` as
        `floats.NUMPY` says. Peak memory beyond `out` is a few MiB.

        Raises `ValueError` for another array, and for a dtype that isn't converted to.
        """
        ...

    def close(self) -> None:
        """Gives the files back; views of their memory stay valid."""
        ...

    @property
    def metadata(self) -> Mapping[str, object]:
        """What the format carries beside tensors: SafeTensors' text, GGUF's typed values."""
        ...


def read_tensor(checkpoint: Checkpoint, name: str, dtype: DType | None = None) -> np.ndarray:
    """A tensor's values in an array of their own, of its own dtype unless another is given."""
    info = checkpoint.info(name)
    dtype = dtype or info.dtype
    out = np.empty(info.shape, NUMPY[dtype])
    checkpoint.read_into(name, out, dtype)
    return out


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Opens a SafeTensors file, directory or index, or a GGUF file.

    Raises `CheckpointError` for anything else, and for files that are damaged or incomplete.
    """
    path = Path(path)
    try:
        return _open_directory(path) if path.is_dir() else _open_file(path)
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from error


def _open_directory(path: Path) -> Checkpoint:
    from linnet.weights.gguf import GgufCheckpoint
    from linnet.weights.safetensors import SafeTensorsCheckpoint

    index = _only(path, "*.safetensors.index.json", preferred="model.safetensors.index.json")
    if index:
        return SafeTensorsCheckpoint.from_index(index)
    whole = path / "model.safetensors"
    files = [whole] if whole.is_file() else sorted(path.glob("*.safetensors"))
    if files:
        return SafeTensorsCheckpoint(path, files)
    gguf = _only(path, "*.gguf")
    if gguf:
        return GgufCheckpoint(gguf)
    pickles = sorted(file.name for file in path.iterdir() if file.suffix in PICKLES)
    if pickles:
        raise CheckpointError(f"{path} holds {pickles[0]}: {_PICKLE}")
    raise CheckpointError(f"{path} holds no .safetensors and no .gguf file")


def _only(folder: Path, pattern: str, preferred: str = "") -> Path | None:
    files = sorted(folder.glob(pattern))
    named = [file for file in files if file.name == preferred]
    if len(named or files) > 1:
        listed = ", ".join(file.name for file in files)
        raise CheckpointError(f"{folder} holds several checkpoints, give one of them: {listed}")
    return next(iter(named or files), None)


def _open_file(path: Path) -> Checkpoint:
    from linnet.weights.gguf import GgufCheckpoint
    from linnet.weights.safetensors import SafeTensorsCheckpoint

    if not path.exists():
        raise CheckpointError(f"no checkpoint at {path}")
    if not path.is_file():
        raise CheckpointError(f"{path} is no regular file")
    if path.name.endswith(".safetensors.index.json"):
        return SafeTensorsCheckpoint.from_index(path)
    with path.open("rb") as file:
        start = file.read(16)
    if start[:4] == b"GGUF":
        return GgufCheckpoint(path)
    if start == b"version https://":
        raise CheckpointError(
            f"{path} is Git LFS's pointer to the weights, not the weights: run `git lfs pull`"
        )
    if path.suffix in PICKLES or start[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        raise CheckpointError(f"{path}: {_PICKLE}")
    if path.suffix == ".safetensors" or start[8:9] == b"{":
        return SafeTensorsCheckpoint(path, [path])
    raise CheckpointError(
        f"{path} is no checkpoint: give a .safetensors file, a directory of them, a "
        ".safetensors.index.json, or a .gguf file"
    )


PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_PICKLE = "a pickle, which runs code when it is loaded: convert it to SafeTensors"


# --- for readers of a format ----------------------------------------------------------------


def quoted(name: str) -> str:
    """A name out of a file as an error shows it: short, and without control characters."""
    short = name if len(name) <= 100 else name[:99] + "…"
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)
    return f"`{''.join(shown)}`"


def check_target(name: str, info: TensorInfo, out: np.ndarray, dtype: DType) -> None:
    """Holds an array to what `read_into` asks for; raises `ValueError`."""
    if info.dtype != dtype and not (info.dtype.is_float and dtype.is_float):
        raise ValueError(f"{quoted(name)}: {info.dtype} is not converted to {dtype}")
    if out.shape != info.shape or out.dtype != NUMPY[dtype] or not out.flags.c_contiguous:
        raise ValueError(
            f"{quoted(name)} of {dtype}{list(info.shape)} is read into a contiguous "
            f"{NUMPY[dtype]} array of that shape, not {out.dtype}{list(out.shape)}"
        )
