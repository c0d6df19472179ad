"""OpenAI's request bodies, read and checked: what is asked, or an error in OpenAI's form.

Every parameter is in a table: it is used, it is of no consequence here (`IGNORED`), or the request
is refused with its name. Nothing that would change the answer is left out in silence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from linnet.text.sampling import SamplingParams


class ApiError(Exception):
    """An error as OpenAI's clients know it."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ):
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": str(self),
                "type": KINDS.get(self.status, "server_error"),
                "param": self.param,
                "code": self.code,
            }
        }


KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 404: "invalid_request_error",
    405: "invalid_request_error", 408: "timeout_error", 413: "invalid_request_error",
    429: "rate_limit_error", 499: "cancelled", 503: "service_unavailable_error",
    504: "timeout_error",
}  # fmt: skip

IGNORED = frozenset(
    ("user", "store", "metadata", "service_tier", "parallel_tool_calls", "safety_identifier",
     "prompt_cache_key", "prompt_cache_retention")
)  # fmt: skip
"""Parameters that change nothing about the answer of a server like this one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a body asks for, whichever of the two endpoints it came to."""

    model: str
    prompts: tuple[str | tuple[int, ...], ...]
    """For completions; texts or tokens."""
    messages: tuple[Mapping[str, Any], ...]
    """For chat."""
    max_tokens: int | None
    params: SamplingParams
    n: int
    stop: tuple[str, ...]
    stop_tokens: tuple[int, ...]
    ignore_eos: bool
    logprobs: int | None
    stream: bool
    include_usage: bool
    schema: Mapping[str, Any] | None
    """The answer must be JSON of this schema."""


def read_completion(body: Any) -> Asked:
    """The body of `/v1/completions`. Raises `ApiError`."""
    reader = _Body(body)
    prompt = reader.raw("prompt")
    prompts = _prompts(prompt)
    logprobs = reader.integer("logprobs", 0, 20)
    n = reader.integer("n", 1, 128) or 1
    best_of = reader.integer("best_of", 1, 128)
    if best_of is not None and best_of != n:
        raise ApiError(400, "best_of other than n is not supported", param="best_of")
    if reader.boolean("echo"):
        raise ApiError(400, "echo is not supported", param="echo")
    if reader.raw("suffix"):
        raise ApiError(400, "suffix is not supported", param="suffix")
    return _asked(reader, prompts, (), logprobs, n, reader.integer("max_tokens", 1) or 16)


def read_chat(body: Any) -> Asked:
    """The body of `/v1/chat/completions`. Raises `ApiError`."""
    reader = _Body(body)
    messages = _messages(reader.raw("messages"))
    for name in ("tools", "functions", "audio", "modalities"):
        value = reader.raw(name)
        if value and value != ["text"]:
            raise ApiError(400, f"{name} is not supported", param=name)
    if reader.raw("tool_choice") not in (None, "none", "auto"):
        raise ApiError(400, "tool_choice is not supported", param="tool_choice")
    wanted, top = reader.boolean("logprobs"), reader.integer("top_logprobs", 0, 20)
    if top is not None and not wanted:
        raise ApiError(400, "top_logprobs needs logprobs to be true", param="top_logprobs")
    most = reader.integer("max_completion_tokens", 1)
    most = reader.integer("max_tokens", 1) if most is None else most
    reader.raw("max_tokens")
    n = reader.integer("n", 1, 128) or 1
    return _asked(reader, (), messages, (top or 0) if wanted else None, n, most)


def _asked(
    reader: _Body,
    prompts: tuple[str | tuple[int, ...], ...],
    messages: tuple[Mapping[str, Any], ...],
    logprobs: int | None,
    n: int,
    max_tokens: int | None,
) -> Asked:
    stream = reader.boolean("stream")
    options = reader.raw("stream_options")
    if options is not None and (not stream or not isinstance(options, dict)):
        raise ApiError(400, "stream_options needs stream to be true", param="stream_options")
    stop = reader.raw("stop")
    stops = () if stop is None else (stop,) if isinstance(stop, str) else stop
    if (
        not isinstance(stops, (list, tuple))
        or len(stops) > 16
        or not all(isinstance(s, str) and s for s in stops)
    ):
        raise ApiError(400, "stop must be a text, or up to 16 texts, none empty", param="stop")
    asked = Asked(
        model=reader.text("model"),
        prompts=prompts,
        messages=messages,
        max_tokens=max_tokens,
        params=_params(reader),
        n=n,
        stop=tuple(stops),
        stop_tokens=reader.integers("stop_token_ids"),
        ignore_eos=reader.boolean("ignore_eos"),
        logprobs=logprobs,
        stream=stream,
        include_usage=bool((options or {}).get("include_usage", False)),
        schema=_schema(reader.raw("response_format")),
    )
    reader.refuse_unread()
    return asked


