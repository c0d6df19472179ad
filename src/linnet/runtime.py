"""The one interface of a loaded model.

`generate`, `serve` and `bench` drive a model through `Runtime` and know no framework: tokens go in
as numpy arrays, results stay on the device until `to_numpy` or `argmax` asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from linnet.dtypes import DType


@dataclass(frozen=True, slots=True)
class EntrySignature:
    """An entry as its source declares it, its root's generics filled in."""

    name: str
    generics: tuple[str, ...]
    """What a call binds, from its inputs' shapes or by keyword."""
    inputs: tuple[tuple[str, str], ...]
    """Names and types, as `("tokens", "Tensor[1, S; i32]")`."""
    result: str
    doc: str | None = None

    def __str__(self) -> str:
        generics = f"<{', '.join(self.generics)}>" if self.generics else ""
        inputs = ", ".join(f"{name}: {type_}" for name, type_ in self.inputs)
        return f"{self.name}{generics}({inputs}) -> {self.result}"


class Runtime(Protocol):
    """A model on a device, with its weights and its states."""

    @property
    def name(self) -> str:
        """Which way of running it is: `torch`, `torch-inductor`, `xla`, …"""
        ...

    @property
    def entries(self) -> Mapping[str, EntrySignature]: ...

    @property
    def generics(self) -> Mapping[str, int]:
        """What the root's dimensions are bound to: `Vocab`, `MaxSeq`, `Batch`, …"""
        ...

    @property
    def dtype(self) -> DType:
        """The weights' dtype."""
        ...

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that one decoded token reads."""
        ...

    @property
    def compile_s(self) -> float:
        """Seconds spent compiling entries so far."""
        ...

    def run_entry(self, name: str, inputs: Sequence[Any], **generics: int) -> Any:
        """Runs an entry; gives its result, or a tuple of them, as the runtime's own arrays.

        Inputs are numpy arrays, numbers or the runtime's own arrays. Raises `ValueError` for an
        unknown entry, and for inputs of a wrong number, shape or dtype.
        """
        ...

    def reset_state(self) -> None:
        """Sets all states back to zero."""
        ...

    def generated_source(self, entry: str, **generics: int) -> str:
        """What an entry was turned into, as text; raises `ValueError` for an unknown one."""
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """The parameters and buffers by path, as the runtime's own arrays, not copies."""
        ...

    def to_numpy(self, value: Any) -> np.ndarray:
        """A result on the host, floats as f32."""
        ...

    def argmax(self, logits: Any) -> np.ndarray:
        """The likeliest token of each row of `[B, V]`, chosen on the device: `[B]`, int64."""
        ...
