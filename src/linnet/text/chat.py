"""Chat templates: a conversation as the text its model was trained on.

Templates are jinja2, as checkpoints carry them, with the conventions of Transformers. They come
from strangers, so they see plain data only and run in the bounded sandbox of `sandbox.py`.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from linnet.text.errors import ChatTemplateError

MAX_TEMPLATE = 256 << 10
"""Characters of a template."""


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    special_tokens: Mapping[str, str] | None = None,
    **variables: Any,
) -> str:
    """The conversation as text, ready to be encoded without further special tokens.

    `messages` have a `role`, mostly `content`, and what else their template looks at; a value of
    None counts as left out. `variables` are further inputs of the template: `tools`, `documents`,
    `enable_thinking`, … Raises `ChatTemplateError`.
    """
    from linnet.text.sandbox import BoundedEnvironment

    if len(template) > MAX_TEMPLATE:
        raise ChatTemplateError(f"the chat template is longer than {MAX_TEMPLATE} characters")
    environment = BoundedEnvironment()
    environment.filters["tojson"] = environment.measured("tojson", _to_json)
    environment.globals.update(raise_exception=_refuse, strftime_now=_now)
    try:
        given = {
            "messages": [_message(message, i) for i, message in enumerate(messages)],
            "add_generation_prompt": add_generation_prompt,
            "tools": None,
            "documents": None,
            **(special_tokens or {}),
            **{name: _plain(value, f"`{name}`") for name, value in variables.items()},
        }
        return environment.render(template, given)
    except ChatTemplateError:
        raise
    except Exception as error:  # The template is a stranger's program: it may fail in any way.
        reason = str(error) or type(error).__name__
        raise ChatTemplateError(f"the chat template failed: {reason}") from error


def _message(message: Any, index: int) -> dict[str, Any]:
    if not isinstance(message, Mapping) or "role" not in message:
        raise ChatTemplateError(f"message {index} has no `role`: messages are mappings with one")
    plain = _plain(message, f"message {index}")
    return {name: value for name, value in plain.items() if value is not None}


def _plain(value: Any, where: str) -> Any:
    """A copy of a value; refuses all but plain data, whose methods the sandbox knows."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {_plain(name, where): _plain(item, where) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, where) for item in value]
    raise ChatTemplateError(
        f"{where} holds a {type(value).__name__}: a chat template takes text, numbers, booleans, "
        "lists and mappings"
    )


def _refuse(message: str) -> NoReturn:
    raise ChatTemplateError(f"the chat template refuses the conversation: {message}")


def _now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
