"""An entry as a tree of Flax NNX modules, for training loops, optimisers and checkpoints of NNX.

    f = linnet.jax.load_source(…).function("forward")
    module = linnet.jax.to_nnx(f)
    logits = module(tokens)
    nnx.grad(loss)(module)

The modules are the blocks of the source, and the paths of their variables are the parameters'
paths: `layers.3.attention.q.weight`. Parameters are `nnx.Param`s, buffers `Buffer`s, and states
`State`s, which a call of the module replaces.
"""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from linnet.ir.instantiate import parameters
from linnet.jax.source import Function


class Buffer(nnx.Variable):
    """A tensor that comes with the weights and is not trained."""


class State(nnx.Variable):
    """A state, such as a cache."""


_KINDS: dict[str, type[nnx.Variable]] = {"param": nnx.Param, "buffer": Buffer, "state": State}


class Block(nnx.Module):
    """One block: its variables and its children by name; an array of blocks is a list."""


class Model(Block):
    """The root block, and the entry that calling it runs."""

    def __init__(self, function: Function):
        self._function = nnx.static(function)

    def __call__(self, *inputs: Any) -> Any:
        """The entry's result, or a tuple of them. Raises `ValueError` as `Function.apply` does."""
        function: Function = self._function  # type: ignore[assignment]
        held = variables(self)
        values = {path: variable[...] for path, variable in held.items()}
        states = {path: v for path, v in held.items() if isinstance(v, State)}
        if not states:
            return function.apply(values, *inputs)
        given = {path: values[path] for path in states}
        result, new = function.apply_with_state(values, given, *inputs)
        for path, variable in states.items():
            variable[...] = new[path]
        return result


def to_nnx(function: Function, *, state: bool = False) -> Model:
    """The tree of modules of an entry; with `state`, for an entry that has states, they are in it
    too, at zero. The variables share the model's arrays until they change."""
    model = function.model
    held: dict[str, jax.Array] = {**model.state_dict(), **(function.state() if state else {})}
    root = Model(function)
    for spec in parameters(model.instance):
        if spec.path in held:
            _place(root, spec.path, _KINDS[spec.kind](held[spec.path]))
    return root


def _place(root: Block, path: str, variable: nnx.Variable) -> None:
    """Puts a variable where its path says, making the blocks on the way."""
    *parents, name = path.split(".")
    here: Any = root
    for part, following in zip(parents, [*parents[1:], name], strict=True):
        new = nnx.List if following.isdigit() else Block
        if part.isdigit():
            while len(here) <= int(part):
                here.append(new())
            here = here[int(part)]
        else:
            if not hasattr(here, part):
                setattr(here, part, new())
            here = getattr(here, part)
    setattr(here, name, variable)


def variables(module: nnx.Module) -> dict[str, nnx.Variable]:
    """The variables of a tree of modules, by path."""
    return {
        ".".join(map(str, path)): node
        for path, node in nnx.iter_graph(module)
        if isinstance(node, nnx.Variable)
    }
