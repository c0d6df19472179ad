"""Names in expressions: locals, generics, constants, weights, fields, and paths to sub-blocks."""

from __future__ import annotations

from dataclasses import replace

from linnet.check import typed
from linnet.check.context import Context, Flex, Node, did_you_mean
from linnet.check.expressions import check_dim, check_value, rule
from linnet.check.scope import (
    PRELUDE_TYPES,
    BlockInfo,
    Entity,
    Failed,
    outline,
)
from linnet.check.typed import DTypeVar, OptionalT, Pack, Type
from linnet.check.types import Binding, show
from linnet.diagnostics import Note, Span
from linnet.syntax import ast

ARTICLES = {
    "const": "a constant",
    "type": "a type",
    "struct": "a struct",
    "enum": "an enum",
    "block": "a block",
    "function": "a function",
}
"""What a kind of item is called in a message."""


@rule(ast.NameExpr)
def _name(ctx: Context, expr: ast.NameExpr, expected: Type | None) -> Node:
    name, span = expr.text, expr.span
    if ctx.index is not None and name in ctx.index.indices:
        index = ctx.index.indices[name]
        extent = index.extent if index.extent is not None and not index.is_pack else "N"
        raise ctx.fail(
            "E3104",
            f"the index `{name}` is not a value by itself",
            span,
            help=f"`iota({extent})[{name}]` is its position",
        )
    ctx.refuse_hidden(name, span)
    local = ctx.local(name)
    if local is not None:
        local.used = True
        if local.block is not None:
            raise _block_is_no_value(ctx, name, span)
        return _at(local.node, span)
    generic = ctx.generics.get(name)
    if isinstance(generic, Flex):
        return Flex(generic.value, span)
    if generic is not None:
        raise ctx.fail("E1208", f"`{name}` is {describe_generic(generic)}, not a value", span)
    if ctx.block is not None and name in ctx.block.members:
        return read_member(ctx, typed.SelfBlock(), ctx.block, ctx.block.members[name], span)
    if name in PRELUDE_TYPES:
        raise ctx.fail("E1208", f"`{name}` is a type, not a value", span)
    entity = ctx.scope.find(name)
    if entity is None:
        raise ctx.undeclared(name, span)
    return _item_as_value(ctx, entity, name, span)


def _at(node: typed.Expr | Flex | None, span: Span) -> Node:
    """What a name stands for, standing where it is used."""
    if node is None:
        raise Failed
    return replace(node, span=span)


def _item_as_value(ctx: Context, entity: Entity, name: str, span: Span) -> Node:
    if entity.kind == "const":
        return _at(outline(ctx.checker, entity), span)
    help = f"call it: `{name}(…)`" if entity.kind in ("function", "struct") else None
    if entity.kind == "enum":
        help = f"name one of its variants: `{name}.…`"
    raise ctx.fail("E1208", f"`{name}` is {ARTICLES[entity.kind]}, not a value", span, help=help)


def describe_generic(generic: Flex | DTypeVar | Pack) -> str:
    if isinstance(generic, DTypeVar):
        return "a dtype"
    return "a dimension" if isinstance(generic, Flex) else "a pack of dimensions"


def _block_is_no_value(ctx: Context, name: str, span: Span) -> Failed:
    return ctx.fail(
        "E1208", f"the block `{name}` is not a value", span, help=f"call `{name}.forward(…)`"
    )


# --- members --------------------------------------------------------------------------------


def read_member(
    ctx: Context, ref: typed.BlockRef, info: BlockInfo, member: typed.Member, span: Span
) -> typed.MemberRead:
    """A weight, buffer or state as a value."""
    ctx.checker.used_members.setdefault(info.key, set()).add(member.name)
    if member.kind == "sub":
        raise _block_is_no_value(ctx, member.name, span)
    if member.kind == "state" and not isinstance(ref, typed.SelfBlock):
        raise ctx.fail(
            "E2107",
            f"the state `{member.name}` belongs to its block alone",
            span,
            notes=[Note("it is declared here", member.span)],
            help="read it in a method of that block",
        )
    type_ = OptionalT(member.type) if member.optional else member.type
    return typed.MemberRead(ref, member.name, type_, span)


def block_info(ctx: Context, block: typed.BlockT) -> BlockInfo:
    return outline(ctx.checker, ctx.checker.blocks[block.key])


