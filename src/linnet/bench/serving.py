"""Throughput of serving: many requests, some in flight at a time, through ways of batching them.

Every method gets the same requests of random ordinary tokens and generates the same number of
tokens for each, greedily, whatever they are. Each runs in a process of its own:

    python -m linnet.bench.serving linnet transformers static --weights model.gguf

A method is a function that loads and gives what serves a list of prompts; it is timed by the wall.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from linnet.bench.machine import peak_memory

Serve = Callable[[Sequence[list[int]]], "list[Served]"]


@dataclass(frozen=True, slots=True)
class Load:
    """The requests: `count` of `shortest` to `longest` tokens, `new` more for each."""

    count: int = 32
    shortest: int = 32
    longest: int = 128
    new: int = 32
    in_flight: int = 16
    seed: int = 0
    dtype: str = "f32"

    def prompts(self, vocab: int) -> list[list[int]]:
        """Random tokens, clear of the special ones at both ends of the vocabulary."""
        random = np.random.default_rng(self.seed)
        lengths = random.integers(self.shortest, self.longest + 1, self.count)
        return [random.integers(100, vocab - 100, int(n)).tolist() for n in lengths]

    @property
    def cache(self) -> int:
        """Positions that the longest request needs, in whole 64s."""
        return -(-(self.longest + self.new) // 64) * 64


@dataclass(frozen=True, slots=True)
class Served:
    """One request's answer."""

    tokens: list[int]
    ttft_s: float | None
    """From its submission; None where a method gives whole answers only."""


METHODS: dict[str, str] = {
    "linnet": "linnet.bench.methods.serving_linnet:prepare",
    "transformers": "linnet.bench.methods.serving_transformers:prepare_continuous",
    "static": "linnet.bench.methods.serving_transformers:prepare_static",
    "vllm": "linnet.bench.methods.serving_vllm:prepare",
}
"""`module:function`, which takes a card's name, its weights and the load, and gives a `Serve`."""


def measure(method: str, card: str, weights: str | None, load: Load, runs: int) -> dict[str, Any]:
    """One method's figures, in this process: the best of some runs after one that warms up."""
    module, _, name = METHODS[method].partition(":")
    started = time.perf_counter()
    serve, vocab = getattr(importlib.import_module(module), name)(card, weights, load)
    load_s = time.perf_counter() - started
    prompts = load.prompts(vocab)
    serve(prompts[: max(2, load.in_flight // 4)])
    results = []
    for _ in range(runs):
        before, cpu = time.perf_counter(), time.process_time()
        served = serve(prompts)
        results.append((time.perf_counter() - before, time.process_time() - cpu, served))
    seconds, cpu_s, served = min(results, key=lambda result: result[0])
    short = [one for one in served if len(one.tokens) != load.new]
    if short:
        raise RuntimeError(f"{len(short)} answers are not of {load.new} tokens")
    first = [one.ttft_s for one in served if one.ttft_s is not None]
    return {
        "method": method,
        "seconds": [round(result[0], 3) for result in results],
        "cpu_s": round(cpu_s, 3),
        "tok_s": round(load.count * load.new / seconds, 1),
        "ttft_ms": [round(1e3 * float(np.percentile(first, q)), 1) for q in (50, 95)]
        if first
        else None,
        "load_s": round(load_s, 2),
        "peak_mib": round(peak_memory() / 2**20),
        "tokens": [one.tokens for one in served],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("methods", nargs="+", choices=METHODS)
    parser.add_argument("--card", default="smollm2-135m-instruct")
    parser.add_argument("--weights")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--python", action="append", default=[], metavar="METHOD=PYTHON",
                        help="the interpreter of a method's own environment")  # fmt: skip
    parser.add_argument("--here", help=argparse.SUPPRESS)
    for field, default in asdict(Load()).items():
        parser.add_argument(f"--{field.replace('_', '-')}", type=type(default), default=default)
    given = parser.parse_args()
    load = Load(**{field: getattr(given, field) for field in asdict(Load())})
    if given.here:
        result = measure(given.methods[0], given.card, given.weights, load, given.runs)
        Path(given.here).write_text(json.dumps(result), encoding="utf-8")
        return
    pythons = dict(item.split("=", 1) for item in given.python)
    expected: list[list[int]] | None = None
    options = [f"--{f.replace('_', '-')}={value}" for f, value in asdict(load).items()]
    options += [f"--card={given.card}", f"--runs={given.runs}"]
    options += [f"--weights={given.weights}"] if given.weights else []
    for method in given.methods:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "result.json"
            python = pythons.get(method, sys.executable)
            command = [python, "-m", "linnet.bench.serving", method, f"--here={target}", *options]
            status = subprocess.run(command, stdout=2, env=_environment(), check=False).returncode
            if status != 0 or not target.is_file():
                print(json.dumps({"method": method, "error": f"exit status {status}"}))
                continue
            result = json.loads(target.read_text(encoding="utf-8"))
        tokens: list[list[int]] = result.pop("tokens")
        if expected is None:
            expected = tokens
        result["same_as_first"] = sum(a == b for a, b in zip(tokens, expected, strict=True))
        print(json.dumps(result), flush=True)


def _environment() -> dict[str, str]:
    """An environment of its own has no Linnet installed: it finds this one's source."""
    root = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root}


if __name__ == "__main__":
    main()
