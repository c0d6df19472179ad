"""A whole program: the names of every module, then every item in it, then what they form."""

from __future__ import annotations

import difflib

from linnet.check import blocks, calls, typed  # noqa: F401 (they register their rules)
from linnet.check.declarations import check_function
from linnet.check.dims import DimTooLarge
from linnet.check.names import publish
from linnet.check.scope import (
    PRELUDE,
    BlockInfo,
    Checking,
    Entity,
    Failed,
    Import,
    ModuleImport,
    Scope,
    outline,
)
from linnet.diagnostics import Diagnostics, Note, Span
from linnet.packages import Sources
from linnet.syntax import ast

_KINDS: dict[type, str] = {
    ast.Const: "const",
    ast.Alias: "type",
    ast.Struct: "struct",
    ast.Enum: "enum",
    ast.Function: "function",
    ast.Block: "block",
}


def check_program(sources: Sources, diagnostics: Diagnostics) -> typed.Program | None:
    """The typed program, or None where there are errors; reports what is wrong.

    What is missing (E1202) is no reason to stop; what could not be read or parsed is.
    """
    unread = any(error.code != "E1202" for error in diagnostics.errors)
    if unread or sources.root not in sources.files:
        return None
    checker = Checking(diagnostics)
    for name, file in sources.files.items():
        checker.modules[name] = _module_scope(checker, name, file)
    for name, file in sources.files.items():
        _imports(checker, sources, name, file)
    _refuse_import_cycles(checker, sources)
    for scope in checker.modules.values():
        for entity in _all_items(checker, scope):
            _check_item(checker, entity)
    _refuse_recursion(checker)
    if diagnostics.has_errors:
        return None
    _warn_unused(checker, sources.root)
    return typed.Program(
        sources.root,
        checker.functions,
        {key: _typed_block(checker, entity) for key, entity in checker.blocks.items()},
        tuple(d for d in diagnostics if not d.is_error),
        {
            e.name.text: e.key
            for e in checker.modules[sources.root].items.values()
            if e.decl.public and e.kind in ("function", "block")
        },
    )


# --- names ----------------------------------------------------------------------------------


def _module_scope(checker: Checking, name: str, file: ast.File) -> Scope:
    scope = Scope(name, file)
    _collect(checker, scope, file.items, f"{name}::")
    return scope


def _collect(checker: Checking, scope: Scope, items: tuple[ast.Item, ...], prefix: str) -> None:
    for item in items:
        name = item.name
        if name.text in PRELUDE:
            checker.diagnostics.error(
                "E1207", f"`{name.text}` is a prelude name", name.span, help="choose another name"
            )
            continue
        if name.text in scope.items:
            in_block = scope.block is not None
            checker.diagnostics.error(
                "E1205" if in_block else "E1204",
                f"`{name.text}` is declared twice in this {'block' if in_block else 'module'}",
                name.span,
                notes=[Note("first here", scope.items[name.text].name.span)],
            )
            continue
        entity = Entity(_KINDS[type(item)], prefix + name.text, item, scope)
        scope.items[name.text] = entity
        if isinstance(item, ast.Block):
            inner = Scope(scope.name, scope.file, parent=scope, block=entity)
            checker.blocks[entity.key] = entity
            checker.block_scopes[entity.key] = inner
            _collect(checker, inner, item.items, f"{entity.key}.")


def _all_items(checker: Checking, scope: Scope) -> list[Entity]:
    found: list[Entity] = []
    for entity in scope.items.values():
        found.append(entity)
        if entity.kind == "block":
            found += _all_items(checker, checker.block_scopes[entity.key])
    return found


def _imports(checker: Checking, sources: Sources, name: str, file: ast.File) -> None:
    scope = checker.modules[name]
    for use in file.uses:
        target_name = sources.imported(name, use)
        target = checker.modules.get(target_name) if target_name is not None else None
        if not use.names:
            _import_module(checker, scope, target, use.path[-1])
        for used in use.names:
            local = used.alias or used.name
            if target is None:
                scope.broken_imports.add(local.text)
                continue
            _import_item(checker, scope, target, used.name, local)


def _import_module(checker: Checking, scope: Scope, target: Scope | None, name: ast.Name) -> None:
    if target is None:
        scope.broken_imports.add(name.text)
    elif name.text in scope.modules:
        checker.diagnostics.error(
            "E1204",
            f"two modules are imported as `{name.text}`",
            name.span,
            notes=[Note("the other is here", scope.modules[name.text].name.span)],
            help="import what you need of one of them: `use …::{…}`",
        )
    else:
        scope.modules[name.text] = ModuleImport(target, name)


