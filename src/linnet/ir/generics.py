"""Generics bound to values: dims, shapes and types of a typed program made concrete.

A binding maps each generic in scope to an integer (`Dim`), a dtype, or a tuple of extents
(`Shape`). `instantiate` makes them for blocks and entries, `lower` carries them into bodies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linnet.check.dims import Dim, DimError, Quotient, compare
from linnet.check.typed import (
    AnyDType,
    ArrayT,
    BlockT,
    EnumT,
    Fact,
    GenericArgs,
    GenericParam,
    GenericValue,
    OptionalT,
    Pack,
    Shape,
    StructT,
    TensorT,
    TupleT,
    Type,
)
from linnet.dtypes import KINDS, DType
from linnet.ir.core import TensorType

Bound = int | DType | tuple[int, ...]
Binding = Mapping[str, Bound]


def bound_dim(dim: Dim, binding: Binding) -> int:
    """A dim's value. Raises `DimError` where it divides by zero."""
    value = dim.constant
    return value if value is not None else dim.evaluate(binding)  # type: ignore[arg-type]


def bound_extent(dim: Dim, binding: Binding) -> int:
    """A dim as an extent or a generic's value. Raises `DimError` where it would be negative."""
    extent = bound_dim(dim, binding)
    if extent < 0:
        raise DimError(f"the dimension `{dim}` would be {extent}")
    return extent


def bound_dtype(dtype: AnyDType, binding: Binding) -> DType:
    if isinstance(dtype, DType):
        return dtype
    found = binding[dtype.name]
    assert isinstance(found, DType)
    return found


def bound_pack(pack: Pack, binding: Binding) -> tuple[int, ...]:
    found = binding[pack.name]
    assert isinstance(found, tuple)
    return found


def bound_shape(shape: Shape, binding: Binding) -> tuple[int, ...]:
    """A shape's extents, packs spliced in."""
    extents: list[int] = []
    for item in shape:
        if isinstance(item, Pack):
            extents += bound_pack(item, binding)
        else:
            extents.append(bound_extent(item, binding))
    return tuple(extents)


def bound_tensor(type_: TensorT, binding: Binding) -> TensorType:
    return TensorType(bound_shape(type_.shape, binding), bound_dtype(type_.dtype, binding))


def bound_value(value: GenericValue, binding: Binding) -> Bound:
    """A generic argument or default, made concrete."""
    if isinstance(value, tuple):
        return bound_shape(value, binding)
    if isinstance(value, Dim):
        return bound_extent(value, binding)
    return bound_dtype(value, binding)


def bound_arguments(arguments: GenericArgs, binding: Binding) -> dict[str, Bound]:
    return {name: bound_value(value, binding) for name, value in arguments}


# --- binding by the user --------------------------------------------------------------------


def bind_given(
    params: Sequence[GenericParam],
    given: Mapping[str, object],
    outer: Binding,
    what: str,
    *,
    need_all: bool = True,
) -> dict[str, Bound]:
    """Binds declared generics to what the user gave, then to their defaults.

    With `need_all` false only what is given is bound; inference does the rest. Raises `ValueError`
    naming unknown and missing generics, and values of the wrong kind.
    """
    names = [param.name for param in params]
    unknown = [name for name in given if name not in names]
    if unknown:
        choices = f"its generics are {', '.join(names)}" if names else "it has no generics"
        raise ValueError(f"{what} has no generic {_quoted(unknown)}; {choices}")
    missing = [param for param in params if param.name not in given and param.default is None]
    if missing and need_all:
        wanted = ", ".join(f"`{param.name}: {param.kind}`" for param in missing)
        raise ValueError(f"{what} needs a value for {wanted}")
    binding: dict[str, Bound] = {}
    for param in params:
        if param.name in given:
            binding[param.name] = _of_kind(param, given[param.name], what)
        elif need_all and param.default is not None:
            value = bound_value(param.default, {**outer, **binding})
            binding[param.name] = _of_kind(param, value, what)
    return binding


def _of_kind(param: GenericParam, value: object, what: str) -> Bound:
    found: Bound | None = None
    if param.kind == "Dim":
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            found = value
        wanted = "an integer of at least 0"
    elif param.kind == "Shape":
        if isinstance(value, tuple) and all(type(n) is int and n >= 0 for n in value):
            found = value
        wanted = "a tuple of extents"
    else:
        allowed = KINDS[param.kind]
        if isinstance(value, str) and value in {dtype.value for dtype in allowed}:
            found = DType(value)
        wanted = f"one of {', '.join(sorted(dtype.value for dtype in allowed))}"
    if found is None:
        raise ValueError(f"{what}: the generic `{param.name}` must be {wanted}, not {value!r}")
    return found


def require_facts(facts: Sequence[Fact], binding: Binding, what: str) -> None:
    """Raises `ValueError` for a `where` clause that does not hold."""
    for fact in facts:
        try:
            holds = compare(fact.op, bound_dim(fact.left, binding), bound_dim(fact.right, binding))
        except DimError:
            holds = False
        if not holds:
            names = sorted(fact.left.variables() | fact.right.variables())
            values = ", ".join(f"{name} = {text(binding[name])}" for name in names)
            needed = f"{_dim_text(fact.left)} {fact.op} {_dim_text(fact.right)}"
            raise ValueError(f"{what} needs {needed}; with {values} it is not so")


def _dim_text(dim: Dim) -> str:
    """A dim as text; `a % b`, which its normal form spells out, as it was written."""
    for atom in dim.atoms():
        if isinstance(atom, Quotient) and dim == atom.numerator % atom.denominator:
            return f"{atom.numerator} % {atom.denominator}"
    return str(dim)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# --- as text --------------------------------------------------------------------------------


def text(value: Bound) -> str:
    """A bound generic as the user writes it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


def partly_bound(type_: Type, binding: Binding) -> Type:
    """A type with the generics of `binding` filled in and the others left as they are."""
    match type_:
        case TensorT(shape, dtype):
            known = {n: Dim.const(v) for n, v in binding.items() if isinstance(v, int)}
            items: list[Dim | Pack] = []
            for item in shape:
                if isinstance(item, Dim):
                    items.append(item.substitute(known))
                elif item.name in binding:
                    items += [Dim.const(n) for n in bound_pack(item, binding)]
                else:
                    items.append(item)
            if not isinstance(dtype, DType) and dtype.name in binding:
                dtype = bound_dtype(dtype, binding)
            return TensorT(tuple(items), dtype)
        case OptionalT(inner):
            return OptionalT(partly_bound(inner, binding))
        case TupleT(parts):
            return TupleT(tuple(partly_bound(part, binding) for part in parts))
        case StructT(key, fields):
            return StructT(key, tuple((name, partly_bound(t, binding)) for name, t in fields))
        case _:
            return type_


def type_text(type_: Type) -> str:
    """A type as source text: `Tensor[B, S; i32]`, `f32`, `Tensor[Q, K; bool]?`."""
    match type_:
        case TensorT((), dtype):
            return str(dtype)
        case TensorT(shape, dtype):
            return f"Tensor[{', '.join(map(str, shape))}; {dtype}]"
        case OptionalT(inner):
            return f"{type_text(inner)}?"
        case TupleT(parts):
            return f"({', '.join(map(type_text, parts))})"
        case StructT(key) | EnumT(key) | BlockT(key):
            return key.rsplit("::", 1)[-1]
        case ArrayT(item, count):
            return f"[{type_text(item)}; {count}]"
