"""What the engine is asked, and what it answers.

A `Request` is a prompt of tokens with what to do after it; its `Completion` is filled in as the
tokens come. One request may ask for several answers (`n`): each is a `Choice` of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from linnet.text.sampling import SamplingParams


class QueueFull(RuntimeError):
    """The engine's queue is full: ask again later."""


class Refused(ValueError):
    """A request that this engine can't serve; says why."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The model's own distribution (before penalties, temperature and filters) at one token."""

    logprob: float
    top: tuple[tuple[int, float], ...]
    """The likeliest tokens and their logprobs."""


@dataclass(frozen=True, slots=True)
class Step:
    """One token of an answer, told as soon as it is known."""

    choice: int
    token: int
    text: str
    """What the token completes, which may be none."""
    logprobs: TokenLogprobs | None
    finish: str | None
    """Set with the last."""


Constraint = Any
"""What limits the tokens: `mask() -> np.ndarray | None` says which are allowed next (bool `[V]`),
`accept(token)` takes one in, `finished` says that nothing can follow. One for each choice."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt's tokens and what to do after it."""

    prompt: Sequence[int]
    max_new_tokens: int = 256
    params: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    """Strings that end the text; they are not part of it."""
    stop_tokens: tuple[int, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    """Answers to the one prompt."""
    logprobs: int | None = None
    """None for none; else how many of the likeliest are told besides the chosen one."""
    deadline_s: float | None = None
    """Seconds from submission after which it ends as it is."""
    constraint: Callable[[], Constraint] | None = None
    """Makes what limits the tokens of a choice."""
    on_step: Callable[[Step], None] | None = None
    """Called on the engine's thread for each token; must not wait."""


@dataclass(slots=True)
class Choice:
    """One answer."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish: str | None = None
    """`stop` (an end token, a stop string, the end of a grammar), `length` (the limit or the end of
    the cache), `cancelled`, `deadline`, `error`; None while it runs."""
    error: str | None = None


@dataclass(slots=True, eq=False)
class Completion:
    """What became of a request; a choice after the other finishes."""

    request: Request
    id: int
    choices: list[Choice]
    submitted: float
    """`time.perf_counter()` at submission, and later at the first token and the end."""
    first_token: float | None = None
    finished: float | None = None
    cached_tokens: int = 0
    """Tokens of the prompt that were in the cache already."""
    cancel_as: str | None = None
    """Set to end it at the next step, with this as its finish."""

    @property
    def done(self) -> bool:
        return all(choice.finish is not None for choice in self.choices)

    # The first choice, where one was asked for.

    @property
    def tokens(self) -> list[int]:
        return self.choices[0].tokens

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def finish(self) -> str | None:
        return self.choices[0].finish

    @property
    def new_tokens(self) -> int:
        return sum(len(choice.tokens) for choice in self.choices)


def allowed(logits: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Logits `[V]` with what a constraint forbids at -inf."""
    if mask is None:
        return logits
    if mask.size < logits.size:  # a vocabulary padded beyond its tokenizer's
        mask = np.pad(mask, (0, logits.size - mask.size))
    return np.where(mask[: logits.size], logits, -np.inf)
