"""Text: tokenizers, chat templates, and the choice of tokens."""

from linnet.text.chat import ChatTemplateError, render_chat
from linnet.text.gguf_tokenizer import gguf_tokenizer
from linnet.text.sampling import Sampler, SamplingParams, StopText
from linnet.text.tokenizer import TextStream, Tokenizer, TokenizerError, read_tokenizer

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
