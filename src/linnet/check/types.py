"""Types at work: printing, substituting generics, comparing, broadcasting, hints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from linnet.check import typed
from linnet.check.dims import Dim, Facts
from linnet.check.typed import (
    AnyDType,
    ArrayT,
    BlockT,
    DTypeVar,
    EnumT,
    GenericValue,
    OptionalT,
    Pack,
    Shape,
    ShapeItem,
    StructT,
    TensorT,
    TupleT,
    Type,
)
from linnet.dtypes import KINDS, DType

BOOL = TensorT((), DType.BOOL)
I64 = TensorT((), DType.I64)
ONE = Dim.const(1)


@dataclass(frozen=True, slots=True)
class Flexible:
    """The type of a number that has none yet: it takes one from where it stands.

    `is_float` for a float literal; else a compile-time integer. Never in a typed program.
    """

    is_float: bool


FLEX_INT = Flexible(False)
FLEX_FLOAT = Flexible(True)


# --- printing -------------------------------------------------------------------------------


def show(type_: Type | Flexible | None) -> str:
    """A type as source."""
    match type_:
        case None:
            return "nothing"
        case Flexible(is_float):
            return "a float literal" if is_float else "a compile-time integer"
        case TensorT((), dtype):
            return str(dtype)
        case TensorT(shape, dtype):
            return f"Tensor[{show_shape(shape)}; {dtype}]"
        case OptionalT(inner):
            return f"{show(inner)}?"
        case TupleT(items):
            return f"({', '.join(map(show, items))})"
        case StructT(key) | EnumT(key):
            return key.rpartition("::")[2]
        case BlockT(key, generics):
            args = f"<{', '.join(show_generic(v) for _, v in generics)}>" if generics else ""
            return f"{key.rpartition('::')[2]}{args}"
        case ArrayT(item, count):
            return f"[{show(item)}; {count}]"


def describe(type_: Type | Flexible) -> str:
    """A type in a sentence: source in backquotes, or words."""
    return show(type_) if isinstance(type_, Flexible) else f"`{show(type_)}`"


def show_shape(shape: Shape) -> str:
    return ", ".join(map(str, shape))


def show_generic(value: GenericValue) -> str:
    return f"[{show_shape(value)}]" if isinstance(value, tuple) else str(value)


# --- substitution ---------------------------------------------------------------------------


@dataclass(slots=True)
class Binding:
    """What generics stand for, by name."""

    dims: dict[str, Dim] = field(default_factory=dict)
    dtypes: dict[str, AnyDType] = field(default_factory=dict)
    packs: dict[str, Shape] = field(default_factory=dict)

    @staticmethod
    def of(generics: Mapping[str, GenericValue]) -> Binding:
        binding = Binding()
        for name, value in generics.items():
            binding.bind(name, value)
        return binding

    def bind(self, name: str, value: GenericValue) -> None:
        if isinstance(value, Dim):
            self.dims[name] = value
        elif isinstance(value, tuple):
            self.packs[name] = value
        else:
            self.dtypes[name] = value

    def get(self, name: str) -> GenericValue | None:
        found = self.dims.get(name)
        if found is None:
            found = self.packs.get(name)
        return self.dtypes.get(name) if found is None else found

    def dim(self, dim: Dim) -> Dim:
        return dim.substitute(self.dims) if self.dims else dim

    def shape(self, shape: Shape) -> Shape:
        items: list[ShapeItem] = []
        for item in shape:
            if isinstance(item, Pack):
                items.extend(self.packs.get(item.name, (item,)))
            else:
                items.append(self.dim(item))
        return tuple(items)

    def dtype(self, dtype: AnyDType) -> AnyDType:
        return self.dtypes.get(dtype.name, dtype) if isinstance(dtype, DTypeVar) else dtype

    def generic(self, value: GenericValue) -> GenericValue:
        if isinstance(value, Dim):
            return self.dim(value)
        return self.shape(value) if isinstance(value, tuple) else self.dtype(value)

    def type(self, type_: Type) -> Type:
        match type_:
            case TensorT(shape, dtype):
                return TensorT(self.shape(shape), self.dtype(dtype))
            case OptionalT(inner):
                return OptionalT(self.type(inner))
            case TupleT(items):
                return TupleT(tuple(map(self.type, items)))
            case StructT(key, fields):
                return StructT(key, tuple((n, self.type(t)) for n, t in fields))
            case BlockT(key, generics):
                return BlockT(key, tuple((n, self.generic(v)) for n, v in generics))
            case ArrayT(item, count):
                block = self.type(item)
                assert isinstance(block, BlockT)
                return ArrayT(block, self.dim(count))
            case EnumT():
                return type_

    def constant(self, expr: typed.Expr) -> typed.Expr:
        """A default argument, with the caller's generics."""
        match expr:
            case typed.Literal(value, type_, span):
                return typed.Literal(value, self._tensor(type_), span)
            case typed.DimValue(dim, type_, span):
                return typed.DimValue(self.dim(dim), self._tensor(type_), span)
            case typed.NoneValue(type_, span):
                inner = self.type(type_)
                assert isinstance(inner, OptionalT)
                return typed.NoneValue(inner, span)
            case typed.Prim(op, args, axes, type_, span):
                args = tuple(map(self.constant, args))
                return typed.Prim(op, args, axes, self._tensor(type_), span)
            case _:
                return expr

    def _tensor(self, type_: TensorT) -> TensorT:
        return TensorT(self.shape(type_.shape), self.dtype(type_.dtype))


