"""Models on ONNX Runtime."""

from __future__ import annotations

from linnet.onnx.exporting import export
from linnet.onnx.model import OnnxModel, load

__all__ = ["OnnxModel", "export", "load"]
