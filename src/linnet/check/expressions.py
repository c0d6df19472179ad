"""Expressions outside of calls: names, literals, operators, slices, branches.

`check(ctx, expr, expected)` gives a typed node. A number without a type comes back as `Flex`;
`typed_as` gives it one. `expected` is a hint that literals, `none` and branches take their type
from; whether the result fits is the caller's question (`require`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from linnet.check import typed
from linnet.check.dims import Dim, compare
from linnet.check.scope import DTYPE_NAMES, KIND_NAMES, Context, Entity, Failed, Flex, Node
from linnet.check.types import (
    BOOL,
    NotBroadcast,
    broadcast,
    dtypes_of,
    mismatch,
    show,
    show_shape,
    types_equal,
)
from linnet.check.typed import AnyDType, DTypeVar, OptionalT, Pack, Shape, TensorT, Type
from linnet.diagnostics import Note, Span
from linnet.dtypes import DType
from linnet.syntax import ast

F_MAX = {DType.F16: 65504.0, DType.BF16: 3.3895313892515355e38, DType.F32: 3.4028234663852886e38}


def check(ctx: Context, expr: ast.Expr, expected: Type | None = None) -> Node:
    """The typed node of an expression; raises `Failed` after reporting."""
    return _CHECK[type(expr)](ctx, expr, expected)


def check_value(ctx: Context, expr: ast.Expr, expected: Type | None = None) -> typed.Expr:
    """The same with a type for certain: a number without one takes `expected`'s or its default."""
    node = check(ctx, expr, expected)
    if not isinstance(node, Flex):
        return node
    dtype = expected.dtype if isinstance(expected, TensorT) else None
    return typed_as(ctx, node, dtype or default_dtype(node))


def check_as(ctx: Context, expr: ast.Expr, expected: Type, what: str) -> typed.Expr:
    """A value of just the expected type, or E2101, E2103 or E2202 that says what it was for."""
    node = check_value(ctx, expr, expected)
    require(ctx, node, expected, what)
    return node


def require(ctx: Context, node: typed.Expr, expected: Type, what: str) -> None:
    if types_equal(node.type, expected, ctx.facts):
        return
    help = None
    found = node.type
    if isinstance(expected, OptionalT) and types_equal(expected.inner, found, ctx.facts):
        help = f"wrap it: `some({node.span.text})`"
    elif isinstance(expected, TensorT) and isinstance(found, TensorT):
        if expected.dtype != found.dtype:
            help = f"convert it: `cast<{expected.dtype}>({node.span.text})`"
    elif isinstance(found, OptionalT):
        help = "take it apart: `match … { some(x) => …, none => … }`"
    raise ctx.fail(
        mismatch(expected, found),
        f"{what} must be `{show(expected)}`, found `{show(found)}`",
        node.span,
        help=help,
    )


def check_dim(ctx: Context, expr: ast.Expr, what: str) -> Dim:
    """A compile-time integer; E2123 for anything else."""
    index, ctx.index = ctx.index, None
    try:
        node = check(ctx, expr)
    finally:
        ctx.index = index
    if isinstance(node, Flex) and isinstance(node.value, Dim):
        return node.value
    raise ctx.fail(
        "E2123",
        f"{what} must be a compile-time integer, found `{show(node.type)}`",
        expr.span,
        help="dimensions are made of literals, `Dim` generics and integer constants",
    )


# --- numbers --------------------------------------------------------------------------------


def default_dtype(node: Flex) -> AnyDType:
    return DType.I64 if isinstance(node.value, Dim) else DType.F64


