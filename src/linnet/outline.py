"""A checked source from the outside: its blocks, its entries, the manifest of its weights.

Generics may be bound, some or all: dimensions that they settle are numbers, the others stay as
they were written, and an array of unknown length stands as `layers.{i}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from linnet.check import typed
from linnet.check.dims import Dim
from linnet.check.types import Binding, show
from linnet.dtypes import DType


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """A weight or state of a model."""

    path: str
    kind: str
    """`param`, `buffer` or `state`."""
    type: typed.TensorT
    optional: bool
    doc: str | None = None

    def to_json(self) -> dict[str, object]:
        shape = [d.constant if isinstance(d, Dim) and d.constant is not None else str(d)
                 for d in self.type.shape]  # fmt: skip
        return {
            "path": self.path,
            "kind": self.kind,
            "shape": shape,
            "dtype": str(self.type.dtype),
            "optional": self.optional,
        }


def root_block(program: typed.Program, root: str | None) -> typed.Block:
    """The block named, or the only public one of the root module with entries.

    Raises `ValueError` that names the choices.
    """
    own = {
        block.name: block
        for key, block in program.blocks.items()
        if key.startswith(f"{program.root}::")
    }
    if root is not None:
        if root not in own:
            raise ValueError(f"no block {root!r}: there are {', '.join(own) or 'none'}")
        return own[root]
    entered = [
        block
        for block in own.values()
        if block.public
        and any(program.functions[key].kind == "entry" for key in block.methods.values())
    ]
    if len(entered) != 1:
        found = ", ".join(block.name for block in entered) or "none"
        raise ValueError(f"name the root block: the public blocks with entries are {found}")
    return entered[0]


def manifest(
    program: typed.Program, root: str | None, given: Mapping[str, int | DType]
) -> list[ManifestRow]:
    """Every param, buffer and state, in declaration order; raises `ValueError` for a wrong root
    or generic."""
    block = root_block(program, root)
    binding = Binding()
    known = {generic.name: generic for generic in block.generics}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"`{block.name}` has no generic {name!r}: it has {', '.join(known)}")
        is_dim = known[name].kind == "Dim"
        if is_dim != isinstance(value, int):
            raise ValueError(f"{name} is a {known[name].kind}, found {value}")
        binding.bind(name, Dim.const(value) if isinstance(value, int) else value)
    if given:  # Whoever binds some generics wants numbers: the others take their defaults.
        for generic in block.generics:
            if generic.name not in given and generic.default is not None:
                binding.bind(generic.name, binding.generic(generic.default))
    return list(_rows(program, block, binding, "", False))


def _rows(
    program: typed.Program, block: typed.Block, binding: Binding, prefix: str, optional: bool
) -> Iterator[ManifestRow]:
    for member in block.members:
        path = prefix + member.name
        type_ = binding.type(member.type)
        maybe = optional or member.optional
        match type_:
            case typed.TensorT():
                yield ManifestRow(path, member.kind, type_, maybe, member.doc)
            case typed.BlockT(key, generics):
                inner = Binding.of(dict(generics))
                yield from _rows(program, program.blocks[key], inner, f"{path}.", maybe)
            case typed.ArrayT(item, count):
                inner = Binding.of(dict(item.generics))
                length = count.constant
                for index in ["{i}"] if length is None else range(length):
                    child = program.blocks[item.key]
                    yield from _rows(program, child, inner, f"{path}.{index}.", maybe)


def format_manifest(rows: list[ManifestRow]) -> str:
    """One line a weight: kind, path, type; states are not in a checkpoint but are listed."""
    if not rows:
        return "no weights"
    width = max(len(row.path) for row in rows)
    lines = [
        f"{row.kind:6}  {row.path:{width}}  {show(row.type)}{' (optional)' if row.optional else ''}"
        for row in rows
    ]
    return "\n".join(lines)


def describe(program: typed.Program, root: str | None) -> str:
    """The root block with its generics, its tree of children, and its entries."""
    block = root_block(program, root)
    lines = [f"block {block.name}{_generics(block.generics)}"]
    lines += _tree(program, block, "  ")
    entries = [program.functions[key] for key in block.methods.values()]
    for function in (f for f in entries if f.kind == "entry"):
        params = ", ".join(f"{p.name}: {show(p.type)}" for p in function.params)
        generics = _generics(function.generics)
        lines.append(f"entry {function.name}{generics}({params}) -> {show(function.result)}")
        if function.doc:
            lines += [f"      {line}" for line in function.doc.splitlines()]
    return "\n".join(lines)


def _generics(generics: tuple[typed.GenericParam, ...]) -> str:
    def one(generic: typed.GenericParam) -> str:
        star = "*" if generic.kind == "Shape" else ""
        default = f" = {generic.default}" if generic.default is not None else ""
        return f"{star}{generic.name}: {generic.kind}{default}"

    return f"<{', '.join(map(one, generics))}>" if generics else ""


def _tree(program: typed.Program, block: typed.Block, indent: str) -> list[str]:
    lines = []
    for member in block.members:
        optional = " (optional)" if member.optional else ""
        lines.append(f"{indent}{member.kind} {member.name}: {show(member.type)}{optional}")
        inner = member.type.item if isinstance(member.type, typed.ArrayT) else member.type
        if isinstance(inner, typed.BlockT):
            lines += _tree(program, program.blocks[inner.key], indent + "  ")
    return lines
