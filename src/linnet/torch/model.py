"""Loading a model, and the loaded model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from linnet.described import block_tree, signature, weights_read
from linnet.dtypes import DType
from linnet.emit.torch import EXPANDED_OPS, KEPT_OPS, TorchTarget
from linnet.inputs import Inputs, declared_inputs, read_inputs
from linnet.ir.instantiate import BlockInstance, bind_entry, entries, find_entry, parameters
from linnet.ir.lower import lower
from linnet.ir.passes import optimise
from linnet.loading import Source, begin
from linnet.runtime import EntrySignature
from linnet.torch.derived import Derived
from linnet.torch.entry import BoundEntry, bind
from linnet.torch.inputs import read_tensor
from linnet.torch.tree import DTYPES
from linnet.torch.weights import Weights
from linnet.weights import Bindings

MODES = {False: "eager", None: "eager", "": "eager", "eager": "eager",
         "inductor": "inductor", "cudagraphs": "cudagraphs"}  # fmt: skip


def load(
    source: Source,
    *,
    root: str | None = None,
    generics: Mapping[str, Any] | None = None,
    weights: Any = None,
    bindings: str | Path | Mapping[str, object] | Bindings | None = None,
    dtype: DType | str | None = None,
    device: str | torch.device | None = None,
    compile: bool | str | None = False,
    numerics: str = "fast",
    compile_rows: int = 64,
) -> TorchModel:
    """Loads a model: checks its source, binds its generics, reads its weights.

    source        a `.linnet` file, a package's directory, or a program that is checked already
    root          the root block, where the module has several with entries
    generics      of the root block, by name
    weights       a SafeTensors file, directory or index, or a GGUF file; tensors or arrays by
                  path; or a function of a path and shape that makes them
    bindings      which tensor of the checkpoint each parameter is
    dtype         what float weights are converted to; binds the root's dtype generics
    device        `cpu`, `cuda`, `cuda:1`; a CPU unless given
    compile       `"inductor"`, `"cudagraphs"`; `True` for the best that the device has
    numerics      `exact` computes the source's own operations, `equivalent` sums in another
                  order, `fast` uses every kernel
    compile_rows  functions over more rows (tokens) than this run as generated: compiling them
                  would take its time again for each length of a prompt

    Raises `LinnetError` for a source with errors, `ValueError` for generics, options and weights
    that don't fit; nothing is read before all weights are known to fit.
    """
    place = _device(device)
    target = TorchTarget(str(place), _mode(compile, place), numerics, compile_rows)
    loading = begin(
        source, root=root, generics=generics, weights=weights, bindings=bindings, dtype=dtype
    )
    _use_physical_cores()
    loaded = Weights(loading.specs, place)
    loaded.fill(loading.read)
    return TorchModel(loading.instance, loaded, target, loading.dtype)


class TorchModel:
    """A model with its weights and states on a device. Implements `linnet.runtime.Runtime`."""

    def __init__(
        self, instance: BlockInstance, weights: Weights, target: TorchTarget, dtype: DType | None
    ):
        self.instance = instance
        self.target = target
        self.weights = weights
        self.device = weights.device
        self.states = {
            spec.path: torch.zeros(spec.shape, dtype=DTYPES[spec.dtype.value], device=self.device)
            for spec in parameters(instance)
            if spec.kind == "state"
        }
        self._dtype = dtype
        self._derived = Derived(weights, target)
        self._entries = entries(instance)
        self._bound: dict[object, BoundEntry] = {}
        self._by_form: dict[object, BoundEntry] = {}
        self._pool: Any = None

    # What it is.

    @property
    def name(self) -> str:
        mode = self.target.mode
        return "torch" if mode == "eager" else f"torch-{mode}"

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
        for path, spec in self.weights.specs.items():
            if spec.dtype.is_float:
                nbytes = self.weights.tensors[path].nbytes
                sizes[spec.dtype] = sizes.get(spec.dtype, 0) + nbytes
        return max(sizes, key=sizes.__getitem__, default=DType.F32)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a step over one token reads: all, but of a table that is only
        looked up in, nothing."""
        total = self.weights.nbytes
        if "decode" in self._entries and self.generics.get("Batch", 1) == 1:
            bound = self._bind("decode", declared_inputs(self._entries["decode"]), {})
            tensors = self._derived.of(bound.module) | self.weights.tensors
            total = sum(tensors[path].nbytes for path in weights_read(bound.module))
        return total

    @property
    def compile_s(self) -> float:
        """Seconds spent generating and compiling entries so far."""
        return sum(bound.compile_s for bound in self._by_form.values())

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The parameters and buffers by path: views of the model's own memory."""
        return dict(self.weights.tensors)

    def __str__(self) -> str:
        return block_tree(self.instance)

    __repr__ = __str__

    # Running it.

    def __call__(self, *inputs: Any, **generics: int) -> Any:
        """Runs the entry `forward`."""
        return self.run_entry("forward", inputs, **generics)

    def run_entry(self, name: str, inputs: Sequence[Any], **generics: int) -> Any:
        """Runs an entry; gives its result as a tensor, or a tuple of tensors.

        Inputs are numpy arrays, numbers, tensors, `None` for an optional input left out, a
        variant's name for an enum, tuples for tuples and structs. Entry generics follow from the
        inputs' shapes or are given by keyword. Raises `ValueError` for an unknown entry, and for
        inputs of a wrong number, shape or dtype.
        """
        entry = self._entries.get(name)
        if entry is None:
            entry = find_entry(self.instance, name)
        given = read_inputs(entry, inputs, read_tensor)
        key = (name, given.form, tuple(generics.items())) if generics else (name, given.form)
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = self._bind(name, given, generics)
        tensors = given.tensors
        if self.device.type != "cpu":
            tensors = [tensor.to(self.device, non_blocking=True) for tensor in tensors]
        with torch.inference_mode():
            return bound(tensors)

    def reset_state(self) -> None:
        """Sets all states back to zero."""
        with torch.inference_mode():
            for state in self.states.values():
                state.zero_()

    def generated_source(self, entry: str, **generics: int) -> str:
        """The PyTorch source of an entry: for generics given by name, or as it was last run."""
        found = find_entry(self.instance, entry)
        if not generics and found.generics:
            ran = [bound for key, bound in self._bound.items() if key[0] == entry]  # type: ignore[index]
            if ran:
                return ran[-1].emitted.source
        return self._bind(entry, declared_inputs(found, generics), generics).emitted.source

    def to_numpy(self, value: torch.Tensor) -> np.ndarray:
        """A result on the host, floats as f32."""
        value = value.detach()
        if value.is_floating_point() and value.dtype != torch.float64:
            value = value.float()
        return value.cpu().numpy()

    def argmax(self, logits: torch.Tensor) -> np.ndarray:
        """The likeliest token of each row of `[B, V]`, chosen on the device: `[B]`, int64."""
        return logits.argmax(-1).cpu().numpy()

    # Binding.

    def _bind(self, name: str, given: Inputs, generics: Mapping[str, int]) -> BoundEntry:
        """The entry for inputs of a form, generated on first use."""
        own = bind_entry(self.instance, name, given.arguments, generics)
        form = (name, tuple(own.items()), given.presence)
        found = self._by_form.get(form)
        if found is None:
            with torch.inference_mode(False):
                found = self._generate(name, given, own)
            self._by_form[form] = found
        return found

    def _generate(self, name: str, given: Inputs, own: Mapping[str, Any]) -> BoundEntry:
        lowered = lower(self.instance, name, own, given.arguments)
        module = optimise(lowered, self.target.numerics, expand=EXPANDED_OPS, keep=KEPT_OPS)
        tensors = {**self.weights.tensors, **self.states, **self._derived.of(module)}
        return bind(module, self.target, tensors, self._graph_pool)

    def _graph_pool(self) -> Any:
        """The memory that all captured graphs share: they never run at the same time."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool


# --- options --------------------------------------------------------------------------------


def _device(device: str | torch.device | None) -> torch.device:
    try:
        found = torch.device(device or "cpu")
    except RuntimeError as error:
        raise ValueError(f"no device {device!r}: use cpu, cuda, or cuda:N") from error
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu or cuda, not {found.type!r}")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("no CUDA device is available here: use device='cpu'")
    return found


def _mode(compile: bool | str | None, device: torch.device) -> str:
    if compile is True:
        return "cudagraphs" if device.type == "cuda" else "inductor"
    if compile not in MODES:
        choices = "True, False, 'inductor', 'cudagraphs'"
        raise ValueError(f"compile must be one of {choices}, not {compile!r}")
    return MODES[compile]


def _use_physical_cores() -> None:
    """One thread a core, unless the user chose: two on one core share its arithmetic."""
    if "OMP_NUM_THREADS" in os.environ or torch.get_num_threads() != os.cpu_count():
        return
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return
    cores = set()
    for block in text.split("\n\n"):
        fields = dict(line.split(":", 1) for line in block.splitlines() if ":" in line)
        named = {name.strip(): value.strip() for name, value in fields.items()}
        if "core id" in named:
            cores.add((named.get("physical id"), named["core id"]))
    if cores and len(cores) < torch.get_num_threads():
        torch.set_num_threads(len(cores))
