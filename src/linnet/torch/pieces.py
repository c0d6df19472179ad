"""Compiling a piece of generated source with inductor, once, and calling it without guards.

A piece is a function of a block and tensors whose shapes are known, so nothing has to be checked
when it is called: it is traced to a graph of tensors (its block's weights and states become
inputs), compiled, and called for each layer with that layer's tensors. `torch.compile` would give
the same kernels, but it looks at every attribute of every block again at each call, which takes
longer than small layers do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from linnet.torch.tree import Block, attribute, build_tree

Compiled = Callable[..., Sequence[torch.Tensor]]


class Piece:
    """A function of the source that is compiled when it is first called."""

    def __init__(self, function: Callable[..., Any], places: Sequence[str]):
        self.function = function
        self.places = places
        """The attributes of its block that it uses; none if it takes no block."""
        self.seconds = 0.0
        """How long compiling took."""
        self._compiled: Compiled | None = None
        self._single = False
        self._tensors: dict[Block, list[torch.Tensor]] = {}

    def __call__(self, *arguments: Any) -> Any:
        if not self.places:
            tensors: list[torch.Tensor] = []
        else:
            block, *arguments = arguments  # type: ignore[assignment]
            tensors = self._tensors.get(block) or self._bound(block)
        inputs = [argument.contiguous() for argument in arguments]
        inputs += tensors
        if self._compiled is None:
            self._compiled = self._compile(inputs, len(arguments))
        results = self._compiled(*inputs)
        return results[0] if self._single else tuple(results)

    def _bound(self, block: Block) -> list[torch.Tensor]:
        found = self._tensors[block] = [attribute(block, place) for place in self.places]
        return found

    def _compile(self, inputs: Sequence[torch.Tensor], count: int) -> Compiled:
        from torch._inductor import compile as compile_graph
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import make_fx

        started = time.perf_counter()

        def flat(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            arguments: list[Any] = list(tensors[:count])
            if self.places:
                block = build_tree(dict(zip(self.places, tensors[count:], strict=True)))
                arguments.insert(0, block)
            found = self.function(*arguments)
            self._single = isinstance(found, torch.Tensor)
            return (found,) if self._single else tuple(found or ())

        with torch.inference_mode(False), torch.no_grad(), FakeTensorMode():
            examples = [
                torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
                for t in inputs
            ]
            graph = make_fx(flat)(*examples)
            compiled = compile_graph(graph, list(examples))  # type: ignore[arg-type]
        self.seconds = time.perf_counter() - started
        return compiled  # type: ignore[return-value]
