"""Small models for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import linnet
from linnet.check import check_file
from linnet.ir.instantiate import instantiate, parameters

LLAMA = Path(linnet.__file__).parent / "nest/models/llama/model.linnet"
GENERICS = {"Vocab": 40, "H": 24, "Heads": 6, "KvHeads": 2, "Inner": 20, "Layers": 3,
            "MaxSeq": 16, "Batch": 2, "T": "f32"}  # fmt: skip


PROGRAM = check_file(LLAMA).require()
"""Checked once for all tests."""


def absent(path: str) -> bool:
    """Says no to the optional weights, which this Llama doesn't have."""
    return not path.startswith("lm_head") and not path.endswith("bias")


def llama_weights(seed: int = 0, **generics: object) -> dict[str, np.ndarray]:
    """Random weights of the tiny Llama, by path."""
    random = np.random.default_rng(seed)
    instance = instantiate(PROGRAM, "Llama", {**GENERICS, **generics}, present=absent)
    return {
        spec.path: (random.standard_normal(spec.shape) * 0.3).astype(np.float32)
        for spec in parameters(instance)
        if spec.kind != "state"
    }


def tokens(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, GENERICS["Vocab"], shape).astype(np.int32)
