"""Which updates may write over their operand, and which expressions may move to their use.

Core IR has no memory: `update_slice` gives a new tensor, a call gives new states. A runtime keeps
each state in one buffer and wants it written in place, which is right as long as nothing reads the
old value afterwards. `plan` proves that, for states and for local tensors that are built up in a
loop, or says what must be copied first:

- every value has *roots*: the buffers whose memory it may share. A view (a slice, say) has the
  roots of what it looks at, a computed value has its own;
- an update is in place where its operand is all of a buffer, at its present content, and the
  operand is dead afterwards. Where the old content is still needed, a state is copied before the
  update (a *snapshot*) and a view when it is made; a local tensor is copied as the update's result;
- a state whose new value was not made in its buffer is stored into it at the function's end.

An expression is *fused*, written where it is used instead of getting a name, if that is its only
use and nothing that it reads is written between the two places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from linnet.emit.bodies import (
    Body,
    Branch,
    Expanded,
    Loop,
    Step,
    bodies_of,
    updated,
)
from linnet.emit.liveness import Around, Liveness, Use, liveness
from linnet.ir.core import Op, Value
from linnet.ir.rewrite import is_temporary


@dataclass(frozen=True, slots=True)
class Root:
    """A buffer: of a `state`, `weight` or `input` by its value, a `local` one by what made it."""

    kind: str
    value: Value


Roots = frozenset[Root]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a caller needs to know of a function: for each result, the operands whose memory it may
    share, by position."""

    shares: tuple[frozenset[int], ...]


@dataclass(slots=True)
class Plan:
    """How a function's values live in memory."""

    live: Liveness
    place: dict[Value, Root] = field(default_factory=dict)
    """Values that are all of a buffer, at the time they are used."""
    in_place: dict[Step, list[Root]] = field(default_factory=dict)
    """Steps that write over their targets, with the buffers that these are, in order."""
    snapshots: dict[int, list[Value]] = field(default_factory=dict)
    """By position: values to copy just before, since what they look at is about to be written."""
    copied: set[Value] = field(default_factory=set)
    """Views, loop variables, and what loops and branches give, to copy when they are made."""
    bound: dict[Value, Root] = field(default_factory=dict)
    """Loop variables, and outputs of loops and branches, that live in one buffer throughout."""
    rebound: set[Value] = field(default_factory=set)
    """Bound loop variables whose next value must be moved to their buffer as an iteration ends."""
    taken: set[Value] = field(default_factory=set)
    """Those local ones that take the next value's memory; the others copy it."""
    stored: dict[int, Root] = field(default_factory=dict)
    """Positions of new states (`Liveness.end + i`) that must be stored at the end."""
    fused: set[Value] = field(default_factory=set)
    alive: dict[Value, int] = field(default_factory=dict)
    """The last position where a value's name is needed."""
    roots: dict[Value, Roots] = field(default_factory=dict)
    summary: Summary = field(default_factory=lambda: Summary(()))


class MustInline(Exception):
    """A call that can't change its states in place where it stands; `name` is the callee's."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


def plan(expanded: Expanded, summaries: Mapping[str, Summary]) -> Plan:
    """The plan of a function, given its callees' summaries. Raises `MustInline`."""
    live = liveness(expanded)
    copied: set[Value] = set()
    frozen: dict[Value, int] = {}
    shared: dict[Value, Roots] = {}
    while True:
        analysis = _Analysis(expanded, live, summaries, copied, frozen, shared)
        analysis.run()
        if not analysis.changed:
            break
    found = analysis.plan
    _fuse(expanded, found, analysis.writes, analysis.reads)
    found.summary = Summary(
        tuple(
            frozenset(
                i
                for i, operand in enumerate(expanded.function.operands)
                if any(root.value is operand for root in found.roots[value])
            )
            for value in expanded.body.results
        )
    )
    return found


_VIEWS = ("reshape", "permute", "broadcast", "slice")


