"""What a loaded model says of itself, whatever runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linnet.ir.core import Module
from linnet.ir.generics import type_text
from linnet.ir.instantiate import BlockInstance, Entry
from linnet.runtime import EntrySignature


def signature(entry: Entry) -> EntrySignature:
    """An entry as its source declares it."""
    return EntrySignature(
        entry.name,
        tuple(generic.name for generic in entry.generics),
        tuple((name, type_text(type_)) for name, type_ in entry.inputs),
        type_text(entry.result) if entry.result is not None else "()",
        entry.function.doc,
    )


def weights_read(module: Module) -> set[str]:
    """The weights, stored or derived, that a run of an entry reads whole: not those that are only
    tables to look rows up in."""
    tables: dict[str, bool] = {}

    def visit(name: str, paths: Mapping[Any, str]) -> None:
        function = module.functions[name]
        for op in function.ops:
            if op.kind != "call":
                for value in op.inputs:
                    if value in paths:
                        lookup = op.kind == "gather" and value is op.inputs[0]
                        tables[paths[value]] = tables.get(paths[value], True) and lookup
                continue
            callee = module.functions[op.text("callee")]
            pairs = zip(callee.operands, op.inputs, strict=True)
            visit(callee.name, {inner: paths[v] for inner, v in pairs if v in paths})

    visit(module.entry, {slot.value: slot.path for slot in module.main.weights})
    return {slot.path for slot in module.main.weights if not tables.get(slot.path, False)}


def block_tree(instance: BlockInstance) -> str:
    """The tree of blocks; equal siblings of an array on one line."""
    return "\n".join(_block_lines(instance, instance.block.name))


def _block_lines(instance: BlockInstance, title: str, indent: int = 0) -> list[str]:
    pad = "  " * indent
    lines = [f"{pad}{title}"]
    for tensor in instance.tensors.values():
        if tensor.present:
            lines.append(f"{pad}  {tensor.kind} {tensor.name}: {tensor.type}")
    for name, child in instance.children.items():
        if isinstance(child, BlockInstance):
            lines += _block_lines(child, f"{name}: {child.block.name}", indent + 1)
        elif child:
            forms = {item.form for item in child}
            shown = child[:1] if len(forms) == 1 else child
            for i, item in enumerate(shown):
                which = f"0…{len(child) - 1}" if len(shown) == 1 and len(child) > 1 else str(i)
                lines += _block_lines(item, f"{name}.{which}: {item.block.name}", indent + 1)
    return lines
