"""Calls: which function is meant, which generics it has here, and whether its arguments fit."""

from __future__ import annotations

from dataclasses import dataclass

from linnet.check import typed
from linnet.check.declarations import block_info, signature, struct_signature
from linnet.check.dims import Dim, Facts
from linnet.check.expressions import (
    check,
    check_dim,
    default_dtype,
    describe_generic,
    member_names,
    no_such,
    plain_block,
    require,
    typed_as,
)
from linnet.check.prelude import check_prelude
from linnet.check.scope import (
    DTYPE_NAMES,
    PRELUDE_FUNCTIONS,
    Context,
    Entity,
    Failed,
    Flex,
    Node,
    Signature,
)
from linnet.check.typed import DTypeVar, GenericValue, OptionalT, Pack, TensorT, Type
from linnet.check.types import (
    MARK,
    Binding,
    Unifier,
    dtypes_of,
    mismatch,
    show,
    show_generic,
    types_equal,
)
from linnet.diagnostics import Note, Span
from linnet.dtypes import KINDS
from linnet.syntax import ast


@dataclass(frozen=True, slots=True)
class Target:
    """What a call calls."""

    name: str
    signature: Signature
    entity: Entity
    block: typed.BlockRef | None
    given: Binding
    """What the block of a method is made of."""


def check_call(ctx: Context, expr: ast.Call, expected: Type | None) -> Node:
    callee = expr.callee
    if isinstance(callee, ast.NameExpr):
        is_local = ctx.local(callee.text) is not None
        if not is_local and callee.text in PRELUDE_FUNCTIONS and callee.text not in ctx.generics:
            return check_prelude(ctx, expr, callee.text, expected)
        if not is_local and callee.text in DTYPE_NAMES:
            raise ctx.fail(
                "E2106",
                f"`{callee.text}` is a dtype, not a function",
                callee.span,
                help=f"convert with `cast<{callee.text}>(…)`",
            )
    target = _target(ctx, expr)
    index, ctx.index = ctx.index, None  # Arguments may not vary with an index.
    try:
        args = _arrange(ctx, expr, target, index is not None and index.indices.keys())
        return _instantiate(ctx, expr, target, args, expected)
    finally:
        ctx.index = index


def _target(ctx: Context, expr: ast.Call) -> Target:
    callee = expr.callee
    if isinstance(callee, ast.Field):
        found = plain_block(ctx, callee.base)
        if found is None:
            node = check(ctx, callee.base)
            raise ctx.fail(
                "E2106", f"`{show(node.type)}` has no methods: only a block has", callee.span
            )
        ref, block = found
        info = block_info(ctx.checker, block.key)
        entity = info.scope.items.get(callee.name.text)
        if entity is None or entity.kind != "function":
            if callee.name.text in info.members:
                raise ctx.fail(
                    "E2106", f"`{callee.name.text}` is a member, not a method", callee.name.span
                )
            raise no_such(
                ctx, callee.name.text, callee.name.span, show(block), member_names(ctx, block)
            )
        given = Binding.of(dict(block.generics))
        return Target(
            callee.name.text, signature(ctx.checker, entity), entity, ref, given
        )
    if not isinstance(callee, ast.NameExpr):
        raise ctx.fail("E2106", "this is no function", callee.span)
    name = callee.text
    not_a_function = ctx.local(name) or ctx.generics.get(name)
    if ctx.block is not None and name in ctx.block.members:
        not_a_function = not_a_function or ctx.block.members[name]
    if not_a_function:
        raise ctx.fail("E2106", f"`{name}` is no function", callee.span, help=_call_help(ctx, name))
    entity = ctx.scope.find(name)
    if entity is None:
        raise ctx.undeclared(name, callee.span)
    if entity.kind == "struct":
        return Target(name, struct_signature(ctx.checker, entity), entity, None, Binding())
    if entity.kind != "function":
        help = f"declare a child: `sub x: {name}<…>`, then call `x.forward(…)`"
        raise ctx.fail(
            "E2106",
            f"`{name}` is a {entity.kind}, not a function",
            callee.span,
            help=help if entity.kind == "block" else None,
        )
    is_own = ctx.block is not None and entity.scope is ctx.block.scope
    block = typed.SelfBlock() if is_own else None
    return Target(name, signature(ctx.checker, entity), entity, block, Binding())


