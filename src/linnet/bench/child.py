"""The process of one method: loads, runs, times, and writes what it found as JSON.

Run by the harness as `python -m linnet.bench.child JOB`, JOB a JSON file that says which card,
method and workload, and where the result goes.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from linnet.bench.machine import peak_memory
from linnet.bench.methods import METHODS
from linnet.bench.workload import Workload


def main(job_path: str) -> None:
    job = json.loads(Path(job_path).read_text(encoding="utf-8"))
    target = Path(job["result"])
    try:
        result: dict[str, Any] = measure(job)
    except Exception as error:  # Whatever a stack raises, the row says it and the run goes on.
        result = {"error": f"{type(error).__name__}: {error}"[:2000]}
        if os.environ.get("LINNET_BENCH_DEBUG"):
            raise
    result["peak_mem"] = peak_memory()
    temporary = target.with_suffix(".tmp")
    temporary.write_text(json.dumps(result), encoding="utf-8")
    os.replace(temporary, target)


def measure(job: dict[str, Any]) -> dict[str, Any]:
    from linnet import nest

    listing = METHODS[job["method"]]
    workload = Workload.from_json(job["workload"])
    module, _, name = listing.implementation.partition(":")
    imported = time.perf_counter()
    method = getattr(importlib.import_module(module), name)(**dict(listing.options))
    card = nest.find(job["card"])
    started = time.perf_counter()
    method.prepare(card, workload)
    load_s = time.perf_counter() - started
    result: dict[str, Any] = {"load_s": load_s, "import_s": started - imported}
    if hasattr(method, "samples"):
        result |= {"samples": method.samples(), "versions": method.versions()}
        for name in ("tokens", "compile_s", "load_s"):
            if hasattr(method, name):
                result[name] = getattr(method, name)
        if hasattr(method, "logits"):
            _save_logits(job, method.logits())
        return result
    samples: dict[str, list[float]] = {"ttft_ms": [], "decode_tok_s": []}
    tokens: list[int] = []
    for run in range(workload.warmup + workload.runs):
        start = time.perf_counter()
        first = method.first_token()
        chosen = time.perf_counter()
        rest = method.decode(workload.new - 1)
        end = time.perf_counter()
        if tokens and tokens != [first, *rest]:
            raise RuntimeError("two runs of one prompt gave different tokens")
        tokens = [first, *rest]
        if run >= workload.warmup:
            samples["ttft_ms"].append((chosen - start) * 1e3)
            if rest:
                samples["decode_tok_s"].append(len(rest) / (end - chosen))
    _save_logits(job, method.logits())
    return result | {
        "compile_s": getattr(method, "compile_s", 0.0),
        "weight_bytes": getattr(method, "weight_bytes", None),
        "samples": samples,
        "tokens": tokens,
        "versions": method.versions(),
    }


def _save_logits(job: dict[str, Any], logits: Any) -> None:
    if logits is not None:
        import numpy as np

        np.save(job["logits"], logits)


if __name__ == "__main__":
    main(sys.argv[1])
