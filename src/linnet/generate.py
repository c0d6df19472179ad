"""One conversation: a prompt through a model's `prefill` and `decode`, token by token to text."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from linnet.runtime import Runtime
from linnet.text.chat import render_chat
from linnet.text.errors import ChatTemplateError
from linnet.text.sampling import Sampler, SamplingParams, StopText, log_softmax
from linnet.text.spelling import TextStream
from linnet.text.tokenizer import Tokenizer

GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class Piece:
    """A generated token and the text that it completes, which may be none."""

    token: int
    text: str
    logprob: float | None = None
    """Logarithm of the token's probability in the model's own distribution, where asked for."""


@dataclass(slots=True)
class Generation:
    """What was generated, and how long it took."""

    prompt_tokens: int = 0
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    finish: str = "length"
    """`stop` (an end token or stop string), or `length` (the limit, or the end of the cache)."""
    ttft_s: float = 0.0
    """From the prompt's tokens to the first token, in seconds."""
    decode_s: float = 0.0
    """Spent on the tokens after the first; what is done with their text is not in it."""

    @property
    def decode_tok_s(self) -> float:
        """Tokens after the first over their time; 0 where there are none."""
        return (len(self.tokens) - 1) / self.decode_s if self.decode_s > 0 else 0.0


def encode_prompt(
    tokenizer: Tokenizer, prompt: str | Sequence[Mapping[str, Any]], *, raw: bool = False
) -> list[int]:
    """The tokens of a prompt: a text as a user's message (or as it is, if `raw`), or messages.

    Raises `ChatTemplateError` where the model has no chat template, or it refuses.
    """
    if raw:
        if not isinstance(prompt, str):
            raise ValueError("a raw prompt is text")
        return tokenizer.encode(prompt)
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if tokenizer.chat_template is None:
        raise ChatTemplateError("this model has no chat template: give a raw prompt")
    text = render_chat(tokenizer.chat_template, messages, special_tokens=tokenizer.special_tokens)
    return tokenizer.encode(text, add_special=False)


def generate(
    model: Runtime,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    *,
    max_new_tokens: int = 256,
    params: SamplingParams = GREEDY,
    stop: str | Sequence[str] = (),
    stop_tokens: Sequence[int] = (),
    ignore_eos: bool = False,
    prefill_lengths: Sequence[int] = (),
    on_text: Callable[[str], None] | None = None,
) -> Generation:
    """Generates after a prompt of tokens; `on_text` gets the text as it comes.

    Ends at one of `stop_tokens` or the tokenizer's end tokens (unless `ignore_eos`), at a stop
    string, after `max_new_tokens`, or where the cache is full. An end token is among the tokens,
    but not in the text. `prefill_lengths`: see `prefill_plan`. Raises `ValueError` for a prompt
    that is empty, longer than the cache, or holds an id that the model doesn't have, for an empty
    stop string, and for a model without `prefill` and `decode`.
    """
    generation = Generation()
    for piece in stream(
        model,
        tokenizer,
        prompt,
        max_new_tokens=max_new_tokens,
        params=params,
        stop=stop,
        stop_tokens=stop_tokens,
        ignore_eos=ignore_eos,
        prefill_lengths=prefill_lengths,
        generation=generation,
    ):
        if on_text is not None and piece.text:
            on_text(piece.text)
    return generation


def stream(
    model: Runtime,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    *,
    max_new_tokens: int = 256,
    params: SamplingParams = GREEDY,
    stop: str | Sequence[str] = (),
    stop_tokens: Sequence[int] = (),
    ignore_eos: bool = False,
    prefill_lengths: Sequence[int] = (),
    logprobs: bool = False,
    generation: Generation | None = None,
) -> Iterator[Piece]:
    """The same, a piece a token; `generation` is filled in on the way.

    Errors come with the call, before the first piece.
    """
    check_prompt(model, prompt, max_new_tokens)
    result = generation if generation is not None else Generation()
    result.prompt_tokens = len(prompt)
    ends = {*stop_tokens, *(() if ignore_eos else tokenizer.eos_ids)}
    # The last token is not fed back, so it needs no place in the cache.
    count = min(max_new_tokens, model.generics["MaxSeq"] - len(prompt) + 1)
    steps = _steps(model, prompt, params, prefill_plan(len(prompt), prefill_lengths), logprobs)
    return _pieces(steps, count, ends, tokenizer.stream(), StopText(stop), result)


