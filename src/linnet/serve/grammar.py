"""Answers that must be JSON of a schema: a mask over the vocabulary at each token.

The library keeps the state of the grammar; here it gets our tokenizer's bytes, and gives masks.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from linnet.serve.request import Refused
from linnet.text.tokenizer import Tokenizer


class Grammars:
    """Makes constraints for one tokenizer. May be used by several threads."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self._lock = threading.Lock()

    def of_schema(self, schema: Mapping[str, Any]) -> Callable[[], Constraint]:
        """What makes constraints to JSON of a schema.

        Raises `Refused` for a schema that is none, or that the library doesn't know in full.
        """
        import llguidance

        with self._lock:
            tokenizer = self._llguidance
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        except ValueError as error:
            raise Refused(f"response_format: the schema can't be used: {error}") from error
        if problem := llguidance.LLMatcher.validate_grammar(grammar, tokenizer):
            raise Refused(f"response_format: the schema can't be used: {problem}")
        return lambda: Constraint(llguidance.LLMatcher(tokenizer, grammar, log_level=0))

    @cached_property
    def _llguidance(self) -> Any:
        import llguidance

        tokenizer = self.tokenizer
        eos = tokenizer.eos_id
        if eos is None:
            raise Refused("response_format needs a tokenizer with an end token")
        spelled = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]

        class Wrapped:
            """What the library asks of a tokenizer."""

            eos_token_id = eos
            bos_token_id = tokenizer.bos_id
            tokens = spelled
            special_token_ids = sorted(tokenizer.special_ids)

            def __call__(self, text: str | bytes) -> list[int]:
                if isinstance(text, bytes):
                    text = text.decode("utf-8")
                return tokenizer.encode(text, add_special=False, parse_special=False)

        wrapper = llguidance.TokenizerWrapper(Wrapped())
        return llguidance.LLTokenizer(wrapper, n_vocab=len(spelled), eos_token=eos)


class Constraint:
    """The state of a grammar after some tokens."""

    def __init__(self, matcher: Any):
        self._matcher = matcher

    def mask(self) -> np.ndarray:
        """Which tokens may come next: bool `[V]`. Raises `ValueError` for a grammar that has grown
        beyond the library's limits."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())
        return np.unpackbits(bits, bitorder="little").astype(bool)

    def accept(self, token: int) -> None:
        """Takes a token in; raises `ValueError` for one that the mask forbade."""
        if not self._matcher.consume_token(token):
            raise ValueError(f"the grammar refuses token {token}: {self._matcher.get_error()}")

    @property
    def finished(self) -> bool:
        """Whether nothing can follow."""
        return self._matcher.is_stopped()