# --- comparing ------------------------------------------------------------------------------


def items_equal(a: ShapeItem, b: ShapeItem, facts: Facts) -> bool:
    if isinstance(a, Pack) or isinstance(b, Pack):
        return a == b
    return a == b or facts.equal(a, b)


def shapes_equal(a: Shape, b: Shape, facts: Facts) -> bool:
    return len(a) == len(b) and all(items_equal(x, y, facts) for x, y in zip(a, b, strict=True))


def types_equal(a: Type | None, b: Type | None, facts: Facts) -> bool:
    match a, b:
        case TensorT(), TensorT():
            return a.dtype == b.dtype and shapes_equal(a.shape, b.shape, facts)
        case OptionalT(), OptionalT():
            return types_equal(a.inner, b.inner, facts)
        case TupleT(), TupleT():
            return len(a.items) == len(b.items) and all(
                types_equal(x, y, facts) for x, y in zip(a.items, b.items, strict=True)
            )
        case StructT(), StructT():
            return a.key == b.key and all(
                types_equal(x, y, facts) for (_, x), (_, y) in zip(a.fields, b.fields, strict=True)
            )
        case _:
            return a == b


def mismatch(expected: Type | None, found: Type | None) -> str:
    """The code for a value of a wrong type: by dtype, by shape, or altogether."""
    if isinstance(expected, OptionalT) and isinstance(found, OptionalT):
        return mismatch(expected.inner, found.inner)
    if isinstance(expected, TensorT) and isinstance(found, TensorT):
        return "E2103" if expected.dtype != found.dtype else "E2202"
    return "E2101"


def count(shape: Shape) -> Dim:
    """How many elements a shape has; a pack counts as one unknown factor."""
    total = ONE
    for item in shape:
        total = total * (Dim.var(str(item)) if isinstance(item, Pack) else item)
    return total


class NotBroadcast(Exception):
    """Two axes that are not provably equal, and neither of them 1."""

    def __init__(self, left: ShapeItem, right: ShapeItem):
        self.left, self.right = left, right


def broadcast(a: Shape, b: Shape, facts: Facts) -> Shape:
    """The common shape, right-aligned; raises `NotBroadcast`."""
    if a == b:
        return a
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    missing = len(longer) - len(shorter)
    items: list[ShapeItem] = list(longer[:missing])
    for x, y in zip(longer[missing:], shorter, strict=True):
        if items_equal(x, y, facts):
            items.append(x)
        elif not isinstance(x, Pack) and x == ONE:
            items.append(y)
        elif not isinstance(y, Pack) and y == ONE:
            items.append(x)
        else:
            raise NotBroadcast(x, y) if longer is a else NotBroadcast(y, x)
    return tuple(items)