def check_prompt(model: Runtime, prompt: Sequence[int], max_new_tokens: int) -> None:
    """Raises `ValueError` for a prompt that the model can't take in."""
    missing = [name for name in ("prefill", "decode") if name not in model.entries]
    if missing:
        raise ValueError(
            f"generation needs the entry `{missing[0]}`; this model has "
            f"{', '.join(f'`{name}`' for name in model.entries) or 'none'}"
        )
    limit, vocab = model.generics["MaxSeq"], model.generics["Vocab"]
    if not len(prompt):
        raise ValueError("the prompt is empty: give at least one token")
    if len(prompt) > limit:
        raise ValueError(
            f"the prompt has {len(prompt)} tokens, the cache holds {limit}: shorten it, or load "
            "the model with a larger MaxSeq"
        )
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, found {max_new_tokens}")
    bad = next((t for t in prompt if not 0 <= t < vocab), None)
    if bad is not None:
        raise ValueError(f"the token {bad} is not in the model's vocabulary of {vocab}")


def prefill_plan(length: int, lengths: Sequence[int] = ()) -> list[int]:
    """How many of a prompt's tokens each step takes in: all at once, unless `lengths` are given.

    Where every length of `prefill` is compiled by itself, a few lengths serve all prompts: the
    largest that fit, and single tokens, through `decode`, for the rest.
    """
    if any(size < 1 for size in lengths):
        raise ValueError(f"lengths to prefill must be at least 1, found {min(lengths)}")
    if not lengths:
        return [length]
    plan: list[int] = []
    for size in sorted({*lengths, 1}, reverse=True):
        fit, length = divmod(length, size)
        plan += [size] * fit
    return plan


def _pieces(
    steps: Iterator[tuple[int, float | None]],
    count: int,
    ends: Collection[int],
    text: TextStream,
    stopping: StopText,
    result: Generation,
) -> Iterator[Piece]:
    """Makes text of at most `count` tokens, and keeps `result` up to date."""
    for index in range(count):
        started = time.perf_counter()
        token, logprob = next(steps)
        took = time.perf_counter() - started
        if index == 0:
            result.ttft_s = took
        else:
            result.decode_s += took
        result.tokens.append(token)
        ended = token in ends
        given = "" if ended else stopping.push(text.push(token))
        if ended or index + 1 == count:
            given += stopping.push(text.flush()) + stopping.flush()
        ended = ended or stopping.found is not None
        if ended:
            result.finish = "stop"
        result.text += given
        yield Piece(token, given, logprob)
        if ended:
            return


def _steps(
    model: Runtime,
    prompt: Sequence[int],
    params: SamplingParams,
    plan: Sequence[int],
    logprobs: bool,
) -> Iterator[tuple[int, float | None]]:
    """Tokens without end, with their logprobs; greedily, only a token leaves the device."""
    batch = model.generics.get("Batch", 1)
    sampler = None if params.is_greedy else Sampler(params, prompt)
    fed = np.asarray(prompt, np.int32)
    position = 0
    while True:
        for size in plan:
            # One conversation: in a model for several, all rows are the same.
            tokens = np.tile(fed[:size], (batch, 1))
            logits = model.run_entry("decode" if size == 1 else "prefill", [tokens, position])
            fed, position = fed[size:], position + size
        if sampler is None and not logprobs:
            yield (token := int(model.argmax(logits)[0])), None
        else:
            row = model.to_numpy(logits)[0]
            token = int(row.argmax()) if sampler is None else sampler.choose(row)
            yield token, float(log_softmax(row)[token]) if logprobs else None
        fed, plan = np.asarray([token], np.int32), [1]
