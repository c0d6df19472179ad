"""Bodies of OpenAI's endpoints: what they ask for, and how what is wrong is told."""

from __future__ import annotations

import math
from typing import Any

import pytest

from linnet.serve.protocol import ApiError, read_chat, read_completion

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
TEXT = {"model": "m", "prompt": "Hi"}


def test_defaults_are_those_of_openai() -> None:
    text, chat = read_completion(TEXT), read_chat(CHAT)
    assert text.prompts == ("Hi",) and text.max_tokens == 16
    assert chat.messages == ({"role": "user", "content": "Hi"},) and chat.max_tokens is None
    for asked in (text, chat):
        assert asked.params.temperature == 1.0 and asked.params.top_p == 1.0
        assert asked.n == 1 and not asked.stream and asked.logprobs is None


def test_all_of_sampling_is_read() -> None:
    asked = read_chat({
        **CHAT, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": -1, "n": 3,
        "presence_penalty": 0.1, "frequency_penalty": 0.2, "repetition_penalty": 1.1,
        "logit_bias": {"7": -100, "8": 2.5}, "stop": ["a", "b"], "max_completion_tokens": 9,
        "logprobs": True, "top_logprobs": 4, "stop_token_ids": [3], "ignore_eos": True,
    })  # fmt: skip
    params = asked.params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.9, 40, 0.1)
    assert params.seed == (1 << 64) - 1
    assert params.logit_bias == {7: -math.inf, 8: 2.5}
    assert asked.stop == ("a", "b") and asked.stop_tokens == (3,) and asked.ignore_eos
    assert asked.n == 3 and asked.max_tokens == 9 and asked.logprobs == 4


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ("a",)), ([1, 2], ((1, 2),)), (["a", "b"], ("a", "b")), ([[1], [2, 3]], ((1,), (2, 3)))],
)
def test_prompts_come_in_four_forms(prompt: Any, prompts: tuple) -> None:
    assert read_completion({**TEXT, "prompt": prompt}).prompts == prompts


def test_content_may_come_in_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = read_chat({**CHAT, "messages": [{"role": "user", "content": parts}]})
    assert asked.messages[0]["content"] == "ab"


def test_formats_become_schemas() -> None:
    schema = {"type": "object", "properties": {}}
    format_ = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert read_chat({**CHAT, "response_format": format_}).schema == schema
    assert read_chat({**CHAT, "response_format": {"type": "json_object"}}).schema == {
        "type": "object"
    }
    assert read_chat({**CHAT, "response_format": {"type": "text"}}).schema is None


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": None}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [[]]}, "prompt"), ({"prompt": [True]}, "prompt"), ({"model": 3}, "model"),
        ({"temperature": "hot"}, "temperature"), ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"), ({"top_p": 1.5}, "top_p"), ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2.5}, "max_tokens"), ({"n": 0}, "n"), ({"n": 1000}, "n"),
        ({"stop": ""}, "stop"), ({"stop": ["a", 1]}, "stop"), ({"logit_bias": [1]}, "logit_bias"),
        ({"logit_bias": {"x": 1}}, "logit_bias"), ({"logit_bias": {"1": "y"}}, "logit_bias"),
        ({"echo": True}, "echo"), ({"suffix": "x"}, "suffix"), ({"best_of": 2}, "best_of"),
        ({"logprobs": 99}, "logprobs"), ({"stream_options": {}}, "stream_options"),
        ({"stream": 1}, "stream"), ({"seed": 0.5}, "seed"), ({"top_k": -2}, "top_k"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": "json"}, "response_format"), ({"beams": 3}, "beams"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(change: dict, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_completion({**TEXT, **change})
    assert caught.value.status == 400 and caught.value.param == param
    assert caught.value.body()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"), ({"messages": "Hi"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0]"),
        ({"tools": [{"type": "function"}]}, "tools"), ({"top_logprobs": 2}, "top_logprobs"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_chat_is_named(change: dict, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_chat({**CHAT, **change})
    assert caught.value.status == 400 and caught.value.param == param


@pytest.mark.parametrize("body", [None, 3, "x", [], [1]])
def test_a_body_is_an_object(body: Any) -> None:
    with pytest.raises(ApiError, match="JSON object"):
        read_chat(body)


def test_what_changes_nothing_is_taken() -> None:
    read_chat({**CHAT, "user": "me", "metadata": {}, "tools": [], "tool_choice": "none"})
    read_completion({**TEXT, "best_of": 1, "n": 1, "logprobs": None, "seed": None, "new": None})
