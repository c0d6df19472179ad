"""Index notation to contractions, gathers, broadcasts and reductions.

Inside `let c[m, n] = …` every expression is a scalar that varies with indices. Here it becomes a
tensor with a label on each axis, the index it varies with: `a[m, k]` is `a` itself, labelled
`m, k`. Operators line labels up and broadcast; a reduction drops labels; at the end the result is
put into the order of the left side. How an access labels its axes is in `access.py`, how a sum of
products becomes `dot`s in `contraction.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from linnet.check import typed
from linnet.ir.access import lower_access
from linnet.ir.contraction import lower_sum
from linnet.ir.core import OPS
from linnet.ir.frame import Frame
from linnet.ir.generics import bound_shape
from linnet.ir.labels import Labelled, Labels
from linnet.ir.statics import Present, Static, Variant

_ELEMENTWISE = ("unary", "binary", "compare", "select")


def lower_comprehension(frame: Frame, expr: typed.Comprehension) -> Static:
    """`let c[m, *s] = body`: the tensor it defines."""
    notation = Notation(frame)
    order: list[str] = []
    for index, extent in expr.indices:
        if isinstance(extent, tuple):
            order += notation.bind_pack(index, bound_shape(extent, frame.binding))
        else:
            order.append(notation.bind(index, frame.dim(extent)))
    found = notation.lower(expr.body)
    return notation.labels.arranged(found, order)


def lower_reduction(frame: Frame, expr: typed.Reduce) -> Static:
    """A reduction outside a comprehension, to a scalar."""
    return Notation(frame).lower(expr).value


class Notation:
    """The indices in scope, and the lowering of what varies with them."""

    def __init__(self, frame: Frame):
        self.frame = frame
        self.labels = Labels(frame)
        self.scope: dict[str, tuple[str, ...]] = {}
        """The labels that an index, or a pack of indices, stands for."""

    def bind(self, index: str, extent: int) -> str:
        label = self.labels.new(index, extent)
        self.scope[index] = (label,)
        return label

    def bind_pack(self, index: str, shape: tuple[int, ...]) -> tuple[str, ...]:
        made = tuple(self.labels.new(f"{index}.{i}", extent) for i, extent in enumerate(shape))
        self.scope[index] = made
        return made

    @contextmanager
    def bound(self, indices: Sequence[tuple[str, typed.Dim]]) -> Iterator[list[str]]:
        """Binds a reduction's indices for its body; gives their labels."""
        outer = dict(self.scope)
        yield [self.bind(index, self.frame.dim(extent)) for index, extent in indices]
        self.scope = outer

    def lower(self, expr: typed.Expr) -> Labelled:
        """What varies with indices, by its kind; anything else doesn't, and is lowered as usual."""
        rule = _RULES.get(type(expr))
        if rule is None or (isinstance(expr, typed.Prim) and not _is_elementwise(expr.op)):
            return Labelled(self.frame.value(expr), ())
        return rule(self, expr)


def _is_elementwise(op: str) -> bool:
    return op in OPS and OPS[op].group in _ELEMENTWISE


def _prim(notation: Notation, expr: typed.Prim) -> Labelled:
    parts = [notation.lower(argument) for argument in expr.args]
    notation.frame.builder.location = expr.span.location
    dtype = notation.frame.type(expr.type).dtype
    return notation.labels.elementwise(expr.op, parts, dtype)


def _reduce(notation: Notation, expr: typed.Reduce) -> Labelled:
    with notation.bound(expr.indices) as labels:
        if expr.op == "sum":
            return lower_sum(notation, expr.body, labels, notation.frame.type(expr.type).dtype)
        body = notation.labels.covering(notation.lower(expr.body), labels)
        notation.frame.builder.location = expr.span.location
        return notation.labels.reduced(expr.op, body, labels)


def _if(notation: Notation, expr: typed.If) -> Labelled:
    """Both sides are computed and selected from, unless the condition is known."""
    condition = notation.lower(expr.condition)
    known = notation.frame.builder.scalars.get(condition.value)
    if known is not None:
        return notation.lower(expr.then if known else expr.otherwise)
    parts = [condition, notation.lower(expr.then), notation.lower(expr.otherwise)]
    return notation.labels.elementwise("select", parts, parts[1].value.type.dtype)


def _match_optional(notation: Notation, expr: typed.MatchOptional) -> Labelled:
    subject = notation.frame.expr(expr.subject)
    if subject is None:
        return notation.lower(expr.none)
    assert isinstance(subject, Present)
    notation.frame.bind(expr.pattern, subject.value)  # type: ignore[arg-type]
    return notation.lower(expr.some)


def _match_enum(notation: Notation, expr: typed.MatchEnum) -> Labelled:
    subject = notation.frame.expr(expr.subject)
    assert isinstance(subject, Variant)
    return notation.lower(expr.arms[subject.index])


def _match_sub(notation: Notation, expr: typed.MatchSub) -> Labelled:
    child, path = notation.frame.child(expr.block)
    if child is None:
        return notation.lower(expr.none)
    assert not isinstance(child, tuple)
    notation.frame.blocks[expr.name] = (child, path)
    return notation.lower(expr.some)


_RULES: dict[type, Callable[..., Labelled]] = {
    typed.Access: lower_access,
    typed.Prim: _prim,
    typed.Reduce: _reduce,
    typed.If: _if,
    typed.MatchOptional: _match_optional,
    typed.MatchEnum: _match_enum,
    typed.MatchSub: _match_sub,
}
