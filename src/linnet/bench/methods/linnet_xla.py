"""Linnet's XLA runtime: each entry a StableHLO program, called step by step."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

import numpy as np

from linnet import nest
from linnet.bench.workload import Workload, random_weight
from linnet.dtypes import DType
from linnet.nest.card import Card


class LinnetXla:
    backend = "xla"

    def __init__(self, dtype: str = "", numerics: str = "fast"):
        self._numerics = numerics
        self._dtype = dtype

    def prepare(self, card: Card, workload: Workload) -> None:
        if workload.threads:
            # XLA has a thread for each processor that its process may use.
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: workload.threads])
        options: dict[str, Any] = {}
        if workload.weights == "random":
            options |= {"weights": random_weight, "bindings": None}
        self._model: Any = nest.load(
            card,
            backend=self.backend,
            generics={"MaxSeq": workload.cache, "Batch": 1},
            dtype=DType(self._dtype or workload.dtype),
            numerics=self._numerics,
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
        step = np.empty((1, 1), np.int32)
        for _ in range(count):
            step[0, 0] = self._last
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
        import linnet

        return {"linnet": linnet.__version__, "jax": version("jax"), "jaxlib": version("jaxlib")}
