"""Items from the outside: types, signatures, constants, blocks, each worked out when needed.

An item may use any other, in any order and module, so each is resolved on its first use and
remembered in its `Entity`; meeting one that is still being worked out is a cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from linnet.check import typed
from linnet.check.dims import Dim, Facts
from linnet.check.expressions import (
    check,
    check_as,
    check_dim,
)
from linnet.check.scope import (
    DTYPE_NAMES,
    KIND_NAMES,
    BlockInfo,
    Checking,
    Context,
    Entity,
    Failed,
    Flex,
    LocalName,
    Node,
    Scope,
    Signature,
)
from linnet.check.typed import (
    ArrayT,
    BlockT,
    DTypeVar,
    EnumT,
    GenericValue,
    OptionalT,
    Pack,
    StructT,
    TensorT,
    TupleT,
    Type,
)
from linnet.check.types import Binding, show
from linnet.diagnostics import Note, Span
from linnet.syntax import ast

T = TypeVar("T")


def _once(checker: Checking, entity: Entity, work: Callable[[], T], cycle_code: str) -> T:
    """The entity's resolved form, worked out on the first call."""
    if entity.state == "done":
        return entity.resolved  # type: ignore[return-value]
    if entity.state == "bad":
        raise Failed
    name = entity.name
    if entity.state == "busy":
        checker.diagnostics.error(
            cycle_code, f"`{name.text}` is defined by itself", name.span
        )
        raise Failed
    entity.state = "busy"
    try:
        resolved = work()
    except Failed:
        entity.state = "bad"
        raise
    entity.state, entity.resolved = "done", resolved
    return resolved


def outer_context(checker: Checking, scope: Scope) -> Context:
    """Where a module's or block's items stand: a block's generics are in scope in its items."""
    context = Context(checker, scope, {}, Facts())
    if scope.block is not None:
        info = block_info(checker, scope.block.key)
        context.block = info
        add_generics(context, info.generics)
        context.facts = info.facts
    return context


# --- generics and facts ---------------------------------------------------------------------


def add_generics(ctx: Context, generics: tuple[typed.GenericParam, ...]) -> None:
    span = Span(ctx.scope.file.span.source, 0, 0)
    for generic in generics:
        ctx.generics[generic.name] = _generic_meaning(generic, span)


def _generic_meaning(generic: typed.GenericParam, span: Span) -> Flex | DTypeVar | Pack:
    if generic.kind == "Dim":
        return Flex(Dim.var(generic.name), span)
    return Pack(generic.name) if generic.kind == "Shape" else DTypeVar(generic.name, generic.kind)


def _generics(ctx: Context, generics: tuple[ast.Generic, ...]) -> tuple[typed.GenericParam, ...]:
    """Declares generics in the context, in order: a default may use those before it."""
    from linnet.check.calls import generic_value

    params: list[typed.GenericParam] = []
    for generic in generics:
        name, kind = generic.name, generic.kind.text
        if kind not in KIND_NAMES:
            raise ctx.fail(
                "E2111",
                f"`{kind}` is no kind of generic",
                generic.kind.span,
                help=f"the kinds are {', '.join(f'`{k}`' for k in KIND_NAMES)}",
            )
        if generic.pack != (kind == "Shape"):
            ctx.diagnostics.error(
                "E2111",
                f"a generic of kind `{kind}` is written `{'*' if kind == 'Shape' else ''}"
                f"{name.text}: {kind}`",
                generic.span,
            )
        if name.text in DTYPE_NAMES or name.text in KIND_NAMES or name.text == "Tensor":
            ctx.diagnostics.error("E1207", f"`{name.text}` is a prelude name", name.span)
            continue
        if name.text in ctx.generics:
            ctx.diagnostics.error("E1205", f"the generic `{name.text}` is declared twice", name.span)
            continue
        param = typed.GenericParam(name.text, kind, None)
        if generic.default is not None:
            try:
                default = generic_value(ctx, generic.default, param)
                param = typed.GenericParam(name.text, kind, default)
            except Failed:
                pass
        params.append(param)
        ctx.generics[name.text] = _generic_meaning(param, name.span)
    return tuple(params)


