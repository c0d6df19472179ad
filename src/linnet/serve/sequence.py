"""One answer on its way: its prompt, its row, how its tokens are chosen and made text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linnet.runtime import Runtime
from linnet.serve.request import Choice, Completion, Request, Step, TokenLogprobs, allowed
from linnet.serve.rows import Row
from linnet.text.sampling import Sampler, StopText, choose_rows, log_softmax, top_logprobs
from linnet.text.tokenizer import Tokenizer

Chosen = tuple[int, TokenLogprobs | None]


class Sequenced:
    """A choice of a completion, from the queue to its end."""

    __slots__ = (
        "choice", "completion", "constraint", "count", "ends", "index", "prompt", "row", "sampler",
        "stopping", "text",
    )  # fmt: skip

    def __init__(
        self, completion: Completion, index: int, tokenizer: Tokenizer | None, max_seq: int
    ):
        request = completion.request
        self.completion = completion
        self.index = index
        self.choice: Choice = completion.choices[index]
        self.prompt = [int(token) for token in request.prompt]
        self.row: Row | None = None
        # The last token is not fed back, so it needs no place in the cache.
        self.count = min(request.max_new_tokens, max_seq - len(self.prompt) + 1)
        eos = tokenizer.eos_ids if tokenizer is not None and not request.ignore_eos else ()
        self.ends = frozenset((*request.stop_tokens, *eos))
        self.text = tokenizer.stream() if tokenizer is not None else None
        self.stopping = StopText(request.stop)
        self.constraint = request.constraint() if request.constraint is not None else None
        plain = request.params.is_greedy
        self.sampler = None if plain else Sampler(request.params, self.prompt, index)

    @property
    def request(self) -> Request:
        return self.completion.request

    @property
    def needs_logits(self) -> bool:
        """Whether the likeliest token alone is not enough."""
        return bool(
            self.sampler is not None
            or self.constraint is not None
            or self.request.logprobs is not None
        )

    def unwanted(self, now: float) -> str | None:
        """Why it is to end before its time, if it is."""
        if self.completion.cancel_as is not None:
            return self.completion.cancel_as
        deadline = self.request.deadline_s
        if deadline is not None and now - self.completion.submitted > deadline:
            return "deadline"
        return None

    def take(self, chosen: Chosen) -> str | None:
        """Takes a token in; gives how it ends with it, or None."""
        token, logprobs = chosen
        choice = self.choice
        choice.tokens.append(token)
        if logprobs is not None:
            choice.logprobs.append(logprobs)
        ended = token in self.ends
        if self.constraint is not None:
            self.constraint.accept(token)
            ended = ended or self.constraint.finished
        full = len(choice.tokens) == self.count
        given = ""
        if self.text is not None:
            if token not in self.ends:
                given = self.stopping.push(self.text.push(token))
            if ended or full:
                given += self.stopping.push(self.text.flush()) + self.stopping.flush()
        finish = "stop" if ended or self.stopping.found is not None else None
        finish = finish or ("length" if full else None)
        choice.text += given
        choice.finish = finish  # Before anyone is told: whoever is may look at once.
        self._tell(Step(self.index, token, given, logprobs, finish))
        return finish

    def finish(self, finish: str, error: str | None) -> None:
        """Notes how it ended; tells of it where the end came without a token."""
        choice = self.choice
        told = choice.tokens and finish in ("stop", "length")
        choice.finish, choice.error = finish, error
        if not told:
            rest = ""
            if self.text is not None:
                rest = self.stopping.push(self.text.flush()) + self.stopping.flush()
                choice.text += rest
            self._tell(Step(self.index, -1, rest, None, finish))

    def _tell(self, step: Step) -> None:
        if self.request.on_step is not None:
            self.request.on_step(step)


def choose_tokens(
    model: Runtime, logits: object, ready: Sequence[tuple[int, Sequenced]]
) -> list[Chosen | ValueError]:
    """The next token of each sequence from its row of logits.

    Where all take the likeliest, only tokens leave the device.
    """
    if not any(sequence.needs_logits for _, sequence in ready):
        tokens = model.argmax(logits)
        return [(int(tokens[row]), None) for row, _ in ready]
    values = model.to_numpy(logits)
    found: list[Chosen | ValueError] = []
    logprobs = [
        None if sequence.request.logprobs is None else log_softmax(values[row])
        for row, sequence in ready
    ]
    rows = [_allowed(values[row], sequence) for row, sequence in ready]
    drawing = [
        (i, row, sequence.sampler)
        for i, (row, (_, sequence)) in enumerate(zip(rows, ready, strict=True))
        if sequence.sampler is not None and not isinstance(row, ValueError)
    ]
    drawn: dict[int, int | ValueError] = {}
    if drawing:
        places, able, samplers = zip(*drawing, strict=True)
        drawn = dict(zip(places, choose_rows(np.stack(able), samplers), strict=True))
    for i, (_, sequence) in enumerate(ready):
        token = drawn[i] if i in drawn else _likeliest(rows[i])
        if isinstance(token, ValueError):
            found.append(token)
            continue
        told = None
        if (own := logprobs[i]) is not None:
            told = TokenLogprobs(
                float(own[token]), tuple(top_logprobs(own, sequence.request.logprobs or 0))
            )
        found.append((token, told))
    return found


def _allowed(logits: np.ndarray, sequence: Sequenced) -> np.ndarray | ValueError:
    """A row of logits with what a sequence's constraint forbids at -inf."""
    if sequence.constraint is None:
        return logits
    try:
        return allowed(logits, sequence.constraint.mask())
    except Exception as error:  # What it is made of came with a request: only that one ends.
        return ValueError(f"the constraint failed: {error}")


def _likeliest(logits: np.ndarray | ValueError) -> int | ValueError:
    if isinstance(logits, ValueError):
        return logits
    token = int(logits.argmax())
    if not np.isfinite(logits[token]):
        return ValueError(f"the logits' largest is {logits[token]}: no token can be chosen")
    return token
