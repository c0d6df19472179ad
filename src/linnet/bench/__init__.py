"""Benchmarks: the same request through every stack, each in a process of its own."""

from linnet.bench.harness import run_bench, save
from linnet.bench.workload import PROFILES, Workload

__all__ = ["PROFILES", "Workload", "run_bench", "save"]
