"""The small Llama of these tests: heads of 16, which every fused operator takes."""

from __future__ import annotations

from typing import Any

import numpy as np

import linnet.onnx
from linnet.ir.instantiate import instantiate, parameters
from tests.torch.models import GENERICS as TINY
from tests.torch.models import PROGRAM, absent

GENERICS = {**TINY, "H": 96, "Inner": 64}


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights, by path."""
    random = np.random.default_rng(seed)
    instance = instantiate(PROGRAM, "Llama", GENERICS, present=absent)
    return {
        spec.path: (random.standard_normal(spec.shape) * 0.2).astype(np.float32)
        for spec in parameters(instance)
        if spec.kind != "state"
    }


def load(dtype: str = "f32", **options: Any) -> linnet.onnx.OnnxModel:
    generics = {**GENERICS, "T": dtype, **options.pop("generics", {})}
    options.setdefault("weights", weights())
    return linnet.onnx.load(
        PROGRAM, root="Llama", generics=generics, dtype=dtype, threads=1, **options
    )


def tokens(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, GENERICS["Vocab"], shape).astype(np.int32)