def _call_help(ctx: Context, name: str) -> str | None:
    if ctx.block is not None and name in ctx.block.members:
        member = ctx.block.members[name]
        if member.kind == "sub":
            return f"call one of its methods: `{name}.forward(…)`"
    return None


# --- arguments ------------------------------------------------------------------------------


def _arrange(
    ctx: Context, expr: ast.Call, target: Target, indices: object
) -> list[ast.Arg | None]:
    """The written arguments in the order of the parameters; None where a default serves."""
    params = target.signature.params
    by_name = {p.name: i for i, p in enumerate(params)}
    slots: list[ast.Arg | None] = [None] * len(params)
    position = 0
    named = False
    for arg in expr.args:
        if arg.name is not None:
            named = True
            at = by_name.get(arg.name.text)
            if at is None:
                known = ", ".join(f"`{p}`" for p in by_name)
                raise ctx.fail(
                    "E2102",
                    f"`{target.name}` has no parameter `{arg.name.text}`",
                    arg.name.span,
                    help=f"it has {known}" if known else "it has none",
                )
        else:
            if named:
                raise ctx.fail(
                    "E2102", "a positional argument after one by keyword", arg.span
                )
            at, position = position, position + 1
            if at >= len(params):
                raise ctx.fail(
                    "E2102",
                    f"`{target.name}` takes {_plural(len(params), 'argument')}, "
                    f"found {len(expr.args)}",
                    arg.span,
                    notes=[_declared(target)],
                )
        if slots[at] is not None:
            raise ctx.fail(
                "E2102", f"the argument `{params[at].name}` is given twice", arg.span
            )
        slots[at] = arg
    missing = [
        p.name
        for p, slot in zip(params, slots, strict=True)
        if slot is None and (p.default is None or target.entity.kind == "struct")
    ]
    if missing:
        what = "field" if target.entity.kind == "struct" else "argument"
        listed = ", ".join(f"`{m}`" for m in missing)
        raise ctx.fail(
            "E2102",
            f"`{target.name}` lacks the {what}{'s' if len(missing) > 1 else ''} {listed}",
            expr.span,
            notes=[_declared(target)],
        )
    if indices:
        for arg in expr.args:
            _refuse_indices(ctx, arg.value, indices, target.name)
    return slots


def _refuse_indices(ctx: Context, expr: ast.Expr, indices: object, name: str) -> None:
    for index in names_in(expr):
        if index.text in indices:  # type: ignore[operator]
            raise ctx.fail(
                "E3104",
                f"an argument of `{name}` varies with the index `{index.text}`",
                index.span,
                help="in index notation only operators and the prelude's functions go element "
                "by element: call it on the whole tensor, then index the result",
            )


def names_in(expr: object) -> list[ast.NameExpr]:
    """Every name in an expression."""
    found: list[ast.NameExpr] = []
    pending = [expr]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.NameExpr):
            found.append(node)
        elif isinstance(node, tuple):
            pending.extend(node)
        elif hasattr(node, "__dataclass_fields__") and not isinstance(node, Span):
            pending.extend(getattr(node, f) for f in node.__dataclass_fields__)
    return found


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")


def _declared(target: Target) -> Note:
    name = target.entity.name
    return Note(f"`{target.name}` is declared here", name.span)


# --- generics -------------------------------------------------------------------------------


