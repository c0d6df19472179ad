"""Nest: the registry of models. A card says what a model is made of and where its weights are.

`find` gives a card by name, `load` a running model, `tokenizer` what turns text into its tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.backends import find_backend
from linnet.nest.card import Card, CardError, find, names
from linnet.nest.fetch import FetchError, fetch

if TYPE_CHECKING:
    from linnet.runtime import Runtime
    from linnet.text import Tokenizer


def load(name: str | Path | Card, *, backend: str = "torch", **options: Any) -> Runtime:
    """A card's model with its weights, fetched if need be.

    `options` go to the backend's `load`: `generics` such as `{"MaxSeq": 2048}` replace the card's,
    `weights` a path to use instead of the card's own, `dtype`, `device`, `compile`, `numerics`.
    """
    card = name if isinstance(name, Card) else find(name)
    load_model = find_backend(backend).loader()
    options["generics"] = {**card.generics, **options.get("generics", {})}
    options.setdefault("dtype", card.dtype)
    options.setdefault("bindings", card.bindings)
    if "weights" not in options:
        options["weights"] = fetch(card.weights)
    return load_model(card.source, root=card.root, **options)


def tokenizer(card: Card, weights: Path | None = None) -> Tokenizer:
    """The tokenizer that comes with a card's weights."""
    from linnet.text import gguf_tokenizer, read_tokenizer
    from linnet.weights import open_checkpoint

    path = weights or fetch(card.weights)
    if path.is_dir() and not any(path.glob("*.gguf")):
        return read_tokenizer(path)
    if path.suffix == ".safetensors":
        return read_tokenizer(path.parent)
    return gguf_tokenizer(open_checkpoint(path).metadata)


__all__ = ["Card", "CardError", "FetchError", "fetch", "find", "load", "names", "tokenizer"]
