"""Serving: many requests at once on one model, and an OpenAI-compatible server over it."""

from __future__ import annotations

from linnet.serve.engine import Engine
from linnet.serve.request import Choice, Completion, QueueFull, Refused, Request, Step

__all__ = ["Choice", "Completion", "Engine", "QueueFull", "Refused", "Request", "Step"]
