"""The real SmolLM2-135M: its answers, and how far it is from Transformers on the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from linnet import nest
from linnet.generate import encode_prompt, generate
from linnet.text import Tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.weights

CARD = nest.find("smollm2-135m-instruct")
PROMPTS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain photosynthesis to a child.",
    "Name three prime numbers greater than 10.",
    "Translate 'good morning' into Spanish.",
    "Write a Python function that reverses a string.",
    "Who wrote Pride and Prejudice?",
    "List the planets of the solar system.",
    "Why is the sky blue?",
    "Tell me a short story about a dragon.",
]


@pytest.fixture(scope="module")
def tokenizer(smollm2_gguf: Path) -> Tokenizer:
    return nest.tokenizer(CARD, smollm2_gguf)


def load(weights: Path, **options):
    generics = {"MaxSeq": 256, "Batch": 1, **options.pop("generics", {})}
    return nest.load(CARD, weights=weights, generics=generics, dtype="f32", **options)


@pytest.fixture(scope="module")
def model(smollm2_gguf: Path):
    return load(smollm2_gguf)


@pytest.fixture(scope="module")
def reference(smollm2_gguf: Path):
    """Read by Transformers' own GGUF reader, so that it owes nothing to Linnet's."""
    from linnet.bench.methods.hf_transformers import load_reference

    return load_reference(smollm2_gguf, torch.float32)


def test_it_answers(model, tokenizer: Tokenizer) -> None:
    tokens = encode_prompt(tokenizer, "What is the capital of France?")
    found = generate(model, tokenizer, tokens, max_new_tokens=32)
    assert (found.text, found.finish) == ("The capital of France is Paris.", "stop")


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_tokens_are_those_of_transformers(
    model, reference, tokenizer: Tokenizer, prompt: str
) -> None:
    tokens = encode_prompt(tokenizer, prompt)
    with torch.inference_mode():
        ids = torch.tensor([tokens])
        expected = reference.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=128, min_new_tokens=128,
            do_sample=False, pad_token_id=0,
        )[0, len(tokens) :]  # fmt: skip
    # `min_new_tokens` bans the end token in Transformers, so it is banned here as well.
    found = greedy_without(model, tokens, 128, tokenizer.eos_ids)
    assert found == expected.tolist()


def greedy_without(model, tokens: list[int], count: int, banned) -> list[int]:
    logits = model.run_entry("prefill", [np.array([tokens], np.int32), 0])
    found: list[int] = []
    while True:
        row = model.to_numpy(logits)[0].copy()
        row[list(banned)] = -np.inf
        found.append(int(row.argmax()))
        if len(found) == count:
            return found
        step = np.array([[found[-1]]], np.int32)
        logits = model.run_entry("decode", [step, len(tokens) + len(found) - 1])


DISTANCES = {"exact": 1e-4, "equivalent": 1e-4, "fast": 1e-3}
"""Logits of this model are about 20, of which f32 keeps 2e-6; a sum of 576 products in another
order moves one by some ten of that, and 30 layers add up."""


@pytest.mark.parametrize("numerics", DISTANCES)
def test_logits_are_near_those_of_transformers(
    smollm2_gguf: Path, reference, tokenizer: Tokenizer, numerics: str
) -> None:
    model = load(smollm2_gguf, numerics=numerics, generics={"MaxSeq": 128})
    tokens = encode_prompt(tokenizer, PROMPTS[5])
    with torch.inference_mode():
        expected = reference(torch.tensor([tokens])).logits[0, -1].numpy()
    prefilled = model.run_entry("prefill", [np.array([tokens], np.int32), 0])
    assert np.abs(model.to_numpy(prefilled)[0] - expected).max() < DISTANCES[numerics]


def test_every_way_to_the_next_token_agrees(smollm2_gguf: Path, tokenizer: Tokenizer) -> None:
    """`forward`; `prefill`, `decode`; both serving prefills, `decode_rows`; `generate`."""
    two = load(smollm2_gguf, generics={"MaxSeq": 64, "Batch": 2})
    prompts = [encode_prompt(tokenizer, p, raw=True) for p in ("The sun is a", "Water boils at")]
    length = min(map(len, prompts))
    tokens = np.array([p[:length] for p in prompts], np.int32)
    generated = two.to_numpy(two.run_entry("generate", [tokens], N=6)).astype(int)
    whole = two.to_numpy(two.run_entry("forward", [tokens]))

    def rollout(first: np.ndarray, step) -> np.ndarray:
        np.testing.assert_allclose(first, whole[:, -1], atol=2e-4)
        chosen = [first.argmax(-1)]
        for i in range(5):
            chosen.append(step(chosen[-1].astype(np.int32)[:, None], length + i).argmax(-1))
        return np.stack(chosen, 1)

    def decode(token: np.ndarray, at: int) -> np.ndarray:
        return two.to_numpy(two.run_entry("decode", [token, at]))

    def decode_rows(token: np.ndarray, at: int) -> np.ndarray:
        return two.to_numpy(two.run_entry("decode_rows", [token, np.full(2, at, np.int32)]))

    two.reset_state()
    prefilled = two.to_numpy(two.run_entry("prefill", [tokens, 0]))
    np.testing.assert_array_equal(rollout(prefilled, decode), generated)

    two.reset_state()
    padded = np.zeros((2, length + 3), np.int32)
    padded[:, :length] = tokens[::-1]  # Prompt 0 goes to row 1 and the other to row 0.
    slots, lengths = np.array([1, 0], np.int32), np.full(2, length, np.int32)
    slotted = two.to_numpy(two.run_entry("prefill_slots", [padded, slots, lengths]))
    np.testing.assert_array_equal(rollout(slotted[::-1], decode_rows), generated)

    two.reset_state()
    padding = np.full(3, -1, np.int32)
    packed = np.concatenate([tokens[0], tokens[1], [0, 0, 0]])[None].astype(np.int32)
    rows = np.concatenate([np.repeat([0, 1], length), padding]).astype(np.int32)
    positions = np.concatenate([np.tile(np.arange(length), 2), padding]).astype(np.int32)
    last = np.array([length - 1, 2 * length - 1], np.int32)
    ends = two.to_numpy(two.run_entry("prefill_packed", [packed, rows, positions, rows, last]))
    np.testing.assert_array_equal(rollout(ends, decode_rows), generated)


def test_sampling_inside_the_graph_follows_its_key(smollm2_gguf: Path) -> None:
    model = load(smollm2_gguf, generics={"MaxSeq": 32})
    tokens = np.array([[1, 2683, 314]], np.int32)

    def sample(key: list[int], temperature: float) -> list[int]:
        key_array = np.array(key, np.int64)
        inputs = [tokens, key_array, np.float32(temperature)]
        return model.to_numpy(model.run_entry("sample", inputs, N=8))[0].astype(int).tolist()

    assert sample([0, 1], 1.0) == sample([0, 1], 1.0) != sample([0, 2], 1.0)
    greedy = model.to_numpy(model.run_entry("generate", [tokens], N=8))[0].astype(int).tolist()
    assert sample([0, 1], 1e-4) == greedy
