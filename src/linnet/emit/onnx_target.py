"""What ONNX is generated for: who runs it, which operators it may use, which weights are packed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from linnet.ir.passes import NUMERICS

PROVIDERS = ("cpu", "cuda", "tensorrt")
OPSET = 28
"""The version of ONNX's own operators; `MS` is the domain of ONNX Runtime's."""
MS = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a packed weight that are quantised alike: blocks of 32 along a row."""

    name: str
    """What its arrays are called: `NAME.blocks`, `.scales`, and those of the next two it has."""
    rows: int
    columns: int
    bits: int
    zeros: bool = False
    """Whether each block has an integer zero point of its own (`.zeros`); else the middle is."""
    offsets: bool = False
    """Whether each block has a float that is added to all of its values (`.offsets`, `[blocks,
    rows]`: what a product over blocks reads row by row)."""


@dataclass(frozen=True, slots=True)
class OnnxTarget:
    """A way of running ONNX.

    `provider` is ONNX Runtime's that will run it (`cpu`, `cuda`, `tensorrt`). `contrib` allows ONNX
    Runtime's own operators beside the standard's. `numerics` says which kernels may stand for
    library ops. `trusted` takes entry inputs that are positions to be inside their cache; what has
    to hold is in `Emitted.requires`. `packed` gives the weights that are held quantised, by path.
    """

    provider: str = "cpu"
    contrib: bool = True
    numerics: str = "fast"
    trusted: bool = True
    packed: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    accuracy: int = 4
    """What MatMulNBits multiplies in: 4 rounds activations to i8 by blocks, 1 keeps them f32."""

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("provider", self.provider, PROVIDERS),
            ("numerics", self.numerics, NUMERICS),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")

    @property
    def on_cpu(self) -> bool:
        return self.provider == "cpu"

    def allows(self, numerics: str) -> bool:
        """Whether a kernel of these numerics may be used."""
        return NUMERICS.index(numerics) <= NUMERICS.index(self.numerics)
