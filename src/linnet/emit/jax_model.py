"""The parts of generated JAX around the entry: the trees of blocks and of states, and `prepare`."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.emit.code import shape_text
from linnet.emit.jax_function import FunctionEmitter, Signature
from linnet.emit.jax_ops import DTYPES
from linnet.emit.jax_plan import ModulePlan
from linnet.emit.jax_states import subscript
from linnet.emit.lines import Line, Statement, Suite, render
from linnet.ir.core import Slot, Value

_TREE = '''\
def tree(leaves):
    """Nested dicts and lists from arrays by path, such as `layers.3.norm.weight`."""
    root = {}
    for path, leaf in leaves.items():
        here, parts = root, [int(p) if p.isdigit() else p for p in path.split(".")]
        for part, following in zip(parts, parts[1:] + [None]):
            if isinstance(here, list):
                here.extend([None] * (part + 1 - len(here)))
            if following is None:
                here[part] = leaf
            elif isinstance(here, dict):
                here.setdefault(part, [] if isinstance(following, int) else {})
            elif here[part] is None:
                here[part] = [] if isinstance(following, int) else {}
            here = here[part]
    return root
'''


def as_declared(wide: bool) -> str:
    """The decorator of what a caller calls. With `wide`, there are 64-bit types."""
    why = "Computes in the types of the source: f32 products in f32, whatever the device's habit"
    if wide:
        why += ",\n    and 64-bit types, whether or not JAX has them on"
    contexts = ['jax.default_matmul_precision("float32")', *(["jax.enable_x64(True)"] * wide)]
    return f'''\
def as_declared(function):
    """{why}."""

    @functools.wraps(function)
    def run(*arguments):
        with {", ".join(contexts)}:
            return function(*arguments)

    return run
'''


IN_64_BITS = '''\
def in_64_bits(name, value, dtype):
    """An input of a 64-bit dtype; an error where JAX has made it a narrower one."""
    if jnp.result_type(value) != dtype:
        raise TypeError(
            f"`{name}` must be {jnp.dtype(dtype)}, not {jnp.result_type(value)}: "
            "make it, and call this, under `jax.enable_x64(True)`"
        )
    return jnp.asarray(value)
'''


def model_source(plan: ModulePlan) -> str:
    """`tree`, `new_model` and `new_state`."""
    made = "tree(weights)" if plan.module.prepare is None else "prepare(tree(weights))"
    body = (
        Line('"""The tree of blocks, from arrays by parameter path."""'),
        Line(f"return {made}"),
    )
    parts = [_TREE, _text(Suite("def new_model(weights):", body))]
    states = plan.module.main.states
    if states:
        zeros = (
            Line('"""The states by block, all of them zero."""'),
            Line("states = {}"),
            *_states(states),
            Line("return tree(states)"),
        )
        parts.append("@as_declared\n" + _text(Suite("def new_state():", zeros)))
    return "\n\n".join(parts)


def _text(suite: Suite) -> str:
    return "\n".join(render([suite])) + "\n"


def _states(states: Sequence[Slot]) -> list[Statement]:
    """Makes the states; those of the same name in all layers in a loop."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for slot in states:
        parts = slot.path.split(".")
        digits = [i for i, part in enumerate(parts) if part.isdigit()]
        position = -1
        if len(digits) == 1:
            position, parts[digits[0]] = int(parts[digits[0]]), "{i}"
        numbers.setdefault((".".join(parts), _zeros(slot.value)), []).append(position)
    found: list[Statement] = []
    loops: dict[int, list[Line]] = {}
    for (pattern, zeros), positions in numbers.items():
        if positions == list(range(len(positions))):
            line = Line(f'states[f"{pattern}"] = {zeros}')
            loops.setdefault(len(positions), []).append(line)
        else:
            paths = [pattern.replace("{i}", str(position)) for position in positions]
            found += [Line(f'states["{path}"] = {zeros}') for path in paths]
    found += [Suite(f"for i in range({n}):", tuple(body)) for n, body in loops.items()]
    return found


def _zeros(value: Value) -> str:
    return f"jnp.zeros({shape_text(value.type.shape)}, {DTYPES[value.type.dtype]})"


# --- prepare --------------------------------------------------------------------------------


def prepare_statements(
    plan: ModulePlan, emitter: FunctionEmitter, signature: Signature
) -> list[Statement]:
    """`prepare`'s statements: a new tree, with each derived value where functions look for it."""
    block = emitter.block
    places: dict[Value, list[str]] = {}
    for value, path in zip(emitter.expanded.body.results, plan.module.derived, strict=True):
        aliases = [at for at, given in plan.places.aliases.items() if given == path]
        found = [emitter.bundles.subscript(block, at)
                 for at in (plan.places.attribute(path), *aliases)]  # fmt: skip
        places.setdefault(value, []).extend(found)
        emitter.plan.fused.discard(value)
    emitter.add(f"{block} = jax.tree.map(lambda weight: weight, {block})")
    for node in emitter.expanded.body.nodes:
        before = len(emitter.statements)
        emitter.nodes([node])
        made = [value for value in node.op.outputs if value in places]
        last = emitter.statements[-1] if len(emitter.statements) > before else None
        head = f"{', '.join(str(emitter.names.get(value)) for value in made)} = "
        single = all(len(places[value]) == 1 for value in made)
        if made and single and isinstance(last, Line) and last.text.startswith(head):
            targets = ", ".join(places.pop(value)[0] for value in made)
            emitter.statements[-1] = Line(f"{targets} = {last.text.removeprefix(head)}")
            for value, text in zip(made, targets.split(", "), strict=True):
                emitter.rebind(value, text)
        for value in made:
            for place in places.pop(value, ()):
                emitter.add(f"{place} = {emitter.whole(value).text}")
    for value, targets in places.items():
        for place in targets:
            emitter.add(f"{place} = {emitter.whole(value).text}")
    emitter.add(f"return {block}")
    return emitter.bundles.rerolled(emitter.statements, emitter.reserved | set(emitter.holders))


__all__ = ["IN_64_BITS", "as_declared", "model_source", "prepare_statements", "subscript"]
