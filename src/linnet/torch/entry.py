"""One entry for one set of shapes: its source, compiled where asked, bound to the weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from linnet.dtypes import DType
from linnet.emit.torch import Emitted, TorchTarget, emit
from linnet.ir.core import Module
from linnet.torch.graphs import Captured
from linnet.torch.operators import operator
from linnet.torch.pieces import Piece
from linnet.torch.tree import build_tree


@dataclass(slots=True)
class BoundEntry:
    """A generated entry that runs."""

    module: Module
    emitted: Emitted
    function: Callable[..., Any]
    """Takes the entry's inputs as tensors on the device."""
    pieces: Sequence[Piece]
    seconds: float
    """What generating it took; compiling its pieces comes with its first call."""
    narrow: tuple[torch.dtype | None, ...] = field(default=())
    """For each result, the dtype that it leaves with where it is held in a wider one."""

    @property
    def compile_s(self) -> float:
        return self.seconds + sum(piece.seconds for piece in self.pieces)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> Any:
        found = self.function(*inputs)
        if not self.narrow:
            return found
        results = found if isinstance(found, tuple) else (found,)
        leaving = tuple(
            result if dtype is None else result.to(dtype)
            for result, dtype in zip(results, self.narrow, strict=True)
        )
        return leaving if isinstance(found, tuple) else leaving[0]


def bind(
    module: Module,
    target: TorchTarget,
    tensors: Mapping[str, torch.Tensor],
    pool: Callable[[], Any],
) -> BoundEntry:
    """Generates a module's source and binds it to tensors by path: weights, states, derived."""
    started = time.perf_counter()
    emitted = emit(module, target)
    names: dict[str, Any] = {}
    exec(compile(emitted.source, f"<{module.entry}>", "exec"), names)
    tree = build_tree({at: tensors[path] for at, path in emitted.places.items()})
    names |= {name: operator(name) for name in emitted.opaque}
    pieces = []
    for name, places in emitted.pieces.items():
        piece = names[name] = Piece(names[name], places)
        pieces.append(piece)
    entry = names[emitted.entry]

    def function(*inputs: torch.Tensor) -> Any:
        return entry(tree, *inputs)

    if target.mode == "cudagraphs" and emitted.capturable:
        function = Captured(function, pool())
    seconds = time.perf_counter() - started
    wide = [_NARROW.get(value.type.dtype) for value in module.main.results]
    narrow = tuple(wide) if any(wide) else ()
    return BoundEntry(module, emitted, function, pieces, seconds, narrow)


_NARROW = {DType.U16: torch.uint16, DType.U32: torch.uint32, DType.U64: torch.uint64}
