"""Chat templates: a conversation as the text its model was trained on.

Templates are jinja2, as checkpoints carry them, with the conventions of Transformers. They come
from strangers, so they run in jinja2's immutable sandbox, without access to anything but the
messages, and within limits of size.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

MAX_TEMPLATE = 256 << 10
"""Characters of a template."""
MAX_OUTPUT = 16 << 20
"""Characters that a template may give."""
MAX_RANGE = 10_000
"""The longest `range(…)`."""


class ChatTemplateError(ValueError):
    """A template that can't be used, or that refuses the conversation; says why."""


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    special_tokens: Mapping[str, str] | None = None,
    **variables: Any,
) -> str:
    """The conversation as text, ready to be encoded without further special tokens.

    `messages` have `role` and `content`. Raises `ChatTemplateError`.
    """
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    if len(template) > MAX_TEMPLATE:
        raise ChatTemplateError(f"the chat template is longer than {MAX_TEMPLATE} characters")
    for message in messages:
        if "role" not in message:
            raise ChatTemplateError("every message has a `role`")
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_refuse, strftime_now=_now, range=_bounded_range
    )
    pieces: list[str] = []
    size = 0
    try:
        compiled = environment.from_string(template)
        for piece in compiled.generate(
            messages=messages,
            add_generation_prompt=add_generation_prompt,
            **(special_tokens or {}),
            **variables,
        ):
            size += len(piece)
            if size > MAX_OUTPUT:
                raise ChatTemplateError(f"the chat template gives over {MAX_OUTPUT} characters")
            pieces.append(piece)
    except jinja2.TemplateError as error:
        raise ChatTemplateError(f"the chat template: {error}") from error
    except (TypeError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        raise ChatTemplateError(f"the chat template failed: {error}") from error
    return "".join(pieces)


def _refuse(message: str) -> NoReturn:
    raise ChatTemplateError(f"the chat template refuses the conversation: {message}")


def _now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _bounded_range(*bounds: int) -> range:
    counted = range(*bounds)
    if len(counted) > MAX_RANGE:
        raise ChatTemplateError(f"the chat template counts beyond {MAX_RANGE}")
    return counted


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