def typed_as(ctx: Context, node: Flex, dtype: AnyDType) -> typed.Expr:
    """A number as a scalar of a dtype, which must be able to hold it (E2105)."""
    value, type_ = node.value, TensorT((), dtype)
    allowed = dtypes_of(dtype)
    if isinstance(value, float):
        if not all(d.is_float for d in allowed):
            raise ctx.fail(
                "E2105", f"a float literal can't be `{dtype}`", node.span, help=_float_help(value)
            )
        limit = min(F_MAX.get(d, math.inf) for d in allowed) if len(allowed) == 1 else math.inf
        if abs(value) > limit:
            raise ctx.fail("E2105", f"`{dtype}` holds at most {limit:g}", node.span)
        return typed.Literal(value, type_, node.span)
    if DType.BOOL in allowed:
        raise ctx.fail(
            "E2105", f"an integer can't be `{dtype}`", node.span, help="use `true` or `false`"
        )
    number = value.constant
    if number is None:
        return typed.DimValue(value, type_, node.span)
    for candidate in allowed:
        if candidate.is_integer and (len(allowed) == 1 or isinstance(dtype, DTypeVar)):
            low, high = candidate.integer_range
            if not low <= number <= high:
                raise ctx.fail(
                    "E2105", f"`{dtype}` can't hold {number}: {candidate} is {low} to {high}",
                    node.span,
                )  # fmt: skip
    if all(d.is_float for d in allowed):
        limit = min(F_MAX.get(d, math.inf) for d in allowed) if len(allowed) == 1 else math.inf
        if abs(number) > limit:
            raise ctx.fail("E2105", f"`{dtype}` holds at most {limit:g}", node.span)
        return typed.Literal(float(number), type_, node.span)
    return typed.Literal(number, type_, node.span)


def _float_help(value: float) -> str | None:
    return f"write `{int(value)}`" if math.isfinite(value) and value == int(value) else None


def _int(ctx: Context, expr: ast.IntLiteral, expected: Type | None) -> Node:
    if expr.value >= 1 << 63:
        raise ctx.fail("E2105", "an integer beyond the range of `i64`", expr.span)
    return Flex(Dim.const(expr.value), expr.span)


def _float(ctx: Context, expr: ast.FloatLiteral, expected: Type | None) -> Node:
    return Flex(expr.value, expr.span)


def _bool(ctx: Context, expr: ast.BoolLiteral, expected: Type | None) -> Node:
    return typed.Literal(expr.value, BOOL, expr.span)


def _string(ctx: Context, expr: ast.StringLiteral, expected: Type | None) -> Node:
    raise ctx.fail("E2101", "text is no value here: tensors hold numbers", expr.span)


def _error(ctx: Context, expr: ast.ErrorExpr, expected: Type | None) -> Node:
    raise Failed


# --- names ----------------------------------------------------------------------------------


def _name(ctx: Context, expr: ast.NameExpr, expected: Type | None) -> Node:
    name, span = expr.text, expr.span
    if ctx.index is not None and name in ctx.index.indices:
        index = ctx.index.indices[name]
        raise ctx.fail(
            "E3104",
            f"the index `{name}` is not a value by itself",
            span,
            help=f"`iota({index.extent if isinstance(index.extent, Dim) else 'N'})[{name}]` is "
            "its position",
        )
    local = ctx.local(name)
    if local is not None:
        local.used = True
        if local.block is not None:
            raise _block_is_no_value(ctx, name, span)
        if local.node is None:
            raise Failed
        if isinstance(local.node, Flex):
            return Flex(local.node.value, span)
        assert isinstance(local.node, typed.Local)
        return typed.Local(local.node.name, local.node.type, span)
    generic = ctx.generics.get(name)
    if generic is not None:
        if isinstance(generic, Flex):
            return Flex(generic.value, span)
        raise ctx.fail("E1208", f"`{name}` is {describe_generic(generic)}, not a value", span)
    if ctx.block is not None and name in ctx.block.members:
        return read_member(ctx, typed.SelfBlock(), ctx.block.members[name], span)
    if name in DTYPE_NAMES or name in KIND_NAMES or name == "Tensor":
        raise ctx.fail("E1208", f"`{name}` is a type, not a value", span)
    entity = ctx.scope.find(name)
    if entity is None:
        raise ctx.undeclared(name, span)
    if entity.kind == "const":
        from linnet.check.declarations import constant

        return constant(ctx.checker, entity, span)
    articles = {"type": "a type", "struct": "a struct", "enum": "an enum", "block": "a block"}
    what = articles.get(entity.kind, "a function")
    help = f"call it: `{name}(…)`" if entity.kind in ("function", "struct") else None
    raise ctx.fail("E1208", f"`{name}` is {what}, not a value", span, help=help)


def describe_generic(generic: Flex | DTypeVar | Pack) -> str:
    if isinstance(generic, DTypeVar):
        return "a dtype"
    return "a dimension" if isinstance(generic, Flex) else "a pack of dimensions"


