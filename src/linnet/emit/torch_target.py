"""What generated PyTorch is written for."""

from __future__ import annotations

from dataclasses import dataclass

NUMERICS = ("exact", "equivalent", "fast")
MODES = ("eager", "inductor", "cudagraphs")


@dataclass(frozen=True, slots=True)
class TorchTarget:
    """The device, how the source is run, and how far numbers may stray from the source's own.

    `eager` runs it as it is, `inductor` compiles its pieces, `cudagraphs` does and captures
    whole calls in a CUDA graph. Raises `ValueError` for other modes and numerics.
    """

    device: str = "cpu"
    mode: str = "eager"
    numerics: str = "fast"
    compile_rows: int = 64
    """A function over more rows than this is not compiled: it would be compiled again for every
    number of rows, to little gain, since with many rows matrix products take all the time."""

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("mode", self.mode, MODES),
            ("numerics", self.numerics, NUMERICS),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        if self.mode == "cudagraphs" and not self.device.startswith("cuda"):
            raise ValueError(f"CUDA graphs need a CUDA device, not {self.device!r}")

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    @property
    def compiled(self) -> bool:
        return self.mode != "eager"

    def allows(self, numerics: str) -> bool:
        """Whether a kernel of these numerics may stand for a body."""
        return NUMERICS.index(numerics) <= NUMERICS.index(self.numerics)