def _where(ctx: Context, facts: tuple[ast.Fact, ...]) -> tuple[tuple[typed.Fact, Span], ...]:
    """Adds a `where` clause to what the context knows, fact by fact."""
    known: list[tuple[typed.Fact, Span]] = []
    for fact in facts:
        left = check_dim(ctx, fact.left, "a `where` clause's side")
        right = check_dim(ctx, fact.right, "a `where` clause's side")
        known.append((typed.Fact(fact.op, left, right), fact.span))
        ctx.facts = ctx.facts.with_fact(fact.op, left, right)
    return tuple(known)


# --- types ----------------------------------------------------------------------------------


def resolve_type(ctx: Context, type_: ast.Type, *, block_allowed: bool = False) -> Type:
    """What a written type means; a block's only where `block_allowed`."""
    match type_:
        case ast.TensorType(dims, dtype, _):
            return TensorT(_shape(ctx, dims), _dtype(ctx, dtype))
        case ast.TupleType(items, _):
            return TupleT(tuple(resolve_type(ctx, item) for item in items))
        case ast.OptionalType(inner, span):
            resolved = resolve_type(ctx, inner, block_allowed=block_allowed)
            if isinstance(resolved, OptionalT):
                raise ctx.fail("E2101", "this is optional twice", span, help="one `?` is enough")
            return OptionalT(resolved)
        case ast.ArrayType(item, count, span):
            resolved = resolve_type(ctx, item, block_allowed=block_allowed)
            if not isinstance(resolved, BlockT):
                raise ctx.fail(
                    "E4101",
                    f"an array of `{show(resolved)}`: only blocks stand in an array, in a `sub`",
                    span,
                    help="add an axis to the tensor instead",
                )
            return ArrayT(resolved, _extent(ctx, count))
        case ast.NamedType():
            return _named(ctx, type_, block_allowed)


def _shape(ctx: Context, dims: tuple[ast.Expr, ...]) -> typed.Shape:
    items: list[typed.ShapeItem] = []
    for dim in dims:
        if isinstance(dim, ast.Spread):
            pack = ctx.generics.get(dim.name.text)
            if not isinstance(pack, Pack):
                code = "E3106" if pack is not None else "E1201"
                raise ctx.fail(code, f"`{dim.name.text}` is no pack of dimensions", dim.span)
            if any(isinstance(item, Pack) for item in items):
                raise ctx.fail("E3106", "one pack stands in a shape", dim.span)
            items.append(pack)
        elif isinstance(dim, ast.NameExpr) and isinstance(ctx.generics.get(dim.text), Pack):
            raise ctx.fail(
                "E3106", f"`{dim.text}` is a pack", dim.span, help=f"write `*{dim.text}`"
            )
        else:
            items.append(_extent(ctx, dim))
    return tuple(items)


def _extent(ctx: Context, expr: ast.Expr) -> Dim:
    dim = check_dim(ctx, expr, "a dimension")
    if not ctx.facts.nonnegative(dim):
        raise ctx.fail(
            "E2208",
            f"the dimension `{dim}` is not proven to be at least 0",
            expr.span,
            help=f"add `where {dim} >= 0`" if dim.constant is None else None,
        )
    return dim


def _dtype(ctx: Context, name: ast.Name) -> typed.AnyDType:
    if name.text in DTYPE_NAMES:
        return DTYPE_NAMES[name.text]
    generic = ctx.generics.get(name.text)
    if isinstance(generic, DTypeVar):
        return generic
    if generic is not None:
        raise ctx.fail("E1208", f"`{name.text}` is no dtype", name.span)
    if ctx.scope.find(name.text) is not None:
        raise ctx.fail("E1208", f"`{name.text}` is no dtype", name.span)
    raise ctx.undeclared(name.text, name.span, DTYPE_NAMES)


