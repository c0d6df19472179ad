"""GGUF's block formats, as vectorised code.

A block is a few scales and the integers they scale. Each decoder takes blocks as bytes,
`[blocks, bytes a block]`, and gives f32 values, `[blocks, values a block]`, in the order of
operations that llama.cpp's own reference code takes, so that results are equal bit for bit.
Formats: ggml's `ggml-common.h` and `ggml-quants.c`, as published.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class BlockFormat:
    name: str
    values: int
    """Values a block."""
    size: int
    """Bytes a block."""
    decode: Callable[[np.ndarray], np.ndarray]


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The f16 at a byte of every block, as f32, `[blocks, 1]`."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """Two values a byte: all the low halves of a block, then all the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    quants = _nibbles(blocks[:, 2:]).astype(np.int8) - np.int8(8)
    return _half(blocks, 0) * quants.astype(np.float32)


def _q4_1(blocks: np.ndarray) -> np.ndarray:
    out = _nibbles(blocks[:, 4:]).astype(np.float32)
    out *= _half(blocks, 0)
    out += _half(blocks, 2)
    return out


def _fifth_bits(blocks: np.ndarray, at: int) -> np.ndarray:
    """The 32 bits at a byte of every block, as 0 or 16."""
    bits = np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little")
    return bits << 4


def _q5_0(blocks: np.ndarray) -> np.ndarray:
    quants = (_nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)).astype(np.int8) - np.int8(16)
    return _half(blocks, 0) * quants.astype(np.float32)


def _q5_1(blocks: np.ndarray) -> np.ndarray:
    quants = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)
    return _half(blocks, 0) * quants.astype(np.float32) + _half(blocks, 2)


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    quants = np.ascontiguousarray(blocks[:, 2:]).view(np.int8)
    return quants.astype(np.float32) * _half(blocks, 0)


def _k_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eight 6-bit scales and eight 6-bit minima from 12 bytes, each `[blocks, 8]`."""
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 2) & 48)], axis=1)
    minima = np.concatenate([middle & 63, (high >> 4) | ((middle >> 2) & 48)], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _k_nibbles(packed: np.ndarray) -> np.ndarray:
    """128 bytes as eight runs of 32 values: each 32 bytes give a low and a high run."""
    groups = packed.reshape(-1, 4, 1, 32)
    return np.concatenate([groups & 15, groups >> 4], axis=2).reshape(-1, 8, 32)


def _k_apply(blocks: np.ndarray, quants: np.ndarray) -> np.ndarray:
    scales, minima = _k_scales(blocks[:, 4:16])
    scale = (_half(blocks, 0) * scales)[:, :, None]
    offset = (_half(blocks, 2) * minima)[:, :, None]
    return (scale * quants.astype(np.float32) - offset).reshape(-1, 256)


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    return _k_apply(blocks, _k_nibbles(blocks[:, 16:144]))


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    shifts = np.arange(8, dtype=np.uint8)[None, :, None]
    high = (blocks[:, None, 16:48] >> shifts) & 1
    return _k_apply(blocks, _k_nibbles(blocks[:, 48:176]) | (high << 4))


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[None, None, :, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3
    quants = (low | (high << 4)).astype(np.int8) - np.int8(32)
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    scale = (_half(blocks, 208) * scales)[:, :, None]
    return (scale * quants.reshape(-1, 16, 16).astype(np.float32)).reshape(-1, 256)


def _pairs_of_bits(packed: np.ndarray) -> np.ndarray:
    """64 bytes as sixteen runs of 16 values of two bits: each 32 bytes give four double runs."""
    shifts = np.array([0, 2, 4, 6], np.uint8)[None, None, :, None]
    return ((packed.reshape(-1, 2, 1, 32) >> shifts) & 3).reshape(-1, 16, 16)


def _q2_k(blocks: np.ndarray) -> np.ndarray:
    packed = blocks[:, :16]
    scale = (_half(blocks, 80) * (packed & 15).astype(np.float32))[:, :, None]
    offset = (_half(blocks, 82) * (packed >> 4).astype(np.float32))[:, :, None]
    quants = _pairs_of_bits(blocks[:, 16:80]).astype(np.float32)
    return (scale * quants - offset).reshape(-1, 256)


def _q3_k(blocks: np.ndarray) -> np.ndarray:
    packed = blocks[:, 96:108]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    shifts = np.array([0, 2, 4, 6], np.uint8)[None, :, None]
    high = ((packed[:, None, 8:] >> shifts) & 3).reshape(-1, 16)
    scales = ((low | (high << 4)).astype(np.int8) - np.int8(32)).astype(np.float32)
    # The mask's bit says that 4 is *not* taken off.
    bits = np.arange(8, dtype=np.uint8)[None, :, None]
    mask = ((blocks[:, None, :32] >> bits) & 1).reshape(-1, 16, 16)
    quants = (_pairs_of_bits(blocks[:, 32:96]) | (mask << 2)).astype(np.int8) - np.int8(4)
    scale = (_half(blocks, 108) * scales)[:, :, None]
    return (scale * quants.astype(np.float32)).reshape(-1, 256)


_LEVELS = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
"""What the sixteen values of the IQ4 formats stand for."""


def _iq4_nl(blocks: np.ndarray) -> np.ndarray:
    return _half(blocks, 0) * _LEVELS[_nibbles(blocks[:, 2:])]


def _iq4_xs(blocks: np.ndarray) -> np.ndarray:
    low, high = blocks[:, 4:8, None], np.ascontiguousarray(blocks[:, 2:4]).view(np.uint16)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 8)
    high = (high >> np.arange(0, 16, 2, dtype=np.uint16)).astype(np.uint8) & 3
    scales = ((low | (high << 4)).astype(np.int8) - np.int8(32)).astype(np.float32)
    levels = _LEVELS[_nibbles(blocks[:, 8:].reshape(-1, 16))].reshape(-1, 8, 32)
    return ((_half(blocks, 0) * scales)[:, :, None] * levels).reshape(-1, 256)


FORMATS: dict[int, BlockFormat] = {
    2: BlockFormat("Q4_0", 32, 18, _q4_0),
    3: BlockFormat("Q4_1", 32, 20, _q4_1),
    6: BlockFormat("Q5_0", 32, 22, _q5_0),
    7: BlockFormat("Q5_1", 32, 24, _q5_1),
    8: BlockFormat("Q8_0", 32, 34, _q8_0),
    10: BlockFormat("Q2_K", 256, 84, _q2_k),
    11: BlockFormat("Q3_K", 256, 110, _q3_k),
    12: BlockFormat("Q4_K", 256, 144, _q4_k),
    13: BlockFormat("Q5_K", 256, 176, _q5_k),
    14: BlockFormat("Q6_K", 256, 210, _q6_k),
    20: BlockFormat("IQ4_NL", 32, 18, _iq4_nl),
    23: BlockFormat("IQ4_XS", 256, 136, _iq4_xs),
}
"""By GGUF's number of the type."""
