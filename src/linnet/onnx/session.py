"""An emitted graph as a session of ONNX Runtime: built, its weights shared, its states bound."""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from linnet.dtypes import DType
from linnet.emit.onnx import Emitted
from linnet.emit.onnx_graph import Tensor
from linnet.emit.onnx_proto import EXTERNAL, build, check, initializers
from linnet.emit.onnx_types import ONNX

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
"""ONNX Runtime's names of the providers."""


FEW_ROWS = 16
"""Products of so few rows wait for weights more than they compute, and gain by reading in order."""


@dataclass(frozen=True, slots=True)
class Options:
    """How sessions run: `provider` by its short name, with its own options; `threads` of the CPU's
    operators."""

    provider: str
    provider_options: Mapping[str, str]
    threads: int
    prepack: bool = False
    """Whether graphs of few rows keep weights in their kernels' own layout, beside the shared."""
    graphs: bool = False
    """Whether the provider captures a run as a CUDA graph and replays it."""

    @property
    def device(self) -> str:
        return "cpu" if self.provider == "cpu" else "cuda"

    @property
    def providers(self) -> list[Any]:
        """The list that a session takes; what a provider lacks runs on those after it."""
        order = {"tensorrt": ["tensorrt", "cuda", "cpu"], "cuda": ["cuda", "cpu"]}
        found: list[Any] = []
        for name in order.get(self.provider, ["cpu"]):
            own = dict(self.provider_options) if name == self.provider else {}
            if self.graphs and name == self.provider:
                own["enable_cuda_graph" if name == "cuda" else "trt_cuda_graph_enable"] = "1"
            found.append((PROVIDERS[name], own))
        return found


def empty(type_: Tensor, device: str) -> ort.OrtValue:
    """Zeros of a type in memory of their own, on a device."""
    if device == "cpu":
        return on_host(np.zeros(type_.shape, HELD[ONNX[type_.dtype]]), type_)
    found = ort.OrtValue.ortvalue_from_shape_and_type(
        list(type_.shape), ONNX[type_.dtype], device, 0
    )
    clear(found, type_)
    return found


def clear(value: ort.OrtValue, type_: Tensor) -> None:
    """Writes zeros over all elements."""
    value.update_inplace(np.zeros(type_.shape, HELD[ONNX[type_.dtype]]))


def on_host(array: np.ndarray, type_: Tensor) -> ort.OrtValue:
    """An array's own memory as a value; bf16 is given as its bits."""
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, ONNX[type_.dtype])


def on_device(array: np.ndarray, type_: Tensor, device: str) -> ort.OrtValue:
    """An array as a value on a device: its own memory on the host, a copy elsewhere."""
    if device == "cpu":
        return on_host(array, type_)
    found = ort.OrtValue.ortvalue_from_shape_and_type(
        list(type_.shape), ONNX[type_.dtype], device, 0
    )
    found.update_inplace(array)
    return found


def to_array(value: ort.OrtValue) -> np.ndarray:
    """A value's elements on the host, bf16 as its bits: a copy where it isn't there already."""
    if value.element_type() != ONNX[DType.BF16]:
        return value.numpy()
    if value.device_name() != "cpu":
        raise ValueError("bf16 can't be read from a device: give it to the host as f32")
    found = np.empty(value.shape(), np.uint16)
    ctypes.memmove(found.ctypes.data, value.data_ptr(), found.nbytes)
    return found


HELD: dict[int, np.dtype] = {
    9: np.dtype(np.bool_), 3: np.dtype(np.int8), 5: np.dtype(np.int16), 6: np.dtype(np.int32),
    7: np.dtype(np.int64), 2: np.dtype(np.uint8), 4: np.dtype(np.uint16), 12: np.dtype(np.uint32),
    13: np.dtype(np.uint64), 10: np.dtype(np.float16), 16: np.dtype(np.uint16),
    1: np.dtype(np.float32), 11: np.dtype(np.float64),
}  # fmt: skip
"""The numpy dtype of the memory of each of ONNX's, bf16 by its bits."""


class Session:
    """A graph that runs on values by name, with its initializers in place.

    States are given and taken by their names in the graph; what `run` binds, a kernel reads and
    writes without a copy.
    """

    def __init__(self, emitted: Emitted, values: Mapping[str, ort.OrtValue], options: Options):
        started = time.perf_counter()
        self.emitted = emitted
        self.options = options
        model = build(emitted)
        check(model)
        wanted = initializers(emitted)
        missing = [name for name in wanted if name not in values]
        if missing:
            raise ValueError(f"no values for {', '.join(missing)}")
        # Each session has the values only as long as it lives; they stay their owner's.
        self._values = [values[name] for name in wanted]
        given = dict(zip(wanted, self._values, strict=True))
        packs = bool(emitted.packed) or (options.prepack and emitted.rows <= FEW_ROWS)
        self.session = _open(model.SerializeToString(), given, options, packs)
        self.binding = self.session.io_binding()
        self._held: dict[str, ort.OrtValue] = {}
        """What states are bound to."""
        self._order: list[str] = []
        """The outputs, in the order that they were first bound in."""
        self.seconds = time.perf_counter() - started

    def run(
        self,
        inputs: Sequence[ort.OrtValue],
        states: Mapping[str, ort.OrtValue],
        outputs: Sequence[str],
    ) -> list[ort.OrtValue]:
        """Runs once. `states` gives the memory of each of the graph's states, by name of input and
        output; `outputs` names the results to give back, each in new memory."""
        binding = self.binding
        for name, value in zip(self.emitted.inputs, inputs, strict=True):
            binding.bind_ortvalue_input(name, value)
        for name in outputs:
            binding.bind_output(name, self.options.device)
            if name not in self._order:
                self._order.append(name)
        for state in self.emitted.states:
            if self._held.get(state.input) is not states[state.input]:
                binding.bind_ortvalue_input(state.input, states[state.input])
                self._held[state.input] = states[state.input]
            if state.output is not None and (
                self._held.get(state.output) is not states[state.output]
            ):
                binding.bind_ortvalue_output(state.output, states[state.output])
                self._held[state.output] = states[state.output]
                if state.output not in self._order:
                    self._order.append(state.output)
        self.session.run_with_iobinding(binding)
        found = binding.get_outputs_as_ortvaluevector()
        return [ort.OrtValue(found[self._order.index(name)]) for name in outputs]


def _open(model: bytes, values: Mapping[str, ort.OrtValue], options: Options, packs: bool) -> Any:
    """A session on a serialised model whose external initializers are values in memory."""
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    # Kernels would keep copies of weights in a layout of their own, once for each session. Blocks
    # are fast in such a layout alone, and small.
    settings.add_session_config_entry("session.disable_prepacking", "0" if packs else "1")
    for name, value in values.items():
        settings.add_initializer(name, value)
    with tempfile.TemporaryDirectory() as folder:
        # The file that initializers are said to be in must exist, but isn't read.
        (Path(folder) / EXTERNAL).touch()
        settings.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", folder
        )
        # Folding looks for weights' values in that file.
        return ort.InferenceSession(
            model, settings, providers=options.providers, disabled_optimizers=["ConstantFolding"]
        )
