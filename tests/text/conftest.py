"""The real SmolLM2's tokenizer, read once by Linnet and once by Transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from linnet.text import Tokenizer, gguf_tokenizer
from linnet.weights import open_checkpoint


@pytest.fixture(scope="session")
def smollm2_metadata(smollm2_gguf: Path) -> Mapping[str, Any]:
    return open_checkpoint(smollm2_gguf).metadata


@pytest.fixture(scope="session")
def smollm2(smollm2_metadata: Mapping[str, Any]) -> Tokenizer:
    return gguf_tokenizer(smollm2_metadata)


@pytest.fixture(scope="session")
def transformers_smollm2(smollm2_gguf: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(
        smollm2_gguf.parent, gguf_file=smollm2_gguf.name
    )
