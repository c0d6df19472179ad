"""The manifest check: a model's parameters against a checkpoint, before anything is copied."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from linnet.dtypes import DType
from linnet.weights.bindings import NONE, Binding, Bindings
from linnet.weights.checkpoint import Checkpoint, TensorInfo, quoted
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
    """A parameter and what it is made of; its values become of the entry's dtype."""

    entry: ManifestEntry
    binding: Binding


@dataclass(frozen=True, slots=True)
class Resolution:
    """A checkpoint that fits: every parameter of the manifest that it has, readable by path."""

    checkpoint: Checkpoint
    sources: Mapping[str, Source]

    def read_into(self, path: str, out: np.ndarray) -> None:
        """Writes a parameter's values into an array of its shape that holds its dtype as
        `floats.NUMPY` says; in place where the array is contiguous."""
        source = self.sources[path]
        binding, dtype = source.binding, source.entry.dtype
        if out.shape != source.entry.shape:
            raise ValueError(f"`{path}` is {list(source.entry.shape)}, not {list(out.shape)}")
        if binding.transpose:
            out = out.T
        before = (slice(None),) * binding.axis
        at = 0
        for name in binding.tensors:
            part = out
            if len(binding.tensors) > 1:
                length = self.checkpoint.info(name).shape[binding.axis]
                part = out[(*before, slice(at, at + length))]
                at += length
            if part.flags.c_contiguous:
                self.checkpoint.read_into(name, part, dtype)
            else:
                values = np.empty(part.shape, NUMPY[dtype])
                self.checkpoint.read_into(name, values, dtype)
                part[...] = values

    def mapped(self, path: str) -> np.ndarray | None:
        """A view of the file's own memory where it holds the very values, else None."""
        source = self.sources[path]
        if len(source.binding.tensors) != 1:
            return None
        name = source.binding.tensors[0]
        info = self.checkpoint.info(name)
        if info.quantisation or info.dtype != source.entry.dtype:
            return None
        view = self.checkpoint.mapped(name)
        return view.T if view is not None and source.binding.transpose else view

    def read(self, path: str) -> np.ndarray:
        """A parameter's values in an array of their own."""
        entry = self.sources[path].entry
        out = np.empty(entry.shape, NUMPY[entry.dtype])
        self.read_into(path, out)
        return out


def is_present(checkpoint: Checkpoint, bindings: Bindings = NONE) -> Callable[[str], bool]:
    """A test of parameter paths: whether the checkpoint has all that the parameter is made of."""
    names = set(checkpoint.names())
    return lambda path: names.issuperset(bindings.of(path).tensors)


def resolve(
    manifest: Sequence[ManifestEntry],
    checkpoint: Checkpoint,
    bindings: Bindings = NONE,
    *,
    dtype: DType | None = None,
    ignore: Sequence[str] = (),
) -> Resolution:
    """Finds every parameter in the checkpoint and checks its shape and dtype.

    The manifest says what each parameter becomes. A float parameter that is stored as another
    float is an error unless `dtype` says that a conversion was asked for, or it is quantised.
    Tensors named in `ignore` may be left over. Nothing is read. Raises `WeightsError` that lists
    all that is missing, extra, misshapen or of a wrong dtype.
    """
    if dtype is not None and not dtype.is_float:
        raise ValueError(f"weights are converted to a float dtype, not to {dtype}")
    names = set(checkpoint.names())
    misfits = _Misfits([], [], [], [])
    sources: dict[str, Source] = {}
    used: set[str] = set()
    for entry in manifest:
        binding = bindings.of(entry.path)
        used |= names.intersection(binding.tensors)
        absent = [name for name in binding.tensors if name not in names]
        if entry.optional and len(absent) == len(binding.tensors):
            continue
        if absent:
            partly = len(absent) < len(binding.tensors)
            without = f", without {', '.join(map(quoted, absent))}" if partly else ""
            misfits.missing.append(
                f"{_called(entry, binding)}: {entry.dtype}{list(entry.shape)}{without}"
            )
            continue
        infos = [checkpoint.info(name) for name in binding.tensors]
        if entry.shape != _shape(infos, binding):
            found = ", ".join(str(list(info.shape)) for info in infos)
            misfits.misshapen.append(
                f"{_called(entry, binding)}: expected {list(entry.shape)}, found {found}"
            )
        elif wrong := [i for i in infos if not _fits(i, entry.dtype, dtype is not None)]:
            converts = entry.dtype.is_float and all(info.dtype.is_float for info in wrong)
            misfits.mistyped.append(
                f"{_called(entry, binding)}: expected {entry.dtype}, found {wrong[0].dtype}"
                + (" (give a dtype to convert)" if converts else "")
            )
        else:
            sources[entry.path] = Source(entry, binding)
    for name in sorted(names - used - set(ignore)):
        info = checkpoint.info(name)
        if not _is_leftover(name, info):
            misfits.extra.append(f"{quoted(name)}: {info.dtype}{list(info.shape)}")
    misfits.raise_any(checkpoint)
    return Resolution(checkpoint, sources)


def _shape(infos: Sequence[TensorInfo], binding: Binding) -> tuple[int, ...] | None:
    """The shape that the tensors give together; None where they give none."""
    first, axis = infos[0].shape, binding.axis
    if binding.transpose:
        return first[::-1] if len(first) == 2 else None
    if len(infos) == 1:
        return first
    around = {(info.shape[:axis], info.shape[axis + 1 :]) for info in infos}
    if len(around) > 1 or axis >= len(first):
        return None
    return (*first[:axis], sum(info.shape[axis] for info in infos), *first[axis + 1 :])


def _fits(info: TensorInfo, expected: DType, converts: bool) -> bool:
    if info.dtype == expected:
        return True
    floats = info.dtype.is_float and expected.is_float
    return floats and (converts or info.quantisation is not None)


_LEFTOVER = re.compile(r"(.*\.)?(rotary_emb\.inv_freq|attn\.masked_bias|attn\.bias)")


def _is_leftover(name: str, info: TensorInfo) -> bool:
    """Tables that old checkpoints carry and no model reads: rotary frequencies, and GPT-2's causal
    mask, which has the name of a bias but the shape `[1, 1, n, n]`."""
    if not _LEFTOVER.fullmatch(name):
        return False
    return not name.endswith("attn.bias") or (len(info.shape) == 4 and info.shape[:2] == (1, 1))


# --- the report -----------------------------------------------------------------------------


def _called(entry: ManifestEntry, binding: Binding) -> str:
    bound = f" (bound to {binding})" if binding != Binding((entry.path,)) else ""
    return f"`{entry.path}`{bound}"


@dataclass(frozen=True, slots=True)
class _Misfits:
    missing: list[str]
    misshapen: list[str]
    mistyped: list[str]
    extra: list[str]

    def raise_any(self, checkpoint: Checkpoint) -> None:
        found = {
            "missing": self.missing,
            "misshapen": self.misshapen,
            "of another dtype": self.mistyped,
            "extra": self.extra,
        }
        if not any(found.values()):
            return
        lines = [f"{checkpoint.path} does not fit the model:"]
        for what, tensors in found.items():
            if tensors:
                lines.append(f"  {len(tensors)} {what}:")
                lines += [f"    {tensor}" for tensor in tensors]
        raise WeightsError("\n".join(lines))