def member_of(ctx: Context, block: typed.BlockT, name: str) -> typed.Member | None:
    """A block's member with the block's generics filled in."""
    info = block_info(ctx, block)
    member = info.members.get(name)
    if member is None:
        if name in ctx.checker.bad_members.get(block.key, ()):
            raise Failed
        return None
    ctx.checker.used_members.setdefault(block.key, set()).add(name)
    return replace(member, type=Binding.of(dict(block.generics)).type(member.type))


def member_names(info: BlockInfo) -> list[str]:
    return [*info.members, *(n for n, e in info.scope.items.items() if e.kind == "function")]


def no_such(ctx: Context, name: str, span: Span, where: str, names: list[str]) -> Failed:
    """E2107, with what comes close or all there is."""
    help = did_you_mean(name, names)
    if help is None and names:
        help = f"it has {', '.join(f'`{n}`' for n in names)}"
    return ctx.fail("E2107", f"`{where}` has no `{name}`", span, help=help)


# --- paths to sub-blocks --------------------------------------------------------------------

Found = tuple[typed.BlockRef, typed.BlockT | typed.ArrayT, bool]
"""A block or array of blocks, and whether it is optional."""


def resolve_block(ctx: Context, expr: ast.Expr) -> Found | None:
    """What a path such as `layers[0].mlp` names; None where it names no block."""
    match expr:
        case ast.NameExpr(name, _):
            if ctx.index is not None and name in ctx.index.indices:
                return None
            local = ctx.local(name)
            if local is not None:
                if local.block is None:
                    return None
                local.used = True
                return (*local.block, False)
            if name in ctx.generics or ctx.block is None:
                return None
            member = ctx.block.members.get(name)
            if member is not None and member.kind == "sub":
                ctx.checker.used_members.setdefault(ctx.block.key, set()).add(name)
            return _sub_of(typed.SelfBlock(), member)
        case ast.Index(base, components, _):
            found = resolve_block(ctx, base)
            if found is None or not isinstance(found[1], typed.ArrayT):
                return None
            return _element(ctx, expr, found[0], found[1], components)
        case ast.Field(base, name, _):
            found = resolve_block(ctx, base)
            if found is None or not isinstance(found[1], typed.BlockT):
                return None
            ref, block, optional = found[0], found[1], found[2]
            member = member_of(ctx, block, name.text)
            if member is None or member.kind != "sub":
                return None
            if optional:
                raise _is_optional(ctx, base.span)
            return _sub_of(ref, member)
    return None


def _sub_of(base: typed.BlockRef, member: typed.Member | None) -> Found | None:
    if member is None or member.kind != "sub":
        return None
    assert isinstance(member.type, typed.BlockT | typed.ArrayT)
    return typed.SubBlock(base, member.name, None), member.type, member.optional


def _element(
    ctx: Context,
    expr: ast.Index,
    ref: typed.BlockRef,
    array: typed.ArrayT,
    components: tuple[ast.Expr | ast.EllipsisMark | ast.SliceRange, ...],
) -> Found:
    component = components[0] if len(components) == 1 else None
    if component is None or isinstance(component, ast.EllipsisMark | ast.SliceRange):
        raise ctx.fail("E2209", "an array of blocks takes one index", expr.span)
    at = check_dim(ctx, component, "the index of a block")
    if not (ctx.facts.nonnegative(at) and ctx.facts.proves("<", at, array.count)):
        raise ctx.fail(
            "E2209",
            f"`{at}` is not proven to be from 0 to below `{array.count}`",
            component.span,
            help="loop over them: `static for layer in layers { … }`",
        )
    assert isinstance(ref, typed.SubBlock)
    return typed.SubBlock(ref.base, ref.name, at), array.item, False


def _is_optional(ctx: Context, span: Span) -> Failed:
    return ctx.fail(
        "E2101",
        f"the block `{span.text}` may be absent",
        span,
        help=f"take it apart: `match {span.text} {{ some(x) => …, none => … }}`",
    )


def plain_block(ctx: Context, expr: ast.Expr) -> tuple[typed.BlockRef, typed.BlockT] | None:
    """The same for one block that is there for certain."""
    found = resolve_block(ctx, expr)
    if found is None:
        return None
    ref, type_, optional = found
    if optional:
        raise _is_optional(ctx, expr.span)
    if isinstance(type_, typed.ArrayT):
        raise ctx.fail(
            "E2107",
            f"`{expr.span.text}` is an array of blocks",
            expr.span,
            help=f"loop over it: `static for layer in {expr.span.text} {{ … }}`",
        )
    return ref, type_


