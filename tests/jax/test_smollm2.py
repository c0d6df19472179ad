"""The real SmolLM2-135M on XLA: the tokens and draws of the PyTorch runtime, and how far its
logits are from those of Transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from linnet import nest
from linnet.generate import encode_prompt, prefill_plan
from tests.test_smollm2 import CARD, DISTANCES, PROMPTS

pytestmark = pytest.mark.weights
LENGTHS = (32, 8)
"""Prompts go in by these numbers of tokens, so that two programs serve all."""


def load(weights: Path, backend: str = "xla", **options):
    generics = {"MaxSeq": 256, "Batch": 1, **options.pop("generics", {})}
    return nest.load(
        CARD, backend=backend, weights=weights, generics=generics, dtype="f32", **options
    )


@pytest.fixture(scope="module")
def model(smollm2_gguf: Path):
    return load(smollm2_gguf)


@pytest.fixture(scope="module")
def other(smollm2_gguf: Path):
    return load(smollm2_gguf, "torch")


def prompt_tokens(weights: Path, prompt: str) -> list[int]:
    return encode_prompt(nest.tokenizer(CARD, weights), prompt)


def greedy(model, tokens: list[int]) -> Iterator[int]:
    """The likeliest tokens, one after the other, without end."""
    fed, plan, position = tokens, prefill_plan(len(tokens), LENGTHS), 0
    while True:
        for size in plan:
            given = np.array([fed[:size]], np.int32)
            logits = model.run_entry("decode" if size == 1 else "prefill", [given, position])
            fed, position = fed[size:], position + size
        token = int(model.argmax(logits)[0])
        yield token
        fed, plan = [token], [1]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_tokens_are_those_of_pytorch(model, other, smollm2_gguf: Path, prompt: str) -> None:
    tokens = prompt_tokens(smollm2_gguf, prompt)
    ours, theirs = greedy(model, tokens), greedy(other, tokens)
    assert [next(ours) for _ in range(128)] == [next(theirs) for _ in range(128)]


@pytest.mark.parametrize("numerics", DISTANCES)
def test_logits_are_near_those_of_transformers(smollm2_gguf: Path, numerics: str) -> None:
    from linnet.bench.methods.hf_transformers import load_reference

    reference = load_reference(smollm2_gguf, torch.float32)
    tokens = prompt_tokens(smollm2_gguf, PROMPTS[5])
    with torch.inference_mode():
        expected = reference(torch.tensor([tokens])).logits[0, -2:].numpy()
    model = load(smollm2_gguf, numerics=numerics, generics={"MaxSeq": 128})
    prefilled = model.run_entry("prefill", [np.array([tokens[:-1]], np.int32), 0])
    decoded = model.run_entry("decode", [[tokens[-1:]], len(tokens) - 1])
    found = np.stack([model.to_numpy(prefilled)[0], model.to_numpy(decoded)[0]])
    assert np.abs(found - expected).max() < DISTANCES[numerics]


def test_a_whole_generation_in_one_program(model, smollm2_gguf: Path) -> None:
    """Until the end token, with one call."""
    tokens = prompt_tokens(smollm2_gguf, PROMPTS[0])
    (stop,) = nest.tokenizer(CARD, smollm2_gguf).eos_ids[:1]
    found, count = model.run_entry("generate_until", [np.array([tokens], np.int32), stop], N=24)
    chosen = model.to_numpy(found)[0, : int(count)].tolist()
    expected = []
    for token in greedy(model, tokens):
        expected.append(token)
        if token == stop:
            break
    assert chosen == expected and len(expected) < 24


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_the_same_key_draws_the_same_tokens_as_pytorch(model, other, temperature: float) -> None:
    tokens = np.array([[1, 2683, 314, 253, 1095]], np.int32)
    for key in ([0, 1], [0, 42]):
        given = [tokens, np.array(key, np.int64), np.float32(temperature)]
        drawn = [
            each.to_numpy(each.run_entry("sample", given, N=16)).astype(int).tolist()
            for each in (model, other)
        ]
        assert drawn[0] == drawn[1]