def _block_is_no_value(ctx: Context, name: str, span: Span) -> Failed:
    return ctx.fail(
        "E1208", f"the block `{name}` is not a value", span, help=f"call `{name}.forward(…)`"
    )


def read_member(
    ctx: Context, block: typed.BlockRef, member: typed.Member, span: Span
) -> typed.MemberRead:
    if isinstance(block, typed.SelfBlock):
        ctx.used_members.add(member.name)
    if member.kind == "sub":
        raise _block_is_no_value(ctx, member.name, span)
    if member.kind == "state" and not isinstance(block, typed.SelfBlock):
        raise ctx.fail(
            "E2107",
            f"the state `{member.name}` belongs to its block alone",
            span,
            help="read it in a method of that block",
        )
    type_ = OptionalT(member.type) if member.optional else member.type
    return typed.MemberRead(block, member.name, type_, span)


def resolve_block(
    ctx: Context, expr: ast.Expr
) -> tuple[typed.BlockRef, typed.BlockT | typed.ArrayT, bool] | None:
    """What a sub-block expression (`layers[0].mlp`) names and whether it is optional.

    None where the expression names no block.
    """
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
            return _sub_of(ctx, typed.SelfBlock(), ctx.block.members.get(name))
        case ast.Index(base, (component,), span):
            found = resolve_block(ctx, base)
            if found is None or not isinstance(found[1], typed.ArrayT):
                return None
            ref, array, optional = found
            if isinstance(component, ast.EllipsisMark | ast.SliceRange):
                raise ctx.fail("E2209", "an array of blocks takes one index", span)
            at = check_dim(ctx, component, "the index of a block")
            if not (ctx.facts.nonnegative(at) and ctx.facts.proves("<", at, array.count)):
                raise ctx.fail(
                    "E2209", f"`{at}` is not proven to be below `{array.count}`", component.span
                )
            assert isinstance(ref, typed.SubBlock)
            return typed.SubBlock(ref.base, ref.name, at), array.item, optional
        case ast.Field(base, name, _):
            found = resolve_block(ctx, base)
            if found is None or not isinstance(found[1], typed.BlockT):
                return None
            ref, block, optional = found
            member = member_of(ctx, block, name.text)
            if member is None or member.kind != "sub":
                return None
            if optional:
                raise _is_optional(ctx, base.span)
            return _sub_of(ctx, ref, member)
    return None


def _sub_of(
    ctx: Context, base: typed.BlockRef, member: typed.Member | None
) -> tuple[typed.BlockRef, typed.BlockT | typed.ArrayT, bool] | None:
    if member is None or member.kind != "sub":
        return None
    if isinstance(base, typed.SelfBlock):
        ctx.used_members.add(member.name)
    assert isinstance(member.type, typed.BlockT | typed.ArrayT)
    return typed.SubBlock(base, member.name, None), member.type, member.optional


def _is_optional(ctx: Context, span: Span) -> Failed:
    return ctx.fail(
        "E2101",
        f"`{span.text}` may be absent",
        span,
        help=f"`match {span.text} {{ some(x) => …, none => … }}`",
    )


def plain_block(
    ctx: Context, expr: ast.Expr
) -> tuple[typed.BlockRef, typed.BlockT] | None:
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


def member_of(ctx: Context, block: typed.BlockT, name: str) -> typed.Member | None:
    """A block's member with the block's generics filled in."""
    from linnet.check.declarations import block_info
    from linnet.check.types import Binding

    info = block_info(ctx.checker, block.key)
    member = info.members.get(name)
    if member is None:
        if name in ctx.checker.bad_members.get(block.key, ()):
            raise Failed
        return None
    ctx.checker.outside_members.setdefault(block.key, set()).add(name)
    type_ = Binding.of(dict(block.generics)).type(member.type)
    return typed.Member(
        member.kind, member.name, type_, member.optional, member.doc, member.span
    )