def _is_view(step: Step) -> bool:
    """Whether a step's output may share its first operand's memory. Casts between integers and the
    absolute value of unsigned ones may be nothing at all, an element may be picked as a view."""
    op = step.op
    if op.kind == "cast":
        return op.inputs[0].type.dtype.is_integer and op.output.type.dtype.is_integer
    if op.kind == "abs":
        return not op.output.type.dtype.is_signed
    if op.kind == "gather":
        return op.inputs[1].type.shape == ()
    return op.kind in _VIEWS or (op.kind == "reduce" and op.attrs["axes"] == ())


class _Analysis:
    """One walk over a function. What it finds out about earlier points (`copied`, `frozen`, what
    loop variables share) makes it `changed`, and it is walked again."""

    def __init__(
        self,
        expanded: Expanded,
        live: Liveness,
        summaries: Mapping[str, Summary],
        copied: set[Value],
        frozen: dict[Value, int],
        shared: dict[Value, Roots],
    ):
        self.expanded = expanded
        self.live = live
        self.summaries = summaries
        self.copied = copied
        self.frozen = frozen
        self.shared = shared
        self.changed = False
        self.roots: dict[Value, Roots] = {}
        self.place: dict[Value, Root] = {}
        self.current: dict[Root, Value | None] = {}
        self.writes: list[tuple[int, Root]] = []
        self.frozen_here: dict[Value, Root] = {}
        """What was copied at this position, with the buffers it was in."""
        self.reads: dict[Value, Roots] = {}
        """For what each step gives, the buffers that its operands share when it runs."""
        self.plan = Plan(live, self.place, copied=copied, roots=self.roots)
        for value, position in frozen.items():
            self.plan.snapshots.setdefault(position, []).append(value)
        self.lineage = _lineage(expanded)

    def run(self) -> None:
        function = self.expanded.function
        for value in function.inputs:
            self.roots[value] = frozenset({Root("input", value)})
        for slot in function.weights:
            self.roots[slot.value] = frozenset({Root("weight", slot.value)})
        for slot in function.states:
            self.own(slot.value, Root("state", slot.value))
        self.body(self.expanded.body, ())
        for i, (slot, new) in enumerate(
            zip(function.states, self.expanded.new_states, strict=True)
        ):
            root = Root("state", slot.value)
            position = self.live.end + i
            self.freeze(position)
            if self.place.get(new) != root or self.current[root] is not new:
                self.plan.stored[position] = root
                self.write(root, position, (), None, ())

    # Values.

    def own(self, value: Value, root: Root) -> None:
        """A value that is all of a buffer, at its present content."""
        self.roots[value] = frozenset({root})
        self.place[value] = root
        self.current[root] = value

    def fresh(self, value: Value) -> None:
        self.own(value, Root("local", value))

    def freeze(self, position: int) -> None:
        """Takes the snapshots of a position."""
        values = self.plan.snapshots.get(position, ())
        self.frozen_here = {value: self.place[value] for value in values}
        for value in values:
            self.fresh(value)

    def target_root(self, target: Value) -> Root | None:
        """The buffer that an update may write: where its target is, even if that was just copied
        for the sake of others."""
        return self.frozen_here.get(target, self.place.get(target))

    def sharing(self, values: tuple[Value, ...]) -> Roots:
        return frozenset[Root]().union(*(self.roots[value] for value in values))

    # Nodes.

    def body(self, body: Body, around: Around) -> None:
        for node in body.nodes:
            self.freeze(node.position)
            if isinstance(node, Step):
                self.step(node, around)
            elif isinstance(node, Loop):
                self.loop(node, around)
            else:
                self.branch(node, around)

    def step(self, step: Step, around: Around) -> None:
        op = step.op
        self.reads.update((value, self.sharing(op.inputs)) for value in op.outputs)
        changes = updated(step)
        calls = step.callee is not None and step.kernel is None
        if calls:
            assert step.callee is not None
            shares = self.summaries[step.callee.name].shares
            first = len(step.callee.inputs) + len(step.callee.weights)
            for value in op.inputs[first:]:
                root = self.target_root(value)
                if root is None or root.kind != "state" or self.current.get(root) is not value:
                    raise MustInline(step.callee.name)
            for target, output in changes:
                root = self.target_root(target)
                if root is None or not self.is_current(target, root, around):
                    raise MustInline(step.callee.name)
                self.write(root, step.position, around, output, _others(op, target))
                self.plan.in_place.setdefault(step, []).append(root)
            for value, operands in zip(op.outputs, shares, strict=False):
                if operands:
                    self.view(value, self.sharing(tuple(op.inputs[i] for i in sorted(operands))))
                else:
                    self.fresh(value)
        elif changes:
            ((target, output),) = changes
            self.update(step, target, output, around)
        elif _is_view(step):
            self.view(op.output, self.roots[op.inputs[0]])
        else:
            for value in op.outputs:
                self.fresh(value)

    def view(self, value: Value, roots: Roots) -> None:
        if value in self.copied:
            self.fresh(value)
        else:
            self.roots[value] = roots

    def update(self, step: Step, target: Value, output: Value, around: Around) -> None:
        root = self.target_root(target)
        position = step.position
        others = _others(step.op, target)
        good = self.is_current(target, root, around)
        if good and root is not None:
            live = self.live.after(target, position, around)
            if root.kind == "state":
                good = output in self.lineage or not live
            else:
                good = not live and not self.readers(root, position, around, others)
        if good and root is not None:
            self.plan.in_place[step] = [root]
            self.write(root, position, around, output, others)
        else:
            self.fresh(output)

    def is_current(self, target: Value, root: Root | None, around: Around) -> bool:
        """Whether a value is all of a buffer we may write, and nothing else runs in between: what
        is from outside a loop is needed again in its next iteration."""
        if root is None or root.kind not in ("state", "local"):
            return False
        return self.current.get(root) is target and _loops(around) == _loops(
            self.live.around[target]
        )

    def readers(
        self, root: Root, position: int, around: Around, others: tuple[Value, ...]
    ) -> list[Value]:
        """Values that share a buffer and are needed when it is written or later."""
        return [
            value
            for value, roots in self.roots.items()
            if root in roots
            and (self.live.defined[value] < position or value in others)
            and (value in others or self.live.after(value, position, around))
        ]

    def write(
        self,
        root: Root,
        position: int,
        around: Around,
        output: Value | None,
        others: tuple[Value, ...],
    ) -> None:
        """Writes a buffer, whose content is then `output`: what needs its old content is copied
        first."""
        self.writes.append((position, root))
        for value in self.readers(root, position, around, others):
            if value is output:
                continue
            if self.place.get(value) == root:
                start = position
                for node in around:
                    if self.live.defined[value] <= node.position:
                        start = node.position
                        break
                if self.frozen.get(value) != start:
                    self.frozen[value] = start
                    self.changed = True
            elif value not in self.copied:
                self.copied.add(value)
                self.changed = True
        if output is not None:
            self.own(output, root)
        else:
            self.current[root] = None

    # Loops and branches.

    def loop(self, loop: Loop, around: Around) -> None:
        inside = (*around, loop)
        for variable, initial, output in zip(loop.carried, loop.initial, loop.outputs, strict=True):
            root = self.place.get(initial)
            if not _is_updated(variable, loop.body):
                roots = self.roots[initial] | self.shared.get(variable, frozenset())
                self.view(variable, roots)
                continue
            current = self.is_current(initial, root, around)
            if current and root is not None and root.kind == "state":
                kept = output in self.lineage or not self.live.after(initial, loop.position, around)
                if kept:
                    self.plan.bound[variable] = self.plan.bound[output] = root
                    self.write(root, loop.position, around, variable, ())
                    continue
            local = Root("local", variable)
            self.plan.bound[variable] = self.plan.bound[output] = local
            others = self.readers(root, loop.position, around, ()) if root is not None else []
            shared = loop.initial.count(initial) > 1
            if not (current and root is not None and root.kind == "local") or others or shared:
                self.copied.add(variable)
            if root is not None:
                self.writes.append((loop.position, root))
            self.own(variable, local)
        self.body(loop.condition, inside)
        self.body(loop.body, inside)
        self.freeze(loop.end)
        for variable, result, output in zip(
            loop.carried, loop.body.results, loop.outputs, strict=True
        ):
            root = self.plan.bound.get(variable)
            if root is None:
                gained = self.roots[result] - self.roots[variable]
                if gained and variable not in self.copied:
                    known = self.shared.get(variable, frozenset())
                    self.shared[variable] = known | gained
                    self.changed = True
                self.view(output, self.roots[variable])
            elif self.place.get(result) == root and self.current.get(root) is result:
                self.own(output, root)
            else:
                self.plan.rebound.add(variable)
                if root.kind == "state":
                    # The other variables get their next values after the store.
                    others = tuple(
                        result
                        for variable, result in zip(loop.carried, loop.body.results, strict=True)
                        if self.bound_kind(variable) != "state"
                    )
                    self.write(root, loop.end, inside, output, others)
                else:
                    if self.is_taken(result, loop):
                        self.plan.taken.add(variable)
                    self.own(output, root)

    def bound_kind(self, variable: Value) -> str | None:
        root = self.plan.bound.get(variable)
        return root.kind if root is not None else None

    def is_taken(self, result: Value, loop: Loop) -> bool:
        """Whether a loop variable may have a result's own memory: nothing else has it."""
        root = Root("local", result)
        sharing = [value for value in loop.body.results if root in self.roots[value]]
        return (
            self.place.get(result) == root
            and self.live.home.get(result) is loop.body
            and sharing == [result]
        )

    def branch(self, branch: Branch, around: Around) -> None:
        inside = (*around, branch)
        before = dict(self.current)
        self.body(branch.then, inside)
        then = self.current
        self.current = dict(before)
        self.body(branch.otherwise, inside)
        for root, value in then.items():
            if self.current.get(root, value) is not value:
                self.current[root] = None
            else:
                self.current.setdefault(root, value)
        self.freeze(branch.end)
        given = list(
            zip(branch.outputs, branch.then.results, branch.otherwise.results, strict=True)
        )
        chosen: dict[Root, Value] = {}
        for output, *results in given:
            root = self.lineage.get(output)
            made = root is not None and any(self.place.get(r) == root for r in results)
            if root is not None and (made or root not in chosen):
                chosen[root] = output
        plain = tuple(output for output, *_ in given if output not in chosen.values())
        for output, *results in given:
            if output in plain:
                self.view(output, self.sharing(tuple(results)))
        for output, *results in given:
            if output in plain:
                continue
            root = self.plan.bound[output] = self.lineage[output]
            if all(self.place.get(result) == root for result in results):
                self.own(output, root)
            else:
                self.write(root, branch.end, inside, output, plain)


