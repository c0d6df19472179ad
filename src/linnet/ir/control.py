"""Branches and loops.

What is known at compile time is decided here: an `if` whose condition is known, a `match` over an
optional or an enum (always known), a loop of no iterations. The rest becomes `if` and `while`
with regions. A region is a function of its own that gets what it uses as inputs; assigned locals
and states are carried through a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from linnet.check import typed
from linnet.diagnostics import Span
from linnet.dtypes import DType
from linnet.ir.build import Builder, named
from linnet.ir.core import Function, TensorType, Value
from linnet.ir.frame import Frame
from linnet.ir.statics import (
    Form,
    Present,
    Static,
    Variant,
    fill,
    form_of,
    leaves,
    refill,
)

_I64 = TensorType((), DType.I64)


# --- match ----------------------------------------------------------------------------------


def lower_match_optional(frame: Frame, expr: typed.MatchOptional) -> Static:
    subject = frame.expr(expr.subject)
    if subject is None:
        return frame.expr(expr.none)
    assert isinstance(subject, Present)
    frame.bind(expr.pattern, subject.value)  # type: ignore[arg-type]
    return frame.expr(expr.some)


def lower_match_sub(frame: Frame, expr: typed.MatchSub) -> Static:
    child, path = frame.child(expr.block)
    if child is None:
        return frame.expr(expr.none)
    assert not isinstance(child, tuple)
    frame.blocks[expr.name] = (child, path)
    return frame.expr(expr.some)


def lower_match_enum(frame: Frame, expr: typed.MatchEnum) -> Static:
    subject = frame.expr(expr.subject)
    assert isinstance(subject, Variant)
    return frame.expr(expr.arms[subject.index])


# --- if -------------------------------------------------------------------------------------


def lower_if(frame: Frame, expr: typed.If) -> Static:
    condition = frame.value(expr.condition)
    known = frame.builder.scalars.get(condition)
    if known is not None:
        return frame.expr(expr.then if known else expr.otherwise)
    location = expr.span.location
    branches: list[tuple[Builder, Static, dict[str, Value]]] = []
    for body in (expr.then, expr.otherwise):
        with _region(frame) as region:
            branches.append((region, frame.expr(body), frame.states))
    form = form_of(branches[0][1])
    if form != form_of(branches[1][1]):
        _refuse_runtime_form(frame, expr.span, "an `if`")
    changed = _changed(frame, frame.states, *(states for _, _, states in branches))
    written = []
    for region, result, states in branches:
        after = [states.get(path, _state(frame, path)) for path in changed]
        written.append((region, [region.use(value) for value in (*leaves(result), *after)]))
    captures = _captures(region for region, _ in written)
    then, otherwise = (
        _finish(frame, region, gives, captures, suffix)
        for (region, gives), suffix in zip(written, ("then", "otherwise"), strict=True)
    )
    frame.builder.location = location
    outputs = frame.builder.emit_many(
        "if",
        [condition, *captures],
        [value.type for value in written[0][1]],
        then=then,
        otherwise=otherwise,
    )
    given = iter(outputs)
    joined = refill(form, given)
    for path, value in zip(changed, given, strict=True):
        frame.states[path] = value
        frame.builder.suggest(value, path)
    return joined


def _refuse_runtime_form(frame: Frame, span: Span, where: str) -> None:
    frame.refuse(
        f"{where} that decides at run time whether an optional is given or which variant an enum "
        "has",
        span,
        "decide it at compile time, or compute a tensor with `select`",
    )


# --- loops ----------------------------------------------------------------------------------


def lower_while(frame: Frame, statement: typed.While) -> None:
    kept = len(frame.regions)
    with _region(frame) as trial:
        runs = trial.scalars.get(frame.value(statement.condition))
    frame.lowering.forget_regions(frame, kept)
    if runs is False:
        return
    loop = _Loop(
        frame,
        statement.span,
        _assigned(frame, statement.body),
        condition=lambda counter: frame.value(statement.condition),
        body=lambda counter: frame.statements(statement.body),
    )
    loop.run()


def lower_for(frame: Frame, statement: typed.For) -> None:
    start, stop = frame.dim(statement.start), frame.dim(statement.stop)
    if stop <= start:
        if statement.result is not None:
            assert statement.result_type is not None
            frame.locals[statement.result] = _empty_stack(frame, statement.result_type)
        return

    def body(counter: Static) -> None:
        frame.locals[statement.index] = counter
        frame.statements(statement.body)

    def condition(counter: Static) -> Value:
        assert isinstance(counter, Value)
        end = frame.builder.constant(stop, _I64)
        return frame.builder.elementwise("lt", [counter, end], DType.BOOL)

    loop = _Loop(
        frame, statement.span, _assigned(frame, statement.body), condition, body,
        index=statement.index, start=start, trips=stop - start, scans=statement.result is not None,
    )  # fmt: skip
    stack = loop.run()
    if statement.result is not None:
        frame.locals[statement.result] = stack


def _empty_stack(frame: Frame, type_: typed.Type) -> Static:
    if isinstance(type_, typed.TupleT):
        return tuple(_empty_stack(frame, item) for item in type_.items)
    assert isinstance(type_, typed.TensorT)
    return _zeros(frame, frame.type(type_))


def _zeros(frame: Frame, type_: TensorType) -> Value:
    return frame.builder.constant(False if type_.dtype == DType.BOOL else 0, type_)


@dataclass(slots=True)
class _Loop:
    """A loop being lowered.

    What it carries is one value: the counter of a `for`, the assigned locals and changed states,
    and what a scan has stacked so far. Which states the body changes, and what it yields, is known
    only once the body is lowered; so it is lowered until nothing new comes up.
    """

    frame: Frame
    span: Span
    names: list[str]
    """The locals that the body assigns."""
    condition: Callable[[Static], Value]
    body: Callable[[Static], None]
    index: str | None = None
    start: int = 0
    trips: int = -1
    scans: bool = False
    states: list[str] = field(default_factory=list)
    """The states found to change."""
    row: Form = None
    """The form of what a scan yields, once it is known."""

    def run(self) -> Static:
        """Writes the loop; gives what its yields stack up to."""
        frame, location, kept = self.frame, self.frame.builder.location, len(self.frame.regions)
        written = None
        while written is None:
            frame.lowering.forget_regions(frame, kept)
            entry = self.entry()
            written = self.attempt(entry)
        head, tail, more, gives = written
        captures = _captures([head, tail])
        condition = _finish(frame, head, [more], captures, "condition")
        body = _finish(frame, tail, gives, captures, "body")
        frame.builder.location = location
        carried = list(leaves(entry))
        outputs = frame.builder.emit_many(
            "while",
            [*carried, *captures],
            [value.type for value in carried],
            condition=condition,
            body=body,
            carried=len(carried),
            trips=self.trips,
        )
        _, cells, stack = refill(form_of(entry), iter(outputs))  # type: ignore[misc]
        self.write(cells)
        return stack

    def attempt(self, entry: Static) -> tuple[Builder, Builder, Value, list[Value]] | None:
        """Lowers condition and body; `None` where they showed that more is carried."""
        frame, form = self.frame, form_of(entry)
        with _region(frame) as head:
            counter, cells, _ = self.inputs(head, form)
            self.write(cells)
            before = dict(frame.states)
            more = head.use(self.condition(counter))
            if _changed(frame, before, frame.states):
                frame.refuse("a loop condition that changes state", self.span)
        with _region(frame) as tail:
            counter, cells, stack = self.inputs(tail, form)
            self.write(cells)
            before = dict(frame.states)
            self.body(counter)
            row = frame.result if self.scans else ()
            found = [p for p in _changed(frame, before, frame.states) if p not in self.states]
            self.states += found
            self.row, known = form_of(row), self.row
            if found or (self.scans and known is None):
                return None
            leave = (self.advance(counter), self.read(), self.push(stack, row, counter))
            if form_of(leave) != form:
                _refuse_runtime_form(frame, self.span, "a loop")
            gives = [tail.use(value) for value in leaves(leave)]
        return head, tail, more, gives

    def entry(self) -> tuple[Static, Static, Static]:
        """What the first iteration gets: counter, cells, stack."""
        builder = self.frame.builder
        counter = builder.constant(self.start, _I64) if self.index is not None else ()
        stack = fill(
            self.row if self.scans and self.row is not None else (),
            lambda type_: _zeros(self.frame, TensorType((self.trips, *type_.shape), type_.dtype)),
        )
        return counter, self.read(), stack

    def inputs(self, region: Builder, form: Form) -> tuple[Static, Static, Static]:
        """What an iteration gets, as inputs of a region."""
        counter, cells, stack = fill(  # type: ignore[misc]
            form, lambda type_: region.input(type_)
        )
        for value in leaves(counter):
            region.suggest(value, self.index or "")
        for value in leaves(stack):
            region.suggest(value, "stack")
        return counter, cells, stack

    def read(self) -> Static:
        """The carried locals and states as they are now."""
        frame = self.frame
        return (
            tuple(frame.locals[name] for name in self.names),
            tuple(_state(frame, path) for path in self.states),
        )

    def write(self, cells: Static) -> None:
        assert isinstance(cells, tuple)
        assigned, states = cells
        assert isinstance(assigned, tuple) and isinstance(states, tuple)
        for name, value in zip(self.names, assigned, strict=True):
            self.frame.assign(name, value)
        for path, value in zip(self.states, states, strict=True):
            assert isinstance(value, Value)
            self.frame.states[path] = value
            self.frame.builder.suggest(value, path)

    def advance(self, counter: Static) -> Static:
        if not isinstance(counter, Value):
            return ()
        builder = self.frame.builder
        return builder.elementwise("add", [counter, builder.constant(1, _I64)], DType.I64)

    def push(self, stack: Static, row: Static, counter: Static) -> Static:
        """Writes what was yielded at its place in the stack."""
        if not self.scans:
            return ()
        builder = self.frame.builder
        assert isinstance(counter, Value)
        at = counter
        if self.start:
            at = builder.elementwise("sub", [at, builder.constant(self.start, _I64)], DType.I64)
        pushed = []
        for buffer, leaf in zip(leaves(stack), leaves(row), strict=True):
            value = builder.reshape(leaf, (1, *leaf.type.shape))
            pushed.append(builder.emit("update_slice", [buffer, value, at], buffer.type, axes=(0,)))
        return refill(form_of(stack), iter(pushed))


def _assigned(frame: Frame, body: Sequence[typed.Stmt]) -> list[str]:
    """The locals from around a loop that its body assigns."""
    found: dict[str, None] = {}
    for statement in body:
        if isinstance(statement, typed.Assign):
            found[statement.name] = None
        elif isinstance(
            statement, typed.While | typed.For | typed.StaticForBlocks | typed.StaticForRange
        ):
            found.update(dict.fromkeys(_assigned(frame, statement.body)))
    return [name for name in found if name in frame.locals]


# --- regions --------------------------------------------------------------------------------


@contextmanager
def _region(frame: Frame) -> Iterator[Builder]:
    """Writes into a region of the function; what is bound or assigned inside stays inside."""
    outer = frame.builder, frame.locals, frame.states
    frame.builder = Builder(frame.builder)
    frame.locals, frame.states = dict(frame.locals), dict(frame.states)
    try:
        yield frame.builder
    finally:
        frame.builder, frame.locals, frame.states = outer


def _state(frame: Frame, path: str) -> Value:
    """The current value of a state that is known to be touched."""
    return frame.states.get(path) or frame.builder.root.slots[path].value


def _changed(frame: Frame, before: dict[str, Value], *after: dict[str, Value]) -> list[str]:
    """The states that have another value in any of `after`."""
    slots = frame.builder.root.slots
    found: dict[str, None] = {}
    for states in after:
        for path, value in states.items():
            if value is not before.get(path, slots[path].value):
                found[path] = None
    return list(found)


def _captures(regions: Iterable[Builder]) -> list[Value]:
    """What any of the regions takes from around it."""
    return list(dict.fromkeys(value for region in regions for value in region.captures))


def _finish(
    frame: Frame,
    region: Builder,
    gives: Sequence[Value],
    captures: Sequence[Value],
    suffix: str,
) -> str:
    """Makes a region a function of the module; gives its name."""
    inputs = [*region.inputs, *(region.use(value) for value in captures)]
    function = Function(
        name=frame.lowering.name(f"{frame.name}_{suffix}"),
        source=frame.function.key,
        kind="region",
        generics=tuple(frame.binding.items()),
        inputs=tuple(inputs),
        weights=(),
        states=(),
        ops=tuple(region.ops),
        results=tuple(gives),
        new_states=(),
    )
    frame.lowering.add_region(frame, named(function, region.names))
    return function.name
