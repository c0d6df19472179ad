"""What goes wrong with text, told apart from other bad values."""

from __future__ import annotations


class TokenizerError(ValueError):
    """A tokenizer that can't be read or rebuilt; says what is missing or unknown."""


class ChatTemplateError(ValueError):
    """A template that can't be used, or that refuses the conversation; says why."""
