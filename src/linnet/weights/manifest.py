"""The manifest check: a model's parameters against a checkpoint, before anything is copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from linnet.dtypes import DType
from linnet.weights.bindings import NONE, Bindings
from linnet.weights.checkpoint import Checkpoint
from linnet.weights.floats import NUMPY


class WeightsError(ValueError):
    """Weights that don't fit a model; lists every tensor that doesn't."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """What a model expects of one `param` or `buffer`."""

    path: str
    shape: tuple[int, ...]
    dtype: DType
    kind: str = "param"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """Where a parameter's values come from and what they become."""

    entry: ManifestEntry
    tensor: str
    dtype: DType


@dataclass(slots=True)
class Resolution:
    """A checkpoint that fits: every parameter of the manifest, readable by path."""

    checkpoint: Checkpoint
    sources: dict[str, Source] = field(default_factory=dict)

    def read_into(self, path: str, out: np.ndarray) -> None:
        """Writes a parameter's values into a contiguous array that holds its dtype as
        `floats.NUMPY` says."""
        source = self.sources[path]
        self.checkpoint.read_into(source.tensor, out, source.dtype)

    def mapped(self, path: str) -> np.ndarray | None:
        """The file's own memory where it holds the very values, else None."""
        source = self.sources[path]
        info = self.checkpoint.info(source.tensor)
        if info.quantisation or info.dtype != source.dtype:
            return None
        return self.checkpoint.mapped(source.tensor)

    def read(self, path: str) -> np.ndarray:
        """A parameter's values in an array of their own."""
        source = self.sources[path]
        out = np.empty(source.entry.shape, NUMPY[source.dtype])
        self.read_into(path, out)
        return out


def is_present(checkpoint: Checkpoint, bindings: Bindings = NONE):
    """A test of parameter paths: whether the checkpoint has the tensor."""
    names = set(checkpoint.names())
    return lambda path: bindings.tensor(path) in names


IGNORED = ("rotary_emb.inv_freq", "masked_bias", "attn.bias")
"""Ends of tensor names that old checkpoints carry and no model reads."""


def resolve(
    manifest: Sequence[ManifestEntry],
    checkpoint: Checkpoint,
    bindings: Bindings = NONE,
    *,
    dtype: DType | None = None,
    ignore: Sequence[str] = (),
) -> Resolution:
    """Finds every parameter in the checkpoint and checks its shape and dtype.

    Floats are converted to the manifest's dtype only where `dtype` asks for a conversion, or where
    they are quantised. Tensors named in `ignore` may be left over. Raises `WeightsError` that
    lists all that is missing, extra, misshapen or of a wrong dtype.
    """
    names = set(checkpoint.names())
    resolution = Resolution(checkpoint)
    problems: dict[str, list[str]] = {"missing": [], "misshapen": [], "of another dtype": []}
    used: set[str] = set()
    for entry in manifest:
        tensor = bindings.tensor(entry.path)
        renamed = f" (bound to `{tensor}`)" if tensor != entry.path else ""
        if tensor not in names:
            if not entry.optional:
                problems["missing"].append(f"`{entry.path}`{renamed}: {_shape(entry)}")
            continue
        used.add(tensor)
        info = checkpoint.info(tensor)
        if info.shape != entry.shape:
            problems["misshapen"].append(
                f"`{entry.path}`{renamed}: expected {list(entry.shape)}, found {list(info.shape)}"
            )
            continue
        converts = info.dtype.is_float and entry.dtype.is_float
        exact = info.dtype == entry.dtype or (converts and (dtype or info.quantisation))
        if not exact:
            problems["of another dtype"].append(
                f"`{entry.path}`{renamed}: expected {entry.dtype}, found {info.dtype}"
            )
            continue
        resolution.sources[entry.path] = Source(entry, tensor, entry.dtype)
    extra = sorted(n for n in names - used - set(ignore) if not n.endswith(IGNORED))
    problems["extra"] = [f"`{name}`: {list(checkpoint.info(name).shape)}" for name in extra]
    if any(problems.values()):
        raise WeightsError(_report(checkpoint, problems, dtype))
    return resolution


def _shape(entry: ManifestEntry) -> str:
    return f"{entry.dtype}{list(entry.shape)}"


def _report(checkpoint: Checkpoint, problems: Mapping[str, list[str]], dtype: DType | None) -> str:
    lines = [f"{checkpoint.path} does not fit the model:"]
    for what, tensors in problems.items():
        if tensors:
            lines.append(f"  {len(tensors)} {what}:")
            lines += [f"    {tensor}" for tensor in tensors]
    if problems["of another dtype"] and dtype is None:
        lines.append("  convert on loading by giving a dtype")
    return "\n".join(lines)


__all__ = ["ManifestEntry", "Resolution", "WeightsError", "is_present", "resolve"]
