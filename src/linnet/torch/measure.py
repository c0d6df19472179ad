"""Which kernel multiplies a matrix by one row fastest here.

Decoding one token reads every weight once, so it is as fast as these products read memory, and that
depends on the processor, the dtype and the library by a factor of two either way: nobody can tell
without trying. The candidates run on the model's own weights, each read from memory as in a step.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional as F

from linnet.emit.torch_support import SUPPORT
from linnet.torch.pieces import Piece

_BYTES = 256 << 20
"""How much is read in a round: more than caches hold, where the model has it."""
_ROUNDS = 5


def best_one_row(tensors: Sequence[torch.Tensor], compiled: bool) -> str:
    """`mv`, `linear` or, where code is compiled, `sum`: `TorchTarget.one_row`."""
    matrices = _matrices(tensors)
    if not matrices:
        return "linear"
    vector = torch.ones(matrices[0].shape[1], dtype=matrices[0].dtype)
    candidates: dict[str, Callable[[torch.Tensor], object]] = {
        "mv": lambda weight: torch.mv(weight, vector),
        "linear": lambda weight: F.linear(vector[None], weight),
    }
    if compiled:
        names: dict = {"torch": torch}
        exec(SUPPORT["matrix_vector"], names)
        piece = Piece(names["matrix_vector"], ())
        candidates["sum"] = lambda weight: piece(weight, vector)
    seconds = dict.fromkeys(candidates, float("inf"))
    with torch.inference_mode():
        for run in candidates.values():
            run(matrices[0])
        for _ in range(_ROUNDS):
            for name, run in candidates.items():
                started = time.perf_counter()
                for weight in matrices:
                    run(weight)
                seconds[name] = min(seconds[name], time.perf_counter() - started)
    return min(seconds, key=seconds.__getitem__)


def _matrices(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Weights of the shape that most of the model's bytes have, as many as a round reads."""
    floats = (torch.float32, torch.bfloat16, torch.float16)
    found = [t for t in tensors if t.dim() == 2 and t.dtype in floats and t.is_contiguous()]
    sizes: Counter[object] = Counter()
    for tensor in found:
        sizes[tensor.shape, tensor.dtype] += tensor.nbytes
    if not sizes:
        return []
    ((form, _),) = sizes.most_common(1)
    same = [tensor for tensor in found if (tensor.shape, tensor.dtype) == form]
    return same[: max(1, _BYTES // same[0].nbytes)]