def _named(ctx: Context, type_: ast.NamedType, block_allowed: bool) -> Type:
    name = type_.path[-1]
    if len(type_.path) > 1:
        raise ctx.fail(
            "E1208",
            "a type is named by one name",
            type_.span,
            help=f"import it: `use {'.'.join(p.text for p in type_.path[:-1])}::{name.text}`",
        )
    if name.text in DTYPE_NAMES or isinstance(ctx.generics.get(name.text), DTypeVar):
        return TensorT((), _dtype(ctx, name))
    if name.text == "Tensor":
        raise ctx.fail(
            "E2111", "`Tensor` needs its shape and dtype", type_.span, help="`Tensor[B, H; f32]`"
        )
    if name.text in ctx.generics:
        raise ctx.fail("E1208", f"`{name.text}` is no type", name.span)
    entity = ctx.scope.find(name.text)
    if entity is None:
        raise ctx.undeclared(name.text, name.span, DTYPE_NAMES)
    match entity.kind:
        case "block":
            info = block_info(ctx.checker, entity.key)
            if not block_allowed:
                raise ctx.fail(
                    "E1208",
                    f"the block `{name.text}` is not the type of a value",
                    type_.span,
                    help=f"declare a child: `sub x: {type_.span.text}`",
                )
            return BlockT(entity.key, _written_generics(ctx, type_, info.generics, entity))
        case "enum":
            _written_generics(ctx, type_, (), entity)
            return enum_type(entity)
        case "struct":
            outline = struct_signature(ctx.checker, entity)
            given = _written_generics(ctx, type_, outline.generics, entity)
            assert outline.result is not None
            return Binding.of(dict(given)).type(outline.result)
        case "type":
            generics, target = resolve_alias(ctx.checker, entity)
            given = _written_generics(ctx, type_, generics, entity)
            return Binding.of(dict(given)).type(target)
    raise ctx.fail("E1208", f"`{name.text}` is no type", name.span)


def _written_generics(
    ctx: Context,
    type_: ast.NamedType,
    generics: tuple[typed.GenericParam, ...],
    entity: Entity,
) -> typed.GenericArgs:
    from linnet.check.calls import generic_value

    written = type_.generics or ()
    name = type_.path[-1].text
    declared = [Note(f"`{name}` is declared here", entity.name.span)]
    if len(written) > len(generics):
        raise ctx.fail(
            "E2111",
            f"`{name}` takes {len(generics)} generic arguments, found {len(written)}",
            type_.span,
            notes=declared,
        )
    bound = Binding()
    result: list[tuple[str, GenericValue]] = []
    for position, generic in enumerate(generics):
        if position < len(written):
            value = generic_value(ctx, written[position], generic)
        elif generic.default is not None:
            value = bound.generic(generic.default)
        else:
            raise ctx.fail(
                "E2111",
                f"`{name}` lacks its generic argument `{generic.name}`",
                type_.span,
                notes=declared,
            )
        bound.bind(generic.name, value)
        result.append((generic.name, value))
    return tuple(result)


# --- constants, aliases, structs, enums -----------------------------------------------------


def constant(checker: Checking, entity: Entity, span: Span) -> Node:
    """A constant's value, standing at `span`."""

    def work() -> Node:
        decl = entity.decl
        assert isinstance(decl, ast.Const)
        ctx = outer_context(checker, entity.scope)
        if decl.type is None:
            node = check(ctx, decl.value)
        else:
            node = check_as(ctx, decl.value, resolve_type(ctx, decl.type), "the constant")
        if not isinstance(node, Flex | typed.Literal | typed.DimValue | typed.Prim):
            raise ctx.fail(
                "E2123", "a constant is made of literals and other constants", decl.value.span
            )
        return node

    node = _once(checker, entity, work, "E2122")
    return Flex(node.value, span) if isinstance(node, Flex) else node


def resolve_alias(checker: Checking, entity: Entity) -> tuple[tuple[typed.GenericParam, ...], Type]:
    def work() -> tuple[tuple[typed.GenericParam, ...], Type]:
        decl = entity.decl
        assert isinstance(decl, ast.Alias)
        ctx = outer_context(checker, entity.scope)
        generics = _generics(ctx, decl.generics)
        return generics, resolve_type(ctx, decl.type)

    return _once(checker, entity, work, "E2122")


def enum_type(entity: Entity) -> EnumT:
    decl = entity.decl
    assert isinstance(decl, ast.Enum)
    return EnumT(entity.key, tuple(v.text for v in decl.variants))


def struct_signature(checker: Checking, entity: Entity) -> Signature:
    """A struct as the function that builds it from its fields."""

    def work() -> Signature:
        decl = entity.decl
        assert isinstance(decl, ast.Struct)
        ctx = outer_context(checker, entity.scope)
        generics = _generics(ctx, decl.generics)
        params = []
        for field in decl.fields:
            if any(p.name == field.name.text for p in params):
                raise ctx.fail(
                    "E1205", f"the field `{field.name.text}` is declared twice", field.name.span
                )
            params.append(typed.Param(field.name.text, resolve_type(ctx, field.type), None))
        type_ = StructT(entity.key, tuple((p.name, p.type) for p in params))
        return Signature(generics, tuple(params), type_, (), ctx.facts)

    return _once(checker, entity, work, "E2122")