def _instantiate(
    ctx: Context,
    expr: ast.Call,
    target: Target,
    args: list[ast.Arg | None],
    expected: Type | None,
) -> Node:
    signature = target.signature
    marked = Binding(dict(target.given.dims), dict(target.given.dtypes), dict(target.given.packs))
    for generic in signature.generics:
        marked.bind(generic.name, _unknown(generic))
    unifier = Unifier(ctx.facts)
    _bind_written(ctx, expr, target, unifier)
    nodes: list[Node | None] = []
    for param, arg in zip(signature.params, args, strict=True):
        if arg is None:
            nodes.append(None)
            continue
        pattern = unifier.binding.type(marked.type(param.type))
        node = check(ctx, arg.value, _hint(pattern))
        nodes.append(node)
        if isinstance(node, Flex):
            continue
        is_open_none = isinstance(node, typed.NoneValue) and node.type == pattern
        if not is_open_none and not unifier.unify(pattern, node.type):
            require_fits(ctx, node, unifier.binding.type(pattern), param.name, target)
    names = frozenset(
        g.name + MARK for g in signature.generics if g.kind == "Dim"
    )
    unifier.finish(names)
    _default_numbers(ctx, signature, nodes, unifier, marked)
    if expected is not None and signature.result is not None:
        _from_result(unifier, marked.type(signature.result), expected, names)
    generics = _settle(ctx, expr, target, unifier)
    final = Binding(dict(target.given.dims), dict(target.given.dtypes), dict(target.given.packs))
    for name, value in generics:
        final.bind(name, value)
    values = _fit(ctx, target, nodes, final)
    for fact, _span in signature.where:
        _prove(ctx, fact, final, expr.span, target)
    if target.entity.kind == "struct":
        type_ = final.type(signature.result) if signature.result else None
        assert isinstance(type_, typed.StructT)
        return typed.MakeTuple(tuple(values), type_, expr.span)
    if signature.result is None:
        raise ctx.fail(
            "E2101", f"`{target.name}` gives nothing back", expr.span, notes=[_declared(target)]
        )
    ctx.calls.setdefault(target.entity.key, expr.span)
    return typed.Call(
        target.entity.key,
        target.block,
        generics,
        tuple(values),
        final.type(signature.result),
        expr.span,
    )


def _unknown(generic: typed.GenericParam) -> GenericValue:
    name = generic.name + MARK
    if generic.kind == "Dim":
        return Dim.var(name)
    return (Pack(name),) if generic.kind == "Shape" else DTypeVar(name, generic.kind)


def _hint(pattern: Type) -> Type | None:
    """A parameter's type as a hint for its argument: nothing while its dtype is unknown."""
    match pattern:
        case TensorT(_, DTypeVar(name, _)) if name.endswith(MARK):
            return None
        case _:
            return pattern


def _bind_written(ctx: Context, expr: ast.Call, target: Target, unifier: Unifier) -> None:
    if expr.generics is None:
        return
    params = target.signature.generics
    if len(expr.generics) > len(params):
        raise ctx.fail(
            "E2111",
            f"`{target.name}` takes {_plural(len(params), 'generic argument')}, "
            f"found {len(expr.generics)}",
            expr.span,
            notes=[_declared(target)],
        )
    for param, arg in zip(params, expr.generics, strict=False):
        unifier.binding.bind(param.name + MARK, generic_value(ctx, arg, param))


