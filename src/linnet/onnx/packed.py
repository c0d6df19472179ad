"""Weights in blocks of 32 values of 4 or 8 bits, as `MatMulNBits` multiplies by them.

A value is `(q - zero) · scale + offset`, with q unsigned; `zero` is the middle (8 or 128) unless a
block has its own. GGUF's Q4_0, Q4_1 and Q8_0 blocks are of that form and are carried over: their
integers and scales stay what they are. Q4_1's `q · scale + least` gets the offset `least +
8 · scale`, which f32 holds exactly for all but absurd scales. Others are rounded, by the ways of
ggml's reference quantiser: symmetric, so that the value furthest from 0 is met exactly by 4 bits;
asymmetric from the least to the largest value, with a zero point among them.

MatMulNBits: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from linnet.emit.onnx_target import Part

BLOCK = 32
BITS = {"int4": 4, "int8": 8}
CARRIED = {"int4": ("Q4_0", "Q4_1", "Q8_0"), "int8": ("Q8_0",)}
"""The GGUF formats whose blocks are taken as they are, by what was asked for."""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed weight: its arrays by name, and how far its values are from the weight's own."""

    part: Part
    arrays: Arrays
    error: float
    """Root of the mean square of the differences, relative to that of the values; 0 where blocks
    were carried over."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


def carry(name: str, form: str, stored: np.ndarray) -> Packed:
    """GGUF's blocks, `[rows, blocks, bytes]`, carried over. `form` is one of `CARRIED`."""
    rows, blocks, _ = stored.shape
    scales = _half(stored, 0)
    offsets = None
    if form == "Q8_0":
        # From -128 … 127 to 0 … 255: the top bit turned.
        packed = stored[:, :, 2:] ^ np.uint8(0x80)
    else:
        first = 2 if form == "Q4_0" else 4
        halves = stored[:, :, first:]
        quants = np.concatenate([halves & 15, halves >> 4], axis=2)
        packed = _pack(quants, 4)
        if form == "Q4_1":
            offsets = _half(stored, 2) + np.float32(8) * scales
    bits = 8 if form == "Q8_0" else 4
    part = Part(name, rows, blocks * BLOCK, bits, offsets=offsets is not None)
    return Packed(part, _arrays(name, packed, scales, None, offsets), 0.0)


def quantise(name: str, values: np.ndarray, bits: int, symmetric: bool) -> Packed:
    """A matrix of f32, `[rows, columns]`, rounded to blocks. `columns` is a multiple of 32."""
    rows, columns = values.shape
    blocks = values.reshape(rows, -1, BLOCK)
    if symmetric:
        quants, scales = _symmetric(blocks, bits)
        zeros = None
    else:
        quants, scales, zeros = _asymmetric(blocks, bits)
    part = Part(name, rows, columns, bits, zeros=zeros is not None)
    packed = _pack(quants, bits)
    kept = None if zeros is None else _pack_row(zeros, bits)
    arrays = _arrays(name, packed, scales, kept, None)
    middle = np.float32(1 << (bits - 1)) if zeros is None else zeros[:, :, None].astype(np.float32)
    found = (quants.astype(np.float32) - middle) * scales[:, :, None]
    size = float(np.sqrt(np.mean(np.square(blocks, dtype=np.float64))))
    off = float(np.sqrt(np.mean(np.square(found - blocks, dtype=np.float64))))
    return Packed(part, arrays, off / size if size else 0.0)


def values(packed: Packed) -> np.ndarray:
    """The f32 values that a packed weight stands for, `[rows, columns]`."""
    part, arrays = packed.part, packed.arrays
    blocks = arrays[f"{part.name}.blocks"]
    quants = _unpack(blocks) if part.bits == 4 else blocks
    middle = np.float32(1 << (part.bits - 1))
    if part.zeros:
        zeros = arrays[f"{part.name}.zeros"]
        zeros = _unpack(zeros)[:, : blocks.shape[1]] if part.bits == 4 else zeros
        middle = zeros[:, :, None].astype(np.float32)
    found = (quants.astype(np.float32) - middle) * arrays[f"{part.name}.scales"][:, :, None]
    if part.offsets:
        found += arrays[f"{part.name}.offsets"].T[:, :, None]
    return found.reshape(part.rows, part.columns)


def _symmetric(blocks: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    middle = 1 << (bits - 1)
    furthest = np.abs(blocks).argmax(axis=2)[:, :, None]
    extreme = np.take_along_axis(blocks, furthest, axis=2)[:, :, 0]
    # 4 bits reach 8 down and 7 up: the furthest value is put down. 8 bits reach far enough.
    scales = extreme / -middle if bits == 4 else np.abs(extreme) / (middle - 1)
    scales = scales.astype(np.float32)
    quants = np.rint(blocks * _inverse(scales)[:, :, None]) + middle
    return np.clip(quants, 0, 2 * middle - 1).astype(np.uint8), scales


def _asymmetric(blocks: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    most = (1 << bits) - 1
    low = np.minimum(blocks.min(axis=2), 0)
    high = np.maximum(blocks.max(axis=2), 0)
    scales = ((high - low) / most).astype(np.float32)
    inverse = _inverse(scales)
    zeros = np.clip(np.rint(-low * inverse), 0, most)
    quants = np.rint(blocks * inverse[:, :, None]) + zeros[:, :, None]
    return np.clip(quants, 0, most).astype(np.uint8), scales, zeros.astype(np.uint8)


def _inverse(scales: np.ndarray) -> np.ndarray:
    """One over each scale, 0 for a block of zeros."""
    return np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)


def _half(stored: np.ndarray, at: int) -> np.ndarray:
    """The f16 at a byte of every block, as f32."""
    return (
        np.ascontiguousarray(stored[:, :, at : at + 2]).view(np.float16)[:, :, 0].astype(np.float32)
    )


def _pack(quants: np.ndarray, bits: int) -> np.ndarray:
    """Values of a block as bytes: of 4 bits two a byte, the earlier one low."""
    return quants if bits == 8 else quants[:, :, 0::2] | (quants[:, :, 1::2] << 4)


def _pack_row(zeros: np.ndarray, bits: int) -> np.ndarray:
    """Zero points of a row in the same way, the last byte half empty for an odd number."""
    if bits == 8:
        return zeros
    padded = np.pad(zeros, ((0, 0), (0, zeros.shape[1] % 2)))
    return padded[:, 0::2] | (padded[:, 1::2] << 4)


def _unpack(packed: np.ndarray) -> np.ndarray:
    """Bytes as pairs of values along the last axis."""
    pairs = np.stack([packed & 15, packed >> 4], axis=-1)
    return pairs.reshape(*packed.shape[:-1], -1)


def _arrays(
    name: str,
    blocks: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray | None,
    offsets: np.ndarray | None,
) -> Arrays:
    found = {"blocks": blocks, "scales": scales, "zeros": zeros, "offsets": offsets}
    return {
        f"{name}.{key}": np.ascontiguousarray(array.T if key == "offsets" else array)
        for key, array in found.items()
        if array is not None
    }
