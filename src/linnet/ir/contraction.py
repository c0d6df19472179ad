"""Sums of products to `dot`s.

`sum[k] a[m, k] * b[k, n]` is one contraction. With more factors, those that vary with no index of
their own are multiplied into others first, then factors are contracted in pairs, in the order of
the source, each index as soon as nothing else uses it. Factors that vary with no summed index move
out of the sum, an index that only one factor has is summed in that factor, and a sum over `+` and
`-` is split where it holds products. So a product over more indices than any of its factors is
made only where no contraction exists.

Casts to the sum's dtype are the contraction's own: `dot` casts its inputs to the dtype it
accumulates in. A widening float cast of a product is taken as the product of the casts: the one
place where this is more exact than the source read literally.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from linnet.check import typed
from linnet.dtypes import DType
from linnet.ir.core import TensorType
from linnet.ir.labels import Labelled

if TYPE_CHECKING:
    from linnet.ir.index import Notation


def lower_sum(
    notation: Notation, body: typed.Expr, labels: Sequence[str], dtype: DType
) -> Labelled:
    """`sum[labels] body`, of a body of the given dtype."""
    if isinstance(body, typed.Reduce) and body.op == "sum":
        with notation.bound(body.indices) as inner:
            return lower_sum(notation, body.body, [*labels, *inner], dtype)
    match body:
        case typed.Prim("neg", (only,)):
            return notation.labels.elementwise(
                "neg", [lower_sum(notation, only, labels, dtype)], dtype
            )
        case typed.Prim("add" | "sub", parts) if _splits(notation, parts, labels):
            sums = [lower_sum(notation, part, labels, dtype) for part in parts]
            return notation.labels.elementwise(body.op, sums, dtype)
    factors = [_divided(notation, factor, dtype) for factor in _factors(notation, body, dtype)]
    notation.frame.builder.location = body.span.location
    return _Product(notation, dtype, list(labels)).contracted(factors)


# --- factors --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Factor:
    """`expr / d1 / d2 …`"""

    expr: typed.Expr
    divisors: list[typed.Expr]


def _factors(notation: Notation, expr: typed.Expr, dtype: DType) -> list[_Factor]:
    """The factors of a product, each to be cast to the sum's dtype."""
    match expr:
        case typed.Prim("mul", (left, right)):
            return [*_factors(notation, left, dtype), *_factors(notation, right, dtype)]
        case typed.Prim("div", (dividend, divisor)) if dtype.is_float:
            factors = _factors(notation, dividend, dtype)
            needed = _indices(divisor)
            for factor in factors:
                if len(factors) > 1 and needed <= _indices(factor.expr):
                    factor.divisors.append(divisor)
                    return factors
        case typed.Prim("cast", (inner,)) if notation.frame.type(expr.type).dtype == dtype:
            assert isinstance(inner.type, typed.TensorT)
            source = notation.frame.type(inner.type).dtype
            if source.is_float and dtype.is_float and source.bits <= dtype.bits:
                return _factors(notation, inner, dtype)
            if source != DType.BOOL:
                return [_Factor(inner, [])]
    return [_Factor(expr, [])]


def _divided(notation: Notation, factor: _Factor, dtype: DType) -> Labelled:
    found = notation.lower(factor.expr)
    for divisor in factor.divisors:
        parts = [
            notation.labels.elementwise("cast", [part], dtype)
            for part in (found, notation.lower(divisor))
        ]
        found = notation.labels.elementwise("div", parts, dtype)
    return found


def _splits(notation: Notation, parts: Sequence[typed.Expr], labels: Sequence[str]) -> bool:
    """Whether a sum over `+` or `-` is worth splitting: each side varies with every summed index,
    and one is a product over more indices than any of its factors."""
    names = {name for name, bound in notation.scope.items() if set(bound) & set(labels)}
    if not all(names <= _indices(part) for part in parts):
        return False
    return any(map(_is_wide, parts))


def _is_wide(expr: typed.Expr) -> bool:
    """Whether a product varies with more indices than any of its factors does."""
    match expr:
        case typed.Prim("mul"):
            return all(_indices(factor) != _indices(expr) for factor in _multiplied(expr))
        case typed.Prim("cast" | "neg" | "add" | "sub", parts):
            return any(map(_is_wide, parts))
        case _:
            return False


def _multiplied(expr: typed.Expr) -> Iterator[typed.Expr]:
    if isinstance(expr, typed.Prim) and expr.op == "mul":
        for part in expr.args:
            yield from _multiplied(part)
    else:
        yield expr


def _indices(expr: typed.Expr) -> set[str]:
    """The names of the indices, of those bound around it, that an expression varies with."""
    match expr:
        case typed.Access(_, subscripts):
            found: set[str] = set()
            for subscript in subscripts:
                if isinstance(subscript, typed.Affine):
                    found |= {index for index, _ in subscript.terms}
                elif isinstance(subscript, typed.PackSubscript):
                    found.add(subscript.name)
                else:
                    found |= _indices(subscript)
            return found
        case typed.Prim(_, args) | typed.Call(args=args):
            return set().union(*map(_indices, args))
        case typed.Reduce(_, indices, body):
            return _indices(body) - {name for name, _ in indices}
        case typed.If(condition, then, otherwise):
            return _indices(condition) | _indices(then) | _indices(otherwise)
        case typed.MatchOptional(_, _, some, none) | typed.MatchSub(_, _, some, none):
            return _indices(some) | _indices(none)
        case typed.MatchEnum(_, arms):
            return set().union(*map(_indices, arms))
        case _:
            return set()