def generic_value(
    ctx: Context, arg: ast.GenericArg, param: typed.GenericParam
) -> GenericValue:
    """A written generic argument as what its parameter's kind asks for."""
    if param.kind == "Dim":
        if isinstance(arg, ast.NameExpr) and arg.text in DTYPE_NAMES:
            raise _wrong_kind(ctx, arg, param, "a dtype")
        if isinstance(arg, ast.NameExpr) and isinstance(ctx.generics.get(arg.text), DTypeVar | Pack):
            raise _wrong_kind(ctx, arg, param, describe_generic(ctx.generics[arg.text]))
        if isinstance(arg, ast.ArrayExpr | ast.Spread):
            raise _wrong_kind(ctx, arg, param, "a shape")
        return check_dim(ctx, arg, f"`{param.name}`")  # type: ignore[arg-type]
    if param.kind == "Shape":
        return _shape_value(ctx, arg, param)
    if isinstance(arg, ast.NameExpr):
        if arg.text in DTYPE_NAMES:
            dtype = DTYPE_NAMES[arg.text]
            if dtype not in KINDS[param.kind]:
                raise ctx.fail(
                    "E2112", f"`{param.name}` must be of kind `{param.kind}`, `{dtype}` is not",
                    arg.span,
                )  # fmt: skip
            return dtype
        generic = ctx.generics.get(arg.text)
        if isinstance(generic, DTypeVar):
            if not KINDS[generic.kind] <= KINDS[param.kind]:
                raise ctx.fail(
                    "E2112",
                    f"`{param.name}` must be of kind `{param.kind}`, `{generic}` is "
                    f"`{generic.kind}`",
                    arg.span,
                )
            return generic
        if generic is None and ctx.local(arg.text) is None and ctx.scope.find(arg.text) is None:
            raise ctx.undeclared(arg.text, arg.span, DTYPE_NAMES)
    raise _wrong_kind(ctx, arg, param, "no dtype")


def _shape_value(
    ctx: Context, arg: ast.GenericArg, param: typed.GenericParam
) -> GenericValue:
    items = arg.items if isinstance(arg, ast.ArrayExpr) else (arg,)
    shape: list[typed.ShapeItem] = []
    for item in items:
        if isinstance(item, ast.Spread):
            pack = ctx.generics.get(item.name.text)
            if not isinstance(pack, Pack):
                raise ctx.fail(
                    "E3106", f"`{item.name.text}` is no pack of dimensions", item.span
                )
            shape.append(pack)
        elif isinstance(arg, ast.ArrayExpr):
            shape.append(check_dim(ctx, item, "a dimension"))  # type: ignore[arg-type]
        else:
            raise _wrong_kind(ctx, arg, param, "no shape")
    return tuple(shape)


def _wrong_kind(
    ctx: Context, arg: ast.GenericArg, param: typed.GenericParam, found: str
) -> Failed:
    return ctx.fail(
        "E2111", f"`{param.name}` is a `{param.kind}`; this is {found}", arg.span
    )


def _default_numbers(
    ctx: Context,
    signature: Signature,
    nodes: list[Node | None],
    unifier: Unifier,
    marked: Binding,
) -> None:
    """A number whose parameter's dtype nothing else settles brings its default dtype."""
    for param, node in zip(signature.params, nodes, strict=True):
        if isinstance(node, Flex) and isinstance(param.type, TensorT):
            dtype = marked.dtype(param.type.dtype)
            if isinstance(dtype, DTypeVar) and dtype.name.endswith(MARK):
                unifier.binding.dtypes.setdefault(dtype.name, default_dtype(node))


def _from_result(
    unifier: Unifier, result: Type, expected: Type, names: frozenset[str]
) -> None:
    """What is still unknown may follow from where the result goes; a misfit is found later."""
    trial = Unifier(unifier.facts)
    if trial.unify(unifier.binding.type(result), expected):
        trial.finish(names - unifier.binding.dims.keys())
        for name, dim in trial.binding.dims.items():
            unifier.binding.dims.setdefault(name, dim)
        for name, dtype in trial.binding.dtypes.items():
            unifier.binding.dtypes.setdefault(name, dtype)
        for name, pack in trial.binding.packs.items():
            unifier.binding.packs.setdefault(name, pack)


