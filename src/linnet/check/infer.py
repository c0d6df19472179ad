"""Inferring a callee's generics from the types of its arguments, and of where its result goes."""

from __future__ import annotations

from dataclasses import dataclass, field

from linnet.check.dims import Dim, Facts, solve
from linnet.check.typed import (
    AnyDType,
    DTypeVar,
    OptionalT,
    Pack,
    Shape,
    StructT,
    TensorT,
    TupleT,
    Type,
)
from linnet.check.types import MARK, Binding, shapes_equal


@dataclass(slots=True)
class Unifier:
    """Infers generics from pairs of a parameter's type and an argument's.

    Parameter types have their unknown generics renamed with `MARK`. `unify` answers whether the
    pair can still fit; dimensions are only compared at the end, by `finish` and the caller.
    """

    facts: Facts
    binding: Binding = field(default_factory=Binding)
    equations: list[tuple[Dim, Dim]] = field(default_factory=list)

    def unify(self, pattern: Type, found: Type) -> bool:
        match pattern, found:
            case TensorT(), TensorT():
                return self._dtype(pattern.dtype, found.dtype) and self._shape(
                    pattern.shape, found.shape
                )
            case OptionalT(), OptionalT():
                return self.unify(pattern.inner, found.inner)
            case TupleT(), TupleT():
                return len(pattern.items) == len(found.items) and all(
                    map(self.unify, pattern.items, found.items)
                )
            case StructT(), StructT():
                return pattern.key == found.key and all(
                    self.unify(x, y)
                    for (_, x), (_, y) in zip(pattern.fields, found.fields, strict=True)
                )
            case _:
                return pattern == found

    def _dtype(self, pattern: AnyDType, found: AnyDType) -> bool:
        if isinstance(pattern, DTypeVar) and pattern.name.endswith(MARK):
            known = self.binding.dtypes.setdefault(pattern.name, found)
            return known == found
        return pattern == found

    def _shape(self, pattern: Shape, found: Shape) -> bool:
        unknown = [
            i for i, p in enumerate(pattern) if isinstance(p, Pack) and p.name.endswith(MARK)
        ]
        if unknown:
            at = unknown[0]
            taken = len(found) - (len(pattern) - 1)
            if taken < 0:
                return False
            pack = pattern[at]
            assert isinstance(pack, Pack)
            part = found[at : at + taken]
            known = self.binding.packs.setdefault(pack.name, part)
            if not shapes_equal(known, part, self.facts):
                return False
            pattern = (*pattern[:at], *part, *pattern[at + 1 :])
        if len(pattern) != len(found):
            return False
        for p, f in zip(pattern, found, strict=True):
            if isinstance(p, Pack) or isinstance(f, Pack):
                if p != f:
                    return False
                continue
            name = p.variable
            if name is not None and name.endswith(MARK) and name not in self.binding.dims:
                self.binding.dims[name] = f
            else:
                self.equations.append((p, f))
        return True

    def finish(self, unknowns: frozenset[str]) -> None:
        """Solves what is left for dimensions that no argument gave directly."""
        pending = [(self.binding.dim(p), f) for p, f in self.equations]
        left = unknowns - self.binding.dims.keys()
        if left:
            self.binding.dims.update(solve(pending, left, self.facts))
