"""Completions in the form that OpenAI's clients read, whole or as a stream's chunks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from linnet.serve.protocol import usage
from linnet.serve.request import Completion, Step, TokenLogprobs
from linnet.text.tokenizer import Tokenizer

LEAST = -9999.0
"""Stands for -inf, which JSON has not, as in OpenAI's own answers."""


@dataclass(slots=True)
class Answer:
    """One HTTP request's answer: its completions, of which chat has one."""

    id: str
    chat: bool
    model: str
    created: int
    tokenizer: Tokenizer
    logprobs: bool
    offsets: dict[int, int]
    """Characters given so far, by choice."""

    @classmethod
    def begin(
        cls, number: str, chat: bool, model: str, tokenizer: Tokenizer, logprobs: bool
    ) -> Answer:
        prefix = "chatcmpl" if chat else "cmpl"
        return cls(f"{prefix}-{number}", chat, model, int(time.time()), tokenizer, logprobs, {})

    def whole(self, completions: Sequence[Completion]) -> dict[str, Any]:
        """The whole answer."""
        choices = [
            self._choice(index, choice.text, choice.tokens, choice.logprobs, choice.finish)
            for index, choice in enumerate(c for one in completions for c in one.choices)
        ]
        kind = "chat.completion" if self.chat else "text_completion"
        return self._head(kind) | {"choices": choices, "usage": usage_of(completions)}

    def first(self, index: int) -> dict[str, Any]:
        """The chunk that begins a choice of a chat."""
        delta = {"role": "assistant", "content": ""}
        return self._chunk(
            [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}]
        )

    def chunk(self, index: int, step: Step) -> dict[str, Any] | None:
        """The chunk of a step; None where it has nothing to tell."""
        told = step.logprobs is not None
        if not step.text and not told and step.finish is None:
            return None
        tokens = [step.token] if step.token >= 0 else []
        logprobs = [step.logprobs] if step.logprobs is not None else []
        choice = self._choice(index, step.text, tokens, logprobs, step.finish, delta=True)
        return self._chunk([choice])

    def last(self, completions: Sequence[Completion]) -> dict[str, Any]:
        """The chunk of the usage, behind all choices."""
        return self._chunk([]) | {"usage": usage_of(completions)}

    def _choice(
        self,
        index: int,
        text: str,
        tokens: Sequence[int],
        logprobs: Sequence[TokenLogprobs],
        finish: str | None,
        delta: bool = False,
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "finish_reason": finish, "logprobs": None}
        if not self.chat:
            choice["text"] = text
            if self.logprobs:
                choice["logprobs"] = self._completion_logprobs(index, tokens, logprobs)
            return choice
        if delta:
            choice["delta"] = {"content": text} if text else {}
        else:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        if self.logprobs:
            choice["logprobs"] = {
                "content": [
                    self._named(token, told.logprob)
                    | {"top_logprobs": [self._named(t, value) for t, value in told.top]}
                    for token, told in zip(tokens, logprobs, strict=True)
                ],
                "refusal": None,
            }
        return choice

    def _completion_logprobs(
        self, index: int, tokens: Sequence[int], logprobs: Sequence[TokenLogprobs]
    ) -> dict[str, Any]:
        at = self.offsets.get(index, 0)
        offsets = []
        for token in tokens:
            offsets.append(at)
            at += len(self._text(token))
        self.offsets[index] = at
        return {
            "tokens": [self._text(token) for token in tokens],
            "token_logprobs": [max(told.logprob, LEAST) for told in logprobs],
            "top_logprobs": [
                {self._text(t): max(value, LEAST) for t, value in reversed(told.top)}
                for told in logprobs
            ],
            "text_offset": offsets,
        }

    def _named(self, token: int, logprob: float) -> dict[str, Any]:
        data = self.tokenizer.token_bytes(token)
        return {
            "token": self._text(token),
            "logprob": max(logprob, LEAST),
            "bytes": list(data),
        }

    def _text(self, token: int) -> str:
        return self.tokenizer.token_bytes(token).decode("utf-8", "replace")

    def _chunk(self, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return self._head(kind) | {"choices": list(choices)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def usage_of(completions: Sequence[Completion]) -> dict[str, Any]:
    """Tokens of all prompts and answers; a prompt counts once, however many answers it has."""
    return usage(
        sum(len(one.request.prompt) for one in completions),
        sum(one.new_tokens for one in completions),
        sum(one.cached_tokens for one in completions),
    )
