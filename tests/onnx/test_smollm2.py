"""The real SmolLM2-135M on ONNX Runtime: tokens of eager Transformers, and what dtypes and blocks
cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxruntime")

import torch

from linnet import nest
from linnet.generate import encode_prompt
from linnet.onnx.packed import values
from linnet.text import Tokenizer
from linnet.weights import open_checkpoint
from linnet.weights.checkpoint import read_tensor
from tests.test_smollm2 import CARD, PROMPTS, greedy_without

pytestmark = pytest.mark.weights


def load(weights: Path, **options: Any) -> Any:
    generics = {"MaxSeq": 256, "Batch": 1, **options.pop("generics", {})}
    options.setdefault("dtype", "f32")
    return nest.load(CARD, backend="onnx", weights=weights, generics=generics, **options)


@pytest.fixture(scope="module")
def tokenizer(smollm2_gguf: Path) -> Tokenizer:
    return nest.tokenizer(CARD, smollm2_gguf)


@pytest.fixture(scope="module")
def model(smollm2_gguf: Path):
    return load(smollm2_gguf)


@pytest.fixture(scope="module")
def reference(smollm2_gguf: Path):
    from linnet.bench.methods.hf_transformers import load_reference

    return load_reference(smollm2_gguf, torch.float32)


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
    assert greedy_without(model, tokens, 128, tokenizer.eos_ids) == expected.tolist()


def logits(model, tokens: list[int]) -> np.ndarray:
    """Of the first half at once, then token by token: both ways into the cache."""
    half = len(tokens) // 2
    model.reset_state()
    found = model.run_entry("prefill", [np.array([tokens[:half]], np.int32), 0])
    for at in range(half, len(tokens)):
        found = model.run_entry("decode", [np.array([[tokens[at]]], np.int32), at])
    return model.to_numpy(found)[0]


def exact_logits(reference, tokens: list[int]) -> np.ndarray:
    with torch.inference_mode():
        return reference(torch.tensor([tokens])).logits[0, -1].numpy()


ROUNDINGS = 30 * 14 + 3
"""Roundings to the dtype on the way to a logit: in each of 30 layers those of two norms, three
projections and two rotations of attention, its shares and sums, its output, the two sums into the
stream, and of the MLP its two projections, their product and its output; then the last norm, the
logit, and the token's vector."""


@pytest.mark.parametrize(("dtype", "eps"), [("f16", 2.0**-11), ("bf16", 2.0**-8)])
def test_narrow_dtypes_are_within_their_rounding(
    smollm2_gguf: Path, reference, tokenizer: Tokenizer, dtype: str, eps: float
) -> None:
    """A rounding moves its value by at most `eps` of it. Independent ones add up like a random
    walk: the root of their number, in units of the logits' own size (root mean square). The largest
    of 49,152 such sums is beyond four standard deviations once, so five are allowed."""
    tokens = encode_prompt(tokenizer, PROMPTS[5])
    expected = exact_logits(reference, tokens)
    found = logits(load(smollm2_gguf, dtype=dtype), tokens)
    size = float(np.sqrt(np.mean(np.square(expected))))
    assert np.abs(found - expected).max() < 5 * eps * ROUNDINGS**0.5 * size


def test_blocks_of_the_file_are_carried_over_exactly(smollm2_gguf: Path) -> None:
    model = load(smollm2_gguf, quantize="int4")
    checkpoint = open_checkpoint(smollm2_gguf)
    bits = {}
    for path, packed in model.weights.packed.items():
        stored = read_tensor(checkpoint, model_name(path))
        np.testing.assert_array_equal(values(packed), stored)
        bits[packed.part.bits] = bits.get(packed.part.bits, 0) + 1
    assert bits == {4: 210, 8: 1}
    assert set(model.quantisation.values()) == {0.0}


def model_name(path: str) -> str:
    from linnet.weights import read_bindings

    assert CARD.bindings is not None
    return read_bindings(CARD.bindings).tensor(path)


def test_blocks_without_rounding_what_they_multiply_give_the_same_tokens(
    smollm2_gguf: Path, model, tokenizer: Tokenizer
) -> None:
    packed = load(smollm2_gguf, quantize="int4", accuracy_level=1)
    tokens = encode_prompt(tokenizer, PROMPTS[0])
    np.testing.assert_allclose(logits(packed, tokens), logits(model, tokens), atol=1e-3)


DISTANCE = 1.5
"""Rounding what is multiplied to 8 bits, by blocks of 32, errs by 1/127 of a block's largest value
over the root of 12, and that value is about 2.2 times the block's own size: half a percent of each
product's result. 121 products, independent of each other, make that 5.5 % of the logits' spread of
3.4, and the largest of 49,152 such errors is 4.5 times as much: 0.84. Some vectors have values that
stand out of their block by far more, hence nearly twice that."""


@pytest.mark.parametrize(
    ("quantize", "symmetric"), [("int4", True), ("int8", True), ("int8", False)]
)
def test_the_distance_of_blocks(
    smollm2_gguf: Path, reference, tokenizer: Tokenizer, quantize: str, symmetric: bool
) -> None:
    tokens = encode_prompt(tokenizer, PROMPTS[5])
    model = load(smollm2_gguf, quantize=quantize, symmetric=symmetric)
    expected, found = exact_logits(reference, tokens), logits(model, tokens)
    distance = float(np.abs(found - expected).max())
    print(f"{quantize}, symmetric={symmetric}: largest distance of a logit {distance:.3f}")
    assert distance < DISTANCE
