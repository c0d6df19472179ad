"""Linnet's generated JAX, compiled by XLA and called step by step."""

from __future__ import annotations

from linnet.bench.methods.linnet_xla import LinnetXla


class LinnetJax(LinnetXla):
    backend = "jax"