def _field(ctx: Context, expr: ast.Field, expected: Type | None) -> Node:
    name = expr.name.text
    if isinstance(expr.base, ast.NameExpr) and ctx.local(expr.base.text) is None:
        entity = _plain_item(ctx, expr.base.text)
        if entity is not None and entity.kind == "enum":
            return _variant(ctx, entity, expr)
        if entity is not None and entity.kind in ("block", "struct", "type"):
            raise ctx.fail(
                "E2107", f"`{expr.base.text}` is a type: it has no `{name}`", expr.name.span
            )
    block = plain_block(ctx, expr.base)
    if block is not None:
        ref, type_ = block
        member = member_of(ctx, type_, name)
        if member is None:
            raise no_such(ctx, name, expr.name.span, show(type_), member_names(ctx, type_))
        return read_member(ctx, ref, member, expr.span)
    base = check_value(ctx, expr.base)
    if isinstance(base.type, typed.StructT):
        for position, (field, type_) in enumerate(base.type.fields):
            if field == name:
                return typed.GetField(base, position, type_, expr.span)
        fields = [field for field, _ in base.type.fields]
        raise no_such(ctx, name, expr.name.span, show(base.type), fields)
    raise ctx.fail("E2107", f"`{show(base.type)}` has no field `{name}`", expr.name.span)


def _plain_item(ctx: Context, name: str) -> Entity | None:
    if name in ctx.generics or (ctx.block is not None and name in ctx.block.members):
        return None
    return ctx.scope.find(name)


def _variant(ctx: Context, entity: Entity, expr: ast.Field) -> Node:
    from linnet.check.declarations import enum_type

    type_ = enum_type(entity)
    if expr.name.text not in type_.variants:
        raise no_such(ctx, expr.name.text, expr.name.span, show(type_), list(type_.variants))
    return typed.EnumValue(type_.variants.index(expr.name.text), type_, expr.span)


def member_names(ctx: Context, block: typed.BlockT) -> list[str]:
    from linnet.check.declarations import block_info

    info = block_info(ctx.checker, block.key)
    return [*info.members, *(n for n, e in info.scope.items.items() if e.kind == "function")]


def no_such(ctx: Context, name: str, span: Span, where: str, names: list[str]) -> Failed:
    known = ", ".join(f"`{n}`" for n in names)
    return ctx.fail(
        "E2107", f"`{where}` has no `{name}`", span, help=f"it has {known}" if known else None
    )


# --- operators ------------------------------------------------------------------------------

ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem"}
COMPARISON = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
BITWISE = {"&": "and", "|": "or", "^": "xor"}
LOGICAL = {"&&": "and", "||": "or"}


def _unary(ctx: Context, expr: ast.Unary, expected: Type | None) -> Node:
    node = check(ctx, expr.operand, expected)
    if isinstance(node, Flex):
        if expr.op == "!":
            raise ctx.fail("E2116", "`!` is for `bool`", expr.span)
        return Flex(node.value if expr.op == "+" else -node.value, expr.span)
    dtype = tensor(ctx, node, f"`{expr.op}`").dtype
    if expr.op == "!":
        scalar = ctx.index is not None or node.type == BOOL
        if dtype != DType.BOOL or not scalar:
            raise ctx.fail(
                "E2116",
                f"`!` takes a scalar `bool`, found `{show(node.type)}`",
                expr.span,
                help="on a tensor of `bool`, use `x ^ true`" if dtype == DType.BOOL else None,
            )
        return typed.Prim("not", (node,), (), BOOL, expr.span)
    if DType.BOOL in dtypes_of(dtype):
        raise _unsupported(ctx, expr.op, dtype, expr.span)
    if expr.op == "+":
        return node
    return typed.Prim("neg", (node,), (), _tensor_type(node), expr.span)


def _tensor_type(node: typed.Expr) -> TensorT:
    assert isinstance(node.type, TensorT)
    return node.type


def tensor(ctx: Context, node: typed.Expr, what: str) -> TensorT:
    """The node's tensor type, or E2101."""
    if isinstance(node.type, TensorT):
        return node.type
    help = None
    if isinstance(node.type, OptionalT):
        help = "take it apart: `match … { some(x) => …, none => … }`"
    raise ctx.fail(
        "E2101", f"{what} takes tensors, found `{show(node.type)}`", node.span, help=help
    )


def _unsupported(ctx: Context, op: str, dtype: AnyDType, span: Span) -> Failed:
    help = None
    if isinstance(dtype, DTypeVar) and dtype.kind in ("DType", "Numeric"):
        help = f"narrow the generic: `{dtype.name}: {'Numeric' if dtype.kind == 'DType' else 'Float'}`"
    return ctx.fail("E2104", f"`{op}` is not defined for `{dtype}`", span, help=help)


