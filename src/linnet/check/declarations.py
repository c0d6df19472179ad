"""Constants, aliases, structs, enums and functions: what each is from the outside, and bodies."""

from __future__ import annotations

from linnet.check import typed
from linnet.check.context import Context, Flex, LocalName, Node
from linnet.check.dims import Facts
from linnet.check.expressions import check, check_as
from linnet.check.resolve import (
    add_generics,
    declare_generics,
    outer_context,
    refuse_too_many_parts,
    resolve_type,
    resolve_where,
)
from linnet.check.scope import (
    OUTLINES,
    AliasInfo,
    Checking,
    Entity,
    Failed,
    Outline,
    Signature,
    outline,
)
from linnet.check.statements import check_body
from linnet.check.typed import EnumT, StructT, TensorT, TupleT, Type
from linnet.check.types import dtypes_of, walk_dims
from linnet.diagnostics import Note, Span
from linnet.syntax import ast

CONSTANT = typed.Literal | typed.DimValue | typed.NoneValue | typed.Prim
"""What a constant or default may be: nothing that runs."""


# --- constants, aliases, structs, enums -----------------------------------------------------


def _constant(checker: Checking, entity: Entity) -> Node:
    decl = entity.decl
    assert isinstance(decl, ast.Const)
    ctx = outer_context(checker, entity.scope)
    if decl.type is None:
        node = check(ctx, decl.value)
    else:
        node = check_as(ctx, decl.value, resolve_type(ctx, decl.type), "the constant")
    if not isinstance(node, Flex | CONSTANT):
        raise ctx.fail(
            "E2123",
            "a constant is made of literals and other constants",
            decl.value.span,
            help="compute it in a function",
        )
    return node


def _alias(checker: Checking, entity: Entity) -> AliasInfo:
    decl = entity.decl
    assert isinstance(decl, ast.Alias)
    ctx = outer_context(checker, entity.scope)
    generics = declare_generics(ctx, decl.generics)
    return AliasInfo(generics, resolve_type(ctx, decl.type, block_allowed=True))


def _struct(checker: Checking, entity: Entity) -> Signature:
    """A struct as the function that builds it from its fields."""
    decl = entity.decl
    assert isinstance(decl, ast.Struct)
    ctx = outer_context(checker, entity.scope)
    generics = declare_generics(ctx, decl.generics)
    _refuse_twice(ctx, [field.name for field in decl.fields], "field")
    types = _all_types(ctx, [field.type for field in decl.fields])
    refuse_too_many_parts(ctx, types, decl.name.span)
    fields = tuple(
        (field.name.text, type_) for field, type_ in zip(decl.fields, types, strict=True)
    )
    params = tuple(typed.Param(name, type_, None) for name, type_ in fields)
    return Signature(generics, params, StructT(entity.key, fields), (), ctx.facts)


def _enum(checker: Checking, entity: Entity) -> EnumT:
    decl = entity.decl
    assert isinstance(decl, ast.Enum)
    _refuse_twice(Context(checker, entity.scope, {}, Facts()), list(decl.variants), "variant")
    return EnumT(entity.key, tuple(v.text for v in decl.variants))


def _refuse_twice(ctx: Context, names: list[ast.Name], what: str) -> None:
    """E1205 for a name that stands twice among its like."""
    seen: dict[str, ast.Name] = {}
    for name in names:
        if name.text in seen:
            raise ctx.fail(
                "E1205",
                f"the {what} `{name.text}` is declared twice",
                name.span,
                notes=[Note("first here", seen[name.text].span)],
            )
        seen[name.text] = name


def _all_types(ctx: Context, written: list[ast.Type]) -> list[Type]:
    """Each written type; where some are wrong, all of them are reported."""
    types: list[Type] = []
    failed = False
    for type_ in written:
        try:
            types.append(resolve_type(ctx, type_))
        except Failed:
            failed = True
    if failed:
        raise Failed
    return types


# --- functions ------------------------------------------------------------------------------


