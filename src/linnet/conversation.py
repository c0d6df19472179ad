"""`linnet run`: one prompt answered in the terminal, with what it took."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linnet import nest
from linnet.backends import find_backend
from linnet.generate import Generation, encode_prompt, generate
from linnet.nest.fetch import PathSource
from linnet.runtime import Runtime
from linnet.text.sampling import SamplingParams


def converse(
    model: str,
    prompt: str,
    *,
    backend: str,
    options: dict[str, Any],
    weights: Path | None,
    max_seq: int,
    max_new_tokens: int,
    params: SamplingParams,
    stop: Sequence[str],
    raw: bool,
    compare: bool,
) -> None:
    """Streams the answer to standard output, then a line of figures to standard error.

    With `compare`, eager Transformers runs on the same weights after it, in a process of its own,
    and both speeds and the distance of the logits follow.
    """
    card = nest.find(model)
    if weights is not None:
        card = dataclasses.replace(card, weights=PathSource(weights))
    path = nest.fetch(card.weights)
    started = time.perf_counter()
    tokenizer = nest.tokenizer(card, path)
    sizes = {"MaxSeq": min(max_seq, card.generics["MaxSeq"]), "Batch": 1}
    runtime = nest.load(card, backend=backend, generics=sizes, weights=path, **options)
    tokens = encode_prompt(tokenizer, prompt, raw=raw)
    load_s = time.perf_counter() - started
    generation = generate(
        runtime,
        tokenizer,
        tokens,
        max_new_tokens=max_new_tokens,
        params=params,
        stop=stop,
        prefill_lengths=find_backend(backend).prefill_lengths,
        on_text=_show,
    )
    print(flush=True)
    print(summary(runtime, generation, load_s), file=sys.stderr)
    if compare:
        _compare(card, backend, options)


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def summary(runtime: Runtime, generation: Generation, load_s: float) -> str:
    """Tokens, time to first token, decode speed and its share of the memory's, load, memory."""
    from linnet.bench.machine import peak_memory, read_bandwidth

    peak = peak_memory()
    parts = [
        f"{generation.prompt_tokens} tokens in, {len(generation.tokens)} out",
        f"first token {generation.ttft_s * 1e3:.0f} ms",
    ]
    if generation.decode_s:
        speed = generation.decode_tok_s
        share = speed * runtime.weight_bytes / read_bandwidth()
        parts.append(f"decode {speed:.1f} tok/s ({share:.0%} of memory bandwidth)")
    parts.append(f"loaded in {load_s:.1f} s")
    if runtime.compile_s:
        parts.append(f"compiled in {runtime.compile_s:.1f} s")
    parts.append(f"peak memory {peak / 2**20:,.0f} MiB")
    return f"[{runtime.name} {runtime.dtype}] " + " · ".join(parts)


def _compare(card: nest.Card, backend: str, options: dict[str, Any]) -> None:
    from linnet.bench import PROFILES, run_bench
    from linnet.bench.report import print_run

    compiled = options.get("compile")
    own = f"linnet-{compiled}" if compiled else find_backend(backend).method
    workload = dataclasses.replace(PROFILES["cpu"], dtype=options["dtype"])
    print("\ncomparing with eager transformers on the same weights …", file=sys.stderr)
    print_run(run_bench(card, workload, ["transformers", own]))