# --- functions ------------------------------------------------------------------------------


def signature(checker: Checking, entity: Entity) -> Signature:
    """A function's generics, parameters, result and what it requires."""

    def work() -> Signature:
        return _signature(checker, entity)[0]

    return _once(checker, entity, work, "E2119")


def _signature(checker: Checking, entity: Entity) -> tuple[Signature, Context]:
    decl = entity.decl
    assert isinstance(decl, ast.Function)
    ctx = outer_context(checker, entity.scope)
    ctx.function = entity
    generics = _generics(ctx, decl.generics)
    where = _where(ctx, decl.where)
    params: list[typed.Param] = []
    for param in decl.params:
        if any(p.name == param.name.text for p in params):
            raise ctx.fail(
                "E1205", f"the parameter `{param.name.text}` is declared twice", param.name.span
            )
        type_ = resolve_type(ctx, param.type)
        default = None
        if param.default is not None:
            default = check_as(ctx, param.default, type_, "the default")
            if not isinstance(
                default, typed.Literal | typed.DimValue | typed.NoneValue | typed.Prim
            ):
                raise ctx.fail("E2123", "a default must be a constant", param.default.span)
        params.append(typed.Param(param.name.text, type_, default))
    result = resolve_type(ctx, decl.result) if decl.result else None
    return Signature(generics, tuple(params), result, where, ctx.facts), ctx


def check_function(checker: Checking, entity: Entity) -> None:
    """A function's body; its typed form joins the program if it has no mistakes."""
    from linnet.check.statements import check_body

    decl = entity.decl
    assert isinstance(decl, ast.Function)
    outline = signature(checker, entity)
    ctx = outer_context(checker, entity.scope)
    ctx.function = entity
    add_generics(ctx, outline.generics)
    ctx.facts = outline.facts
    for param, written in zip(outline.params, decl.params, strict=True):
        if written.name.text in ctx.generics:
            ctx.diagnostics.error(
                "E1205",
                f"`{written.name.text}` is a generic and a parameter",
                written.name.span,
            )
        node = typed.Local(ctx.unique(param.name), param.type, written.name.span)
        ctx.declare(LocalName(written.name, node))
    ctx.push()
    what = {"fn": "the function", "op": "the op", "entry": "the entry"}[decl.kind]
    body = check_body(ctx, decl.body, outline.result, what=f"{what} `{decl.name.text}`")
    grad = _grad(checker, entity, outline) if decl.grad else None
    checker.calls[entity.key] = ctx.calls
    if ctx.block is not None:
        checker.used_members.setdefault(ctx.block.key, set()).update(ctx.used_members)
    if body is None:
        return
    checker.functions[entity.key] = typed.Function(
        entity.key,
        decl.name.text,
        decl.kind,
        entity.scope.block.key if entity.scope.block else None,
        outline.generics,
        outline.params,
        outline.result,
        tuple(fact for fact, _ in outline.where),
        body,
        grad,
        decl.public,
        decl.doc,
        decl.span,
    )


def _grad(checker: Checking, entity: Entity, outline: Signature) -> typed.Grad | None:
    """An op's backward pass: gives back the gradient of each float parameter, in order."""
    from linnet.check.statements import check_body

    decl = entity.decl
    assert isinstance(decl, ast.Function) and decl.grad is not None
    ctx = outer_context(checker, entity.scope)
    ctx.function = entity
    add_generics(ctx, outline.generics)
    ctx.facts = outline.facts
    for param, written in zip(outline.params, decl.params, strict=True):
        node = typed.Local(ctx.unique(param.name), param.type, written.name.span)
        ctx.declare(LocalName(written.name, node))
    if outline.result is None:
        raise ctx.fail("E2101", "an op that gives nothing back has no `grad`", decl.grad.span)
    names = []
    for name in (decl.grad.result, decl.grad.cotangent):
        unique = ctx.unique(name.text)
        ctx.declare(LocalName(name, typed.Local(unique, outline.result, name.span)))
        names.append(unique)
    gradients = tuple(
        p.type
        for p in outline.params
        if isinstance(p.type, TensorT) and _is_float(p.type)
    )
    result = gradients[0] if len(gradients) == 1 else TupleT(gradients)
    ctx.push()
    body = check_body(ctx, decl.grad.body, result, what=f"the `grad` of `{decl.name.text}`")
    return typed.Grad(names[0], names[1], body) if body is not None else None