def _params(reader: _Body) -> SamplingParams:
    given: dict[str, Any] = {"temperature": 1.0}
    for name in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty",
                 "frequency_penalty"):  # fmt: skip
        value = reader.number(name)
        if value is not None:
            given[name] = value
    for name in ("top_k", "seed"):
        value = reader.integer(name, -1 if name == "top_k" else -(1 << 63), 1 << 63)
        if value is not None:
            given[name] = value
    if "seed" in given:
        given["seed"] %= 1 << 64
    if given.get("top_k") == -1:  # "all", as other servers have it
        given["top_k"] = 0
    bias = reader.raw("logit_bias") or {}
    if not isinstance(bias, dict):
        raise ApiError(400, "logit_bias must map token ids to numbers", param="logit_bias")
    try:
        # At -100 and below a token is banned, as OpenAI says.
        given["logit_bias"] = {
            int(token): -math.inf if float(value) <= -100 else float(value)
            for token, value in bias.items()
        }
    except (TypeError, ValueError, OverflowError) as error:
        raise ApiError(
            400, "logit_bias must map token ids to numbers", param="logit_bias"
        ) from error
    try:
        return SamplingParams(**given)
    except ValueError as error:
        message = str(error)
        name = next((name for name in given if message.startswith(name)), None)
        raise ApiError(400, message, param=name) from error


def _prompts(prompt: Any) -> tuple[str | tuple[int, ...], ...]:
    if isinstance(prompt, str):
        return (prompt,)
    if isinstance(prompt, list) and prompt:
        if _is_tokens(prompt):
            return (tuple(prompt),)
        if all(isinstance(item, str) or (_is_tokens(item) and item) for item in prompt):
            if len(prompt) > 128:
                raise ApiError(400, "at most 128 prompts a request", param="prompt")
            return tuple(item if isinstance(item, str) else tuple(item) for item in prompt)
    raise ApiError(
        400, "prompt must be a text, token ids, or a list of either, not empty", param="prompt"
    )


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and all(type(token) is int for token in value)


def _messages(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list) or not value:
        raise ApiError(400, "messages must be a list, not empty", param="messages")
    messages = []
    for i, message in enumerate(value):
        where = f"messages[{i}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ApiError(400, f"{where} must be an object with a role", param=where)
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(_text_part(part, where) for part in content)
        if not isinstance(content, str):
            raise ApiError(400, f"{where}.content must be text", param=where)
        messages.append({**message, "content": content})
    return tuple(messages)


def _text_part(part: Any, where: str) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return part["text"]
    raise ApiError(400, f"{where}.content may have parts of type text only", param=where)


def _schema(value: Any) -> Mapping[str, Any] | None:
    kind = value.get("type") if isinstance(value, dict) else None
    if value is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind == "json_schema":
        given = value.get("json_schema")
        schema = given.get("schema") if isinstance(given, dict) else None
        if isinstance(schema, dict):
            return schema
    raise ApiError(
        400,
        "response_format must have type text, json_object, or json_schema with a schema",
        param="response_format",
    )


class _Body:
    """A request's body: typed reads that name the parameter when it is of another type."""

    def __init__(self, body: Any):
        if not isinstance(body, dict):
            raise ApiError(400, "the body must be a JSON object")
        self.body: dict[str, Any] = body
        self.read: set[str] = set(IGNORED)

    def raw(self, name: str) -> Any:
        self.read.add(name)
        return self.body.get(name)

    def text(self, name: str) -> str:
        value = self.raw(name)
        if not isinstance(value, str):
            raise ApiError(400, f"{name} must be a text", param=name)
        return value

    def boolean(self, name: str) -> bool:
        return bool(self._typed(name, lambda v: isinstance(v, bool), "true or false"))

    def number(self, name: str) -> float | None:
        return self._typed(name, lambda v: type(v) in (int, float), "a number")

    def integer(self, name: str, low: int, high: int = 1 << 31) -> int | None:
        return self._typed(
            name,
            lambda v: type(v) is int and low <= v <= high,
            f"a whole number from {low}" + (f" to {high}" if high < 1 << 31 else " on"),
        )

    def integers(self, name: str) -> tuple[int, ...]:
        return tuple(self._typed(name, _is_tokens, "a list of whole numbers") or ())

    def _typed(self, name: str, fits: Callable[[Any], bool], described: str) -> Any:
        value = self.raw(name)
        if value is not None and not fits(value):
            raise ApiError(400, f"{name} must be {described}", param=name)
        return value

    def refuse_unread(self) -> None:
        unknown = sorted(name for name in self.body.keys() - self.read)
        unknown = [name for name in unknown if self.body[name] is not None]
        if unknown:
            raise ApiError(400, f"unknown parameter {unknown[0]!r}", param=unknown[0])


def usage(prompt: int, answer: int, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
