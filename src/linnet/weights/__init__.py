"""Weights: reading checkpoints without executing them, and fitting them to a model.

    open_checkpoint(path)  ->  Checkpoint     tensors by name, mapped (checkpoint.py)
    read_bindings(path)    ->  Bindings       which tensor each parameter is (bindings.py)
    resolve(manifest, checkpoint, bindings)
                           ->  Resolution     parameters by path, all checked (manifest.py)

The formats: safetensors.py; gguf.py with its blocks (quants.py) and its names (llama_cpp.py).
Beneath them: mapped files (mapping.py), float formats (floats.py).
"""

from __future__ import annotations

from linnet.weights.bindings import Binding, Bindings, BindingsError, read_bindings
from linnet.weights.checkpoint import (
    Checkpoint,
    CheckpointError,
    TensorInfo,
    open_checkpoint,
    read_tensor,
)
from linnet.weights.manifest import (
    ManifestEntry,
    Resolution,
    WeightsError,
    is_present,
    resolve,
)

__all__ = [
    "Binding",
    "Bindings",
    "BindingsError",
    "Checkpoint",
    "CheckpointError",
    "ManifestEntry",
    "Resolution",
    "TensorInfo",
    "WeightsError",
    "is_present",
    "open_checkpoint",
    "read_bindings",
    "read_tensor",
    "resolve",
]
