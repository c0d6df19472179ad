"""Running models with PyTorch.

    import linnet.torch
    m = linnet.torch.load("model.linnet", generics={"Vocab": 32000, …}, weights="model.safetensors")
    m.run_entry("prefill", [tokens, 0])

model      `load`, and the loaded model: its entries, states and weights
weights    reading a checkpoint into buffers laid out so that joined weights are views
derived    weight-only work, done once for all entries
entry      one entry for one set of shapes: generated, compiled, bound to the weights
pieces     compiling a piece of generated source with inductor
operators  functions that compiled code calls as they are
graphs     capturing an entry in a CUDA graph
"""

from linnet.torch.model import TorchModel, load

__all__ = ["TorchModel", "load"]