def _signature(checker: Checking, entity: Entity) -> Signature:
    decl = entity.decl
    assert isinstance(decl, ast.Function)
    ctx = outer_context(checker, entity.scope)
    generics = declare_generics(ctx, decl.generics)
    _refuse_twice(ctx, [param.name for param in decl.params], "parameter")
    for param in decl.params:
        if param.name.text in ctx.generics:
            raise ctx.fail(
                "E1205",
                f"`{param.name.text}` is a generic and a parameter",
                param.name.span,
                help="choose another name for the parameter",
            )
    where = resolve_where(ctx, decl.where, decl.params)
    written = [param.type for param in decl.params]
    types = _all_types(ctx, [*written, decl.result] if decl.result else written)
    result = types.pop() if decl.result else None
    # An argument exists, so none of its extents is negative.
    for dim in (d for type_ in types for d in walk_dims(type_)):
        if not ctx.facts.nonnegative(dim):
            ctx.facts = ctx.facts.with_fact(">=", dim, 0)
    params = tuple(
        typed.Param(param.name.text, type_, _default(ctx, param, type_))
        for param, type_ in zip(decl.params, types, strict=True)
    )
    return Signature(generics, params, result, where, ctx.facts)


def _default(ctx: Context, param: ast.Param, type_: Type) -> typed.Expr | None:
    if param.default is None:
        return None
    default = check_as(ctx, param.default, type_, "the default")
    if not isinstance(default, CONSTANT):
        raise ctx.fail("E2123", "a default is made of literals and constants", param.default.span)
    return default


def check_function(checker: Checking, entity: Entity) -> None:
    """A function's body; its typed form joins the program if it has no mistakes."""
    decl = entity.decl
    assert isinstance(decl, ast.Function)
    outside: Signature = outline(checker, entity)
    ctx = _inside(checker, entity, outside)
    what = {"fn": "the function", "op": "the op", "entry": "the entry"}[decl.kind]
    with ctx.level():
        body = check_body(ctx, decl.body, outside.result, f"{what} `{decl.name.text}`")
    grad = _grad(checker, entity, outside, ctx.calls)
    checker.calls[entity.key] = ctx.calls
    if body is None:
        return
    checker.functions[entity.key] = typed.Function(
        entity.key,
        decl.name.text,
        decl.kind,
        entity.scope.block.key if entity.scope.block else None,
        outside.generics,
        outside.params,
        outside.result,
        tuple(fact for fact, _ in outside.where),
        body,
        grad,
        decl.public,
        decl.doc,
        decl.span,
    )


def _inside(checker: Checking, entity: Entity, outside: Signature) -> Context:
    """A body's scope: the block's names, the generics, the parameters."""
    decl = entity.decl
    assert isinstance(decl, ast.Function)
    ctx = outer_context(checker, entity.scope)
    add_generics(ctx, outside.generics)
    ctx.facts = outside.facts
    for param, written in zip(outside.params, decl.params, strict=True):
        local = typed.Local(ctx.unique(param.name), param.type, written.name.span)
        ctx.declare(LocalName(written.name, local))
    return ctx


def _grad(
    checker: Checking, entity: Entity, outside: Signature, calls: dict[str, Span]
) -> typed.Grad | None:
    """An op's backward pass: gives back the gradient of each float parameter, in order."""
    decl = entity.decl
    assert isinstance(decl, ast.Function)
    if decl.grad is None:
        return None
    ctx = _inside(checker, entity, outside)
    if outside.result is None:
        raise ctx.fail("E2101", "an op that gives nothing back has no `grad`", decl.grad.span)
    names = []
    for name in (decl.grad.result, decl.grad.cotangent):
        local = typed.Local(ctx.unique(name.text), outside.result, name.span)
        ctx.declare(LocalName(name, local))
        names.append(local.name)
    gradients = tuple(p.type for p in outside.params if _is_float(p.type))
    result = gradients[0] if len(gradients) == 1 else TupleT(gradients)
    with ctx.level():
        body = check_body(ctx, decl.grad.body, result, f"the `grad` of `{decl.name.text}`")
    for key, span in ctx.calls.items():
        calls.setdefault(key, span)
    return typed.Grad(names[0], names[1], body) if body is not None else None


def _is_float(type_: Type) -> bool:
    return isinstance(type_, TensorT) and all(d.is_float for d in dtypes_of(type_.dtype))


OUTLINES.update(
    {
        "const": Outline(_constant, "E2122", "the constant `{name}` is defined by itself"),
        "type": Outline(_alias, "E2122", "the type `{name}` is defined by itself"),
        "struct": Outline(_struct, "E2122", "the struct `{name}` would contain itself"),
        "enum": Outline(_enum, "E2122", "the enum `{name}` is defined by itself"),
        "function": Outline(_signature, "E2119", "`{name}` is needed for its own signature"),
    }
)
