"""A small random Llama to serve, and what it says to one prompt alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import linnet.torch
from linnet.runtime import Runtime
from linnet.serve import Completion, Engine, Request
from tests.torch.models import GENERICS, PROGRAM, llama_weights

VOCAB = GENERICS["Vocab"]


def small_model(rows: int = 4, max_seq: int = 64) -> Runtime:
    generics = {**GENERICS, "Batch": rows, "MaxSeq": max_seq}
    return linnet.torch.load(PROGRAM, root="Llama", generics=generics, weights=llama_weights())


def prompt(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, length).tolist()


def alone(model: Runtime, request: Request, **options: Any) -> Completion:
    """What a request gives when nothing else is there, in an empty cache."""
    model.reset_state()
    return Engine(model, **options).run([request])[0]


def assert_same(found: Sequence[Completion], expected: Sequence[Completion]) -> None:
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        for choice, wanted in zip(one.choices, other.choices, strict=True):
            assert choice.tokens == wanted.tokens, number
            assert choice.finish == wanted.finish, number
