"""The part of generated PyTorch that builds the model: its tree of blocks, and `prepare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from linnet.emit.bodies import Node
from linnet.emit.code import Code, shape_text
from linnet.emit.lines import Line, Statement, Suite, render, reroll
from linnet.emit.torch_function import FunctionEmitter, Tree
from linnet.emit.torch_ops import DTYPES
from linnet.emit.torch_plan import ModulePlan
from linnet.emit.torch_target import TorchTarget
from linnet.ir.core import Value
from linnet.ir.join import is_joined

_BLOCKS = '''\
class Block:
    """Holds the weights, states and children of one block of the model."""


def place(block, path, tensor):
    """Puts a tensor where its path says, making the blocks on the way: `layers.3.norm.weight`."""
    *parents, name = path.split(".")
    for part, following in zip(parents, [*parents[1:], name]):
        new = list if following.isdigit() else Block
        if part.isdigit():
            block.extend(new() for _ in range(len(block), int(part) + 1))
            block = block[int(part)]
        else:
            block = vars(block).setdefault(part, new())
    setattr(block, name, tensor)
'''


def model_source(plan: ModulePlan) -> str:
    """`Block`, `place` and `new_model`."""
    module, target = plan.module, plan.target
    moved = "" if target.on_cpu else ".to(device)"
    body: list[Statement] = [
        Line('"""The tree of blocks, from tensors by parameter path; states start at zero."""'),
        Line("model = Block()"),
        Suite(
            "for path, tensor in weights.items():",
            (Line(f"place(model, path, tensor{moved})"),),
        ),
        *_states([(slot.path, slot.value) for slot in module.main.states], target),
    ]
    if module.prepare is not None:
        body.append(Line("prepare(model)"))
    body.append(Line("return model"))
    return _BLOCKS + "\n\n" + "\n".join(render([Suite("def new_model(weights):", tuple(body))]))


def _states(states: Sequence[tuple[str, Value]], target: TorchTarget) -> list[Statement]:
    """Makes the states; those of the same name in all layers in a loop."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for path, value in states:
        parts = path.split(".")
        digits = [i for i, part in enumerate(parts) if part.isdigit()]
        index = -1
        if len(digits) == 1:
            index, parts[digits[0]] = int(parts[digits[0]]), "{i}"
        numbers.setdefault((".".join(parts), _zeros(value, target)), []).append(index)
    found: list[Statement] = []
    loops: dict[int, list[Line]] = {}
    for (pattern, zeros), indices in numbers.items():
        if indices == list(range(len(indices))):
            line = Line(f'place(model, f"{pattern}", {zeros})')
            loops.setdefault(len(indices), []).append(line)
        else:
            paths = [pattern.replace("{i}", str(index)) for index in indices]
            found += [Line(f'place(model, "{path}", {zeros})') for path in paths]
    found += [Suite(f"for i in range({n}):", tuple(body)) for n, body in loops.items()]
    return found


def _zeros(value: Value, target: TorchTarget) -> str:
    where = "" if target.on_cpu else ", device=device"
    return f"torch.zeros({shape_text(value.type.shape)}, dtype={DTYPES[value.type.dtype]}{where})"


# --- prepare --------------------------------------------------------------------------------


def prepare_statements(
    plan: ModulePlan, emitter: FunctionEmitter, tree: Tree, arrays: Mapping[str, int]
) -> list[Statement]:
    """`prepare`'s statements: each derived value is put wherever functions look for it, and
    weights that were joined become views of the whole."""
    places: dict[Value, list[str]] = {}
    for value, path in zip(emitter.expanded.body.results, plan.module.derived, strict=True):
        aliases = [at for at, given in plan.places.aliases.items() if given == path]
        places[value] = [tree.block_at(at) for at in (plan.places.attribute(path), *aliases)]
        emitter.plan.fused.discard(value)
    for node in emitter.expanded.body.nodes:
        before = len(emitter.statements)
        emitter.body_of([node])
        _put(emitter, places, node, before)
        if is_joined(node.op, emitter.expanded.weights) and node.op.output in places:
            whole, start = places[node.op.output][0], 0
            for value in node.op.inputs:
                stop = start + value.type.shape[0]
                weight = tree.path(emitter.expanded.weights[value])
                emitter.add(f"{weight} = {whole}[{start or ''}:{stop}]")
                start = stop
    return reroll(emitter.statements, arrays, emitter.reserved | set(emitter.holders))


def _put(
    emitter: FunctionEmitter, places: Mapping[Value, list[str]], node: Node, before: int
) -> None:
    """Makes derived values attributes of their blocks: at once where each has one place."""
    made = [value for value in node.op.outputs if value in places]
    names = [emitter.names.get(value) for value in made]
    last = emitter.statements[-1] if len(emitter.statements) > before else None
    head = f"{', '.join(map(str, names))} = "
    direct = isinstance(last, Line) and last.text.startswith(head)
    if made and direct and all(len(places[value]) == 1 for value in made):
        assert isinstance(last, Line)
        targets = ", ".join(places[value][0] for value in made)
        emitter.statements[-1] = Line(f"{targets} = {last.text.removeprefix(head)}")
        for value in made:
            emitter.bindings[value] = replace(emitter.bindings[value], code=Code(places[value][0]))
        return
    for value in made:
        code = emitter.context.whole(emitter.operand(value))
        for place in places[value]:
            emitter.add(f"{place} = {code.text}")