def _binary(ctx: Context, expr: ast.Binary, expected: Type | None) -> Node:
    if expr.op in LOGICAL:
        return _logical(ctx, expr)
    hint = expected if expr.op in ARITHMETIC or expr.op in BITWISE else None
    left = check(ctx, expr.left, hint)
    right = check(ctx, expr.right, hint)
    if isinstance(left, Flex) and isinstance(right, Flex):
        return _fold(ctx, expr, left, right, hint)
    if isinstance(left, Flex):
        assert not isinstance(right, Flex)
        left = typed_as(ctx, left, tensor(ctx, right, f"`{expr.op}`").dtype)
    elif isinstance(right, Flex):
        right = typed_as(ctx, right, tensor(ctx, left, f"`{expr.op}`").dtype)
    assert not isinstance(right, Flex)
    if expr.op in ("==", "!=") and isinstance(left.type, typed.EnumT):
        raise ctx.fail("E2104", "an enum is compared by `match`", expr.span)
    return elementwise(ctx, expr.op, left, right, expr.span)


def elementwise(
    ctx: Context, op: str, left: typed.Expr, right: typed.Expr, span: Span
) -> typed.Expr:
    """An arithmetic, bitwise or comparing operator on two tensors, broadcast."""
    a, b = tensor(ctx, left, f"`{op}`"), tensor(ctx, right, f"`{op}`")
    if a.dtype != b.dtype:
        raise ctx.fail(
            "E2103",
            f"`{op}` takes one dtype, found `{a.dtype}` and `{b.dtype}`",
            span,
            notes=[
                Note(f"this is `{show(a)}`", left.span),
                Note(f"this is `{show(b)}`", right.span),
            ],
            help=f"nothing is converted by itself: `cast<{a.dtype}>({right.span.text})`",
        )
    allowed = dtypes_of(a.dtype)
    is_bool = DType.BOOL in allowed
    if op in BITWISE:
        bad = any(d.is_float for d in allowed)
    elif op == "%" or op in ("shl", "shr"):
        bad = is_bool or any(d.is_float for d in allowed)
    else:
        bad = is_bool and op not in ("==", "!=")
    if bad:
        raise _unsupported(ctx, op, a.dtype, span)
    shape = broadcast_or_fail(ctx, a.shape, b.shape, span, (left, right))
    name = {**ARITHMETIC, **COMPARISON, **BITWISE}.get(op, op)
    dtype = DType.BOOL if op in COMPARISON else a.dtype
    return typed.Prim(name, (left, right), (), TensorT(shape, dtype), span)


def broadcast_or_fail(
    ctx: Context, a: Shape, b: Shape, span: Span, sides: tuple[typed.Expr, typed.Expr]
) -> Shape:
    try:
        return broadcast(a, b, ctx.facts)
    except NotBroadcast as error:
        raise ctx.fail(
            "E2207",
            f"`{show_shape(a)}` and `{show_shape(b)}` do not broadcast: `{error.left}` and "
            f"`{error.right}` are not proven equal, and neither is 1",
            span,
            notes=[
                Note(f"this is `{show(sides[0].type)}`", sides[0].span),
                Note(f"this is `{show(sides[1].type)}`", sides[1].span),
            ],
        ) from None


