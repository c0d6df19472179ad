"""Generated JAX on the real SmolLM2-135M: the tokens and logits of the PyTorch runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from linnet import nest
from linnet.generate import encode_prompt
from linnet.runtime import Runtime

pytestmark = pytest.mark.weights
PROMPTS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain photosynthesis to a child.",
    "List three uses of a paperclip.",
    "Who wrote Hamlet, and when?",
    "Translate 'good morning' to Spanish.",
    "What is 17 times 23?",
    "Give me a recipe for pancakes.",
    "Why is the sky blue?",
    "Tell me a story about a fox.",
]
NEW = 128
LENGTH = 16
"""Prompts are cut to one length, so that one program takes in all of them."""


def load(backend: str) -> Runtime:
    card = nest.find("smollm2-135m-instruct")
    sizes = {"MaxSeq": LENGTH + NEW, "Batch": 1}
    return nest.load(card, backend=backend, generics=sizes, dtype="f32")


@pytest.fixture(scope="module")
def models(smollm2_gguf: Path) -> dict[str, Runtime]:
    return {backend: load(backend) for backend in ("torch", "jax")}


@pytest.fixture(scope="module")
def prompts(smollm2_gguf: Path) -> list[np.ndarray]:
    tokenizer = nest.tokenizer(nest.find("smollm2-135m-instruct"))
    encoded = [encode_prompt(tokenizer, prompt) for prompt in PROMPTS]
    return [np.asarray([tokens[-LENGTH:]], np.int32) for tokens in encoded]


def test_generated_tokens_are_those_of_pytorch(models, prompts) -> None:
    for prompt in prompts:
        found = {
            name: model.to_numpy(model.run_entry("generate", [prompt], N=NEW)).tolist()
            for name, model in models.items()
        }
        assert found["jax"] == found["torch"]


def test_logits_are_close_to_those_of_pytorch(models, prompts) -> None:
    for prompt in prompts[:3]:
        logits = {n: m.to_numpy(m.run_entry("prefill", [prompt, 0])) for n, m in models.items()}
        assert np.abs(logits["jax"] - logits["torch"]).max() < 1e-3
        step = logits["torch"].argmax(-1).astype(np.int32).reshape(1, 1)
        logits = {n: m.to_numpy(m.run_entry("decode", [step, LENGTH])) for n, m in models.items()}
        assert np.abs(logits["jax"] - logits["torch"]).max() < 1e-3


def test_the_same_key_draws_the_same_tokens(models, prompts) -> None:
    for seed in range(2):
        given = [prompts[seed], np.array([0, seed]), 0.8]
        found = {
            name: model.to_numpy(model.run_entry("sample", given, N=32)).tolist()
            for name, model in models.items()
        }
        assert found["jax"] == found["torch"]
