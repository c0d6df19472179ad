"""From a checked program to an entry's source, without a runtime, weights or a framework."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from linnet.check.typed import Program
from linnet.dtypes import DType
from linnet.emit.torch import EXPANDED_OPS, KEPT_OPS, Explained, emit_torch, explain
from linnet.emit.torch_target import TorchTarget
from linnet.ir.core import Module
from linnet.ir.generics import bind_given, require_facts
from linnet.ir.instantiate import find_entry, instantiate
from linnet.ir.lower import lower
from linnet.ir.passes import optimise
from linnet.outline import root_block


def entry_module(
    program: Program,
    entry: str,
    generics: Mapping[str, int | DType],
    *,
    root: str | None = None,
    having: Collection[str] = (),
    numerics: str = "fast",
) -> Module:
    """An entry as Core IR, optimised for PyTorch; the arguments are those of `lowered_entry`."""
    lowered = lowered_entry(program, entry, generics, root=root, having=having)
    return optimise(lowered, numerics, expand=EXPANDED_OPS, keep=KEPT_OPS)


def lowered_entry(
    program: Program,
    entry: str,
    generics: Mapping[str, int | DType],
    *,
    root: str | None = None,
    having: Collection[str] = (),
) -> Module:
    """An entry as Core IR, for generics that are all given by name.

    `generics` holds the root's and the entry's own. `having` names the optional members that are
    there, by their path's beginning (`lm_head`). Raises `ValueError` for what doesn't fit.
    """

    def present(path: str) -> bool:
        return any(path == name or path.startswith(f"{name}.") for name in having)

    block_names = set()
    if root is not None or any(f.kind == "entry" and f.block for f in program.functions.values()):
        block_names = {generic.name for generic in root_block(program, root).generics}
    own = {k: v for k, v in generics.items() if k in block_names}
    instance = instantiate(program, root, own, present)
    function = find_entry(instance, entry).function
    outer = instance.generics if function.block is not None else {}
    rest = {k: v for k, v in generics.items() if k not in block_names}
    bound = bind_given(function.generics, rest, outer, f"`{entry}`")
    require_facts(function.where, {**outer, **bound}, f"`{entry}`")
    return lower(instance, entry, bound)


def torch_source(module: Module, *, numerics: str = "fast", mode: str = "eager") -> str:
    """The PyTorch source of an entry's module, for a CPU or any device alike."""
    return emit_torch(module, TorchTarget(mode=mode, numerics=numerics))


def torch_explained(
    module: Module, *, numerics: str = "fast", mode: str = "eager"
) -> list[Explained]:
    """Which kernel each library op got, and why."""
    return explain(module, TorchTarget(mode=mode, numerics=numerics))
