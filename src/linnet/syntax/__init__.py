"""Text to syntax tree: `parse` makes an `ast.File` of a `SourceFile`, reporting what is wrong."""

from linnet.syntax.parser import parse
from linnet.syntax.tokens import decode_source, read_source, tokenize

__all__ = ["decode_source", "parse", "read_source", "tokenize"]
