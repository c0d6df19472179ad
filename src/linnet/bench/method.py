"""A method: one way of running a model, measured in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from linnet.bench.workload import Workload
from linnet.nest.card import Card


class Method(Protocol):
    """One stack; `prepare` loads, the rest is timed or compared.

    The caller times `first_token` and `decode`, so each returns only when its tokens are known on
    the host. After `first_token`, `decode` goes on from there.
    """

    def prepare(self, card: Card, workload: Workload) -> None:
        """Loads the model, ready for the first call; compilation may wait until then."""
        ...

    def first_token(self) -> int:
        """Takes the workload's prompt in, in a fresh cache; the likeliest next token."""
        ...

    def decode(self, count: int) -> list[int]:
        """`count` further tokens, each after the last, greedily."""
        ...

    def logits(self) -> np.ndarray | None:
        """The f32 logits `[Vocab]` after the prompt, or None where a stack gives none."""
        ...

    def versions(self) -> dict[str, str]: ...


class TimedMethod(Protocol):
    """A stack with a benchmark of its own: it reports its samples, which are kept as they are."""

    def prepare(self, card: Card, workload: Workload) -> None: ...

    def samples(self) -> dict[str, list[float]]:
        """`ttft_ms` and `decode_tok_s`, a value a run."""
        ...

    def versions(self) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class Listing:
    """A row that a benchmark can have: its name, what it is, and where to find it."""

    name: str
    title: str
    group: str
    implementation: str
    """`module:Class`, imported only in the method's own process."""
    options: Sequence[tuple[str, str]] = ()
    needs: Sequence[str] = ()
    """Modules that must be importable."""
    is_reference: bool = False
    gpu: bool = False
