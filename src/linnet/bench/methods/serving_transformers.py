"""Transformers for the benchmark of serving: its continuous batching, and padded batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from linnet import nest
from linnet.bench.serving import Load, Serve, Served

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def _model(name: str, weights: str | None, load: Load, attention: str) -> tuple[Any, int]:
    card = nest.find(name)
    path = Path(weights) if weights else nest.fetch(card.weights)
    folder, file = (path, None) if path.is_dir() else (path.parent, path.name)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=_DTYPES[load.dtype], attn_implementation=attention
    )
    return model.eval(), card.generics["Vocab"]


def prepare_continuous(name: str, weights: str | None, load: Load) -> tuple[Serve, int]:
    """`generate_batch`, which batches continuously over a paged cache."""
    model, vocab = _model(name, weights, load, "sdpa")
    config = GenerationConfig(
        max_new_tokens=load.new, do_sample=False, eos_token_id=-1, pad_token_id=0
    )

    def serve(prompts: Sequence[list[int]]) -> list[Served]:
        found = model.generate_batch(
            [list(prompt) for prompt in prompts], generation_config=config, progress_bar=False
        )
        # The keys are `req_0`, `req_1`, … in the order of the prompts.
        ordered = sorted(found.items(), key=lambda item: int(item[0].rpartition("_")[2]))
        return [Served(list(one.generated_tokens), None) for _, one in ordered]

    return serve, vocab


def prepare_static(name: str, weights: str | None, load: Load) -> tuple[Serve, int]:
    """`generate` over batches of as many as are in flight, padded on the left."""
    model, vocab = _model(name, weights, load, "sdpa")

    def serve(prompts: Sequence[list[int]]) -> list[Served]:
        served = []
        for start in range(0, len(prompts), load.in_flight):
            batch = prompts[start : start + load.in_flight]
            longest = max(map(len, batch))
            tokens = torch.zeros(len(batch), longest, dtype=torch.long)
            seen = torch.zeros(len(batch), longest, dtype=torch.long)
            for row, prompt in enumerate(batch):
                tokens[row, longest - len(prompt) :] = torch.tensor(prompt)
                seen[row, longest - len(prompt) :] = 1
            with torch.inference_mode():
                found = model.generate(
                    tokens, attention_mask=seen, max_new_tokens=load.new, min_new_tokens=load.new,
                    do_sample=False, pad_token_id=0,
                )  # fmt: skip
            served += [Served(row[longest:].tolist(), None) for row in found]
        return served

    return serve, vocab
