"""Running models with XLA, through JAX.

    import linnet.jax
    m = linnet.jax.load("model.linnet", generics={"Vocab": 32000, …}, weights="model.safetensors")
    m.run_entry("prefill", [tokens, 0])

model       `load`, and the loaded model: its entries, states and weights
weights     reading a checkpoint into memory that joined weights are views of
program     an entry for one set of shapes: compiled, bound to the weights; weight-only work
executable  compiling StableHLO with the client that JAX holds for a device
cache       compiled programs on disk
arrays      inputs and weights as arrays of a device
"""

from linnet.jax.model import XlaModel, load

__all__ = ["XlaModel", "load"]
