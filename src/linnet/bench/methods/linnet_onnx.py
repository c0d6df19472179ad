"""Linnet's own ONNX Runtime runtime: in f32, f16, bf16, or with weights in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from linnet import nest
from linnet.bench.workload import Workload, random_weight
from linnet.dtypes import DType
from linnet.nest.card import Card


class LinnetOnnx:
    def __init__(self, quantize: str = "", dtype: str = "", device: str = "", prepack: str = ""):
        self._options: dict[str, Any] = {
            "quantize": quantize or None,
            "device": device or "cpu",
            "prepack": bool(prepack),
        }
        self._dtype = dtype

    def prepare(self, card: Card, workload: Workload) -> None:
        options = dict(self._options)
        if workload.threads:
            options["threads"] = workload.threads
        if workload.weights == "random":
            options["weights"] = random_weight
            options["bindings"] = None
        self._model: Any = nest.load(
            card,
            backend="onnx",
            generics={"MaxSeq": workload.cache, "Batch": 1},
            dtype=DType(self._dtype or workload.dtype),
            **options,
        )
        self._prompt = np.asarray([workload.prompt_ids(card.generics["Vocab"])], np.int32)

    def first_token(self) -> int:
        self._logits = self._model.run_entry("prefill", [self._prompt, 0])
        self._position = self._prompt.shape[1]
        self._last = int(self._model.argmax(self._logits)[0])
        return self._last

    def decode(self, count: int) -> list[int]:
        tokens = []
        for _ in range(count):
            step = np.array([[self._last]], np.int32)
            logits = self._model.run_entry("decode", [step, self._position])
            self._last = int(self._model.argmax(logits)[0])
            self._position += 1
            tokens.append(self._last)
        return tokens

    def logits(self) -> np.ndarray:
        self.first_token()
        return self._model.to_numpy(self._logits)[0]

    @property
    def compile_s(self) -> float:
        return self._model.compile_s

    @property
    def weight_bytes(self) -> int:
        return self._model.weight_bytes

    def versions(self) -> dict[str, str]:
        import onnxruntime

        import linnet

        return {"linnet": linnet.__version__, "onnxruntime": onnxruntime.__version__}
