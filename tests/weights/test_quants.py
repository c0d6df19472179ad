"""Block formats: against the gguf library, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import quants

from linnet.weights.gguf import PLAIN, UNSUPPORTED
from linnet.weights.quants import FORMATS


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: FORMATS[kind].name)
def test_blocks_are_decoded_bit_for_bit(kind: int) -> None:
    form = FORMATS[kind]
    blocks = np.random.default_rng(kind).integers(0, 256, (2000, form.size), dtype=np.uint8)
    with np.errstate(all="ignore"):  # Random bytes make scales that are NaN or infinite.
        found = form.decode(blocks)
        expected = quants.dequantize(blocks.reshape(1, -1), gguf.GGMLQuantizationType(kind))
    assert found.dtype == np.float32
    assert found.shape == (2000, form.values)
    nan = np.isnan(found)
    np.testing.assert_array_equal(nan, np.isnan(expected.reshape(found.shape)))
    for values in (found, expected):
        values[nan.reshape(values.shape)] = 0
    np.testing.assert_array_equal(found.view(np.uint32).ravel(), expected.view(np.uint32).ravel())


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: FORMATS[kind].name)
def test_sizes_are_the_formats_own(kind: int) -> None:
    form = FORMATS[kind]
    assert (form.values, form.size) == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    assert form.name == gguf.GGMLQuantizationType(kind).name


@pytest.mark.parametrize("kind", [2, 3, 6, 7, 8], ids=lambda kind: FORMATS[kind].name)
def test_quantised_values_come_back_near(kind: int) -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (64, 256)).astype(np.float32)
    stored = quants.quantize(values, gguf.GGMLQuantizationType(kind))
    form = FORMATS[kind]
    found = form.decode(stored.reshape(-1, form.size)).reshape(values.shape)
    levels = {2: 16, 3: 15, 6: 32, 7: 31, 8: 254}[kind]
    assert np.abs(found - values).max() <= 2 / levels * 1.1


def test_every_type_of_the_format_is_known() -> None:
    known = PLAIN.keys() | FORMATS.keys() | UNSUPPORTED.keys()
    assert known == {kind.value for kind in gguf.GGMLQuantizationType}
    for kind, name in UNSUPPORTED.items():
        assert gguf.GGMLQuantizationType(kind).name == name
