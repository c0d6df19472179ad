"""What is written between names: types, generic parameters and arguments, `where` clauses."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.check import typed
from linnet.check.context import Context, Flex
from linnet.check.dims import Dim, Facts
from linnet.check.expressions import check_dim, check_extent
from linnet.check.names import ARTICLES, describe_generic, find_in_module
from linnet.check.scope import (
    DTYPE_NAMES,
    KIND_NAMES,
    PRELUDE,
    PRELUDE_TYPES,
    AliasInfo,
    BlockInfo,
    Checking,
    Entity,
    Failed,
    Scope,
    Signature,
    outline,
)
from linnet.check.typed import (
    ArrayT,
    BlockT,
    DTypeVar,
    GenericParam,
    GenericValue,
    OptionalT,
    Pack,
    TensorT,
    TupleT,
    Type,
)
from linnet.check.types import MAX_PARTS, Binding, describe_dtype, has_too_many_parts, show
from linnet.diagnostics import Note, Span
from linnet.dtypes import KINDS
from linnet.syntax import ast


def outer_context(checker: Checking, scope: Scope) -> Context:
    """Where a module's or block's items stand: a block's generics are in scope in its items."""
    ctx = Context(checker, scope, {}, Facts())
    if scope.block is not None:
        is_busy = scope.block.state == "busy"
        info: BlockInfo = (
            checker.half_made[scope.block.key] if is_busy else outline(checker, scope.block)
        )
        ctx.block = info
        add_generics(ctx, info.generics)
        ctx.facts = info.facts
    return ctx


# --- types ----------------------------------------------------------------------------------


def resolve_type(ctx: Context, type_: ast.Type, *, block_allowed: bool = False) -> Type:
    """What a written type means; a block's only where `block_allowed`."""
    match type_:
        case ast.TensorType(dims, dtype, _):
            return TensorT(resolve_shape(ctx, dims), _dtype(ctx, dtype))
        case ast.TupleType(items, _):
            parts = tuple(resolve_type(ctx, item) for item in items)
            refuse_too_many_parts(ctx, parts, type_.span)
            return TupleT(parts)
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
            return ArrayT(resolved, check_extent(ctx, count, "the number of blocks"))
        case ast.NamedType():
            return _named(ctx, type_, block_allowed)


def resolve_shape(ctx: Context, dims: tuple[ast.Expr, ...]) -> typed.Shape:
    """`B, S, *R` as a shape, with at most one pack."""
    items: list[typed.ShapeItem] = []
    for dim in dims:
        if isinstance(dim, ast.Spread):
            if any(isinstance(item, Pack) for item in items):
                raise ctx.fail(
                    "E3106",
                    "one pack stands in a shape",
                    dim.span,
                    help="which axes would be whose could not be told",
                )
            items.append(pack_of(ctx, dim))
        elif isinstance(dim, ast.NameExpr) and isinstance(ctx.generics.get(dim.text), Pack):
            raise ctx.fail(
                "E3106", f"`{dim.text}` is a pack", dim.span, help=f"write `*{dim.text}`"
            )
        else:
            items.append(check_extent(ctx, dim))
    return tuple(items)


def refuse_too_many_parts(ctx: Context, parts: Sequence[Type], span: Span) -> None:
    if has_too_many_parts(*parts):
        raise ctx.fail("E2190", f"a type of more than {MAX_PARTS} tensors", span)


def pack_of(ctx: Context, spread: ast.Spread) -> Pack:
    """The shape generic that `*S` names."""
    name = spread.name.text
    generic = ctx.generics.get(name)
    if isinstance(generic, Pack):
        return generic
    if generic is None and ctx.local(name) is None and ctx.scope.find(name) is None:
        raise ctx.undeclared(name, spread.name.span)
    raise ctx.fail(
        "E3106",
        f"`{name}` is no pack of dimensions",
        spread.span,
        help=f"write `{name}`" if isinstance(generic, Flex) else None,
    )