def _fold(
    ctx: Context, expr: ast.Binary, left: Flex, right: Flex, expected: Type | None
) -> Node:
    """An operator on two numbers that have no type yet."""
    a, b = left.value, right.value
    op = expr.op
    if isinstance(a, Dim) and isinstance(b, Dim):
        if op in ("/", "%") and not ctx.facts.positive(b):
            raise ctx.fail(
                "E2205",
                f"the divisor `{b}` is not proven to be positive",
                expr.right.span,
                help=f"add `where {b} > 0`" if b.constant is None else None,
            )
        if op in ARITHMETIC:
            result = {
                "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b,
                "/": lambda: a // b, "%": lambda: a % b,
            }[op]()  # fmt: skip
            return Flex(result, expr.span)
        if op in COMPARISON:
            if ctx.facts.proves(op, a, b):
                return typed.Literal(True, BOOL, expr.span)
            if ctx.facts.refutes(op, a, b):
                return typed.Literal(False, BOOL, expr.span)
            return typed.DimCompare(op, a, b, BOOL, expr.span)
        if a.constant is not None and b.constant is not None:
            fold = {"&": int.__and__, "|": int.__or__, "^": int.__xor__}[op]
            return Flex(Dim.const(fold(a.constant, b.constant)), expr.span)
        dtype: AnyDType = expected.dtype if isinstance(expected, TensorT) else DType.I64
        return elementwise(
            ctx, op, typed_as(ctx, left, dtype), typed_as(ctx, right, dtype), expr.span
        )
    x = a.constant if isinstance(a, Dim) else a
    y = b.constant if isinstance(b, Dim) else b
    if x is None or y is None or op not in ("+", "-", "*", "/") or (op == "/" and y == 0):
        dtype = expected.dtype if isinstance(expected, TensorT) else DType.F64
        return elementwise(
            ctx, op, typed_as(ctx, left, dtype), typed_as(ctx, right, dtype), expr.span
        )
    value = {
        "+": lambda: float(x) + y, "-": lambda: float(x) - y,
        "*": lambda: float(x) * y, "/": lambda: float(x) / y,
    }[op]()  # fmt: skip
    return Flex(value, expr.span)


def _logical(ctx: Context, expr: ast.Binary) -> Node:
    sides = []
    for side in (expr.left, expr.right):
        node = check_value(ctx, side)
        if node.type != BOOL:
            is_tensor = isinstance(node.type, TensorT) and node.type.dtype == DType.BOOL
            raise ctx.fail(
                "E2116",
                f"`{expr.op}` takes a scalar `bool`, found `{show(node.type)}`",
                node.span,
                help=f"on tensors of `bool`, use `{expr.op[0]}`" if is_tensor else None,
            )
        sides.append(node)
    return typed.Prim(LOGICAL[expr.op], tuple(sides), (), BOOL, expr.span)


# --- tuples, optionals, branches ------------------------------------------------------------


def _tuple(ctx: Context, expr: ast.TupleExpr, expected: Type | None) -> Node:
    hints: list[Type | None] = [None] * len(expr.items)
    if isinstance(expected, typed.TupleT) and len(expected.items) == len(expr.items):
        hints = list(expected.items)
    items = tuple(check_value(ctx, e, h) for e, h in zip(expr.items, hints, strict=True))
    return typed.MakeTuple(items, typed.TupleT(tuple(i.type for i in items)), expr.span)


def _array(ctx: Context, expr: ast.ArrayExpr, expected: Type | None) -> Node:
    raise ctx.fail(
        "E2101",
        "a list is no value",
        expr.span,
        help="lists give the dimensions or axes of `reshape`, `permute`, `fill`; join tensors "
        "with `concat`",
    )


def _spread(ctx: Context, expr: ast.Spread, expected: Type | None) -> Node:
    raise ctx.fail("E3106", f"the pack `*{expr.name.text}` stands for axes, not a value", expr.span)


def _some(ctx: Context, expr: ast.SomeExpr, expected: Type | None) -> Node:
    inner = expected.inner if isinstance(expected, OptionalT) else None
    value = check_value(ctx, expr.value, inner)
    return typed.Some(value, OptionalT(value.type), expr.span)


def _none(ctx: Context, expr: ast.NoneExpr, expected: Type | None) -> Node:
    if not isinstance(expected, OptionalT):
        found = f"; `{show(expected)}` is needed here" if expected is not None else ""
        raise ctx.fail(
            "E2113",
            f"`none` needs an optional type{found}",
            expr.span,
            help="say which: `let x: Tensor[…; T]? = none`",
        )
    return typed.NoneValue(expected, expr.span)


def condition(ctx: Context, expr: ast.Expr, what: str) -> typed.Expr:
    """A scalar `bool` that doesn't vary with any index."""
    index, ctx.index = ctx.index, None
    try:
        node = check_value(ctx, expr)
    finally:
        ctx.index = index
    if node.type != BOOL:
        is_tensor = isinstance(node.type, TensorT) and node.type.dtype == DType.BOOL
        raise ctx.fail(
            "E2114",
            f"the condition of {what} must be a scalar `bool`, found `{show(node.type)}`",
            node.span,
            help="element by element it is `select(c, a, b)`" if is_tensor else None,
        )
    return node


