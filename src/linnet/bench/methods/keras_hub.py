"""KerasHub on its JAX backend, in an environment of its own, on the same weights.

KerasHub pins what others need otherwise, so it is run by the interpreter of another environment,
which `LINNET_KERAS_PYTHON` names: `python -m venv keras; keras/bin/pip install keras-hub jax`.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from linnet import nest
from linnet.bench.methods.hf_transformers import parameter_paths
from linnet.bench.workload import Workload, random_weight
from linnet.dtypes import DType
from linnet.loading import begin
from linnet.nest.card import Card

_SCRIPT = Path(__file__).with_name("keras_hub_run.py")


def find_keras_python() -> Path | None:
    """`$LINNET_KERAS_PYTHON`, where it is a file."""
    given = os.environ.get("LINNET_KERAS_PYTHON")
    return Path(given) if given and Path(given).is_file() else None


class KerasHub:
    def prepare(self, card: Card, workload: Workload) -> None:
        if card.family != "llama":
            raise ValueError(f"KerasHub is measured on Llamas, {card.name} is a {card.family}")
        self._card, self._workload = card, workload
        self._result: dict[str, Any] = {}

    def samples(self) -> dict[str, list[float]]:
        with tempfile.TemporaryDirectory(prefix="linnet-keras-") as folder:
            self._result = self._run(Path(folder))
            self._logits = np.load(Path(folder) / "logits.npy")
        return self._result["samples"]

    def _run(self, folder: Path) -> dict[str, Any]:
        python = find_keras_python()
        assert python is not None
        card, workload = self._card, self._workload
        tied = "tied-head" in card.tags
        _write_weights(card, workload, tied, folder)
        result = folder / "result.json"
        job = {
            "sizes": dict(card.generics),
            "tied": tied,
            "dtype": workload.dtype,
            "weights": str(folder),
            "prompt": workload.prompt_ids(card.generics["Vocab"]),
            "new": workload.new,
            "runs": workload.runs,
            "warmup": workload.warmup,
            "result": str(result),
            "logits": str(folder / "logits.npy"),
        }
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "XLA_FLAGS")}
        # Isolated, so that this folder is not where it looks for modules.
        command = [str(python), "-I", str(_SCRIPT), str(folder / "job.json")]
        if workload.threads:
            # XLA has a thread for each processor that its process may use.
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: workload.threads])
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode or not result.is_file():
            raise RuntimeError(f"KerasHub failed: {done.stderr.strip()[-1000:]}")
        return json.loads(result.read_text(encoding="utf-8"))

    @property
    def tokens(self) -> list[int]:
        return self._result["tokens"]

    def logits(self) -> np.ndarray:
        return self._logits

    @property
    def compile_s(self) -> float:
        return self._result["compile_s"]

    @property
    def load_s(self) -> float:
        return self._result["load_s"]

    @property
    def weight_bytes(self) -> int | None:
        return None

    def versions(self) -> dict[str, str]:
        return self._result["versions"]


def _write_weights(card: Card, workload: Workload, tied: bool, folder: Path) -> None:
    """Every weight as an f32 array in a file of its own, by parameter path."""
    read = _reader(card, workload, tied)
    for path in parameter_paths(card, tied):
        np.save(folder / f"{path}.npy", read(path))


def _reader(card: Card, workload: Workload, tied: bool) -> Callable[[str], np.ndarray]:
    random = workload.weights == "random"
    loading = begin(
        card.source,
        root=card.root,
        generics={**card.generics, "MaxSeq": 1},
        weights=random_weight if random else nest.fetch(card.weights),
        bindings=None if random else card.bindings,
        dtype=DType.F32,
    )
    shapes = {spec.path: spec.shape for spec in loading.weights}

    def read(path: str) -> np.ndarray:
        array = np.empty(shapes[path], np.float32)
        loading.read(path, array)
        return array

    return read
