"""Functions of generated source that compiled code calls as they are.

A function that looks at the value of a tensor, to read a cache only as far as it is filled, can't
be traced. It becomes an operator: inductor sees its inputs and what it gives, and calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from linnet.emit.torch_support import OPAQUE, support

_LIBRARY = torch.library.Library("linnet", "FRAGMENT")
_MADE: dict[str, Callable[..., Any]] = {}


def operator(name: str) -> Callable[..., Any]:
    """The operator for a support function of `emit.torch_support.OPAQUE`, made once a process."""
    if name not in _MADE:
        _MADE[name] = _make(name)
    return _MADE[name]


def _make(name: str) -> Callable[..., Any]:
    assert name in OPAQUE
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec("\n\n".join(support([name])), names)
    function = names[name]

    def run(query: Any, key: Any, value: Any, scale: float, at: Any) -> torch.Tensor:
        return function(query, key, value, scale, at).contiguous()

    def fake(query: Any, key: Any, value: Any, scale: float, at: Any) -> torch.Tensor:
        return query.new_empty(query.shape)

    _LIBRARY.define(
        f"{name}(Tensor query, Tensor key, Tensor value, float scale, Tensor at) -> Tensor"
    )
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"linnet::{name}", fake, lib=_LIBRARY)
    call = getattr(torch.ops.linnet, name).default

    def operator(query: Any, key: Any, value: Any, scale: float, at: Any) -> torch.Tensor:
        if not isinstance(at, torch.Tensor):  # a position that the source itself fixes
            return function(query, key, value, scale, at)
        return call(query, key, value, scale, at)

    return operator