def _import_item(
    checker: Checking, scope: Scope, target: Scope, name: ast.Name, local: ast.Name
) -> None:
    entity = target.items.get(name.text)
    if entity is None:
        scope.broken_imports.add(local.text)
        _no_such_item(checker, target, name)
        return
    if not entity.decl.public and target is not scope:
        checker.diagnostics.error(
            "E1203",
            f"`{name.text}` is private to `{target.name}`",
            name.span,
            notes=[Note("it is declared here", entity.name.span)],
            help=publish(entity),
        )
    if local.text in PRELUDE:
        checker.diagnostics.error(
            "E1207",
            f"`{local.text}` is a prelude name",
            local.span,
            help=f"import it by another name: `{name.text} as …`",
        )
    elif local.text in scope.items or local.text in scope.imports:
        first = scope.items.get(local.text) or scope.imports[local.text]
        checker.diagnostics.error(
            "E1204",
            f"`{local.text}` is declared twice in this module",
            local.span,
            notes=[Note("the other is here", first.name.span)],
            help=f"import it by another name: `{name.text} as …`",
        )
    else:
        scope.imports[local.text] = Import(entity, local)


def _no_such_item(checker: Checking, target: Scope, name: ast.Name) -> None:
    public = [n for n, e in target.items.items() if e.decl.public]
    close = difflib.get_close_matches(name.text, public, n=2, cutoff=0.6)
    listed = ", ".join(f"`{n}`" for n in close or public)
    checker.diagnostics.error(
        "E1201",
        f"`{target.name}` has no `{name.text}`",
        name.span,
        help=f"did you mean {listed}?" if close else f"it has {listed}" if public else None,
    )


def _refuse_import_cycles(checker: Checking, sources: Sources) -> None:
    edges = {
        name: [
            (target, use.span)
            for use in file.uses
            if (target := sources.imported(name, use)) is not None
        ]
        for name, file in sources.files.items()
    }
    for cycle, span in _cycles({n: dict(t) for n, t in edges.items()}):
        path = " → ".join(f"`{n}`" for n in [*cycle, cycle[0]])
        checker.diagnostics.error(
            "E1206",
            f"modules import each other: {path}" if len(cycle) > 1 else "a module imports itself",
            span,
            help="move what both need to a third module",
        )


def _cycles(edges: dict[str, dict[str, Span]]) -> list[tuple[list[str], Span]]:
    """Each cycle that a depth-first walk closes, with the place that closes it."""
    found: list[tuple[list[str], Span]] = []
    done: set[str] = set()
    for root in edges:
        if root in done:
            continue
        path: list[str] = [root]
        on_path = {root}
        stack = [iter(edges[root].items())]
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                on_path.discard(path[-1])
                done.add(path.pop())
                continue
            node, span = step
            if node in on_path:
                found.append((path[path.index(node) :], span))
            elif node not in done and node in edges:
                path.append(node)
                on_path.add(node)
                stack.append(iter(edges[node].items()))
    return found


# --- items ----------------------------------------------------------------------------------


def _check_item(checker: Checking, entity: Entity) -> None:
    try:
        outline(checker, entity)
        if entity.kind == "function":
            check_function(checker, entity)
    except Failed:
        pass
    except DimTooLarge:
        checker.diagnostics.error(
            "E2190",
            f"a dimension of `{entity.name.text}` is too large an expression to reason about",
            entity.name.span,
            help="make it a generic of its own",
        )
    except RecursionError:
        checker.diagnostics.error(
            "E2190",
            f"`{entity.name.text}` is nested too deeply, or defined through too many others",
            entity.name.span,
            help="name parts of it, and declare what it uses before it",
        )


def _refuse_recursion(checker: Checking) -> None:
    for cycle, span in _cycles(checker.calls):
        names = [key.rpartition("::")[2] for key in cycle]
        path = " → ".join(f"`{n}`" for n in [*names, names[0]])
        checker.diagnostics.error(
            "E2119",
            f"`{names[0]}` calls itself" if len(names) == 1 else f"recursion: {path}",
            span,
            help="a network has a fixed depth: loop by `static for`, `for` or `while`",
        )


def _typed_block(checker: Checking, entity: Entity) -> typed.Block:
    info: BlockInfo = outline(checker, entity)
    decl = entity.decl
    assert isinstance(decl, ast.Block)
    return typed.Block(
        entity.key,
        decl.name.text,
        info.generics,
        tuple(fact for fact, _ in info.where),
        tuple(info.members.values()),
        {n: e.key for n, e in info.scope.items.items() if e.kind == "function"},
        decl.public,
        decl.doc,
        decl.span,
    )


# --- warnings -------------------------------------------------------------------------------


def _warn_unused(checker: Checking, root: str) -> None:
    scope = checker.modules[root]
    for item in (*scope.imports.values(), *scope.modules.values()):
        if not item.used:
            checker.diagnostics.error(
                "W1001",
                f"the import `{item.name.text}` is never used",
                item.name.span,
                help="leave it out",
            )
    for key, entity in checker.blocks.items():
        if entity.scope.name != root:
            continue
        info: BlockInfo = outline(checker, entity)
        used = checker.used_members.get(key, set())
        for member in info.members.values():
            if member.name not in used and not member.name.startswith("_"):
                checker.diagnostics.error(
                    "W1003", f"the {member.kind} `{member.name}` is never used", member.span
                )
