"""Running models with XLA, through JAX.

    import linnet.jax
    m = linnet.jax.load("model.linnet", generics={"Vocab": 32000, …}, weights="model.safetensors")
    m.run_entry("prefill", [tokens, 0])

`load` runs each entry as a StableHLO program, `load_source` as generated JAX source.

source      `load_source`, and entries as functions to differentiate
nnx         an entry as Flax NNX modules
device_model  what loaded models share
model       `load`, and the loaded model: its entries, states and weights
weights     reading a checkpoint into memory that joined weights are views of
program     an entry for one set of shapes: compiled, bound to the weights; weight-only work
executable  compiling StableHLO with the client that JAX holds for a device
cache       compiled programs on disk
arrays      inputs and weights as arrays of a device
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet.jax.model import XlaModel, load
from linnet.jax.source import JaxModel, load_source

if TYPE_CHECKING:
    from linnet.jax.nnx import Model
    from linnet.jax.source import Function


def to_nnx(function: Function, *, state: bool = False) -> Model:
    """A function of a model as a tree of Flax NNX modules; see `linnet.jax.nnx`, which needs
    flax."""
    from linnet.jax.nnx import to_nnx as made

    return made(function, state=state)


__all__ = ["JaxModel", "XlaModel", "load", "load_source", "to_nnx"]
