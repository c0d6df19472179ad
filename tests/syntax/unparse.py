"""Syntax trees back to text, with as few parentheses as the grammar needs.

No formatter: it only has to read back as the same tree, which is how the tests use it.
"""

from __future__ import annotations

from linnet.syntax import ast
from linnet.syntax.expressions import BELOW_COMPARISON, PRECEDENCE

TIGHT = max(PRECEDENCE.values()) + 1
"""Tighter than every binary operator: what stands under a unary one."""


def file(node: ast.File) -> str:
    lines = [f"module {_path(node.module)}", *map(use, node.uses), *map(item, node.items)]
    return "\n".join(lines) + "\n"


def use(node: ast.Use) -> str:
    if not node.names:
        return f"use {_path(node.path)}"
    names = [n.name.text + (f" as {n.alias.text}" if n.alias else "") for n in node.names]
    return f"use {_path(node.path)}::{{{', '.join(names)}}}"


def _path(names: tuple[ast.Name, ...]) -> str:
    return ".".join(name.text for name in names)


# --- items ----------------------------------------------------------------------------------


def item(node: ast.Item) -> str:
    head = _doc(node.doc) + ("pub " if node.public else "")
    match node:
        case ast.Const():
            kind = f": {type_(node.type)}" if node.type else ""
            return f"{head}const {node.name.text}{kind} = {expr(node.value)}"
        case ast.Alias():
            return f"{head}type {node.name.text}{generics(node.generics)} = {type_(node.type)}"
        case ast.Struct():
            fields = " ".join(f"{f.name.text}: {type_(f.type)}" for f in node.fields)
            return f"{head}struct {node.name.text}{generics(node.generics)} {{ {fields} }}"
        case ast.Enum():
            return f"{head}enum {node.name.text} {{ {', '.join(v.text for v in node.variants)} }}"
        case ast.Function():
            return head + function(node)
        case ast.Block():
            inside = "\n".join([*map(member, node.members), *map(item, node.items)])
            name = node.name.text + generics(node.generics)
            return f"{head}block {name} {where(node.where)}{{\n{inside}\n}}"


def function(node: ast.Function) -> str:
    params = ", ".join(
        f"{p.name.text}: {type_(p.type)}" + (f" = {expr(p.default)}" if p.default else "")
        for p in node.params
    )
    result = f"-> {type_(node.result)} " if node.result else ""
    text = f"{node.kind} {node.name.text}{generics(node.generics)}({params}) {result}"
    text += where(node.where) + body(node.body)
    if node.grad:
        names = f"{node.grad.result.text}, {node.grad.cotangent.text}"
        text += f" grad({names}) {body(node.grad.body)}"
    return text


def member(node: ast.Member) -> str:
    default = f" = {expr(node.default)}" if node.default else ""
    return f"{_doc(node.doc)}{node.kind} {node.name.text}: {type_(node.type)}{default}"


def generics(nodes: tuple[ast.Generic, ...]) -> str:
    shown = [
        f"{'*' if g.pack else ''}{g.name.text}: {g.kind.text}"
        + (f" = {generic_arg(g.default)}" if g.default else "")
        for g in nodes
    ]
    return f"<{', '.join(shown)}>" if shown else ""


def where(facts: tuple[ast.Fact, ...]) -> str:
    shown = [
        f"{_before_less(fact.op, expr(fact.left, BELOW_COMPARISON))} {fact.op} "
        f"{expr(fact.right, BELOW_COMPARISON)}"
        for fact in facts
    ]
    return f"where {', '.join(shown)} " if shown else ""


def _doc(text: str | None) -> str:
    return "".join(f"/// {line}\n" for line in text.split("\n")) if text is not None else ""


# --- statements -----------------------------------------------------------------------------


def body(node: ast.Body) -> str:
    return "{\n" + "".join(stmt(s) + "\n" for s in node.statements) + "}"


def stmt(node: ast.Stmt) -> str:
    match node:
        case ast.Let():
            kind = f": {type_(node.type)}" if node.type else ""
            return f"let {pattern(node.pattern)}{kind} = {expr(node.value)}"
        case ast.LetIndexed():
            indices = [
                f"*{i.name.text}" if isinstance(i, ast.Spread) else i.text for i in node.indices
            ]
            return f"let {node.name.text}[{', '.join(indices)}] = {expr(node.value)}"
        case ast.Var():
            kind = f": {type_(node.type)}" if node.type else ""
            return f"var {node.name.text}{kind} = {expr(node.value)}"
        case ast.Assign():
            return f"{node.name.text} = {expr(node.value)}"
        case ast.Return():
            return f"return {expr(node.value)}" if node.value else "return"
        case ast.StaticFor():
            stop = f"..{expr(node.stop)}" if node.stop else ""
            head = f"static for {pattern(node.pattern)} in {expr(node.iterable)}{stop}"
            return f"{head} {body(node.body)}"
        case ast.While():
            return f"while {expr(node.condition)} {body(node.body)}"
        case ast.For():
            bound = f"let {node.result.text} = " if node.result else ""
            span = f"{expr(node.start)}..{expr(node.stop)}"
            return f"{bound}for {node.index.text} in {span} {body(node.body)}"
        case ast.Yield():
            return f"yield {expr(node.value)}"


