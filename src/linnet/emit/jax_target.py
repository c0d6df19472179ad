"""What generated JAX is written for."""

from __future__ import annotations

from dataclasses import dataclass

NUMERICS = ("exact", "equivalent", "fast")


@dataclass(frozen=True, slots=True)
class JaxTarget:
    """How far numbers may stray from the source's own. Raises `ValueError` for other numerics.

    The same source runs on every device that JAX has.
    """

    numerics: str = "fast"

    def __post_init__(self) -> None:
        if self.numerics not in NUMERICS:
            raise ValueError(
                f"numerics must be one of {', '.join(NUMERICS)}, not {self.numerics!r}"
            )

    def allows(self, numerics: str) -> bool:
        """Whether a kernel of these numerics may stand for a body."""
        return NUMERICS.index(numerics) <= NUMERICS.index(self.numerics)