def _if(ctx: Context, expr: ast.IfExpr, expected: Type | None) -> Node:
    test = condition(ctx, expr.condition, "an `if`")
    facts = ctx.facts
    nodes = []
    for branch, holds in ((expr.then, True), (expr.otherwise, False)):
        if isinstance(test, typed.DimCompare):
            op = test.op if holds else _NEGATED[test.op]
            ctx.facts = facts.with_fact(op, test.left, test.right)
        try:
            nodes.append(check(ctx, branch, expected))
        finally:
            ctx.facts = facts
    then, otherwise = _same_type(ctx, nodes, expected, expr.span, "the branches of an `if`")
    return typed.If(test, then, otherwise, then.type, expr.span)


_NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _same_type(
    ctx: Context, nodes: list[Node], expected: Type | None, span: Span, what: str
) -> list[typed.Expr]:
    """Branches brought to one type: numbers without one take the others' or the expected."""
    typed_nodes = [n for n in nodes if not isinstance(n, Flex)]
    if typed_nodes and isinstance(typed_nodes[0].type, TensorT):
        dtype: AnyDType | None = typed_nodes[0].type.dtype
    else:
        dtype = expected.dtype if isinstance(expected, TensorT) else None
    if dtype is None:
        is_float = any(isinstance(n, Flex) and isinstance(n.value, float) for n in nodes)
        dtype = DType.F64 if is_float else DType.I64
    result = [typed_as(ctx, n, dtype) if isinstance(n, Flex) else n for n in nodes]
    for node in result[1:]:
        if not types_equal(result[0].type, node.type, ctx.facts):
            raise ctx.fail(
                "E2115",
                f"{what} have different types, `{show(result[0].type)}` and `{show(node.type)}`",
                span,
                notes=[
                    Note(f"this is `{show(result[0].type)}`", result[0].span),
                    Note(f"this is `{show(node.type)}`", node.span),
                ],
            )
    return result


def _match(ctx: Context, expr: ast.MatchExpr, expected: Type | None) -> Node:
    found = resolve_block(ctx, expr.subject)
    if found is not None:
        return _match_sub(ctx, expr, found, expected)
    index, ctx.index = ctx.index, None
    try:
        subject = check_value(ctx, expr.subject)
    finally:
        ctx.index = index
    match subject.type:
        case OptionalT(inner):
            some, none = _optional_arms(ctx, expr)
            ctx.push()
            from linnet.check.statements import bind_pattern

            pattern = bind_pattern(ctx, some.pattern.inner, inner, warn=True)  # type: ignore[union-attr]
            try:
                some_node = check(ctx, some.value, expected)
            finally:
                ctx.pop()
            none_node = check(ctx, none.value, expected or _type_of(some_node))
            some_value, none_value = _same_type(
                ctx, [some_node, none_node], expected, expr.span, "the cases of a `match`"
            )
            return typed.MatchOptional(
                subject, pattern, some_value, none_value, some_value.type, expr.span
            )
        case typed.EnumT():
            return _match_enum(ctx, expr, subject, subject.type, expected)
    raise ctx.fail(
        "E2117",
        f"`{show(subject.type)}` can't be matched: only an optional or an enum can",
        expr.subject.span,
    )


def _type_of(node: Node) -> Type | None:
    return None if isinstance(node, Flex) else node.type


def _optional_arms(ctx: Context, expr: ast.MatchExpr) -> tuple[ast.Arm, ast.Arm]:
    some = none = None
    for arm in expr.arms:
        if isinstance(arm.pattern, ast.SomePattern) and some is None:
            some = arm
        elif isinstance(arm.pattern, ast.NonePattern) and none is None:
            none = arm
        else:
            raise ctx.fail(
                "E2117", "this case can't match: the cases are `some(x)` and `none`, each once",
                arm.pattern.span,
            )  # fmt: skip
    if some is None or none is None:
        missing = "some(x)" if some is None else "none"
        raise ctx.fail("E2118", f"the case `{missing}` is missing", expr.span)
    return some, none


