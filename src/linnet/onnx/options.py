"""The options of `linnet.onnx.load`, read and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime as ort

from linnet.onnx.packed import BITS
from linnet.onnx.session import PROVIDERS, Options


def read_options(
    provider: str | None,
    device: str | None,
    provider_options: Mapping[str, Any] | None,
    threads: int | None,
    prepack: bool,
    cuda_graphs: bool,
) -> Options:
    """Raises `ValueError` for what doesn't fit together, or isn't there."""
    kind, _, index = (device or "cpu").partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise ValueError(f"no device {device!r}: use cpu, cuda, or cuda:N")
    name = provider or kind
    if name not in PROVIDERS:
        raise ValueError(f"provider must be one of {', '.join(PROVIDERS)}, not {name!r}")
    if device is not None and (name == "cpu") != (kind == "cpu"):
        raise ValueError(f"the provider {name} does not run on {device}")
    if PROVIDERS[name] not in ort.get_available_providers():
        there = [short for short, long in PROVIDERS.items() if long in _available()]
        raise ValueError(
            f"this onnxruntime has no {PROVIDERS[name]}: it has {', '.join(there)}; install "
            "onnxruntime-gpu for the others"
        )
    if cuda_graphs and name == "cpu":
        raise ValueError("CUDA graphs need provider='cuda' or 'tensorrt'")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    given = {key: str(value) for key, value in (provider_options or {}).items()}
    if name != "cpu" and index:
        given.setdefault("device_id", index)
    if name == "tensorrt":
        given.setdefault("trt_engine_cache_enable", "1")
        given.setdefault("trt_engine_cache_path", str(_engine_cache()))
    return Options(name, given, threads or physical_cores(), prepack, cuda_graphs)


def _available() -> list[str]:
    return list(ort.get_available_providers())


def _engine_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "linnet" / "tensorrt"


def check_quantise(quantize: str | None, symmetric: bool) -> None:
    """Raises `ValueError` for an unknown way."""
    if quantize is not None and quantize not in BITS:
        raise ValueError(f"quantize must be None, {' or '.join(BITS)}, not {quantize!r}")
    if quantize is None and not symmetric:
        raise ValueError("symmetric=False says how to quantise: give quantize as well")


def physical_cores() -> int:
    """The cores that this process may use, each once: two threads on one core share its
    arithmetic. `OMP_NUM_THREADS` says otherwise."""
    if os.environ.get("OMP_NUM_THREADS", "").isdigit():
        return max(int(os.environ["OMP_NUM_THREADS"]), 1)
    allowed = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return len(allowed)
    cores = set()
    for block in text.split("\n\n"):
        fields = dict(line.split(":", 1) for line in block.splitlines() if ":" in line)
        named = {name.strip(): value.strip() for name, value in fields.items()}
        if "core id" in named and int(named.get("processor", -1)) in allowed:
            cores.add((named.get("physical id"), named["core id"]))
    return len(cores) or len(allowed)
