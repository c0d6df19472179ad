"""Weights in memory, once for all sessions.

Weights of one name in a block's children lie one after the other, so that a joined projection is a
view of them. A CPU computes f16 and bf16 in f32: there weights of these dtypes are held as f32 that
hold their very values. Packed weights are held as blocks alone, unless something needs their values
too. What derives from weights is computed once, by a graph of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnxruntime as ort

from linnet.dtypes import DType
from linnet.emit.onnx import Emitted, OnnxTarget, Weight, emit
from linnet.emit.onnx_graph import Tensor
from linnet.emit.onnx_proto import initializers
from linnet.ir.core import Module
from linnet.ir.dce import dce
from linnet.ir.instantiate import ParameterSpec
from linnet.ir.join import is_joined, sibling_weights
from linnet.ir.keys import result_keys
from linnet.onnx.packed import Packed
from linnet.onnx.session import Options, Session, on_device, to_array
from linnet.weights.floats import NUMPY, from_bf16

Read = Callable[[str, np.ndarray], None]


class Weights:
    """A model's parameters and buffers, and what derives from them, as values by path."""

    def __init__(
        self,
        specs: Sequence[ParameterSpec],
        read: Read,
        packed: Mapping[str, Packed],
        target: OnnxTarget,
        options: Options,
    ):
        self.specs = {spec.path: spec for spec in specs if spec.kind != "state"}
        self.packed = packed
        self.target = target
        self.options = options
        self._read = read
        self._arrays: dict[str, np.ndarray] = {}
        """By path; derived values by key."""
        self._values: dict[str, ort.OrtValue] = {}
        plain = [spec for spec in self.specs.values() if spec.path not in packed]
        for group in sibling_weights(plain):
            sizes = [math.prod(spec.shape) for spec in group]
            buffer = np.empty(sum(sizes), NUMPY[self.held(group[0].dtype)])
            for spec, end in zip(group, np.cumsum(sizes), strict=True):
                start = end - math.prod(spec.shape)
                self._arrays[spec.path] = buffer[start:end].reshape(spec.shape)
                self.fill(spec, self._arrays[spec.path])
        self._blocks: dict[str, np.ndarray] = {}
        """The arrays of packed weights, by name."""
        for group in sibling_weights([self.specs[path] for path in packed]):
            self._together([packed[spec.path] for spec in group])

    def held(self, dtype: DType) -> DType:
        """The dtype that weights of a dtype are held in."""
        narrow = dtype in (DType.F16, DType.BF16)
        return DType.F32 if narrow and self.target.on_cpu else dtype

    def fill(self, spec: ParameterSpec, array: np.ndarray) -> None:
        """Reads a weight into an array that holds it."""
        if self.held(spec.dtype) == spec.dtype:
            self._read(spec.path, array)
            return
        narrow = np.empty(spec.shape, NUMPY[spec.dtype])
        self._read(spec.path, narrow)
        array[...] = from_bf16(narrow) if spec.dtype == DType.BF16 else narrow

    def array(self, path: str) -> np.ndarray:
        """A weight's values; those of a packed one are read when something needs them."""
        if path not in self._arrays:
            spec = self.specs[path]
            found = np.empty(spec.shape, NUMPY[self.held(spec.dtype)])
            self.fill(spec, found)
            self._arrays[path] = found
        return self._arrays[path]

    def _together(self, siblings: Sequence[Packed]) -> None:
        """Lays the arrays of siblings of one form one after the other."""
        kinds = {name.rsplit(".", 1)[1] for packed in siblings for name in packed.arrays}
        for kind in kinds:
            names = [f"{packed.part.name}.{kind}" for packed in siblings]
            arrays = [p.arrays.get(name) for p, name in zip(siblings, names, strict=True)]
            parts = [array for array in arrays if array is not None]
            if len(parts) < len(arrays) or len({part.shape[1:] for part in parts}) > 1:
                self._blocks.update(
                    (n, a) for n, a in zip(names, arrays, strict=True) if a is not None
                )
                continue
            buffer = np.concatenate([part.reshape(-1) for part in parts])
            at = 0
            for name, part in zip(names, parts, strict=True):
                self._blocks[name] = buffer[at : at + part.size].reshape(part.shape)
                at += part.size

    def _packed_array(self, name: str) -> np.ndarray:
        """An array of a packed part, which may be of several weights one after the other."""
        if name not in self._blocks:
            stem, kind = name.rsplit(".", 1)
            parts = [self._blocks[f"{path}.{kind}"] for path in stem.split("+")]
            whole = None if kind == "offsets" else _run_of(parts)
            axis = 1 if kind == "offsets" else 0
            self._blocks[name] = np.concatenate(parts, axis) if whole is None else whole
        return self._blocks[name]

    def state_dict(self) -> dict[str, ort.OrtValue]:
        """Every parameter and buffer by path; a packed one by its arrays."""
        found = {}
        for path, spec in self.specs.items():
            if path not in self.packed:
                tensor = Tensor(spec.shape, self.held(spec.dtype))
                found[path] = self._value(path, self._arrays[path], tensor)
                continue
            for name in self.packed[path].arrays:
                array = self._blocks[name]
                dtype = DType.U8 if array.dtype == np.uint8 else DType.F32
                found[name] = self._value(name, array, Tensor(array.shape, dtype))
        return found

    def values(self, module: Module, emitted: Emitted) -> dict[str, ort.OrtValue]:
        """What a graph's initializers hold, by name. Derived values are computed where needed."""
        used = {w.path for w in emitted.weights.values()}
        derived = [path for path in module.derived if path in used]
        keys = self._computed(module, derived) if derived else {}
        found = {}
        for name, tensor in initializers(emitted).items():
            weight = emitted.weights.get(name)
            if weight is None:
                found[name] = self._value(name, self._packed_array(name), tensor)
            elif weight.path in keys:
                key = keys[weight.path]
                found[name] = self._weight(key, self._arrays[key], weight)
            else:
                found[name] = self._weight(weight.path, self.array(weight.path), weight)
        return found

    def _weight(self, key: str, array: np.ndarray, weight: Weight) -> ort.OrtValue:
        if weight.half:
            key = f"{key}.half"
            if key not in self._arrays:
                self._arrays[key] = np.array(array[..., : weight.shape[-1]], order="C")
            array = self._arrays[key]
        return self._value(key, array, Tensor(weight.shape, weight.dtype))

    def _value(self, key: str, array: np.ndarray, tensor: Tensor) -> ort.OrtValue:
        if key not in self._values:
            self._values[key] = on_device(array, tensor, self.options.device)
        return self._values[key]

    # What derives from weights.

    def _computed(self, module: Module, wanted: Collection[str]) -> dict[str, str]:
        """The keys of derived values, by path; each is computed once, whichever entry asks."""
        prepare = module.prepare
        assert prepare is not None
        keys = dict(zip(module.derived, result_keys(module), strict=True))
        results = dict(zip(module.derived, prepare.results, strict=True))
        paths = {slot.value: slot.path for slot in prepare.weights}
        made = {value: op for op in prepare.ops for value in op.outputs}
        for path in wanted:
            op = made.get(results[path])
            if keys[path] not in self._arrays and op is not None and is_joined(op, paths):
                whole = _run_of([self.array(paths[value]) for value in op.inputs])
                if whole is not None:
                    self._arrays[keys[path]] = whole
        missing = [path for path in wanted if keys[path] not in self._arrays]
        if missing:
            main = replace(prepare, kind="entry", results=tuple(results[p] for p in missing))
            alone = dce(Module({**module.functions, main.name: main}, main.name))
            for path, array in zip(missing, self._run(alone), strict=True):
                self._arrays[keys[path]] = array
        return {path: keys[path] for path in wanted}

    def _run(self, module: Module) -> list[np.ndarray]:
        """A module without inputs, run on the CPU; its results as they are held."""
        target = OnnxTarget(numerics=self.target.numerics, contrib=self.target.contrib)
        emitted = emit(module, target)
        values = {}
        for name, weight in emitted.weights.items():
            array = self.array(weight.path)
            if weight.dtype != self.held(self.specs[weight.path].dtype):
                array = from_bf16(array) if array.dtype == np.uint16 else array.astype(np.float32)
            values[name] = on_device(array, Tensor(weight.shape, weight.dtype), "cpu")
        options = Options("cpu", {}, self.options.threads)
        results = Session(emitted, values, options).run([], {}, emitted.results)
        found = []
        for value, result in zip(module.main.results, results, strict=True):
            array, dtype = np.array(to_array(result)), value.type.dtype
            if self.held(dtype) != dtype:
                array = from_bf16(array) if dtype == DType.BF16 else array.astype(np.float32)
            found.append(array)
        return found


def _run_of(parts: Sequence[np.ndarray]) -> np.ndarray | None:
    """Arrays one after the other along their first axis, as a view of the buffer that they share;
    `None` where they don't lie so."""
    first, at = parts[0], parts[0].ctypes.data
    for part in parts:
        if part.base is not first.base or part.ctypes.data != at:
            return None
        at += part.nbytes
    buffer = first.base
    if not isinstance(buffer, np.ndarray) or buffer.ndim != 1:
        return None
    start = (first.ctypes.data - buffer.ctypes.data) // buffer.itemsize
    shape = (sum(part.shape[0] for part in parts), *first.shape[1:])
    return buffer[start : start + sum(part.size for part in parts)].reshape(shape)