def pattern(node: ast.Pattern) -> str:
    match node:
        case ast.NamePattern():
            return node.name.text
        case ast.NonePattern():
            return "none"
        case ast.SomePattern():
            return f"some({pattern(node.inner)})"
        case ast.TuplePattern():
            return _tuple([pattern(p) for p in node.items])


# --- types ----------------------------------------------------------------------------------


def type_(node: ast.Type) -> str:
    match node:
        case ast.TensorType():
            dims = ", ".join(map(generic_arg, node.dims))
            return f"Tensor[{dims}; {node.dtype.text}]"
        case ast.NamedType():
            return _path(node.path) + generic_args(node.generics)
        case ast.TupleType():
            return _tuple([type_(t) for t in node.items])
        case ast.ArrayType():
            return f"[{type_(node.item)}; {generic_arg(node.count)}]"
        case ast.OptionalType():
            return f"{type_(node.inner)}?"


def generic_args(nodes: tuple[ast.GenericArg, ...] | None) -> str:
    return f"<{', '.join(map(generic_arg, nodes))}>" if nodes is not None else ""


def generic_arg(node: ast.GenericArg) -> str:
    """A dimension: a comparison in it needs parentheses."""
    return f"*{node.name.text}" if isinstance(node, ast.Spread) else expr(node, BELOW_COMPARISON)  # type: ignore[arg-type]


# --- expressions ----------------------------------------------------------------------------


def expr(node: ast.Expr, level: int = 0) -> str:
    """An expression that can stand where operators of `level` and tighter are read."""
    match node:
        case ast.Binary():
            own = PRECEDENCE[node.op]
            left = _before_less(node.op, expr(node.left, own))
            text = f"{left} {node.op} {expr(node.right, own + 1)}"
            return f"({text})" if own < level else text
        case ast.Unary():
            return node.op + expr(node.operand, TIGHT)
        case ast.Reduction():
            dtype = f"<{node.dtype.text}>" if node.dtype else ""
            indices = ", ".join(i.text for i in node.indices)
            # It reaches as far right as it can, so anything around it needs parentheses.
            text = f"{node.op}{dtype}[{indices}] {expr(node.body)}"
            return f"({text})" if level else text
        case ast.IfExpr():
            other = expr(node.otherwise)
            if not isinstance(node.otherwise, ast.IfExpr):
                other = f"{{ {other} }}"
            text = f"if {expr(node.condition)} {{ {expr(node.then)} }} else {other}"
            return f"({text})" if level else text
        case ast.MatchExpr():
            arms = ", ".join(f"{pattern(a.pattern)} => {expr(a.value)}" for a in node.arms)
            text = f"match {expr(node.subject)} {{ {arms} }}"
            return f"({text})" if level else text
    return postfix(node)


def _before_less(op: str, left: str) -> str:
    """What stands before `<`: a bare name there could start a generic call."""
    return f"({left})" if op == "<" and (left[-1].isalnum() or left[-1] == "_") else left


def postfix(node: ast.Expr) -> str:
    match node:
        case ast.Call():
            args = ", ".join(
                (f"{a.name.text} = " if a.name else "") + expr(a.value) for a in node.args
            )
            return f"{postfix(node.callee)}{generic_args(node.generics)}({args})"
        case ast.Index():
            return f"{postfix(node.base)}[{', '.join(map(component, node.components))}]"
        case ast.Field():
            return f"{postfix(node.base)}.{node.name.text}"
        case ast.IntLiteral():
            return str(node.value)
        case ast.FloatLiteral():
            return repr(node.value)
        case ast.BoolLiteral():
            return "true" if node.value else "false"
        case ast.StringLiteral():
            return '"' + "".join(map(_escaped, node.value)) + '"'
        case ast.NameExpr():
            return node.text
        case ast.TupleExpr():
            return _tuple([expr(e) for e in node.items])
        case ast.ArrayExpr():
            return f"[{', '.join(map(component, node.items))}]"
        case ast.SomeExpr():
            return f"some({expr(node.value)})"
        case ast.NoneExpr():
            return "none"
    return f"({expr(node)})"


def component(node: ast.Expr | ast.EllipsisMark | ast.SliceRange) -> str:
    match node:
        case ast.EllipsisMark():
            return "..."
        case ast.Spread():
            return f"*{node.name.text}"
        case ast.SliceRange():
            text = (expr(node.start) if node.start else "") + ":"
            text += expr(node.stop) if node.stop else ""
            return text + (f":{expr(node.step)}" if node.step else "")
    return expr(node)


def _tuple(items: list[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _escaped(char: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\\": "\\\\", '"': '\\"'}
    return named.get(char) or (char if char.isprintable() else f"\\u{{{ord(char):x}}}")