def _others(op: Op, target: Value) -> tuple[Value, ...]:
    """The operands of an update besides its target; the target too where it is also one."""
    others = tuple(v for v in op.inputs if v is not target)
    return (*others, target) if op.inputs.count(target) > 1 else others


def _loops(around: Around) -> tuple[Loop, ...]:
    return tuple(node for node in around if isinstance(node, Loop))


def _is_updated(value: Value, body: Body) -> bool:
    """Whether an update in a body starts from a value."""
    for node in body.nodes:
        if isinstance(node, Step):
            if any(target is value for target, _ in updated(node)):
                return True
            continue
        if isinstance(node, Loop):
            for variable, initial in zip(node.carried, node.initial, strict=True):
                if initial is value and _is_updated(variable, node.body):
                    return True
        if any(_is_updated(value, inner) for inner in bodies_of(node)):
            return True
    return False


def _lineage(expanded: Expanded) -> dict[Value, Root]:
    """The values that lead, by updates alone, from a state's old value to its new one."""
    sources: dict[Value, tuple[Value, ...]] = {}
    _collect_sources(expanded.body, sources)
    found: dict[Value, Root] = {}
    for slot, new in zip(expanded.function.states, expanded.new_states, strict=True):
        path = _chain(new, slot.value, sources)
        found.update((value, Root("state", slot.value)) for value in path or ())
    return found


