"""The machine: what it is, and how fast it reads memory."""

from __future__ import annotations

import os
import platform
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np


def describe() -> dict[str, object]:
    """Processor, cores, memory in bytes and system, as a result records them."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def peak_memory() -> int:
    """The most memory that this process has held resident, in bytes.

    Linux's own figure where there is one: `getrusage` also counts what the parent held when it
    started this process.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def read_bandwidth(megabytes: int = 512, seconds: float = 0.5) -> float:
    """Bytes a second that all cores together read from memory, the best of several passes.

    Each core sums its own part of an array too large for any cache.
    """
    cores = os.cpu_count() or 1
    parts = np.array_split(np.ones(megabytes * (1 << 18), np.float32), cores)
    size = sum(part.nbytes for part in parts)
    best = 0.0
    with ThreadPoolExecutor(cores) as pool:
        deadline = time.perf_counter() + seconds
        while not best or time.perf_counter() < deadline:
            start = time.perf_counter()
            list(pool.map(np.max, parts))
            best = max(best, size / (time.perf_counter() - start))
    return best
