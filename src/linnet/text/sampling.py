"""From logits to a token: penalties, temperature, the filters, the draw.

The steps and their order are those of Transformers: logit bias and penalties, then temperature,
top-k, top-p, min-p, then one draw. They are functions over `[B, V]` arrays, a row a sequence;
`Sampler` keeps one sequence's history and random state. A filter is a limit on the logits, so
equally likely tokens stay or go together, and no token's rank is ever needed: values are sorted,
never indices, and only for top-p.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

LIMITS: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_k": (0, 1 << 31),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
}


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen; the defaults take the likeliest each time.

    Raises `ValueError` for a value outside of its range (`LIMITS`).
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
    """Added to the logits of tokens; -inf bans one."""
    seed: int | None = None
    """The same seed draws the same tokens; None draws anew each time."""

    def __post_init__(self) -> None:
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if not _is_number(value) or not low <= value <= high:
                raise ValueError(f"{name} must be from {low:g} to {high:g}, found {value!r}")
        if self.top_p == 0.0:
            raise ValueError("top_p must be more than 0; temperature 0 takes the likeliest token")
        if not isinstance(self.top_k, int):
            raise ValueError(f"top_k must be a whole number, found {self.top_k!r}")
        if self.seed is not None and (type(self.seed) is not int or not 0 <= self.seed < 1 << 64):
            raise ValueError(f"seed must be a whole number from 0 to 2^64 - 1, found {self.seed!r}")
        for token, bias in self.logit_bias.items():
            if type(token) is not int or token < 0:
                raise ValueError(f"logit_bias must be by token id, found {token!r}")
            if not _is_number(bias) or not -math.inf <= bias < math.inf:
                raise ValueError(
                    f"logit_bias of token {token} must be a number, or -inf to ban it, "
                    f"found {bias!r}"
                )

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
    """Logits `[B, V]` with all that is not to be drawn at -inf; `top_k`, `top_p`, `min_p` `[B]`.

    Each looks at what the ones before it left. The likeliest token always stays.
    """
    best = logits.max(-1)
    limit = top_k_limit(logits, top_k)
    if np.any(top_p < 1.0):
        limit = np.maximum(limit, top_p_limit(logits, limit, top_p))
    with np.errstate(divide="ignore"):
        limit = np.maximum(limit, best + np.log(min_p))
    return np.where(logits >= np.minimum(limit, best)[:, None], logits, -np.inf)


def top_k_limit(logits: np.ndarray, top_k: np.ndarray) -> np.ndarray:
    """The `top_k`-th largest logit of each row, -inf where `top_k` is 0."""
    vocab = logits.shape[-1]
    limit = np.full(len(logits), -np.inf)
    for k in set(top_k.tolist()) - {0}:
        rows = top_k == k
        at = vocab - min(k, vocab)
        limit[rows] = np.partition(logits[rows], at, -1)[:, at]
    return limit


def top_p_limit(logits: np.ndarray, limit: np.ndarray, top_p: np.ndarray) -> np.ndarray:
    """The smallest logit among the likeliest that together reach `top_p` (Holtzman et al., 2020).

    Only those from `limit` on count. The token that crosses the line is in.
    """
    count = int((logits >= limit[:, None]).sum(-1).max())
    rest = logits.shape[-1] - count
    ranked = -np.sort(-np.partition(logits, rest, -1)[:, rest:] if rest else -logits, -1)
    share = softmax(np.where(ranked >= limit[:, None], ranked, -np.inf))
    before = np.cumsum(share, -1) - share
    last = np.maximum((before < top_p[:, None]).sum(-1) - 1, 0)
    found = np.take_along_axis(ranked, last[:, None], -1)[:, 0]
    return np.where(top_p < 1.0, found, -np.inf)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities over the last axis."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities over the last axis, in f64."""
    shifted = np.asarray(logits, np.float64) - np.max(logits, -1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def draw(logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """One token a row of `[B, V]` by inverting the cumulative distribution at `uniform`, `[B]`."""
    columns = np.flatnonzero(np.isfinite(logits).any(0))
    left = logits[:, columns]
    cumulative = np.cumsum(softmax(left), -1)
    chosen = (cumulative <= (uniform * cumulative[:, -1])[:, None]).sum(-1)
    # Rounding can leave the sum just short of 1: the last token that may be drawn at all.
    last = len(columns) - 1 - np.argmax(np.isfinite(left[:, ::-1]), -1)
    return columns[np.minimum(chosen, last)]


class Sampler:
    """Chooses one sequence's tokens, deterministically for a seed."""

    def __init__(self, params: SamplingParams, prompt: Sequence[int] = ()):
        self.params = params
        self._random = np.random.Generator(np.random.Philox(params.seed))
        self._prompt = np.asarray(prompt, np.int64)
        self._answer: list[int] = []

    def choose(self, logits: np.ndarray) -> int:
        """The next token from its logits `[V]`, which becomes part of the history.

        Raises `ValueError` where the logits leave nothing to choose: NaN, or all at -inf.
        """
        params = self.params
        row = np.asarray(logits, np.float64)[None, :]
        if params.changes_logits:
            row = self._adjusted(row)
        best = row.max()
        if not np.isfinite(best):
            raise ValueError(
                f"the logits' largest is {best}: no token can be chosen (weights or inputs that "
                "overflow, or a logit_bias that bans every token)"
            )
        if params.temperature == 0.0:
            token = int(np.argmax(row))
        else:
            row = filter_logits(
                # Far from the largest first, so that a tiny temperature can't overflow.
                (row - best) / params.temperature,
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
            if token >= vocab:
                raise ValueError(
                    f"logit_bias names token {token}: the model's vocabulary has {vocab}"
                )
            row[0, token] += bias
        counts = [
            np.bincount(np.asarray(ids, np.int64), minlength=vocab)[None, :vocab]
            for ids in (self._prompt, self._answer)
        ]
        penalties = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
        return penalise(row, *counts, *(np.array([[p]]) for p in penalties))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class StopText:
    """Holds back text that may be the start of a stop string, and ends at a whole one.

    The first to be complete ends the text, however the text is cut into pieces; of two complete at
    once, the longer. Raises `ValueError` for an empty stop string.
    """

    def __init__(self, stops: str | Sequence[str]):
        self._stops = [stops] if isinstance(stops, str) else list(stops)
        if not all(self._stops):
            raise ValueError("a stop string must not be empty")
        self._held = ""
        self.found: str | None = None
        """The stop string that ended the text."""

    def push(self, text: str) -> str:
        """The text that is surely before any stop string."""
        if self.found is not None:
            return ""
        self._held += text
        found = [(at + len(s), at, s) for s in self._stops if (at := self._held.find(s)) >= 0]
        if found:
            _, at, self.found = min(found)
            given, self._held = self._held[:at], ""
            return given
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        given, self._held = self._held[:cut], self._held[cut:]
        return given

    def flush(self) -> str:
        """The text that was held back, when no more comes."""
        given, self._held = self._held, ""
        return given

    def _overlap(self, stop: str) -> int:
        """How much of the end of the held text begins the stop string."""
        for size in range(min(len(stop) - 1, len(self._held)), 0, -1):
            if self._held.endswith(stop[:size]):
                return size
        return 0
