"""What a call calls."""

from __future__ import annotations

from dataclasses import dataclass

from linnet.check import typed
from linnet.check.scope import Entity, Signature
from linnet.check.types import Binding
from linnet.diagnostics import Note


@dataclass(frozen=True, slots=True)
class Target:
    """A function, a method of a block, or a struct as the function of its fields."""

    name: str
    signature: Signature
    entity: Entity
    block: typed.BlockRef | None
    given: Binding
    """What the generics of a method's block are."""

    @property
    def declared(self) -> Note:
        return Note(f"`{self.name}` is declared here", self.entity.name.span)
