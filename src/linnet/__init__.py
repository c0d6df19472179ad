"""Linnet: one checked source for a neural network, every runtime's own fast path."""

__version__ = "0.1.0"
