"""What every runtime's `load` does first: a checked program, bound, with weights known to fit.

Nothing here knows a framework. A runtime takes the specs, makes its own memory for them, and reads
each weight into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from linnet.check import CheckResult, check_file
from linnet.check.typed import Program
from linnet.dtypes import KINDS, DType
from linnet.ir.instantiate import BlockInstance, ParameterSpec, instantiate, parameters
from linnet.outline import root_block
from linnet.weights import (
    Bindings,
    Checkpoint,
    ManifestEntry,
    TensorInfo,
    is_present,
    open_checkpoint,
    read_bindings,
    resolve,
)
from linnet.weights.bindings import NONE
from linnet.weights.floats import to_bf16

Source = str | Path | Program | CheckResult
Made = Callable[[str, tuple[int, ...]], np.ndarray]
"""Makes the weight of a path and shape: for benchmarks, which need no checkpoint."""


@dataclass(frozen=True, slots=True)
class Loading:
    """A model that is ready to be given memory."""

    instance: BlockInstance
    specs: Sequence[ParameterSpec]
    """Its parameters, buffers and states."""
    read: Callable[[str, np.ndarray], None]
    """Writes the values of the weight of a path into an array that holds its dtype as
    `weights.floats.NUMPY` says."""
    dtype: DType | None
    """What float weights are converted to."""
    checkpoint: Checkpoint | None
    bindings: Bindings

    @property
    def weights(self) -> list[ParameterSpec]:
        return [spec for spec in self.specs if spec.kind != "state"]

    @property
    def states(self) -> list[ParameterSpec]:
        return [spec for spec in self.specs if spec.kind == "state"]


def begin(
    source: Source,
    *,
    root: str | None,
    generics: Mapping[str, Any] | None,
    weights: Any,
    bindings: str | Path | Mapping[str, object] | Bindings | None,
    dtype: DType | str | None,
) -> Loading:
    """Checks a source, binds its generics, and finds every weight. The arguments are those of
    `linnet.torch.load`.

    Raises `LinnetError` for a source with errors, `ValueError` for generics and weights that don't
    fit; nothing is read before all weights are known to fit.
    """
    program = _program(source)
    given = dict(generics or {})
    if dtype is not None:
        dtype = DType(dtype)
        given |= _dtype_generics(program, root, given, dtype)
    checkpoint = _checkpoint(weights)
    bound = bindings if isinstance(bindings, Bindings) else NONE
    if bindings is not None and not isinstance(bindings, Bindings):
        bound = read_bindings(bindings)
    present = is_present(checkpoint, bound) if checkpoint is not None else lambda path: False
    instance = instantiate(program, root, given, present)
    specs = parameters(instance)
    manifest = [
        ManifestEntry(s.path, s.shape, s.dtype, s.kind, s.optional)
        for s in specs
        if s.kind != "state"
    ]
    if not manifest:
        read = _nothing
    elif weights is None:
        raise ValueError(
            f"`{instance.block.name}` has {len(manifest)} weights: give a checkpoint, or tensors "
            "by path, as `weights`"
        )
    else:
        made: Checkpoint | Made = checkpoint if checkpoint is not None else weights
        read = _reader(made, manifest, bound, dtype)
    return Loading(instance, specs, read, dtype, checkpoint, bound)


def _nothing(path: str, out: np.ndarray) -> None:
    raise ValueError(f"there is no weight `{path}`")


def _program(source: Source) -> Program:
    if isinstance(source, Program):
        return source
    result = source if isinstance(source, CheckResult) else check_file(source)
    return result.require()


def _dtype_generics(
    program: Program, root: str | None, given: Mapping[str, Any], dtype: DType
) -> dict[str, str]:
    """The root's dtype generics that are not given, bound to what weights are converted to."""
    entered = any(f.kind == "entry" and f.block for f in program.functions.values())
    if root is None and not entered:
        return {}
    return {
        generic.name: dtype.value
        for generic in root_block(program, root).generics
        if generic.name not in given and dtype in KINDS.get(generic.kind, ())
    }


def _checkpoint(weights: Any) -> Any:
    """What `weights` names, opened; `None` where it makes its tensors, or there are none."""
    if isinstance(weights, (str, Path)):
        return open_checkpoint(weights)
    return TensorsByPath(weights) if isinstance(weights, Mapping) else None


def _reader(
    given: Checkpoint | Made,
    manifest: Sequence[ManifestEntry],
    bindings: Bindings,
    dtype: DType | None,
) -> Callable[[str, np.ndarray], None]:
    """What reads each weight from what `load` was given: a checkpoint, tensors by path, or a
    function that makes them. Everything is checked here, before anything is copied.

    Raises `WeightsError` that lists all that doesn't fit.
    """
    if isinstance(given, Callable):
        specs = {entry.path: entry for entry in manifest}
        return lambda path, out: _store(given(path, specs[path].shape), specs[path].dtype, out)
    return resolve(manifest, given, bindings, dtype=dtype).read_into


class TensorsByPath:
    """Tensors or arrays by path, as a checkpoint."""

    path = Path("the weights given")
    metadata: Mapping[str, object] = {}

    def __init__(self, tensors: Mapping[str, Any]):
        self.tensors = tensors

    def names(self) -> list[str]:
        return list(self.tensors)

    def info(self, name: str) -> TensorInfo:
        found = self.tensors[name]
        dtype = str(found.dtype).removeprefix("torch.")
        return TensorInfo(tuple(found.shape), _BY_NAME[dtype])

    def mapped(self, name: str) -> np.ndarray | None:
        return None

    def read_into(self, name: str, out: np.ndarray, dtype: DType) -> None:
        found = self.tensors[name]
        if hasattr(found, "detach"):  # a torch tensor; numpy has no bf16 of its own
            found = found.detach().cpu()
            if dtype.is_float:
                found = found.double() if dtype == DType.F64 else found.float()
            found = found.numpy()
        _store(np.asarray(found), dtype, out)

    def close(self) -> None:
        """Nothing is held open."""


_BY_NAME = {
    "bool": DType.BOOL, "int8": DType.I8, "int16": DType.I16, "int32": DType.I32,
    "int64": DType.I64, "uint8": DType.U8, "uint16": DType.U16, "uint32": DType.U32,
    "uint64": DType.U64, "float16": DType.F16, "bfloat16": DType.BF16, "float32": DType.F32,
    "float64": DType.F64,
}  # fmt: skip


def _store(values: np.ndarray, dtype: DType, out: np.ndarray) -> None:
    out[...] = to_bf16(np.asarray(values, np.float32)) if dtype == DType.BF16 else values
