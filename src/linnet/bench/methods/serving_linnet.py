"""Linnet's own engine, for the benchmark of serving."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from linnet import nest
from linnet.bench.serving import Load, Serve, Served
from linnet.serve import Completion, Engine, Request


def prepare(name: str, weights: str | None, load: Load) -> tuple[Serve, int]:
    """The engine on the PyTorch runtime, with as many rows as requests in flight."""
    card = nest.find(name)
    options = {} if weights is None else {"weights": Path(weights)}
    sizes = {"MaxSeq": load.cache, "Batch": load.in_flight}
    model = nest.load(card, backend="torch", generics=sizes, dtype=load.dtype, **options)
    engine = Engine(model)
    engine.warmup()

    def serve(prompts: Sequence[list[int]]) -> list[Served]:
        engine.rows.forget()  # What an earlier run left in the cache would be no work.
        left = deque(Request(prompt, load.new) for prompt in prompts)
        done: list[Completion] = []
        flying: list[Completion] = []
        while left or flying:
            while left and len(flying) < load.in_flight:
                flying.append(engine.submit(left.popleft()))
                done.append(flying[-1])
            engine.step()
            flying = [one for one in flying if not one.done]
        return [
            Served(one.tokens, (one.first_token or one.submitted) - one.submitted) for one in done
        ]

    return serve, card.generics["Vocab"]