def describe_dtype(dtype: AnyDType) -> str:
    """A dtype in a sentence, a generic's with its kind."""
    kind = f" of kind `{dtype.kind}`" if isinstance(dtype, DTypeVar) else ""
    return f"`{dtype}`{kind}"


def dtypes_of(dtype: AnyDType) -> frozenset[DType]:
    """What a dtype may be: itself, or all that its generic's kind allows."""
    return KINDS[dtype.kind] if isinstance(dtype, DTypeVar) else frozenset({dtype})


def differing_axis(expected: Shape, found: Shape, facts: Facts) -> int | None:
    """The first axis at which two shapes of one rank are not known to agree."""
    if len(expected) != len(found):
        return None
    pairs = enumerate(zip(expected, found, strict=True))
    return next((i for i, (x, y) in pairs if not items_equal(x, y, facts)), None)


MAX_PARTS = 1000
"""How many tensors a tuple or struct may hold, all the way down."""


def has_too_many_parts(*types: Type) -> bool:
    """Whether types hold more than `MAX_PARTS` tensors, looking at no more than that."""
    pending, seen = list(types), 0
    while pending:
        match pending.pop():
            case TupleT(items):
                pending += items
            case StructT(_, fields):
                pending += [type_ for _, type_ in fields]
            case OptionalT(inner):
                pending.append(inner)
        seen += 1
        if seen > MAX_PARTS:
            return True
    return False


def walk_dims(type_: Type) -> Iterator[Dim]:
    """Every dimension of the tensors that a value of this type is sure to hold."""
    match type_:
        case TensorT(shape, _):
            yield from (item for item in shape if isinstance(item, Dim))
        case TupleT(items):
            for item in items:
                yield from walk_dims(item)
        case StructT(_, fields):
            for _, item in fields:
                yield from walk_dims(item)


# --- hints ----------------------------------------------------------------------------------
# Literals, `none` and calls take what they lack from the type that is expected of them: a hint,
# not yet a demand.

MARK = "?"
"""Ends the name of a callee's generic while it is being inferred; no source name holds it."""

_ANY_SHAPE: Shape = (Pack("…"),)


def of_dtype(dtype: AnyDType) -> TensorT:
    """The hint "something of this dtype"."""
    return TensorT(_ANY_SHAPE, dtype)


def is_dtype_only(hint: Type | None) -> bool:
    return isinstance(hint, TensorT) and hint.shape == _ANY_SHAPE


def dtype_of_hint(hint: Type | None) -> AnyDType | None:
    """The dtype a number takes from a hint, seen through an optional."""
    if isinstance(hint, OptionalT):
        hint = hint.inner
    if not isinstance(hint, TensorT):
        return None
    dtype = hint.dtype
    return None if isinstance(dtype, DTypeVar) and dtype.name.endswith(MARK) else dtype


def unmarked(hint: Type | None) -> Type | None:
    """As much of a hint as doesn't hang on generics that are still being inferred.

    An optional is kept as it is, for `none` to take.
    """
    if isinstance(hint, TensorT):
        dtype = dtype_of_hint(hint)
        if dtype is None:
            return None
        return of_dtype(dtype) if is_marked(TensorT(hint.shape, DType.BOOL)) else hint
    if isinstance(hint, StructT):
        return None if is_marked(hint) else hint
    return hint


def is_marked(type_: Type) -> bool:
    """Whether a type holds generics that are still being inferred."""
    match type_:
        case TensorT(shape, dtype):
            return str(dtype).endswith(MARK) or any(
                item.name.endswith(MARK)
                if isinstance(item, Pack)
                else any(name.endswith(MARK) for name in item.variables())
                for item in shape
            )
        case OptionalT(inner):
            return is_marked(inner)
        case TupleT(items):
            return any(map(is_marked, items))
        case StructT(_, fields):
            return any(is_marked(item) for _, item in fields)
    return False