# --- contraction ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Product:
    """A product of labelled tensors, summed over `summed` in `dtype`."""

    notation: Notation
    dtype: DType
    summed: list[str]

    def contracted(self, factors: list[Labelled]) -> Labelled:
        free = [f for f in factors if not set(f.labels) & set(self.summed)]
        bound = [f for f in factors if set(f.labels) & set(self.summed)]
        used = {label for f in bound for label in f.labels}
        unused = [label for label in self.summed if label not in used]
        bound = [self.sum_alone(f, bound) for f in bound]
        if len(bound) > 2:
            bound = self.absorbed(bound)
        while len(bound) > 1:
            bound = self.paired(bound)
        result = bound[0] if bound else None
        if result is not None:
            left = [label for label in result.labels if label in self.summed]
            if left:
                result = self.notation.labels.reduced("sum", self.cast(result), left)
        for factor in free:
            result = self.multiplied(result, factor) if result is not None else self.cast(factor)
        assert result is not None
        return self.repeated(self.cast(result), unused)

    def cast(self, part: Labelled) -> Labelled:
        return self.notation.labels.elementwise("cast", [part], self.dtype)

    def multiplied(self, left: Labelled, right: Labelled) -> Labelled:
        parts = [self.cast(left), self.cast(right)]
        return self.notation.labels.elementwise("mul", parts, self.dtype)

    def sum_alone(self, part: Labelled, every: Sequence[Labelled]) -> Labelled:
        """Sums the indices that no other factor has, where there are other factors."""
        others = {label for f in every if f is not part for label in f.labels}
        alone = [x for x in part.labels if x in self.summed and x not in others]
        if len(every) == 1 or not alone:
            return part
        return self.notation.labels.reduced("sum", self.cast(part), alone)

    def absorbed(self, factors: list[Labelled]) -> list[Labelled]:
        """Multiplies factors into others that have all their labels, down to two factors."""
        factors = list(factors)
        at = 0
        while at < len(factors) and len(factors) > 2:
            part = factors[at]
            wider = [f for f in factors if f is not part and set(part.labels) <= set(f.labels)]
            if not wider:
                at += 1
                continue
            host = min(wider, key=lambda f: len(f.labels))
            factors[factors.index(host)] = self.multiplied(host, part)
            factors.remove(part)
            at = 0
        return factors

    def paired(self, factors: list[Labelled]) -> list[Labelled]:
        """Contracts the first two factors that have an index only they have; where there are none,
        multiplies the first two."""
        for i, left in enumerate(factors):
            for right in factors[i + 1 :]:
                rest = [f for f in factors if f is not left and f is not right]
                others = {label for f in rest for label in f.labels}
                shared = [x for x in left.labels if x in right.labels and x in self.summed]
                alone = [label for label in shared if label not in others]
                if alone and self.worth_a_dot(left, right):
                    return self.replaced(factors, left, right, self.dot(left, right, alone))
        left, right = factors[:2]
        return self.replaced(factors, left, right, self.multiplied(left, right))

    @staticmethod
    def worth_a_dot(left: Labelled, right: Labelled) -> bool:
        """Not where both vary with the same indices and more than the summed ones stay: then the
        product is no larger than they are, and a row-wise `dot` only obscures it."""
        return set(left.labels) != set(right.labels) or len(left.labels) == 1

    @staticmethod
    def replaced(
        factors: list[Labelled], left: Labelled, right: Labelled, by: Labelled
    ) -> list[Labelled]:
        return [by if f is left else f for f in factors if f is not right]

    def dot(self, left: Labelled, right: Labelled, contract: Sequence[str]) -> Labelled:
        """One contraction, its operands in the order that their free labels have in the result."""
        order = list(self.notation.labels.extents)
        frees = []
        for part, other in ((left, right), (right, left)):
            frees.append([order.index(x) for x in part.labels if x not in other.labels])
        if frees[0] and frees[1] and min(frees[1]) < min(frees[0]):
            left, right = right, left
        batch = [x for x in left.labels if x in right.labels and x not in contract]
        value = self.notation.frame.builder.dot(
            left.value,
            right.value,
            (left.axes(batch), right.axes(batch)),
            (left.axes(contract), right.axes(contract)),
            self.dtype,
        )
        rest = [x for part in (left, right) for x in part.labels if x not in contract]
        return Labelled(value, tuple(dict.fromkeys([*batch, *rest])))

    def repeated(self, part: Labelled, labels: Sequence[str]) -> Labelled:
        """A sum over indices that nothing varies with: so many times the value."""
        count = 1
        for label in labels:
            count *= self.notation.labels.extents[label]
        if not labels:
            return part
        times = self.notation.frame.builder.constant(count, TensorType((), self.dtype))
        return self.multiplied(part, Labelled(times, ()))
