"""What an emitter finds out about a module before it plans: which methods read better in place,
which inputs are constants, and where derived values are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from linnet.emit.bodies import Places
from linnet.ir.core import Function, Module, Op, Value, referenced

Number = int | float | bool


def all_functions(module: Module) -> list[Function]:
    """A module's functions, `prepare` too."""
    prepare = [] if module.prepare is None else [module.prepare]
    return [*module.functions.values(), *prepare]


def own_methods(module: Module) -> set[str]:
    """Methods that are called once, for their caller's own block: they read better in place."""
    calls = Counter(name for f in all_functions(module) for op in f.ops for name in referenced(op))
    return {
        callee.name
        for caller in all_functions(module)
        for op in caller.ops
        if op.kind == "call" and op.attrs["at"] == "" and caller.kind in ("entry", "method")
        for callee in (module.functions[op.text("callee")],)
        if callee.kind == "method" and calls[callee.name] == 1
    }


def constant_inputs(
    module: Module, makers: Mapping[Value, Op]
) -> tuple[dict[str, dict[int, Number]], dict[Value, Number]]:
    """Inputs that are the same scalar constant at every call, and all values that are constants."""
    known: dict[Value, Number] = {
        value: op.attrs["value"]  # type: ignore[misc]
        for value, op in makers.items()
        if op.kind == "constant" and not value.type.shape
    }
    calls: dict[str, list[Op]] = {}
    for function in all_functions(module):
        for op in function.ops:
            if op.kind == "call":
                calls.setdefault(op.text("callee"), []).append(op)
    found: dict[str, dict[int, Number]] = {}
    for function in reversed(all_functions(module)):
        ops = calls.get(function.name, [])
        if function.kind in ("entry", "region") or not ops:
            continue
        for i, value in enumerate(function.inputs):
            given = {repr(known.get(op.inputs[i])) for op in ops}
            if len(given) == 1 and ops[0].inputs[i] in known:
                known[value] = known[ops[0].inputs[i]]
                found.setdefault(function.name, {})[i] = known[value]
    return found, known


def places_of(module: Module) -> Places:
    """Names for derived values: `@layers.3.layer_forward.scale` is kept in `layers.3.scale`, with
    its function's name before it where that place is taken."""
    main = module.main
    own = {slot.path for slot in (*main.weights, *main.states) if slot.kind != "derived"}
    if module.prepare is not None:
        own |= {slot.path for slot in module.prepare.weights}
    taken = {path for full in own for path in _prefixes(full)}
    holders: dict[str, set[str]] = {}
    for path in module.derived:
        holders.setdefault(_short(path), set()).add(path)
    long: set[tuple[str, str]] = {
        _function_and_name(path)
        for short, paths in holders.items()
        for path in paths
        if short in taken or len(paths) > 1
    }

    def attribute(path: str) -> str:
        if not path.startswith("@"):
            return path
        function, name = _function_and_name(path)
        if (function, name) in long:
            return ".".join([*path[1:].split(".")[:-2], f"{function}_{name}"])
        return _short(path)

    derived = {attribute(path) for path in module.derived}
    return Places(attribute, frozenset(taken | derived))


def _short(path: str) -> str:
    *block, _, name = path[1:].split(".")
    return ".".join([*block, name])


def _function_and_name(path: str) -> tuple[str, str]:
    *_, function, name = path[1:].split(".")
    return function, name


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]
