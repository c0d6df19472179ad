"""One function being lowered: what its names stand for, and how it calls others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from linnet.check.dims import Dim
from linnet.check.typed import (
    BindName,
    BlockRef,
    BoundBlock,
    Expr,
    Function,
    Pattern,
    SelfBlock,
    Stmt,
    SubBlock,
    TensorT,
)
from linnet.diagnostics import Diagnostic, LinnetError, Span
from linnet.ir.build import Builder
from linnet.ir.core import TensorType, Value, lift
from linnet.ir.generics import Bound, bound_dim, bound_tensor
from linnet.ir.instantiate import BlockInstance, Child
from linnet.ir.statics import Present, Static, form_of, leaves, refill

if TYPE_CHECKING:
    from linnet.ir.lower import Lowering, Specialised


class Frame:
    """The environment of a function's body. `builder` is where operations go at the moment: the
    function itself, or a region of it."""

    def __init__(
        self,
        lowering: Lowering,
        function: Function,
        name: str,
        instance: BlockInstance | None,
        binding: dict[str, Bound],
    ):
        self.lowering = lowering
        self.function = function
        self.name = name
        self.instance = instance
        self.binding = binding
        self.builder = Builder()
        self.locals: dict[str, Static] = {}
        self.blocks: dict[str, tuple[BlockInstance, str]] = {}
        """Blocks bound by name, with their paths relative to this function's block."""
        self.states: dict[str, Value] = {}
        """The current value of each state touched, by relative path."""
        self.result: Static = ()
        """What the last `return` or `yield` gave."""
        self.regions: list[str] = []

    # Lowering of parts.

    def expr(self, expr: Expr) -> Static:
        return self.lowering.expression(self, expr)

    def value(self, expr: Expr) -> Value:
        """An expression that gives a tensor."""
        found = self.expr(expr)
        assert isinstance(found, Value)
        return found

    def statements(self, body: Sequence[Stmt]) -> None:
        for statement in body:
            self.lowering.statement(self, statement)

    def bind(self, pattern: Pattern, value: Static) -> None:
        if isinstance(pattern, BindName):
            if pattern.name is not None:
                self.assign(pattern.name, value)
            return
        assert isinstance(value, tuple)
        for part, item in zip(pattern.items, value, strict=True):
            self.bind(part, item)

    def assign(self, name: str, value: Static) -> None:
        """Gives a local its value, and the value's tensors the local's name."""
        self.locals[name] = value
        parts = list(leaves(value))
        for i, part in enumerate(parts):
            self.builder.suggest(part, name if len(parts) == 1 else f"{name}_{i}")

    def dim(self, dim: Dim) -> int:
        return bound_dim(dim, self.binding)

    def type(self, type_: TensorT) -> TensorType:
        return bound_tensor(type_, self.binding)

    def refuse(self, what: str, span: Span, help: str | None = None) -> NoReturn:
        """Reports a feature that is checked but not lowered yet."""
        raise LinnetError([Diagnostic("E2190", f"{what} is not implemented yet", span, help=help)])

    # Blocks, weights and state.

    def child(self, ref: SubBlock) -> tuple[Child, str]:
        """A child as it is there, an optional one maybe absent, with its relative path."""
        base, path = self.block(ref.base)
        child = base.children[ref.name]
        path = f"{path}.{ref.name}" if path else ref.name
        if ref.index is not None and child is not None:
            assert isinstance(child, tuple)
            index = self.dim(ref.index)
            return child[index], f"{path}.{index}"
        return child, path

    def block(self, ref: BlockRef) -> tuple[BlockInstance, str]:
        if isinstance(ref, SelfBlock):
            assert self.instance is not None
            return self.instance, ""
        if isinstance(ref, BoundBlock):
            return self.blocks[ref.name]
        child, path = self.child(ref)
        assert isinstance(child, BlockInstance)
        return child, path

    def member(self, ref: BlockRef, name: str) -> Static:
        """A weight's slot, or a state's current value."""
        instance, at = self.block(ref)
        tensor = instance.tensors[name]
        if not tensor.present:
            return None
        path = f"{at}.{name}" if at else name
        if tensor.kind == "state":
            return self.state(path, tensor.type)
        value = self.builder.slot(path, tensor.kind, tensor.type)
        return Present(value) if tensor.optional else value

    def state(self, path: str, type_: TensorType) -> Value:
        if path not in self.states:
            self.states[path] = self.builder.slot(path, "state", type_)
        return self.states[path]

    # Calls.

    def call(self, callee: Specialised, at: str, arguments: Sequence[Static]) -> Static:
        """Calls a function for the block at `at`, handing it that block's weights and states."""
        function = callee.function
        operands = [value for argument in arguments for value in leaves(argument)]
        operands += self.weights(callee, at)
        paths = [lift(slot.path, at) for slot in function.states]
        for path, slot in zip(paths, function.states, strict=True):
            operands.append(self.state(path, slot.value.type))
        outputs = self.builder.emit_many(
            "call",
            operands,
            [value.type for value in function.returns],
            callee=function.name,
            at=at,
        )
        for path, slot, old, new in zip(
            paths,
            function.states,
            function.new_states,
            outputs[len(function.results) :],
            strict=True,
        ):
            if old is not slot.value:
                self.states[path] = new
                self.builder.suggest(new, path)
        return refill(callee.result, iter(outputs[: len(function.results)]))

    def weights(self, callee: Specialised, at: str) -> list[Value]:
        """This function's slots for the weights of a function of the block at `at`."""
        return [
            self.builder.slot(lift(slot.path, at), slot.kind, slot.value.type)
            for slot in callee.function.weights
        ]

    def specialised(
        self, key: str, ref: BlockRef | None, own: dict[str, Bound], arguments: Sequence[Static]
    ) -> tuple[Specialised, str]:
        """The function to call for these arguments, and the path of its block."""
        instance, at = self.block(ref) if ref is not None else (None, "")
        forms = tuple(map(form_of, arguments))
        return self.lowering.specialise(key, instance, own, forms), at
