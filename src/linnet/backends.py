"""The ways of running a model, by name. Adding one is adding its row to the table."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Backend:
    title: str
    load: str
    """`module:function`, imported when it is asked for: it needs the backend's framework."""
    options: tuple[str, ...]
    """What its `load` takes of `linnet run`'s options, beyond the dtype and the device."""
    method: str
    """The benchmark's method that runs it."""
    prefill_lengths: tuple[int, ...] = ()
    """How many tokens of a prompt go in at once, where each number is a program to compile; see
    `generate.prefill_plan`."""

    def loader(self) -> Callable[..., Runtime]:
        """The function that loads a model. Raises `ModuleNotFoundError` without its framework."""
        module, _, name = self.load.partition(":")
        return getattr(importlib.import_module(module), name)


BACKENDS: dict[str, Backend] = {
    "torch": Backend(
        "generated PyTorch", "linnet.torch:load", ("compile", "numerics"), "linnet-torch"
    ),
    "xla": Backend(
        "StableHLO, compiled by XLA",
        "linnet.jax:load",
        ("numerics",),
        "linnet-xla",
        prefill_lengths=(512, 128, 32, 8),
    ),
    "onnx": Backend(
        "ONNX on ONNX Runtime", "linnet.onnx:load", ("numerics", "quantize"), "linnet-onnx"
    ),
    "jax": Backend(
        "generated JAX, compiled by XLA",
        "linnet.jax:load_source",
        ("numerics",),
        "linnet-jax",
        prefill_lengths=(512, 128, 32, 8),
    ),
}


def find_backend(name: str) -> Backend:
    """Raises `ValueError` for an unknown name."""
    found = BACKENDS.get(name)
    if found is None:
        raise ValueError(f"no backend {name!r}: there is {', '.join(BACKENDS)}")
    return found
