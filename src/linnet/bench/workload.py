"""What is measured: one request of random ordinary tokens, the same for every method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

SEED = 20


@dataclass(frozen=True, slots=True)
class Workload:
    """One request: `prompt` tokens in, `new` tokens out, greedily, end tokens ignored."""

    prompt: int = 512
    new: int = 128
    runs: int = 10
    warmup: int = 3
    dtype: str = "f32"
    threads: int = 0
    """Threads of each method; 0 for as many as there are cores."""
    weights: str = "card"
    """`card` for the model's own, `random` for random ones of its shape."""

    def __post_init__(self) -> None:
        for name in ("prompt", "new", "runs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.dtype not in ("f32", "f16", "bf16"):
            raise ValueError(f"dtype must be f32, f16 or bf16, found {self.dtype!r}")
        if self.weights not in ("card", "random"):
            raise ValueError(f"weights must be card or random, found {self.weights!r}")

    @property
    def cache(self) -> int:
        """Positions of the cache: the next multiple of 256."""
        return -(-(self.prompt + self.new) // 256) * 256

    def prompt_ids(self, vocab: int) -> list[int]:
        """The prompt: the same for every method, clear of special tokens at either end."""
        random = np.random.default_rng(SEED)
        return random.integers(vocab // 16, vocab - vocab // 16, self.prompt).tolist()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(table: Mapping[str, Any]) -> Workload:
        return Workload(**table)


PROFILES = {
    "gpu": Workload(),
    "cpu": Workload(prompt=128, new=32, runs=3, warmup=1),
}
"""The named sizes: the full one, and one for small machines."""


def random_weight(path: str, shape: tuple[int, ...]) -> np.ndarray:
    """A random weight in f32, the same for every method: it follows from its path alone.

    A vector is a norm's (about 1), a matrix small enough that a deep model keeps finite values.
    """
    seed = int.from_bytes(path.encode()[-24:], "little")
    random = np.random.Generator(np.random.SFC64(seed))
    values = random.standard_normal(shape, np.float32)
    if len(shape) == 1:
        return 1.0 + 0.02 * values
    values *= 0.02
    return values
