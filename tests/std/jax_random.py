"""Writes `jax_random.json`, what `jax.random` draws: `python tests/std/jax_random.py`.

Run by hand with JAX installed (0.10.2, on a CPU, with its defaults), not by the tests.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
import numpy as np

KEYS = ([0, 0], [0xFFFFFFFF, 0xFFFFFFFF], [0x13198A2E, 0x03707344], [1, 0x80000000])
SEEDS = (0, 7, 2**31, 2**32 - 1)
DATA = (0, 1, 77, 2**32 - 1)
LOGITS = [[((row * 31 + v * 37) % 23 - 11) / 4 for v in range(11)] for row in range(5)]


def words(key: jax.Array) -> list[object]:
    return np.asarray(jax.random.key_data(key)).tolist()


def drawn(key: jax.Array) -> dict[str, object]:
    logits = jnp.array(LOGITS, jnp.float32)
    return {
        "split": words(jax.random.split(key, 5)),
        "fold_in": [words(jax.random.fold_in(key, np.uint32(data))) for data in DATA],
        "bits": np.asarray(jax.random.bits(key, (9,))).tolist(),
        "uniform": np.asarray(jax.random.uniform(key, (33,))).tolist(),
        "normal": np.asarray(jax.random.normal(key, (33,))).tolist(),
        "categorical": np.asarray(jax.random.categorical(key, logits)).tolist(),
    }


def main() -> None:
    vectors = {
        "jax": jax.__version__,
        "data": DATA,
        "logits": LOGITS,
        "seeds": [[seed, words(jax.random.key(np.uint32(seed)))] for seed in SEEDS],
        "keys": [
            {"key": key, **drawn(jax.random.wrap_key_data(jnp.array(key, jnp.uint32)))}
            for key in KEYS
        ],
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(vectors) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
