"""The engine with the real SmolLM2-135M in f32: each request's tokens are those it gets alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from linnet import nest
from linnet.serve import Engine, Request
from linnet.text.sampling import SamplingParams
from tests.conftest import MODEL
from tests.serve.models import alone, assert_same

pytestmark = pytest.mark.weights


def test_real_requests_give_what_they_give_alone(smollm2_gguf: Path) -> None:
    card = nest.find(MODEL)
    model = nest.load(card, weights=smollm2_gguf, generics={"Batch": 4, "MaxSeq": 128}, dtype="f32")
    tokenizer = nest.tokenizer(card, smollm2_gguf)
    random = np.random.default_rng(0)
    texts = ["Once upon a time", "The capital of France is", "def add(a, b):", "Dear Sir,",
             "In 1969, the first", "Water boils at", "My favourite colour is"]  # fmt: skip
    asked = [
        Request(
            tokenizer.encode(" ".join(random.permutation(texts)[: 1 + i % 4])),
            max_new_tokens=12,
            params=SamplingParams() if i % 3 else SamplingParams(0.8, top_p=0.95, seed=i),
            stop=("\n\n",),
            n=1 + (i == 3),
        )
        for i in range(8)
    ]
    expected = [alone(model, request, tokenizer=tokenizer) for request in asked]
    model.reset_state()
    found = Engine(model, tokenizer, budget=48).run(asked)
    assert_same(found, expected)
    for one, other in zip(found, expected, strict=True):
        assert one.text == other.text
        if one.finish == "length" and one.request.params.is_greedy:
            assert one.text == tokenizer.decode(one.tokens)
