"""One conversation: a prompt through a model's `prefill` and `decode`, token by token to text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from linnet.runtime import Runtime
from linnet.text.chat import ChatTemplateError, render_chat
from linnet.text.sampling import Sampler, SamplingParams, StopText
from linnet.text.tokenizer import Tokenizer

GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class Piece:
    """A generated token and the text that it completes, which may be none."""

    token: int
    text: str


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
    """From the first token to the last."""

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
    text = render_chat(
        tokenizer.chat_template, messages, special_tokens=tokenizer.special_tokens
    )
    return tokenizer.encode(text, add_special=False)


def generate(
    model: Runtime,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    *,
    max_new_tokens: int = 256,
    params: SamplingParams = GREEDY,
    stop: Sequence[str] = (),
    ignore_eos: bool = False,
    on_text: Callable[[str], None] | None = None,
) -> Generation:
    """Generates after a prompt of tokens; `on_text` gets the text as it comes.

    Ends at one of the tokenizer's end tokens (unless `ignore_eos`), at a stop string, after
    `max_new_tokens`, or where the cache is full. Raises `ValueError` for a prompt that is empty,
    longer than the cache, or holds an id that the model doesn't have.
    """
    generation = Generation()
    for piece in stream(
        model,
        tokenizer,
        prompt,
        max_new_tokens=max_new_tokens,
        params=params,
        stop=stop,
        ignore_eos=ignore_eos,
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
    stop: Sequence[str] = (),
    ignore_eos: bool = False,
    generation: Generation | None = None,
) -> Iterator[Piece]:
    """The same, piece by piece; `generation` is filled in on the way."""
    check_prompt(model, prompt, max_new_tokens)
    result = generation if generation is not None else Generation()
    result.prompt_tokens = len(prompt)
    text, stopping = tokenizer.stream(), StopText(stop)
    ends = () if ignore_eos else tokenizer.eos_ids
    started = time.perf_counter()
    tokens = _tokens(model, prompt, params)
    for token in tokens:
        now = time.perf_counter()
        if not result.tokens:
            result.ttft_s = now - started
        else:
            result.decode_s = now - started - result.ttft_s
        result.tokens.append(token)
        if token in ends:
            result.finish = "stop"
        given = stopping.push("" if result.finish == "stop" else text.push(token))
        done = result.finish == "stop" or len(result.tokens) == max_new_tokens
        if done and stopping.found is None:
            given += stopping.push(text.flush()) + stopping.flush()
        if stopping.found is not None:
            result.finish, done = "stop", True
        result.text += given
        yield Piece(token, given)
        if done:
            return
    # The cache is full: what was held back still belongs to the text.
    rest = stopping.push(text.flush()) + stopping.flush()
    if rest:
        result.text += rest
        yield Piece(result.tokens[-1], rest)


def check_prompt(model: Runtime, prompt: Sequence[int], max_new_tokens: int) -> None:
    """Raises `ValueError` for a prompt that the model can't take in."""
    limit, vocab = model.generics["MaxSeq"], model.generics["Vocab"]
    if not prompt:
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


def _tokens(model: Runtime, prompt: Sequence[int], params: SamplingParams) -> Iterator[int]:
    """Tokens until the cache is full: the first from `prefill`, the others from `decode`."""
    batch, limit = model.generics.get("Batch", 1), model.generics["MaxSeq"]
    sampler = None if params.is_greedy else Sampler(params, prompt)
    tokens = np.tile(np.asarray(prompt, np.int32), (batch, 1))
    logits = model.run_entry("prefill", [tokens, 0])
    position = len(prompt)
    while True:
        if sampler is None:
            token = int(model.argmax(logits)[0])
        else:
            token = sampler.choose(model.to_numpy(logits)[0])
        yield token
        if position >= limit:
            return
        step = np.full((batch, 1), token, np.int32)
        logits = model.run_entry("decode", [step, position])
        position += 1
