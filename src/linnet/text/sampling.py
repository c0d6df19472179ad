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

    Only those from `limit` on count. The token that crosses the line is in. Each row by itself, so
    that no sum's rounding depends on its neighbours.
    """
    found = np.full(len(logits), -np.inf)
    for row in np.flatnonzero(top_p < 1.0):
        found[row] = _nucleus(logits[row], limit[row], top_p[row])
    return found


_FEW = 512
"""Tokens that are looked at first: most often they are enough, and sorting is left out."""


def _nucleus(logits: np.ndarray, limit: float, top_p: float) -> float:
    best = logits.max()
    total = np.exp(np.where(logits >= limit, logits, -np.inf) - best).sum()
    for count in (min(_FEW, logits.size), logits.size):
        top = logits if count == logits.size else np.partition(logits, -count)[-count:]
        ranked = -np.sort(-top)
        ranked = ranked[ranked >= limit]
        share = np.exp(ranked - best) / total
        reached = np.cumsum(share)
        if reached[-1] >= top_p:
            break
    return ranked[max(int((reached - share < top_p).sum()) - 1, 0)]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities over the last axis."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities over the last axis, in f64."""
    shifted = np.asarray(logits, np.float64) - np.max(logits, -1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def draw(logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """One token a row of `[B, V]` by inverting the cumulative distribution at `uniform`, `[B]`.

    Each row by itself, over the tokens that may be drawn at all.
    """
    tokens = np.empty(len(logits), np.int64)
    for row, (values, at) in enumerate(zip(logits, uniform, strict=True)):
        columns = np.flatnonzero(np.isfinite(values))
        cumulative = np.cumsum(softmax(values[columns]))
        chosen = int(np.searchsorted(cumulative, at * cumulative[-1], side="right"))
        # Rounding can leave the sum just short of 1.
        tokens[row] = columns[min(chosen, len(columns) - 1)]
    return tokens


class Sampler:
    """Chooses one sequence's tokens, deterministically for a seed.

    `choice` numbers the answers to one prompt: each draws for itself.
    """

    def __init__(self, params: SamplingParams, prompt: Sequence[int] = (), choice: int = 0):
        self.params = params
        seed = np.random.SeedSequence(params.seed, spawn_key=(choice,)) if choice else params.seed
        self.random = np.random.Generator(np.random.Philox(seed))
        self._prompt = np.asarray(prompt, np.int64)
        self._counts: np.ndarray | None = None

    def choose(self, logits: np.ndarray) -> int:
        """The next token from its logits `[V]`, which becomes part of the history.

        Raises `ValueError` where the logits leave nothing to choose: NaN, or all at -inf.
        """
        found = choose_rows(np.asarray(logits)[None, :], [self])[0]
        if isinstance(found, ValueError):
            raise found
        return found

    def counts(self, vocab: int) -> np.ndarray:
        """How often each token is in the prompt and in the answer: `[2, V]`."""
        if self._counts is None:
            self._counts = np.zeros((2, vocab), np.int64)
            self._counts[0] = np.bincount(self._prompt, minlength=vocab)[:vocab]
        return self._counts

    def add(self, token: int, vocab: int) -> None:
        """Takes a token into the history."""
        if self.params.changes_logits:
            self.counts(vocab)[1, token] += 1


def choose_rows(logits: np.ndarray, samplers: Sequence[Sampler]) -> list[int | ValueError]:
    """The next token of each row of `[B, V]`, by its own sampler, for the whole batch at once.

    Rows don't touch each other: each gets what it would alone. A row that leaves nothing to choose
    gets its error instead.
    """
    rows = np.asarray(logits, np.float64)
    vocab = rows.shape[-1]
    params = [sampler.params for sampler in samplers]
    found: list[int | ValueError] = [0] * len(params)
    changed = [i for i, p in enumerate(params) if p.changes_logits]
    if changed:
        rows = rows.copy()
        for i in changed:
            if error := _add_bias(rows[i], params[i].logit_bias):
                found[i] = error
        counts = np.stack([samplers[i].counts(vocab) for i in changed])
        names = ("repetition_penalty", "presence_penalty", "frequency_penalty")
        penalties = (np.array([[getattr(params[i], name)] for i in changed]) for name in names)
        rows[changed] = penalise(rows[changed], counts[:, 0], counts[:, 1], *penalties)
    best = rows.max(-1)
    for i in np.flatnonzero(~np.isfinite(best)):
        found[i] = ValueError(
            f"the logits' largest is {best[i]}: no token can be chosen (weights or inputs that "
            "overflow, or a logit_bias that bans every token)"
        )
    able = [i for i, value in enumerate(found) if not isinstance(value, ValueError)]
    greedy = [i for i in able if params[i].temperature == 0.0]
    drawn = [i for i in able if params[i].temperature != 0.0]
    if greedy:
        for i, token in zip(greedy, rows[greedy].argmax(-1).tolist(), strict=True):
            found[i] = token
    if drawn:
        temperature = np.array([[params[i].temperature] for i in drawn])
        kept = filter_logits(
            # Far from the largest first, so that a tiny temperature can't overflow.
            (rows[drawn] - best[drawn][:, None]) / temperature,
            np.array([params[i].top_k for i in drawn]),
            np.array([params[i].top_p for i in drawn]),
            np.array([params[i].min_p for i in drawn]),
        )
        uniform = np.array([samplers[i].random.random() for i in drawn])
        for i, token in zip(drawn, draw(kept, uniform).tolist(), strict=True):
            found[i] = token
    for i in able:
        samplers[i].add(found[i], vocab)  # type: ignore[arg-type]
    return found


def top_logprobs(logprobs: np.ndarray, count: int) -> list[tuple[int, float]]:
    """The `count` likeliest tokens of `[V]` and their logprobs, the likeliest first."""
    if count == 0:
        return []
    count = min(count, logprobs.size)
    top = np.argpartition(logprobs, -count)[-count:]
    order = np.lexsort((top, -logprobs[top]))
    return [(int(token), float(logprobs[token])) for token in top[order]]


def _add_bias(row: np.ndarray, bias: Mapping[int, float]) -> ValueError | None:
    for token, added in bias.items():
        if token >= row.size:
            return ValueError(
                f"logit_bias names token {token}: the model's vocabulary has {row.size}"
            )
        row[token] += added
    return None


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