def _match_sub(
    ctx: Context,
    expr: ast.MatchExpr,
    found: tuple[typed.BlockRef, typed.BlockT | typed.ArrayT, bool],
    expected: Type | None,
) -> Node:
    ref, type_, optional = found
    if not optional or isinstance(type_, typed.ArrayT) or not isinstance(ref, typed.SubBlock):
        raise ctx.fail(
            "E2117",
            f"`{expr.subject.span.text}` is always there: nothing to match",
            expr.subject.span,
        )
    some, none = _optional_arms(ctx, expr)
    assert isinstance(some.pattern, ast.SomePattern)
    inner = some.pattern.inner
    if not isinstance(inner, ast.NamePattern):
        raise ctx.fail("E2117", "a block is bound to a name", inner.span)
    from linnet.check.scope import LocalName

    name = ctx.unique(inner.name.text)
    ctx.push()
    ctx.declare(LocalName(inner.name, None, block=(typed.BoundBlock(name), type_), warn=True))
    try:
        some_node = check(ctx, some.value, expected)
    finally:
        ctx.pop()
    none_node = check(ctx, none.value, expected or _type_of(some_node))
    a, b = _same_type(ctx, [some_node, none_node], expected, expr.span, "the cases of a `match`")
    return typed.MatchSub(ref, name, a, b, a.type, expr.span)


def _match_enum(
    ctx: Context,
    expr: ast.MatchExpr,
    subject: typed.Expr,
    enum: typed.EnumT,
    expected: Type | None,
) -> Node:
    arms: dict[str, ast.Arm] = {}
    for arm in expr.arms:
        pattern = arm.pattern
        if not isinstance(pattern, ast.NamePattern) or pattern.name.text not in enum.variants:
            raise ctx.fail(
                "E2117",
                f"this case can't match `{show(enum)}`",
                pattern.span,
                help=f"its variants are {', '.join(f'`{v}`' for v in enum.variants)}",
            )
        if pattern.name.text in arms:
            raise ctx.fail(
                "E2117", f"`{pattern.name.text}` was matched before", pattern.span,
                notes=[Note("here", arms[pattern.name.text].pattern.span)],
            )  # fmt: skip
        arms[pattern.name.text] = arm
    missing = [v for v in enum.variants if v not in arms]
    if missing:
        raise ctx.fail(
            "E2118", f"the case {', '.join(f'`{v}`' for v in missing)} is missing", expr.span
        )
    nodes = [check(ctx, arms[v].value, expected) for v in enum.variants]
    values = _same_type(ctx, nodes, expected, expr.span, "the cases of a `match`")
    return typed.MatchEnum(subject, tuple(values), values[0].type, expr.span)


# --- indexing -------------------------------------------------------------------------------


def _index(ctx: Context, expr: ast.Index, expected: Type | None) -> Node:
    from linnet.check.indexing import check_access, check_slice

    return check_access(ctx, expr) if ctx.index is not None else check_slice(ctx, expr)


def _reduction(ctx: Context, expr: ast.Reduction, expected: Type | None) -> Node:
    from linnet.check.indexing import check_comprehension, check_reduction

    if ctx.index is not None:
        return check_reduction(ctx, expr, expected)
    return check_comprehension(ctx, (), expr, expr.span, expected)


def _call(ctx: Context, expr: ast.Call, expected: Type | None) -> Node:
    from linnet.check.calls import check_call

    return check_call(ctx, expr, expected)


_CHECK: dict[type, Callable[..., Node]] = {
    ast.IntLiteral: _int,
    ast.FloatLiteral: _float,
    ast.BoolLiteral: _bool,
    ast.StringLiteral: _string,
    ast.NameExpr: _name,
    ast.TupleExpr: _tuple,
    ast.ArrayExpr: _array,
    ast.Spread: _spread,
    ast.SomeExpr: _some,
    ast.NoneExpr: _none,
    ast.Unary: _unary,
    ast.Binary: _binary,
    ast.Call: _call,
    ast.Field: _field,
    ast.Index: _index,
    ast.Reduction: _reduction,
    ast.IfExpr: _if,
    ast.MatchExpr: _match,
    ast.ErrorExpr: _error,
}

__all__ = ["check", "check_as", "check_dim", "check_value", "compare", "require"]
