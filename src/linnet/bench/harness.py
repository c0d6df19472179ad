"""Runs methods one after the other, each in a process of its own, and keeps what they found.

The result of a run is one JSON object (`bench.json` of a card): the machine, and for each workload
the rows, with every repetition's sample. A method that can't run here is recorded with the reason;
one that fails doesn't stop the others; a rerun replaces only what it measured.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from linnet.bench.machine import describe, read_bandwidth
from linnet.bench.methods import METHODS, REFERENCE, why_not
from linnet.bench.workload import Workload
from linnet.nest.card import Card

TIMEOUT = 3600.0
"""Seconds that one method may take."""


def run_bench(
    card: Card,
    workload: Workload,
    methods: Sequence[str],
    *,
    on_row: Callable[[str, Mapping[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Measures the methods on a workload; the reference runs first where it is among them.

    Raises `ValueError` for an unknown method.
    """
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise ValueError(f"no method {unknown[0]!r}: there are {', '.join(METHODS)}")
    ordered = sorted(methods, key=lambda name: name != REFERENCE)
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="linnet-bench-") as folder:
        for name in ordered:
            reason = why_not(METHODS[name])
            row = {"absent": reason} if reason else _run_one(card, workload, name, Path(folder))
            row |= _distance(Path(folder), name, rows)
            row["date"] = datetime.now(UTC).isoformat(timespec="seconds")
            rows[name] = row
            if on_row is not None:
                on_row(name, row)
    return {
        "card": card.name,
        "machine": describe() | {"read_bandwidth": read_bandwidth()},
        "workload": workload.to_json(),
        "rows": rows,
    }


def _run_one(card: Card, workload: Workload, name: str, folder: Path) -> dict[str, Any]:
    job = folder / f"{name}.job.json"
    result = folder / f"{name}.result.json"
    log = folder / f"{name}.log"
    job.write_text(
        json.dumps(
            {
                "card": str(card.directory),
                "method": name,
                "workload": workload.to_json(),
                "result": str(result),
                "logits": str(_logits(folder, name)),
            }
        )
    )
    command = [sys.executable, "-m", "linnet.bench.child", str(job)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        watched = _watch(process)
    if not result.is_file():
        tail = log.read_text(errors="replace").strip().splitlines()[-3:]
        why = "it took too long" if watched is None else f"exit status {process.returncode}"
        return {"error": f"{why}: {' / '.join(tail)}"[:2000]}
    row = json.loads(result.read_text())
    row["peak_mem"] = max(row.get("peak_mem", 0), watched or 0)
    for metric, values in row.get("samples", {}).items():
        if values:
            row[metric] = statistics.median(values)
    return row


def _watch(process: subprocess.Popen[bytes]) -> int | None:
    """Waits for a process; the most memory that it and its children held at once, in bytes."""
    import psutil

    peak, deadline = 0, time.monotonic() + TIMEOUT
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            return None
        try:
            parent = psutil.Process(process.pid)
            family = [parent, *parent.children(recursive=True)]
            peak = max(peak, sum(member.memory_info().rss for member in family))
        except psutil.Error:
            pass
        time.sleep(0.05)
    return peak


def _logits(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"


def _distance(folder: Path, name: str, rows: Mapping[str, Any]) -> dict[str, Any]:
    """How far a method's logits lie from the reference's, and whether its tokens are the same."""
    import numpy as np

    reference, own = _logits(folder, REFERENCE), _logits(folder, name)
    if name == REFERENCE or not reference.is_file() or not own.is_file():
        return {}
    distance = float(np.abs(np.load(reference) - np.load(own)).max())
    result = json.loads((folder / f"{name}.result.json").read_text())
    expected, found = rows[REFERENCE].get("tokens", []), result.get("tokens", [])
    same = next(
        (i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), len(found)
    )
    return {"distance": distance, "same_tokens": same}


def save(path: Path, result: Mapping[str, Any]) -> None:
    """Puts a run's rows into a result file, beside those that are there; never half a file."""
    kept: list[dict[str, Any]] = []
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8")).get("runs", [])
    merged = dict(result)
    rest = []
    for run in kept:
        same = all(run.get(key) == result[key] for key in ("card", "workload"))
        if same and _machine(run) == _machine(result):
            merged["rows"] = {**run["rows"], **result["rows"]}
        else:
            rest.append(run)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps({"format": 1, "runs": [*rest, merged]}, indent=1) + "\n")
    os.replace(temporary, path)


def _machine(run: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in run.get("machine", {}).items() if k != "read_bandwidth"}
