"""Calls: which function is meant, and which argument goes to which parameter."""

from __future__ import annotations

from linnet.check import typed
from linnet.check.context import Context, Node
from linnet.check.expressions import check, rule, short
from linnet.check.instantiate import instantiate
from linnet.check.names import (
    ARTICLES,
    block_info,
    item_of_module,
    member_names,
    no_such,
    plain_block,
    require_public,
)
from linnet.check.prelude import check_prelude
from linnet.check.resolve import plural
from linnet.check.scope import (
    DTYPE_NAMES,
    PRELUDE_FUNCTIONS,
    Entity,
    outline,
)
from linnet.check.target import Target
from linnet.check.typed import Type
from linnet.check.types import Binding, describe, show
from linnet.syntax import ast


@rule(ast.Call)
def _call(ctx: Context, expr: ast.Call, expected: Type | None) -> Node:
    callee = expr.callee
    if isinstance(callee, ast.NameExpr):
        is_free = ctx.local(callee.text) is None and callee.text not in ctx.generics
        if is_free and callee.text in PRELUDE_FUNCTIONS:
            return check_prelude(ctx, expr, callee.text, expected)
        if is_free and callee.text in DTYPE_NAMES:
            raise ctx.fail(
                "E2106",
                f"`{callee.text}` is a dtype, not a function",
                callee.span,
                help=f"convert with `cast<{callee.text}>(…)`",
            )
    target = _target(ctx, expr)
    with ctx.without_indices(f"an argument of `{target.name}`"):
        args = _arrange(ctx, expr, target)
        return instantiate(ctx, expr, target, args, expected)


# --- what is called -------------------------------------------------------------------------


def _target(ctx: Context, expr: ast.Call) -> Target:
    callee = expr.callee
    if isinstance(callee, ast.Field):
        entity = item_of_module(ctx, callee)
        if entity is not None:
            return _item(ctx, entity, callee)
        return _method(ctx, callee)
    if isinstance(callee, ast.NameExpr):
        return _by_name(ctx, callee)
    raise ctx.fail("E2106", "this is no function", callee.span)


def _by_name(ctx: Context, callee: ast.NameExpr) -> Target:
    name = callee.text
    if ctx.index is not None and name in ctx.index.indices:
        raise ctx.fail("E2106", f"`{name}` is an index, not a function", callee.span)
    local = ctx.local(name)
    if local is not None:
        local.used = True
        help = f"call one of its methods: `{name}.forward(…)`" if local.block else None
        raise ctx.fail("E2106", f"`{name}` is no function", callee.span, help=help)
    if name in ctx.generics:
        raise ctx.fail("E2106", f"`{name}` is a generic, not a function", callee.span)
    member = ctx.block.members.get(name) if ctx.block else None
    if member is not None:
        help = f"call one of its methods: `{name}.forward(…)`" if member.kind == "sub" else None
        raise ctx.fail(
            "E2106", f"`{name}` is a {member.kind}, not a function", callee.span, help=help
        )
    entity = ctx.scope.find(name)
    if entity is None:
        raise ctx.undeclared(name, callee.span)
    return _item(ctx, entity, callee)


def _item(ctx: Context, entity: Entity, callee: ast.Expr) -> Target:
    name = entity.name.text
    if entity.kind not in ("function", "struct"):
        help = None
        if entity.kind == "block":
            help = f"declare a child: `sub x: {name}<…>`, then call `x.forward(…)`"
        raise ctx.fail(
            "E2106",
            f"`{name}` is {ARTICLES[entity.kind]}, not a function",
            callee.span,
            help=help,
        )
    block = None
    if entity.kind == "function" and entity.scope.block is not None:
        if ctx.block is None or entity.scope is not ctx.block.scope:
            raise ctx.fail(
                "E2106",
                f"`{name}` is a method of `{entity.scope.block.name.text}`",
                callee.span,
                help="it is called on a child of that type: `x.…`",
            )
        block = typed.SelfBlock()
    return Target(name, outline(ctx.checker, entity), entity, block, Binding())


def _method(ctx: Context, callee: ast.Field) -> Target:
    name = callee.name.text
    found = plain_block(ctx, callee.base)
    if found is None:
        node = check(ctx, callee.base)
        raise ctx.fail(
            "E2106",
            f"{describe(node.type)} has no methods: only a block has",
            callee.span,
            help=f"functions take their tensors as arguments: `{name}({short(callee.base.span)})`",
        )
    ref, block = found
    info = block_info(ctx, block)
    entity = info.scope.items.get(name)
    if entity is None or entity.kind != "function":
        if name in info.members:
            what = info.members[name].kind
            raise ctx.fail("E2106", f"`{name}` is a {what}, not a method", callee.name.span)
        raise no_such(ctx, name, callee.name.span, show(block), member_names(info))
    require_public(ctx, entity, callee.name.span)
    given = Binding.of(dict(block.generics))
    return Target(name, outline(ctx.checker, entity), entity, ref, given)


# --- its arguments --------------------------------------------------------------------------


def _arrange(ctx: Context, expr: ast.Call, target: Target) -> list[ast.Arg | None]:
    """The written arguments in the order of the parameters; None where a default serves."""
    params = target.signature.params
    is_struct = target.entity.kind == "struct"
    by_name = {p.name: i for i, p in enumerate(params)}
    slots: list[ast.Arg | None] = [None] * len(params)
    position = 0
    named = False
    for arg in expr.args:
        if arg.name is not None:
            named = True
            at = by_name.get(arg.name.text)
            if at is None:
                raise _no_parameter(ctx, target, arg.name)
        elif is_struct:
            listed = ", ".join(f"{p.name} = …" for p in params)
            raise ctx.fail(
                "E2102",
                f"the fields of `{target.name}` are given by name",
                arg.span,
                help=f"write `{target.name}({listed})`",
            )
        elif named:
            raise ctx.fail("E2102", "a positional argument after one by keyword", arg.span)
        else:
            at, position = position, position + 1
            if at >= len(params):
                raise ctx.fail(
                    "E2102",
                    f"`{target.name}` takes {plural(len(params), 'argument')}, "
                    f"found {len(expr.args)}",
                    arg.span,
                    notes=[target.declared],
                )
        if slots[at] is not None:
            raise ctx.fail("E2102", f"the argument `{params[at].name}` is given twice", arg.span)
        slots[at] = arg
    _refuse_missing(ctx, expr, target, slots)
    return slots


def _no_parameter(ctx: Context, target: Target, name: ast.Name) -> Exception:
    what = "field" if target.entity.kind == "struct" else "parameter"
    known = ", ".join(f"`{p.name}`" for p in target.signature.params)
    return ctx.fail(
        "E2102",
        f"`{target.name}` has no {what} `{name.text}`",
        name.span,
        notes=[target.declared],
        help=f"it has {known}" if known else "it has none",
    )


def _refuse_missing(
    ctx: Context, expr: ast.Call, target: Target, slots: list[ast.Arg | None]
) -> None:
    params = target.signature.params
    missing = [
        p for p, slot in zip(params, slots, strict=True) if slot is None and p.default is None
    ]
    if not missing:
        return
    what = "field" if target.entity.kind == "struct" else "argument"
    listed = ", ".join(f"`{p.name}`" for p in missing)
    types = ", ".join(f"`{p.name}: {show(p.type)}`" for p in missing)
    raise ctx.fail(
        "E2102",
        f"`{target.name}` lacks the {what}{'s' if len(missing) > 1 else ''} {listed}",
        expr.span,
        notes=[target.declared],
        help=f"give {types}",
    )