def _dtype(ctx: Context, name: ast.Name) -> typed.AnyDType:
    if name.text in DTYPE_NAMES:
        return DTYPE_NAMES[name.text]
    generic = ctx.generics.get(name.text)
    if isinstance(generic, DTypeVar):
        return generic
    entity = None if generic is not None else ctx.scope.find(name.text)
    if entity is not None and entity.kind == "type":
        # An alias of a dtype stands for it: `type Real = f32`.
        info: AliasInfo = outline(ctx.checker, entity)
        if isinstance(info.target, TensorT) and not info.target.shape and not info.generics:
            return info.target.dtype
    if generic is not None or entity is not None:
        raise ctx.fail(
            "E1208",
            f"`{name.text}` is no dtype",
            name.span,
            help="a dtype is `f32`, `bf16`, … or a generic such as `T: Float`",
        )
    raise ctx.undeclared(name.text, name.span, DTYPE_NAMES)


def _named(ctx: Context, type_: ast.NamedType, block_allowed: bool) -> Type:
    name = type_.path[-1]
    if len(type_.path) == 1:
        if name.text in DTYPE_NAMES or isinstance(ctx.generics.get(name.text), DTypeVar):
            if type_.generics is not None:
                raise ctx.fail("E2111", f"the dtype `{name.text}` has no generics", type_.span)
            return TensorT((), _dtype(ctx, name))
        if name.text == "Tensor":
            raise ctx.fail(
                "E2111",
                "`Tensor` needs its shape and dtype",
                type_.span,
                help="as in `Tensor[B, H; f32]`",
            )
        if name.text in ctx.generics:
            what = describe_generic(ctx.generics[name.text])
            raise ctx.fail("E1208", f"`{name.text}` is {what}, not a type", name.span)
        if name.text in PRELUDE_TYPES:
            raise ctx.fail("E1208", f"`{name.text}` is a kind of generic, not a type", name.span)
    entity = _item(ctx, type_)
    match entity.kind:
        case "block":
            if not block_allowed:
                raise _block_is_no_type(ctx, type_)
            info: BlockInfo = outline(ctx.checker, entity)
            return BlockT(entity.key, _arguments(ctx, type_, info.generics, entity))
        case "enum":
            _arguments(ctx, type_, (), entity)
            return outline(ctx.checker, entity)
        case "struct":
            struct: Signature = outline(ctx.checker, entity)
            assert struct.result is not None
            given = _arguments(ctx, type_, struct.generics, entity)
            return Binding.of(dict(given)).type(struct.result)
        case "type":
            alias: AliasInfo = outline(ctx.checker, entity)
            target = alias.target.inner if isinstance(alias.target, OptionalT) else alias.target
            if isinstance(target, BlockT | ArrayT) and not block_allowed:
                raise _block_is_no_type(ctx, type_)
            given = _arguments(ctx, type_, alias.generics, entity)
            return Binding.of(dict(given)).type(alias.target)
    what = ARTICLES[entity.kind]
    raise ctx.fail("E1208", f"`{name.text}` is {what}, not a type", name.span)


def _block_is_no_type(ctx: Context, type_: ast.NamedType) -> Failed:
    return ctx.fail(
        "E1208",
        f"the block `{type_.path[-1].text}` is not the type of a value",
        type_.span,
        help=f"declare a child: `sub x: {type_.span.text}`",
    )


def _item(ctx: Context, type_: ast.NamedType) -> Entity:
    """The item that a type's name, or `module.Name`, stands for."""
    *path, name = type_.path
    if len(path) == 1:
        entity = find_in_module(ctx, path[0].text, name)
        if entity is not None:
            return entity
    if path:
        module = ".".join(part.text for part in path)
        raise ctx.fail(
            "E1201",
            f"no module is imported as `{module}`",
            path[0].span.to(path[-1].span),
            help=f"import what you need, as in `use std.nn.linear::{{{name.text}}}`",
        )
    entity = ctx.scope.find(name.text)
    if entity is None:
        raise ctx.undeclared(name.text, name.span, [*DTYPE_NAMES, "Tensor"])
    return entity


# --- generic arguments ----------------------------------------------------------------------


