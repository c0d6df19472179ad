"""Loading a model for ONNX Runtime, and the loaded model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import onnxruntime as ort

from linnet.described import block_tree, signature
from linnet.dtypes import DType
from linnet.emit.onnx import Emitted, OnnxTarget, emit, optimised
from linnet.emit.onnx_graph import Tensor
from linnet.emit.onnx_proto import build, initializers, text
from linnet.emit.onnx_types import ONNX
from linnet.inputs import Inputs, declared_inputs, read_inputs
from linnet.ir.core import Module
from linnet.ir.instantiate import BlockInstance, bind_entry, entries, find_entry
from linnet.ir.lower import lower
from linnet.loading import Source, begin
from linnet.onnx.inputs import Given, read_tensor
from linnet.onnx.options import check_quantise, read_options
from linnet.onnx.quantise import pack_weights
from linnet.onnx.session import Options, Session, clear, empty, to_array
from linnet.onnx.weights import Weights
from linnet.runtime import EntrySignature
from linnet.weights import Bindings
from linnet.weights.floats import from_bf16


def load(
    source: Source,
    *,
    root: str | None = None,
    generics: Mapping[str, Any] | None = None,
    weights: Any = None,
    bindings: str | Path | Mapping[str, object] | Bindings | None = None,
    dtype: DType | str | None = None,
    provider: str | None = None,
    device: str | None = None,
    provider_options: Mapping[str, Any] | None = None,
    numerics: str = "fast",
    threads: int | None = None,
    quantize: str | None = None,
    symmetric: bool = True,
    accuracy_level: int = 4,
    prepack: bool = False,
    cuda_graphs: bool = False,
) -> OnnxModel:
    """Loads a model: checks its source, binds its generics, reads its weights.

    source            a `.linnet` file, a package's directory, or a program that is checked already
    root              the root block, where the module has several with entries
    generics          of the root block, by name
    weights           a SafeTensors file, directory or index, or a GGUF file; arrays by path; or a
                      function of a path and shape that makes them
    bindings          which tensor of the checkpoint each parameter is
    dtype             what float weights are converted to; binds the root's dtype generics
    provider          `cpu`, `cuda`, `tensorrt`: ONNX Runtime's; what `device` is unless given
    device            `cpu`, `cuda`, `cuda:1`; a CPU unless given
    provider_options  ONNX Runtime's options of the provider
    numerics          `exact` computes the source's own operations, `equivalent` sums in another
                      order, `fast` uses every operator
    threads           of the CPU's operators: the machine's physical cores unless given
    quantize          `int4` or `int8` holds the weights of linear layers in blocks; those that a
                      GGUF file has in such blocks are carried over as they are
    symmetric         whether what is rounded to blocks has no zero points
    accuracy_level    what a product with blocks is computed in: 4 rounds what is multiplied to i8
                      by blocks, 1 keeps f32
    prepack           lets steps over few tokens keep the weights in the layout that they are read
                      in fastest, each in memory of its own, beside those that all entries share
    cuda_graphs       captures each entry as a CUDA graph

    Raises `LinnetError` for a source with errors, `ValueError` for generics, options and weights
    that don't fit; nothing is read before all weights are known to fit.
    """
    check_quantise(quantize, symmetric)
    if accuracy_level not in (1, 4):
        raise ValueError(f"accuracy_level must be 1 or 4, not {accuracy_level!r}")
    options = read_options(provider, device, provider_options, threads, prepack, cuda_graphs)
    target = OnnxTarget(options.provider, numerics=numerics, accuracy=accuracy_level)
    loading = begin(
        source, root=root, generics=generics, weights=weights, bindings=bindings, dtype=dtype
    )
    packed = pack_weights(loading, quantize, symmetric) if quantize is not None else {}
    target = replace(target, packed={path: (p.part,) for path, p in packed.items()})
    held = Weights(loading.specs, loading.read, packed, target, options)
    return OnnxModel(loading.instance, held, target, options, loading.dtype, quantize)


@dataclass(slots=True)
class BoundEntry:
    """One entry for one set of shapes: its graphs, each opened when it first runs."""

    module: Module
    emitted: Emitted
    open: Callable[[Emitted], Session]
    general: Callable[[], Emitted]
    """The graph that takes any inputs; where `emitted` requires something of them, another one."""
    sessions: dict[bool, Session]
    seconds: float

    def session(self, inputs: Sequence[Given]) -> Session:
        """The session for these inputs."""
        fits = all(
            requirement.low <= low and high <= requirement.high
            for requirement in self.emitted.requires
            for low, high in (inputs[requirement.position].bounds(),)
        )
        if fits not in self.sessions:
            self.sessions[fits] = self.open(self.emitted if fits else self.general())
        return self.sessions[fits]


class OnnxModel:
    """A model with its weights and states, on ONNX Runtime. Implements `linnet.runtime.Runtime`."""

    def __init__(
        self,
        instance: BlockInstance,
        weights: Weights,
        target: OnnxTarget,
        options: Options,
        dtype: DType | None,
        quantize: str | None,
    ):
        self.instance = instance
        self.weights = weights
        self.target = target
        self.options = options
        self.quantize = quantize
        self._dtype = dtype
        self._types: dict[str, Tensor] = {}
        self._states: dict[str, ort.OrtValue] = {}
        self._spare: dict[str, ort.OrtValue] = {}
        """A second buffer for each state that is not written in place."""
        self._entries = entries(instance)
        self._bound: dict[object, BoundEntry] = {}
        self._by_form: dict[object, BoundEntry] = {}
        self._likeliest: WeakKeyDictionary[ort.OrtValue, ort.OrtValue] = WeakKeyDictionary()

    # What it is.

    @property
    def name(self) -> str:
        parts = ["onnx"]
        parts += [self.target.provider] if self.target.provider != "cpu" else []
        return "-".join([*parts, *([self.quantize] if self.quantize else [])])

    @property
    def entries(self) -> dict[str, EntrySignature]:
        """The entries, as their source declares them."""
        return {name: signature(entry) for name, entry in self._entries.items()}

    @property
    def generics(self) -> dict[str, int]:
        """What the root's dimensions are bound to."""
        return {n: v for n, v in self.instance.generics.items() if isinstance(v, int)}

    @property
    def dtype(self) -> DType:
        """The dtype of most of the weights."""
        if self._dtype is not None:
            return self._dtype
        sizes: dict[DType, int] = {}
        for spec in self.weights.specs.values():
            if spec.dtype.is_float:
                sizes[spec.dtype] = sizes.get(spec.dtype, 0) + int(np.prod(spec.shape))
        return max(sizes, key=sizes.__getitem__, default=DType.F32)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a step over one token reads: all, but of a table that is only
        looked up in, nothing."""
        if "decode" not in self._entries:
            values = self.weights.state_dict().values()
            return sum(value.tensor_size_in_bytes() for value in values)
        bound = self._bind("decode", declared_inputs(self._entries["decode"]), {})
        return _bytes_read(bound.emitted)

    @property
    def compile_s(self) -> float:
        """Seconds spent generating graphs and opening sessions so far."""
        return sum(
            bound.seconds + sum(session.seconds for session in bound.sessions.values())
            for bound in self._by_form.values()
        )

    @property
    def quantisation(self) -> dict[str, float]:
        """For each weight held in blocks, how far its values are from its own: the root of the
        mean square of the differences, relative to the values'. 0 for blocks carried over."""
        return {path: packed.error for path, packed in self.weights.packed.items()}

    def state_dict(self) -> dict[str, ort.OrtValue]:
        """The parameters and buffers by path, not copied; one held in blocks as its arrays."""
        return self.weights.state_dict()

    def __str__(self) -> str:
        return block_tree(self.instance)

    __repr__ = __str__

    # Running it.

    def __call__(self, *inputs: Any, **generics: int) -> Any:
        """Runs the entry `forward`."""
        return self.run_entry("forward", inputs, **generics)

    def run_entry(self, name: str, inputs: Sequence[Any], **generics: int) -> Any:
        """Runs an entry; gives its result as an `OrtValue`, or a tuple of them.

        Inputs are numpy arrays, numbers, `OrtValue`s, `None` for an optional input left out, a
        variant's name for an enum, tuples for tuples and structs. Entry generics follow from the
        inputs' shapes or are given by keyword. Raises `ValueError` for an unknown entry, and for
        inputs of a wrong number, shape or dtype.
        """
        entry = self._entries.get(name)
        if entry is None:
            entry = find_entry(self.instance, name)
        given = read_inputs(entry, inputs, read_tensor)
        key = (name, given.form, tuple(generics.items()))
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = self._bind(name, given, generics)
        session = bound.session(given.tensors)
        return self._run(session, [tensor.value for tensor in given.tensors])

    def _run(self, session: Session, inputs: Sequence[ort.OrtValue]) -> Any:
        emitted = session.emitted
        memory: dict[str, ort.OrtValue] = {}
        moved: list[str] = []
        for state in emitted.states:
            held = memory[state.input] = self._state(state.path, state.type)
            if state.output is not None and not state.in_place:
                held = self._spare_of(state.path, state.type)
                moved.append(state.path)
            if state.output is not None:
                memory[state.output] = held
        top = [emitted.likeliest] if emitted.likeliest is not None else []
        results = session.run(inputs, memory, [*emitted.results, *top])
        for path in moved:
            self._states[path], self._spare[path] = self._spare[path], self._states[path]
        if top:
            self._likeliest[results[0]] = results[1]
            return results[0]
        return results[0] if len(results) == 1 else tuple(results)

    def reset_state(self) -> None:
        """Sets all states back to zero."""
        for path, value in self._states.items():
            clear(value, self._types[path])

    def _state(self, path: str, type_: Tensor) -> ort.OrtValue:
        if path not in self._states:
            self._types[path] = type_
            self._states[path] = empty(type_, self.options.device)
        return self._states[path]

    def _spare_of(self, path: str, type_: Tensor) -> ort.OrtValue:
        if path not in self._spare:
            self._spare[path] = empty(type_, self.options.device)
        return self._spare[path]

    def generated_source(self, entry: str, **generics: int) -> str:
        """The graph of an entry as text: for generics given by name, or as it was last run."""
        return text(build(self.bound(entry, generics).emitted))

    def to_numpy(self, value: ort.OrtValue) -> np.ndarray:
        """A result on the host, floats as f32."""
        array = to_array(value)
        if value.element_type() == ONNX[DType.BF16]:
            return from_bf16(array)
        return array.astype(np.float32) if array.dtype == np.float16 else array

    def argmax(self, logits: ort.OrtValue) -> np.ndarray:
        """The likeliest token of each row of `[B, V]`: `[B]`, int64. The graph that gave the logits
        has chosen it."""
        found = self._likeliest.get(logits)
        return self.to_numpy(logits).argmax(-1) if found is None else found.numpy()

    # Binding.

    def bound(self, entry: str, generics: Mapping[str, int]) -> BoundEntry:
        """An entry for generics given by name, or as it was last run. Raises `ValueError` for an
        unknown one, and for generics that don't settle its inputs."""
        found = find_entry(self.instance, entry)
        if not generics and found.generics:
            ran = [bound for key, bound in self._bound.items() if key[0] == entry]  # type: ignore[index]
            if ran:
                return ran[-1]
        return self._bind(entry, declared_inputs(found, generics), generics)

    def _bind(self, name: str, given: Inputs, generics: Mapping[str, int]) -> BoundEntry:
        """The entry for inputs of a form, generated on first use."""
        own = bind_entry(self.instance, name, given.arguments, generics)
        form = (name, tuple(own.items()), given.presence)
        if form not in self._by_form:
            started = time.perf_counter()
            lowered = lower(self.instance, name, own, given.arguments)
            module = optimised(lowered, self.target.numerics)
            emitted = emit(module, self.target, likeliest=True)
            self._by_form[form] = BoundEntry(
                module,
                emitted,
                lambda found: Session(found, self.weights.values(module, found), self.options),
                lambda: emit(module, replace(self.target, trusted=False), likeliest=True),
                {},
                time.perf_counter() - started,
            )
        return self._by_form[form]


def _bytes_read(emitted: Emitted) -> int:
    """Bytes of the initializers that a run reads whole."""
    total = 0
    readers: dict[str, set[tuple[str, int]]] = {}
    for node in emitted.graph.walk():
        for i, name in enumerate(node.inputs):
            readers.setdefault(name, set()).add((node.op, i))
    for name, tensor in initializers(emitted).items():
        if readers[name] != {("Gather", 0)}:
            total += int(np.prod(tensor.shape)) * tensor.dtype.itemsize
    return total