def _is_float(type_: TensorT) -> bool:
    from linnet.check.types import dtypes_of

    return all(d.is_float for d in dtypes_of(type_.dtype))


# --- blocks ---------------------------------------------------------------------------------


def block_info(checker: Checking, key: str) -> BlockInfo:
    """A block's generics, `where` and members."""
    return _once(
        checker, checker.block_entities[key], lambda: _block_info(checker, key), "E2119"
    )


def _block_info(checker: Checking, key: str) -> BlockInfo:
    entity = checker.block_entities[key]
    decl = entity.decl
    assert isinstance(decl, ast.Block)
    ctx = Context(checker, entity.scope, {}, Facts())
    generics = _generics(ctx, decl.generics)
    where = _where(ctx, decl.where)
    members: dict[str, typed.Member] = {}
    checker.subs[key] = {}
    scope = checker.block_scopes[key]
    inside = Context(checker, scope, dict(ctx.generics), ctx.facts)
    inside_scope_block, scope.block = scope.block, None  # Its items don't see a half-made block.
    try:
        for member in decl.members:
            name = member.name.text
            if name in members or name in scope.items:
                ctx.diagnostics.error(
                    "E1205", f"`{name}` is declared twice in this block", member.name.span
                )
                continue
            if name in ctx.generics:
                ctx.diagnostics.error(
                    "E1205", f"`{name}` is a generic and a member", member.name.span
                )
                continue
            try:
                members[name] = _member(inside, member, checker.subs[key])
            except Failed:
                checker.bad_members.setdefault(key, set()).add(name)
    finally:
        scope.block = inside_scope_block
    return BlockInfo(key, generics, where, ctx.facts, members, scope)


def _member(ctx: Context, member: ast.Member, subs: dict[str, Span]) -> typed.Member:
    is_sub = member.kind == "sub"
    type_ = resolve_type(ctx, member.type, block_allowed=True)
    optional = isinstance(type_, OptionalT)
    if isinstance(type_, OptionalT):
        type_ = type_.inner
    if member.default is not None:
        if not isinstance(member.default, ast.NoneExpr):
            raise ctx.fail(
                "E4102",
                f"a `{member.kind}` has no value in the source: weights come from the checkpoint",
                member.default.span,
                help="leave the value out; `= none` marks an optional one",
            )
        optional = True
    if optional and member.kind in ("buffer", "state"):
        raise ctx.fail("E4101", f"a `{member.kind}` can't be optional", member.span)
    fits = isinstance(type_, BlockT | ArrayT) if is_sub else isinstance(type_, TensorT)
    if not fits:
        wanted = "a block or an array of blocks" if is_sub else "a tensor"
        help = None
        if isinstance(type_, BlockT | ArrayT):
            help = f"declare it with `sub {member.name.text}: …`"
        elif is_sub:
            help = f"declare it with `param {member.name.text}: …`"
        raise ctx.fail(
            "E4101",
            f"a `{member.kind}` is {wanted}, found `{show(type_)}`",
            member.type.span,
            help=help,
        )
    if optional and isinstance(type_, ArrayT):
        raise ctx.fail("E4101", "an array of blocks can't be optional", member.span)
    block = type_.item if isinstance(type_, ArrayT) else type_
    if isinstance(block, BlockT):
        subs.setdefault(block.key, member.span)
        _prove_where(ctx, block, member.type.span)
    return typed.Member(member.kind, member.name.text, type_, optional, member.doc, member.span)


def _prove_where(ctx: Context, block: BlockT, span: Span) -> None:
    from linnet.check.calls import not_proven

    info = block_info(ctx.checker, block.key)
    binding = Binding.of(dict(block.generics))
    for name, value in block.generics:
        if isinstance(value, Dim) and not ctx.facts.nonnegative(value):
            raise ctx.fail(
                "E2208", f"`{name}` would be `{value}`, not proven to be at least 0", span
            )
    for fact, where_span in info.where:
        left, right = binding.dim(fact.left), binding.dim(fact.right)
        if not ctx.facts.proves(fact.op, left, right):
            is_known = left.constant is not None and right.constant is not None
            raise ctx.fail(
                "E2206",
                not_proven(ctx.facts, fact, left, right, f"`{show(block)}`"),
                span,
                notes=[Note("it is required here", where_span)],
                help=None if is_known else f"add `where {left} {fact.op} {right}`",
            )
