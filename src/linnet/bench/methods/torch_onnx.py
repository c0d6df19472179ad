"""Transformers' own model through `torch.onnx.export`, on the same ONNX Runtime.

The model is exported twice, by dynamo, with its cache as inputs and outputs that grow by what is
taken in: once for the prompt, once for a token after any number of positions. What a step gives as
its cache is the next one's input, without a copy on the way.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from linnet import nest
from linnet.bench.methods.hf_transformers import load_reference
from linnet.bench.workload import Workload
from linnet.nest.card import Card


class TorchOnnx:
    def prepare(self, card: Card, workload: Workload) -> None:
        import time

        import torch

        if workload.weights == "random" or workload.dtype != "f32":
            raise ValueError("the export is measured on a card's own weights, in f32")
        self._layers = card.generics["Layers"]
        self._prompt = np.asarray([workload.prompt_ids(card.generics["Vocab"])], np.int64)
        model = load_reference(nest.fetch(card.weights), torch.float32)
        started = time.perf_counter()
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "model.onnx"
        _export(torch, model, self._layers, path)
        del model
        self._session = _open(path, workload.threads)
        self.compile_s = time.perf_counter() - started
        self._shape = (1, card.generics["KvHeads"], 0, card.generics["H"] // card.generics["Heads"])

    def first_token(self) -> int:
        import onnxruntime as ort

        empty = np.zeros(self._shape, np.float32)
        self._past = [ort.OrtValue.ortvalue_from_numpy(empty) for _ in range(2 * self._layers)]
        self._position = 0
        self._run(self._prompt)
        return self._last

    def decode(self, count: int) -> list[int]:
        tokens = []
        for _ in range(count):
            self._run(np.array([[self._last]], np.int64))
            tokens.append(self._last)
        return tokens

    def _run(self, tokens: np.ndarray) -> None:
        binding = self._session.io_binding()
        places = np.arange(self._position, self._position + tokens.shape[1])[None]
        given = {"tokens": tokens, "positions": places}
        names = [value.name for value in self._session.get_inputs()]
        for name, array in given.items():
            binding.bind_cpu_input(name, array)
        for name, value in zip(names[2:], self._past, strict=True):
            binding.bind_ortvalue_input(name, value)
        for value in self._session.get_outputs():
            binding.bind_output(value.name)
        self._session.run_with_iobinding(binding)
        logits, *self._past = binding.get_outputs()
        self._logits = logits.numpy()[0, -1]
        self._last = int(self._logits.argmax())
        self._position += tokens.shape[1]

    def logits(self) -> np.ndarray:
        self.first_token()
        return self._logits

    def versions(self) -> dict[str, str]:
        import onnxruntime
        import torch
        import transformers

        return {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "onnxruntime": onnxruntime.__version__,
        }


def _export(torch: Any, model: Any, layers: int, path: Path) -> None:
    from transformers import DynamicCache

    class Step(torch.nn.Module):
        """The model over a cache given and taken as plain tensors."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Any, positions: Any, past: list[Any]) -> Any:
            cache = DynamicCache(config=model.config)
            for layer in range(layers):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            output = self.model(
                tokens, position_ids=positions, past_key_values=cache, use_cache=True,
                logits_to_keep=1,
            )  # fmt: skip
            layers_: Any = cache.layers
            grown = [x for layer in layers_ for x in (layer.keys, layer.values)]
            return output.logits, *grown

    config = model.config
    depth = config.hidden_size // config.num_attention_heads
    past = [torch.zeros(1, config.num_key_value_heads, 7, depth) for _ in range(2 * layers)]
    tokens = torch.zeros((1, 3), dtype=torch.int64)
    positions = torch.arange(7, 10)[None]
    dim = torch.export.Dim
    taken, held = dim("taken", min=1, max=8192), dim("held", min=0, max=8192)
    names = [f"past_{i}" for i in range(2 * layers)]
    with torch.no_grad():
        torch.onnx.export(
            Step().eval(),
            (tokens, positions, past),
            str(path),
            input_names=["tokens", "positions", *names],
            output_names=["logits", *(f"present_{i}" for i in range(2 * layers))],
            dynamic_shapes=({1: taken}, {1: taken}, [{2: held}] * (2 * layers)),
            dynamo=True,
            external_data=True,
            verbose=False,
        )


def _open(path: Path, threads: int) -> Any:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 3
    return ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