def _arguments(
    ctx: Context,
    type_: ast.NamedType,
    generics: tuple[GenericParam, ...],
    entity: Entity,
) -> typed.GenericArgs:
    """The written arguments and the defaults of the rest."""
    written = type_.generics or ()
    name = type_.path[-1].text
    declared = [Note(f"`{name}` is declared here", entity.name.span)]
    if len(written) > len(generics):
        raise ctx.fail(
            "E2111",
            f"`{name}` takes {plural(len(generics), 'generic argument')}, found {len(written)}",
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
            listed = ", ".join(g.name for g in generics)
            raise ctx.fail(
                "E2111",
                f"`{name}` lacks its generic argument `{generic.name}`",
                type_.span,
                notes=declared,
                help=f"write `{name}<{listed}>`",
            )
        bound.bind(generic.name, value)
        result.append((generic.name, value))
    return tuple(result)


def plural(count: int, word: str) -> str:
    return f"{count or 'no'} {word}" + ("" if count == 1 else "s")


def generic_value(ctx: Context, arg: ast.GenericArg, param: GenericParam) -> GenericValue:
    """A written generic argument as what its parameter's kind asks for."""
    found = _meaning(ctx, arg)
    if param.kind == "Dim":
        if found in ("an expression", "a dimension"):
            return check_extent(ctx, arg, f"`{param.name}`")  # type: ignore[arg-type]
        raise _wrong_kind(ctx, arg, param, found)
    if param.kind == "Shape":
        return _shape_value(ctx, arg, param, found)
    if found != "a dtype":
        if isinstance(arg, ast.NameExpr) and found == "an expression":
            known = ctx.local(arg.text) or ctx.scope.find(arg.text)
            if known is None:
                raise ctx.undeclared(arg.text, arg.span, DTYPE_NAMES)
        raise _wrong_kind(ctx, arg, param, found)
    assert isinstance(arg, ast.NameExpr)
    dtype = _dtype(ctx, ast.Name(arg.text, arg.span))
    allowed = KINDS[dtype.kind] if isinstance(dtype, DTypeVar) else {dtype}
    if not allowed <= KINDS[param.kind]:
        raise ctx.fail(
            "E2112",
            f"`{param.name}` must be of kind `{param.kind}`, found {describe_dtype(dtype)}",
            arg.span,
            help=f"it can be {', '.join(f'`{d}`' for d in sorted(KINDS[param.kind]))}",
        )
    return dtype


def _meaning(ctx: Context, arg: ast.GenericArg) -> str:
    """What a generic argument looks like before it is checked."""
    match arg:
        case ast.ArrayExpr() | ast.Spread():
            return "a shape"
        case ast.NameExpr(name, _) if ctx.local(name) is None:
            if name in DTYPE_NAMES:
                return "a dtype"
            if name in ctx.generics:
                return describe_generic(ctx.generics[name])
            entity = ctx.scope.find(name)
            if entity is not None and entity.kind == "type":
                return "a dtype"
            return "an expression"
    return "an expression"


def _shape_value(
    ctx: Context, arg: ast.GenericArg, param: GenericParam, found: str
) -> tuple[typed.ShapeItem, ...]:
    if isinstance(arg, ast.Spread):
        return (pack_of(ctx, arg),)
    if not isinstance(arg, ast.ArrayExpr):
        raise _wrong_kind(ctx, arg, param, found)
    return resolve_shape(ctx, arg.items)


def _wrong_kind(ctx: Context, arg: ast.GenericArg, param: GenericParam, found: str) -> Failed:
    help = None
    if param.kind == "Shape":
        name = arg.text if isinstance(arg, ast.NameExpr) else "S"
        help = f"a shape is written `*{name}` or `[2, 3]`"
    elif found == "a dtype" or found == "a shape":
        help = "generic arguments come in the order in which they are declared"
    return ctx.fail(
        "E2111",
        f"`{param.name}` is of kind `{param.kind}`, this is "
        f"{'no dtype' if found == 'an expression' else found}",
        arg.span,
        help=help,
    )


# --- generic parameters ---------------------------------------------------------------------


def add_generics(ctx: Context, generics: tuple[GenericParam, ...]) -> None:
    """Brings generics that were declared before into scope."""
    span = Span(ctx.scope.file.span.source, 0, 0)
    for generic in generics:
        ctx.generics[generic.name] = _generic_meaning(generic, span)


def _generic_meaning(generic: GenericParam, span: Span) -> Flex | DTypeVar | Pack:
    if generic.kind == "Dim":
        return Flex(Dim.var(generic.name), span)
    return Pack(generic.name) if generic.kind == "Shape" else DTypeVar(generic.name, generic.kind)


def declare_generics(ctx: Context, generics: tuple[ast.Generic, ...]) -> tuple[GenericParam, ...]:
    """Declares generics in order: a default may use those before it."""
    params: list[GenericParam] = []
    for generic in generics:
        name, kind = generic.name, generic.kind.text
        _check_generic(ctx, generic)
        param = GenericParam(name.text, kind, None)
        if generic.default is not None:
            param = GenericParam(name.text, kind, generic_value(ctx, generic.default, param))
        params.append(param)
        ctx.generics[name.text] = _generic_meaning(param, name.span)
    return tuple(params)


def _check_generic(ctx: Context, generic: ast.Generic) -> None:
    name, kind = generic.name, generic.kind.text
    if kind not in KIND_NAMES:
        raise ctx.fail(
            "E2111",
            f"`{kind}` is no kind of generic",
            generic.kind.span,
            help=f"the kinds are {', '.join(f'`{k}`' for k in KIND_NAMES)}",
        )
    if generic.pack != (kind == "Shape"):
        right = f"{'' if generic.pack else '*'}{name.text}: {kind}"
        raise ctx.fail("E2111", f"a generic of kind `{kind}` is written `{right}`", generic.span)
    if name.text in PRELUDE:
        raise ctx.fail(
            "E1207", f"`{name.text}` is a prelude name", name.span, help="choose another name"
        )
    if name.text in ctx.generics:
        raise ctx.fail("E1205", f"the generic `{name.text}` is declared twice", name.span)


# --- where ----------------------------------------------------------------------------------


def resolve_where(
    ctx: Context, facts: tuple[ast.Fact, ...], params: tuple[ast.Param, ...] = ()
) -> tuple[tuple[typed.Fact, Span], ...]:
    """Adds a `where` clause to what the context knows.

    All of it holds at once, so that the order of its facts doesn't matter: those without a
    division come first, for the divisors of the others.
    """
    values = {param.name.text for param in params}
    known: list[tuple[typed.Fact, Span]] = []
    for fact in sorted(facts, key=lambda fact: _divides(fact.left) or _divides(fact.right)):
        _refuse_values(ctx, fact, values)
        left = check_dim(ctx, fact.left, "a side of a `where`")
        right = check_dim(ctx, fact.right, "a side of a `where`")
        known.append((typed.Fact(fact.op, left, right), fact.span))
        ctx.facts = ctx.facts.with_fact(fact.op, left, right)
    return tuple(known)


def _divides(expr: ast.Expr) -> bool:
    match expr:
        case ast.Binary(op, left, right, _, _):
            return op in ("/", "%") or _divides(left) or _divides(right)
        case ast.Unary(_, operand, _):
            return _divides(operand)
        case ast.Call(_, _, args, _):
            return any(_divides(arg.value) for arg in args)
    return False


def _refuse_values(ctx: Context, fact: ast.Fact, values: set[str]) -> None:
    """A parameter's value is known too late for a `where`."""
    pending: list[ast.Expr] = [fact.left, fact.right]
    while pending:
        match pending.pop():
            case ast.NameExpr(name, span) if name in values and name not in ctx.generics:
                raise ctx.fail(
                    "E2123",
                    f"`{name}` is a value: a `where` compares compile-time integers",
                    span,
                    help="make it a generic of kind `Dim`",
                )
            case ast.Binary(_, left, right, _, _):
                pending += [left, right]
            case ast.Unary(_, operand, _):
                pending.append(operand)
            case ast.Call(_, _, args, _):
                pending += [arg.value for arg in args]
