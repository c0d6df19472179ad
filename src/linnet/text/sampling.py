"""From logits to a token: penalties, temperature, the filters, the draw.

The steps and their order are those of Transformers and vLLM: logit bias and penalties, then
temperature, top-k, top-p, min-p, then one draw. They are functions over `[B, V]` arrays, a row a
sequence; `Sampler` keeps one sequence's history and random state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen; the defaults take the likeliest each time.

    Raises `ValueError` for a value outside of its range.
    """

    temperature: float = 0.0
    """0 takes the likeliest token; 1 draws from the model's own distribution."""
    top_k: int = 0
    """Draws among the k likeliest; 0 for all."""
    top_p: float = 1.0
    """Draws among the likeliest that together have this probability."""
    min_p: float = 0.0
    """Draws among those at least this share as likely as the likeliest."""
    repetition_penalty: float = 1.0
    """Divides positive logits (multiplies negative ones) of tokens in the prompt or the answer."""
    presence_penalty: float = 0.0
    """Taken from the logits of tokens that the answer holds."""
    frequency_penalty: float = 0.0
    """Taken once for each time that the answer holds a token."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    """The same seed draws the same tokens; None draws anew each time."""

    def __post_init__(self) -> None:
        limits = {
            "temperature": (0.0, 100.0),
            "top_k": (0, 1 << 31),
            "top_p": (0.0, 1.0),
            "min_p": (0.0, 1.0),
            "repetition_penalty": (0.01, 100.0),
            "presence_penalty": (-100.0, 100.0),
            "frequency_penalty": (-100.0, 100.0),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must be from {low:g} to {high:g}, found {value!r}")
        if self.top_p == 0.0:
            raise ValueError("top_p must be more than 0; temperature 0 takes the likeliest token")

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest of the model's own logits is taken as it is."""
        return self.temperature == 0.0 and not self.changes_logits

    @property
    def changes_logits(self) -> bool:
        return bool(
            self.logit_bias
            or self.repetition_penalty != 1.0
            or self.presence_penalty
            or self.frequency_penalty
        )


def penalise(
    logits: np.ndarray,
    prompt_counts: np.ndarray,
    answer_counts: np.ndarray,
    repetition: np.ndarray,
    presence: np.ndarray,
    frequency: np.ndarray,
) -> np.ndarray:
    """Penalised logits `[B, V]`; counts are `[B, V]`, the penalties `[B, 1]`.

    Repetition (Keskar et al., 2019) looks at prompt and answer, the other two at the answer.
    """
    seen = (prompt_counts + answer_counts) > 0
    scaled = np.where(logits > 0, logits / repetition, logits * repetition)
    logits = np.where(seen, scaled, logits)
    return logits - presence * (answer_counts > 0) - frequency * answer_counts


def filter_logits(
    logits: np.ndarray, top_k: np.ndarray, top_p: np.ndarray, min_p: np.ndarray
) -> np.ndarray:
    """Logits `[B, V]` with all that is not to be drawn at -inf; the limits are `[B]`.

    Top-p (Holtzman et al., 2020) keeps the token that crosses the limit. The likeliest always
    stays.
    """
    order = np.argsort(-logits, axis=-1, kind="stable")
    ranked = np.take_along_axis(logits, order, -1)
    vocab = logits.shape[-1]
    limit = np.where(top_k > 0, np.minimum(top_k, vocab), vocab)
    keep = np.arange(vocab)[None, :] < limit[:, None]
    share = softmax(np.where(keep, ranked, -np.inf))
    before = np.cumsum(share, -1) - share
    keep &= before < top_p[:, None]
    share = softmax(np.where(keep, ranked, -np.inf))
    keep &= share >= min_p[:, None] * share[:, :1]
    keep[:, 0] = True
    ranked = np.where(keep, ranked, -np.inf)
    filtered = np.empty_like(logits)
    np.put_along_axis(filtered, order, ranked, -1)
    return filtered


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities over the last axis."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def draw(logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """One token a row of `[B, V]` by inverting the cumulative distribution at `uniform`, `[B]`."""
    cumulative = np.cumsum(softmax(logits), -1)
    below = cumulative <= (uniform * cumulative[:, -1])[:, None]
    chosen = below.sum(-1)
    # Rounding can leave the sum just short of 1: the last token that may be drawn at all.
    last = logits.shape[-1] - 1 - np.argmax(np.isfinite(logits[:, ::-1]), -1)
    return np.minimum(chosen, last)


class Sampler:
    """Chooses one sequence's tokens, deterministically for a seed."""

    def __init__(self, params: SamplingParams, prompt: Sequence[int] = ()):
        self.params = params
        self._random = np.random.Generator(np.random.Philox(params.seed))
        self._prompt = np.asarray(prompt, np.int64)
        self._answer: list[int] = []

    def choose(self, logits: np.ndarray) -> int:
        """The next token from its logits `[V]`, which becomes part of the history."""
        params = self.params
        row = np.asarray(logits, np.float64)[None, :]
        if params.changes_logits:
            row = self._adjusted(row)
        if params.temperature == 0.0:
            token = int(np.argmax(row))
        else:
            row = filter_logits(
                row / params.temperature,
                np.array([params.top_k]),
                np.array([params.top_p]),
                np.array([params.min_p]),
            )
            token = int(draw(row, self._random.random(1))[0])
        self._answer.append(token)
        return token

    def _adjusted(self, row: np.ndarray) -> np.ndarray:
        params, vocab = self.params, row.shape[-1]
        row = row.copy()
        for token, bias in params.logit_bias.items():
            if 0 <= token < vocab:
                row[0, token] += bias
        counts = [
            np.bincount(np.asarray(ids, np.int64), minlength=vocab)[None, :vocab]
            for ids in (self._prompt, self._answer)
        ]
        penalties = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
        return penalise(row, *counts, *(np.array([[p]]) for p in penalties))


class StopText:
    """Holds back text that may be the start of a stop string, and ends at a whole one."""

    def __init__(self, stops: Sequence[str]):
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.found: str | None = None
        """The stop string that ended the text."""

    def push(self, text: str) -> str:
        """The text that is surely before any stop string."""
        if self.found is not None:
            return ""
        self._held += text
        starts = [(at, s) for s in self._stops if (at := self._held.find(s)) >= 0]
        if starts:
            at, self.found = min(starts, key=lambda pair: pair[0])
            given, self._held = self._held[:at], ""
            return given
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        given, self._held = self._held[:cut], self._held[cut:]
        return given

    def flush(self) -> str:
        given, self._held = self._held, ""
        return given

    def _overlap(self, stop: str) -> int:
        """How much of the end of the held text begins the stop string."""
        for size in range(min(len(stop) - 1, len(self._held)), 0, -1):
            if self._held.endswith(stop[:size]):
                return size
        return 0
