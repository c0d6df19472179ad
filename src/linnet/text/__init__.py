"""Text: tokenizers, chat templates, and the choice of tokens."""

from linnet.text.chat import render_chat
from linnet.text.errors import ChatTemplateError, TokenizerError
from linnet.text.gguf_tokenizer import gguf_tokenizer
from linnet.text.sampling import Sampler, SamplingParams, StopText
from linnet.text.spelling import TextStream
from linnet.text.tokenizer import Tokenizer, read_tokenizer

__all__ = [
    "ChatTemplateError",
    "Sampler",
    "SamplingParams",
    "StopText",
    "TextStream",
    "Tokenizer",
    "TokenizerError",
    "gguf_tokenizer",
    "read_tokenizer",
    "render_chat",
]