def _collect_sources(body: Body, sources: dict[Value, tuple[Value, ...]]) -> None:
    for node in body.nodes:
        if isinstance(node, Step):
            sources.update((output, (target,)) for target, output in updated(node))
        elif isinstance(node, Loop):
            for output, result, variable, initial in zip(
                node.outputs, node.body.results, node.carried, node.initial, strict=True
            ):
                sources[output] = (result,)
                sources[variable] = (initial,)
        else:
            for output, *results in zip(
                node.outputs, node.then.results, node.otherwise.results, strict=True
            ):
                sources[output] = tuple(results)
        for inner in bodies_of(node):
            _collect_sources(inner, sources)


def _chain(
    value: Value, start: Value, sources: Mapping[Value, tuple[Value, ...]]
) -> set[Value] | None:
    """All values on the way from `start` to `value`; `None` where a way starts elsewhere."""
    found: set[Value] = set()
    open_ = [value]
    while open_:
        value = open_.pop()
        if value is start or value in found:
            continue
        if value not in sources:
            return None
        found.add(value)
        open_ += sources[value]
    return found


# --- fusing ---------------------------------------------------------------------------------


def _fuse(
    expanded: Expanded,
    found: Plan,
    writes: list[tuple[int, Root]],
    shared: Mapping[Value, Roots],
) -> None:
    """Decides which expressions are written where they are used, last ones first."""
    live = found.live
    evaluated: dict[Value, int] = {}
    reads: dict[Value, Roots] = {}
    for value, step in live.maker.items():
        parts = [reads[v] for v in step.op.inputs if v in reads]
        reads[value] = shared[value].union(*parts)
    for value, step in sorted(live.maker.items(), key=lambda item: -item[1].position):
        uses = live.uses.get(value, [])
        if not uses or not _may_fuse(value, step, uses, found, expanded):
            continue
        at = max(_needed(use, evaluated) for use in uses)
        crossed = any(
            live.defined[value] < position < at and root in reads[value]
            for position, root in writes
        )
        if not crossed:
            found.fused.add(value)
            evaluated[value] = at
    for value, uses in live.uses.items():
        found.alive[value] = max(_needed(use, evaluated) for use in uses)


def _needed(use: Use, evaluated: Mapping[Value, int]) -> int:
    """Until when a use needs its operand's name."""
    consumer = use.consumer
    if isinstance(consumer, Step) and len(consumer.op.outputs) == 1:
        return max(use.again, evaluated.get(consumer.op.output, -1))
    return use.again


def _may_fuse(value: Value, step: Step, uses: list[Use], found: Plan, expanded: Expanded) -> bool:
    if step.op.kind == "constant":
        return True
    if (
        len(step.op.outputs) != 1
        or step in found.in_place
        or updated(step)
        or value in found.copied
    ):
        return False
    if step.op.kind == "broadcast":
        return True
    if any(part.isdigit() for part in str(step.op.attrs.get("at", "")).split(".")):
        return False  # one of an array's blocks: a statement that can be repeated in a loop
    returned = expanded.body.results == (value,) and expanded.body.nodes[-1] is step
    if not is_temporary(value.name) and not returned:
        return False
    (use, *others) = uses
    return (
        not others
        and (use.body is found.live.home[value] or use.body is None)
        and not isinstance(use.consumer, Loop)
    )
