"""Continuous batching over the rows of a cache.

A step is at most one budget of prompt tokens and one token for every running request. Prompts wait
first come, first served; one joins as soon as a row is free. New prompts are packed end to end into
one pass (`prefill_packed`); one alone, and what comes behind tokens that a row holds already, the
rest of a long prompt or of one whose beginning was in the cache, go through `prefill_slot`. Running
requests take a step together (`decode_first`), over the fewest rows of the compiled sizes.

The engine knows a `Runtime` and no framework. One thread uses it; `cancel` may come from any.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from linnet.runtime import Runtime
from linnet.serve.request import Choice, Completion, QueueFull, Refused, Request
from linnet.serve.rows import Row, Rows
from linnet.serve.sequence import Sequenced, choose_tokens
from linnet.serve.sizes import Part, extend, pack, prompt_sizes, round_up, row_sizes
from linnet.text.tokenizer import Tokenizer

ENTRIES = ("prefill_packed", "prefill_slot", "decode_first", "copy_row")
"""What a model needs to be served."""


@dataclass(slots=True)
class Counts:
    """What the engine has done since it was made."""

    prompt_tokens: int = 0
    """Taken in by passes; what was in the cache already is not among them."""
    cached_tokens: int = 0
    new_tokens: int = 0
    prefill_passes: int = 0
    decode_steps: int = 0
    copied_rows: int = 0


class Engine:
    """Serves a model's requests, as many at once as its cache has rows (`Batch`).

    tokenizer   makes text of tokens; without one, requests have tokens alone
    budget      prompt tokens that one step takes in at most: how long running requests may wait
    queue       requests that may wait; `submit` raises `QueueFull` beyond
    min_reuse   tokens that a prompt must share with a row to have them reused
    on_finish   called with each completion that is done

    Raises `Refused` for a model without the entries that serving needs.
    """

    def __init__(
        self,
        model: Runtime,
        tokenizer: Tokenizer | None = None,
        *,
        budget: int = 256,
        queue: int = 256,
        min_reuse: int = 16,
        on_finish: Callable[[Completion], None] | None = None,
    ):
        if missing := [name for name in ENTRIES if name not in model.entries]:
            raise Refused(f"serving needs the entry `{missing[0]}`, which this model lacks")
        if budget < 1 or queue < 1 or min_reuse < 1:
            raise Refused("budget, queue and min_reuse must be at least 1")
        self.model = model
        self.tokenizer = tokenizer
        self.max_seq = model.generics["MaxSeq"]
        self.vocab = model.generics["Vocab"]
        self.budget = min(budget, self.max_seq)
        self.queue = queue
        self.on_finish = on_finish
        self.counts = Counts()
        self.rows = Rows(model.generics.get("Batch", 1), min_reuse)
        self._prompt_sizes = prompt_sizes(self.budget)
        self._row_sizes = row_sizes(len(self.rows.rows))
        self._waiting: deque[Sequenced] = deque()
        self._filling: deque[Sequenced] = deque()
        self._running: dict[int, Sequenced] = {}
        self._ids = itertools.count(1)

    # Requests.

    @property
    def busy(self) -> bool:
        """Whether a step has anything to do."""
        return bool(self._waiting or self._filling or self._running)

    @property
    def waiting(self) -> int:
        """Answers that have no row yet."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Answers that have a row."""
        return len(self._filling) + len(self._running)

    def submit(self, request: Request) -> Completion:
        """Puts a request into the queue; its completion is filled in by later steps.

        Raises `Refused` for a request that can't be served, `QueueFull` for one too many.
        """
        self.check(request)
        if len(self._waiting) + request.n > self.queue:
            raise QueueFull(f"{len(self._waiting)} requests are waiting already")
        completion = Completion(
            request, next(self._ids), [Choice() for _ in range(request.n)], time.perf_counter()
        )
        self._waiting.extend(
            [Sequenced(completion, i, self.tokenizer, self.max_seq) for i in range(request.n)]
        )
        return completion

    def check(self, request: Request) -> None:
        """Raises `Refused` for a request that can't be served."""
        prompt, vocab = request.prompt, self.vocab
        if not len(prompt):
            raise Refused("the prompt is empty: give at least one token")
        if len(prompt) > self.max_seq:
            raise Refused(
                f"the prompt has {len(prompt)} tokens, this server's cache holds {self.max_seq}"
            )
        tokens = np.asarray(prompt)
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            raise Refused("a prompt is a sequence of token ids")
        if tokens.min() < 0 or tokens.max() >= vocab:
            bad = tokens[(tokens < 0) | (tokens >= vocab)][0]
            raise Refused(f"the token {bad} is not in the model's vocabulary of {vocab}")
        if request.max_new_tokens < 1:
            raise Refused(f"max_new_tokens must be at least 1, found {request.max_new_tokens}")
        if not 1 <= request.n <= self.queue:
            raise Refused(f"n must be from 1 to {self.queue}, found {request.n}")
        if request.logprobs is not None and not 0 <= request.logprobs <= vocab:
            raise Refused(f"logprobs must be from 0 to {vocab}, found {request.logprobs}")
        if request.stop and self.tokenizer is None:
            raise Refused("stop strings need a tokenizer")
        if not all(request.stop):
            raise Refused("a stop string must not be empty")
        over = [token for token in request.params.logit_bias if token >= vocab]
        if over:
            raise Refused(f"logit_bias names token {over[0]}: the vocabulary has {vocab}")

    def cancel(self, completion: Completion) -> None:
        """Ends a request at the next step; what it has so far stays. From any thread."""
        completion.cancel_as = "cancelled"

    def run(self, requests: Sequence[Request]) -> list[Completion]:
        """Serves requests to their ends, waiting for the queue where it is full."""
        completions = []
        for request in requests:
            self.check(request)
            while len(self._waiting) + request.n > self.queue:
                self.step()
            completions.append(self.submit(request))
        while self.busy:
            self.step()
        return completions

    def warmup(self) -> float:
        """Runs every size once, so that none has to be compiled later; gives the seconds it took.

        Raises `RuntimeError` while requests are served.
        """
        if self.busy:
            raise RuntimeError("warm up before the first request")
        started = time.perf_counter()
        nowhere = Part(-1, 0, [0])
        for size in self._prompt_sizes:
            self._call("prefill_packed", pack([nowhere], (size,), len(self.rows.rows)))
            self._call("prefill_slot", [np.zeros((1, size), np.int32), 0, 0, 0])
        for size in self._row_sizes:
            zeros, none = np.zeros(size, np.int32), np.full(size, -1, np.int32)
            self._call("decode_first", [zeros.reshape(-1, 1), none, zeros])
        self._call("copy_row", [0, 0])
        self.rows.forget()
        return time.perf_counter() - started

    # Steps.

    def step(self) -> None:
        """One budget of prompts, and a token for every request that runs.

        Raises what the runtime raises; all requests that had a row have ended with it then.
        """
        try:
            self._end_unwanted()
            self._prefill()
            self._decode()
        except Exception as error:
            self._fail(f"{type(error).__name__}: {error}")
            raise

    def _end_unwanted(self) -> None:
        """Ends what was cancelled or is past its deadline."""
        now = time.perf_counter()
        for sequence in (*self._waiting, *self._filling, *self._running.values()):
            reason = sequence.unwanted(now)
            if reason is not None:
                self._end(sequence, reason)

    def _prefill(self) -> None:
        budget = self.budget
        packed: list[tuple[Sequenced, Part]] = []
        alone: list[tuple[Sequenced, Part]] = []
        for sequence in self._candidates():
            room = budget - sum(len(part.tokens) for _, part in packed)
            room -= sum(round_up(len(part.tokens), self._prompt_sizes) for _, part in alone)
            if room <= 0:
                break
            if sequence.row is None and not self._place(sequence, packed):
                break
            assert sequence.row is not None
            filled, prompt = len(sequence.row.held), sequence.prompt
            if filled == 0 and len(prompt) > room and (packed or alone):
                break  # It begins the next pass, where all of it may fit.
            part = Part(sequence.row.index, filled, prompt[filled : filled + room])
            (alone if filled else packed).append((sequence, part))
        if len(packed) == 1:  # Its attention needs no mask, and it wants one row of logits only.
            alone, packed = packed + alone, []
        if packed:
            parts = [part for _, part in packed]
            given = pack(parts, self._prompt_sizes, len(self.rows.rows))
            self._take_in(packed, "prefill_packed", given)
        for item in alone:
            held = item[0].row.held if item[0].row is not None else ()
            given = extend(item[1], held, self._prompt_sizes, self.max_seq)
            self._take_in([item], "prefill_slot", given)

    def _candidates(self) -> Iterator[Sequenced]:
        """Those whose prompts are begun, then those that wait, in order."""
        yield from tuple(self._filling)
        yield from tuple(self._waiting)

    def _place(self, sequence: Sequenced, packed: Sequence[tuple[Sequenced, Part]]) -> bool:
        """A row for the next that waits; false where it has to wait further."""
        first = sequence.completion.choices[0]
        if sequence.index and not first.tokens and first.finish is None:
            return False  # Its prompt is about to be in the cache: it is copied from there.
        if self._is_sharing(sequence, packed):
            return False
        placed = self.rows.take(sequence.prompt)
        if placed is None:
            return False
        self._waiting.remove(sequence)
        sequence.row = placed.row
        self._filling.append(sequence)
        if placed.copy_from is not None:
            self._copy(placed.copy_from, placed.row.index)
        sequence.completion.cached_tokens = max(sequence.completion.cached_tokens, placed.cached)
        self.counts.cached_tokens += placed.cached
        return True

    def _is_sharing(self, sequence: Sequenced, packed: Sequence[tuple[Sequenced, Part]]) -> bool:
        """Whether most of its prompt is being computed by this very pass: the next one copies."""
        most = len(sequence.prompt) // 2
        wanted = sequence.prompt[:most]
        if most < self.rows.min_reuse:
            return False
        return any(list(part.tokens[:most]) == wanted for _, part in packed)

    def _take_in(
        self, items: Sequence[tuple[Sequenced, Part]], entry: str, given: Sequence[object]
    ) -> None:
        logits = self._call(entry, given)
        self.counts.prefill_passes += 1
        ready: list[tuple[int, Sequenced]] = []
        for at, (sequence, part) in enumerate(items):
            self.counts.prompt_tokens += len(part.tokens)
            assert sequence.row is not None
            sequence.row.held.extend(part.tokens)
            if len(sequence.row.held) == len(sequence.prompt):
                self._filling.remove(sequence)
                self._running[sequence.row.index] = sequence
                ready.append((at, sequence))
        self._choose(logits, ready)

    def _decode(self) -> None:
        if not self._running:
            return
        size = self._fewest_rows()
        tokens = np.zeros((size, 1), np.int32)
        rows = np.full(size, -1, np.int32)
        positions = np.zeros(size, np.int32)
        for index, sequence in self._running.items():
            tokens[index, 0] = sequence.choice.tokens[-1]
            rows[index] = index
            positions[index] = len(self.rows.rows[index].held)
        logits = self._call("decode_first", [tokens, rows, positions])
        self.counts.decode_steps += 1
        for index in self._running:
            self.rows.rows[index].held.append(int(tokens[index, 0]))
        self._choose(logits, list(self._running.items()))

    def _fewest_rows(self) -> int:
        """The size to decode with; high rows move down first, where that makes it smaller."""
        size = round_up(len(self._running), self._row_sizes)
        high = [index for index in self._running if index >= size]
        low = [row for row in self.rows.rows[:size] if not row.used]
        # A row that is being filled stays where it is, and keeps its place among the lowest.
        if len(high) > len(low):
            return round_up(max(self._running) + 1, self._row_sizes)
        for index, target in zip(high, low, strict=False):
            self._move(index, target)
        return size

    def _move(self, index: int, target: Row) -> None:
        """Moves a running request to a free row; what that held goes where it is missed least."""
        spare = self.rows.least_missed()
        if target.held and spare is not target:
            self._copy(target.index, spare.index)
            spare.held, spare.freed_at = target.held, target.freed_at
        self._copy(index, target.index)
        source, sequence = self.rows.rows[index], self._running.pop(index)
        target.used, target.held = True, list(source.held)
        sequence.row = target
        self._running[target.index] = sequence
        self.rows.give_back(source)
        source.held = []

    def _choose(self, logits: object, ready: Sequence[tuple[int, Sequenced]]) -> None:
        """The next token of each of some rows of logits, and what follows from it."""
        if not ready:
            return
        now = time.perf_counter
        chosen = choose_tokens(self.model, logits, ready)
        for (_, sequence), found in zip(ready, chosen, strict=True):
            completion = sequence.completion
            if completion.first_token is None:
                completion.first_token = now()
            if isinstance(found, ValueError):
                self._end(sequence, "error", str(found))
                continue
            self.counts.new_tokens += 1
            try:
                finish = sequence.take(found)
            except ValueError as error:  # Its constraint does not take the token.
                self._end(sequence, "error", str(error))
                continue
            if finish is not None:
                self._end(sequence, finish)

    # Ends.

    def _end(self, sequence: Sequenced, finish: str, error: str | None = None) -> None:
        sequence.finish(finish, error)
        if sequence.row is not None:
            self._running.pop(sequence.row.index, None)
            self.rows.give_back(sequence.row)
            sequence.row = None
        for line in (self._waiting, self._filling):
            if sequence in line:
                line.remove(sequence)
        completion = sequence.completion
        if completion.done:
            completion.finished = time.perf_counter()
            if self.on_finish is not None:
                self.on_finish(completion)

    def _fail(self, reason: str) -> None:
        for sequence in (*self._filling, *self._running.values()):
            self._end(sequence, "error", reason)
        self.rows.forget()

    def _copy(self, source: int, target: int) -> None:
        self._call("copy_row", [source, target])
        self.counts.copied_rows += 1

    def _call(self, entry: str, given: Sequence[object]) -> object:
        return self.model.run_entry(entry, given)