def _settle(
    ctx: Context, expr: ast.Call, target: Target, unifier: Unifier
) -> typed.GenericArgs:
    settled: list[tuple[str, GenericValue]] = []
    so_far = Binding(dict(target.given.dims), dict(target.given.dtypes), dict(target.given.packs))
    for generic in target.signature.generics:
        value = unifier.binding.get(generic.name + MARK)
        if value is None and generic.default is not None:
            value = so_far.generic(generic.default)
        if value is None:
            raise ctx.fail(
                "E2110",
                f"`{generic.name}` of `{target.name}` can't be inferred from the arguments",
                expr.span,
                notes=[_declared(target)],
                help=f"write it: `{target.name}<{_written(target, unifier)}>(…)`",
            )
        if isinstance(value, DTypeVar) or not isinstance(value, Dim | tuple):
            if not dtypes_of(value) <= KINDS[generic.kind]:
                raise ctx.fail(
                    "E2112",
                    f"`{generic.name}` of `{target.name}` must be of kind `{generic.kind}`, "
                    f"found `{value}`",
                    expr.span,
                    notes=[_declared(target)],
                )
        elif isinstance(value, Dim) and not ctx.facts.nonnegative(value):
            raise ctx.fail(
                "E2208",
                f"`{generic.name}` of `{target.name}` would be `{value}`, which is not proven "
                "to be at least 0",
                expr.span,
                help=f"add `where {value} >= 0`" if value.constant is None else None,
            )
        settled.append((generic.name, value))
        so_far.bind(generic.name, value)
    return tuple(settled)


def _written(target: Target, unifier: Unifier) -> str:
    parts = []
    for generic in target.signature.generics:
        value = unifier.binding.get(generic.name + MARK)
        parts.append(generic.name if value is None else show_generic(value))
    return ", ".join(parts)


def _fit(
    ctx: Context, target: Target, nodes: list[Node | None], final: Binding
) -> list[typed.Expr]:
    """The arguments as values of just their parameters' types, defaults filled in."""
    values: list[typed.Expr] = []
    for param, node in zip(target.signature.params, nodes, strict=True):
        if node is None:
            assert param.default is not None
            values.append(final.constant(param.default))
            continue
        expected = final.type(param.type)
        if isinstance(node, Flex):
            if not isinstance(expected, TensorT):
                raise ctx.fail(
                    "E2101",
                    f"the argument `{param.name}` of `{target.name}` must be `{show(expected)}`, "
                    f"found `{show(node.type)}`",
                    node.span,
                )
            node = typed_as(ctx, node, expected.dtype)
        if isinstance(node, typed.NoneValue) and isinstance(expected, OptionalT):
            node = typed.NoneValue(expected, node.span)
        require_fits(ctx, node, expected, param.name, target)
        values.append(node)
    return values


def require_fits(
    ctx: Context, node: typed.Expr, expected: Type, name: str, target: Target
) -> None:
    """Like `require`, with where the callee is declared and its generics under their own names."""
    if types_equal(node.type, expected, ctx.facts):
        return
    shown = show(expected)
    if MARK not in shown:
        require(ctx, node, expected, f"the argument `{name}` of `{target.name}`")
    shown = shown.replace(MARK, "")
    raise ctx.fail(
        mismatch(expected, node.type),
        f"the argument `{name}` of `{target.name}` must be `{shown}`, found `{show(node.type)}`",
        node.span,
        notes=[_declared(target)],
    )


def _prove(
    ctx: Context, fact: typed.Fact, binding: Binding, span: Span, target: Target
) -> None:
    left, right = binding.dim(fact.left), binding.dim(fact.right)
    if ctx.facts.proves(fact.op, left, right):
        return
    raise ctx.fail(
        "E2206",
        not_proven(ctx.facts, fact, left, right, f"`{target.name}`"),
        span,
        notes=[_declared(target)],
        help=_where_help(left, fact.op, right),
    )


def not_proven(facts: Facts, fact: typed.Fact, left: Dim, right: Dim, who: str) -> str:
    """The message for a `where` that a use doesn't fulfil: false here, or not known to be true."""
    wanted = f"{fact.left} {fact.op} {fact.right}"
    here = f"{left} {fact.op} {right}"
    is_false = facts.refutes(fact.op, left, right)
    as_here = f", here `{here}`," if here != wanted else ","
    return f"{who} requires `{wanted}`{as_here} which is {'false' if is_false else 'not proven'}"


def _where_help(left: Dim, op: str, right: Dim) -> str | None:
    if left.constant is not None and right.constant is not None:
        return None
    return f"add `where {left} {op} {right}`"
