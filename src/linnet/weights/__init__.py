"""Weights: reading checkpoints without executing them, and fitting them to a model."""

from linnet.weights.bindings import Bindings, BindingsError, read_bindings
from linnet.weights.checkpoint import Checkpoint, CheckpointError, TensorInfo, open_checkpoint
from linnet.weights.manifest import (
    ManifestEntry,
    Resolution,
    WeightsError,
    is_present,
    resolve,
)

__all__ = [
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
    "resolve",
]
