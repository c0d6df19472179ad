"""A whole call of an entry as one CUDA graph: one launch, no work on the host.

The first calls run as they are: they compile the pieces, and let the libraries set up what they
allocate. Then the call is captured (which runs nothing) and from there on replayed. Inputs are
copied into fixed buffers; the results are copied out, since the next replay writes over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_WARM = 2
"""How many calls run before one is captured."""


class Captured:
    """An entry's function with its inputs' values kept in buffers of its own."""

    def __init__(self, function: Callable[..., Any], pool: Any):
        self.function = function
        self.pool = pool
        self.calls = 0
        self.stream = torch.cuda.Stream()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[torch.Tensor] = []
        self.results: Any = None

    def __call__(self, *inputs: torch.Tensor) -> Any:
        if self.graph is None:
            if self.calls < _WARM:
                self.calls += 1
                return self._warm(inputs)
            self._capture(inputs)
        assert self.graph is not None
        for kept, given in zip(self.inputs, inputs, strict=True):
            kept.copy_(given, non_blocking=True)
        self.graph.replay()
        return _copied(self.results)

    def _warm(self, inputs: Sequence[torch.Tensor]) -> Any:
        """Runs on the stream that captures, as capturing wants it."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            found = self.function(*inputs)
        torch.cuda.current_stream().wait_stream(self.stream)
        return found

    def _capture(self, inputs: Sequence[torch.Tensor]) -> None:
        self.inputs = [given.clone() for given in inputs]
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
            self.results = self.function(*self.inputs)
        self.graph = graph


def _copied(results: Any) -> Any:
    if isinstance(results, torch.Tensor):
        return results.clone()
    return tuple(result.clone() for result in results)
