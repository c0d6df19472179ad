"""Blocks from the outside: their generics, what they require, their members."""

from __future__ import annotations

from dataclasses import replace

from linnet.check import typed
from linnet.check.context import Context
from linnet.check.dims import Dim, Facts
from linnet.check.instantiate import prove
from linnet.check.resolve import declare_generics, resolve_type, resolve_where
from linnet.check.scope import (
    OUTLINES,
    BlockInfo,
    Checking,
    Entity,
    Failed,
    Outline,
    outline,
)
from linnet.check.typed import ArrayT, BlockT, OptionalT, TensorT
from linnet.check.types import Binding, show, walk_dims
from linnet.diagnostics import Note, Span
from linnet.syntax import ast


def _block_info(checker: Checking, entity: Entity) -> BlockInfo:
    decl = entity.decl
    assert isinstance(decl, ast.Block)
    scope = checker.block_scopes[entity.key]
    ctx = Context(checker, scope, {}, Facts())
    # Its members' types may use its items, which see its generics but not yet its members.
    half = checker.half_made[entity.key] = BlockInfo(entity.key, (), (), ctx.facts, {}, scope)
    generics = declare_generics(ctx, decl.generics)
    where = resolve_where(ctx, decl.where)
    checker.half_made[entity.key] = replace(half, generics=generics, facts=ctx.facts)
    members: dict[str, typed.Member] = {}
    for member in decl.members:
        name = member.name
        if not _is_free(ctx, name, members):
            continue
        try:
            made = _member(ctx, member)
        except Failed:
            checker.bad_members.setdefault(entity.key, set()).add(name.text)
            continue
        members[name.text] = made
        if not made.optional:
            for dim in walk_dims(made.type):
                if not ctx.facts.nonnegative(dim):
                    ctx.facts = ctx.facts.with_fact(">=", dim, 0)
    return BlockInfo(entity.key, generics, where, ctx.facts, members, scope)


def _is_free(ctx: Context, name: ast.Name, members: dict[str, typed.Member]) -> bool:
    """Whether a member's name is its own; reported where not."""
    ctx.refuse_prelude(name)
    first = None
    if name.text in members:
        first = members[name.text].span
    elif name.text in ctx.scope.items:
        first = ctx.scope.items[name.text].name.span
    if first is not None:
        ctx.diagnostics.error(
            "E1205",
            f"`{name.text}` is declared twice in this block",
            name.span,
            notes=[Note("the other is here", first)],
        )
    elif name.text in ctx.generics:
        ctx.diagnostics.error("E1205", f"`{name.text}` is a generic and a member", name.span)
    else:
        return True
    return False


def _member(ctx: Context, member: ast.Member) -> typed.Member:
    type_ = resolve_type(ctx, member.type, block_allowed=True)
    optional = isinstance(type_, OptionalT)
    if isinstance(type_, OptionalT):
        type_ = type_.inner
    if member.default is not None:
        if not isinstance(member.default, ast.NoneExpr):
            raise ctx.fail(
                "E4102",
                f"a `{member.kind}` has no value in the source: {_VALUES[member.kind]}",
                member.default.span,
                help="leave the value out; `= none` marks an optional `param` or `sub`",
            )
        optional = True
    if optional and (member.kind in ("buffer", "state") or isinstance(type_, ArrayT)):
        what = "an array of blocks" if isinstance(type_, ArrayT) else f"a `{member.kind}`"
        raise ctx.fail("E4101", f"{what} can't be optional", member.span)
    is_sub = member.kind == "sub"
    if not isinstance(type_, BlockT | ArrayT if is_sub else TensorT):
        raise _wrong_member(ctx, member, type_)
    block = type_.item if isinstance(type_, ArrayT) else type_
    if isinstance(block, BlockT):
        _prove_where(ctx, block, member.type.span)
    return typed.Member(member.kind, member.name.text, type_, optional, member.doc, member.span)


_VALUES = {
    "param": "weights come from the checkpoint",
    "buffer": "buffers come from the checkpoint",
    "state": "a state starts at zero",
    "sub": "it is made from its type",
}


def _wrong_member(ctx: Context, member: ast.Member, type_: typed.Type) -> Failed:
    is_sub = member.kind == "sub"
    help = None
    if isinstance(type_, BlockT | ArrayT):
        help = f"declare it with `sub {member.name.text}: …`"
    elif is_sub:
        help = f"declare it with `param {member.name.text}: …`"
    return ctx.fail(
        "E4101",
        f"a `{member.kind}` is {'a block or an array of blocks' if is_sub else 'a tensor'}, "
        f"found `{show(type_)}`",
        member.type.span,
        help=help,
    )


def _prove_where(ctx: Context, block: BlockT, span: Span) -> None:
    info: BlockInfo = outline(ctx.checker, ctx.checker.blocks[block.key])
    binding = Binding.of(dict(block.generics))
    for name, value in block.generics:
        if isinstance(value, Dim) and ctx.facts.negative(value):
            raise ctx.fail("E2208", f"`{name}` would be negative: `{value}`", span)
    for fact, required in info.where:
        prove(ctx, fact, binding, f"`{show(block)}`", span, required)


OUTLINES["block"] = Outline(_block_info, "E2119", "the block `{name}` would contain itself")