# --- fields, and items by their module ------------------------------------------------------


@rule(ast.Field)
def _field(ctx: Context, expr: ast.Field, expected: Type | None) -> Node:
    name = expr.name.text
    whole = item_of_module(ctx, expr)
    if whole is not None:
        return _item_as_value(ctx, whole, name, expr.span)
    item = _named_item(ctx, expr.base)
    if item is not None and item.kind == "enum":
        enum: typed.EnumT = outline(ctx.checker, item)
        if name not in enum.variants:
            raise no_such(ctx, name, expr.name.span, show(enum), list(enum.variants))
        return typed.EnumValue(enum.variants.index(name), enum, expr.span)
    if item is not None and item.kind in ("block", "struct", "type"):
        what = ARTICLES[item.kind]
        raise ctx.fail("E2107", f"`{item.name.text}` is {what}: it has no `{name}`", expr.name.span)
    block = plain_block(ctx, expr.base)
    if block is not None:
        ref, type_ = block
        member = member_of(ctx, type_, name)
        info = block_info(ctx, type_)
        if member is None:
            raise no_such(ctx, name, expr.name.span, show(type_), member_names(info))
        return read_member(ctx, ref, info, member, expr.span)
    base = check_value(ctx, expr.base)
    if isinstance(base.type, typed.StructT):
        for position, (field, type_) in enumerate(base.type.fields):
            if field == name:
                return typed.GetField(base, position, type_, expr.span)
        fields = [field for field, _ in base.type.fields]
        raise no_such(ctx, name, expr.name.span, show(base.type), fields)
    help = None
    if name in ("shape", "size", "dtype", "ndim", "T"):
        help = "shapes and dtypes are known from types: name them by generics"
    raise ctx.fail("E2107", f"`{show(base.type)}` has no field `{name}`", expr.name.span, help=help)


def _named_item(ctx: Context, expr: ast.Expr) -> Entity | None:
    """The item that an expression names, where it names one: `Pooling`, `pool.Pooling`."""
    if isinstance(expr, ast.Field):
        return item_of_module(ctx, expr)
    if not isinstance(expr, ast.NameExpr) or _is_value(ctx, expr.text):
        return None
    return ctx.scope.find(expr.text)


def _is_value(ctx: Context, name: str) -> bool:
    """Whether a name is taken by something nearer than items."""
    return (
        ctx.local(name) is not None
        or name in ctx.generics
        or (ctx.block is not None and name in ctx.block.members)
    )


def item_of_module(ctx: Context, expr: ast.Field) -> Entity | None:
    """The item that `module.item` names; None where the base is no module."""
    base = expr.base
    if not isinstance(base, ast.NameExpr) or _is_value(ctx, base.text):
        return None
    if ctx.scope.find(base.text) is not None:
        return None
    return find_in_module(ctx, base.text, expr.name)


def find_in_module(ctx: Context, module: str, name: ast.Name) -> Entity | None:
    """An item by the name its module was imported under; None if none was by that name."""
    scope = ctx.scope.find_module(module)
    if scope is None:
        return None
    entity = scope.items.get(name.text)
    if entity is None:
        public = [n for n, e in scope.items.items() if e.decl.public]
        raise ctx.fail(
            "E1201",
            f"`{scope.name}` has no `{name.text}`",
            name.span,
            help=did_you_mean(name.text, public),
        )
    require_public(ctx, entity, name.span)
    return entity


def publish(entity: Entity) -> str | None:
    """What to do about a private item; nobody changes the standard library."""
    module = entity.scope.name
    return None if module.startswith("std.") else f"declare it `pub` in `{module}`"


def require_public(ctx: Context, entity: Entity, span: Span) -> None:
    """E1203 for what another module keeps to itself."""
    if entity.decl.public or entity.scope.name == ctx.scope.name:
        return
    raise ctx.fail(
        "E1203",
        f"`{entity.name.text}` is private to `{entity.scope.name}`",
        span,
        notes=[Note("it is declared here", entity.name.span)],
        help=publish(entity),
    )
