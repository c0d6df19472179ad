"""Bindings and the manifest check: every misfit is named, all at once, before anything is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from linnet.dtypes import DType
from linnet.weights import (
    BindingsError,
    ManifestEntry,
    WeightsError,
    is_present,
    open_checkpoint,
    read_bindings,
    resolve,
)

BINDINGS = {
    "format": 1,
    "bindings": {
        "embedding.weight": "model.embed_tokens.weight",
        "layers.{i}.up.weight": "model.layers.{i}.mlp.up_proj.weight",
        "layers.{i}.experts.{e}.w": "model.layers.{i}.experts.{e}.w",
    },
}


def test_patterns_carry_indices_over() -> None:
    bindings = read_bindings(BINDINGS)
    assert bindings.tensor("embedding.weight") == "model.embed_tokens.weight"
    assert bindings.tensor("layers.12.up.weight") == "model.layers.12.mlp.up_proj.weight"
    assert bindings.tensor("layers.3.experts.7.w") == "model.layers.3.experts.7.w"
    assert bindings.tensor("layers.x.up.weight") == "layers.x.up.weight"
    assert bindings.tensor("layersX3.up.weight") == "layersX3.up.weight"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([], "must be"),
        ({"format": 2, "bindings": {}}, "must be"),
        ({"format": 1, "bindings": []}, "must map"),
        ({"format": 1, "bindings": {"a": 1}}, "must be bound to a tensor's name"),
        ({"format": 1, "bindings": {"a.{i}": "b.{j}"}}, "only those of the left"),
        ({"format": 1, "bindings": {"a.{i}.{i}": "b.{i}"}}, "each index stands once"),
    ],
)
def test_bad_bindings_say_why(table: object, message: str, tmp_path: Path) -> None:
    import json

    path = tmp_path / "bindings.json"
    path.write_text(json.dumps(table))
    with pytest.raises(BindingsError, match=message):
        read_bindings(path)


def test_bindings_that_are_no_json(tmp_path: Path) -> None:
    (tmp_path / "bindings.json").write_text("{")
    with pytest.raises(BindingsError, match="is no JSON"):
        read_bindings(tmp_path / "bindings.json")


@pytest.fixture
def checkpoint(tmp_path: Path):
    save_file(
        {
            "w": np.ones((2, 3), np.float32),
            "short": np.ones(2, np.float32),
            "ids": np.ones(2, np.int64),
            "left.over": np.ones(1, np.float32),
            "model.rotary_emb.inv_freq": np.ones(4, np.float32),
        },
        tmp_path / "m.safetensors",
    )
    return open_checkpoint(tmp_path / "m.safetensors")


def entry(path: str, *shape: int, dtype: DType = DType.F32, optional: bool = False):
    return ManifestEntry(path, shape, dtype, optional=optional)


def test_a_misfit_names_every_tensor(checkpoint) -> None:
    manifest = [entry("w", 2, 3, dtype=DType.BF16), entry("short", 3), entry("gone", 4),
                entry("ids", 2)]  # fmt: skip
    with pytest.raises(WeightsError) as error:
        resolve(manifest, checkpoint)
    assert str(error.value) == (
        f"{checkpoint.path} does not fit the model:\n"
        "  1 missing:\n"
        "    `gone`: f32[4]\n"
        "  1 misshapen:\n"
        "    `short`: expected [3], found [2]\n"
        "  2 of another dtype:\n"
        "    `w`: expected bf16, found f32\n"
        "    `ids`: expected f32, found i64\n"
        "  1 extra:\n"
        "    `left.over`: [1]\n"
        "  convert on loading by giving a dtype"
    )


def test_a_fit_reads_by_path(checkpoint) -> None:
    manifest = [entry("w", 2, 3, dtype=DType.F16), entry("absent", 9, optional=True)]
    ignored = ["short", "ids", "left.over"]
    resolution = resolve(manifest, checkpoint, dtype=DType.F16, ignore=ignored)
    assert list(resolution.sources) == ["w"]
    assert resolution.mapped("w") is None
    np.testing.assert_array_equal(resolution.read("w"), np.ones((2, 3), np.float16))


def test_equal_dtypes_are_mapped_without_a_copy(checkpoint) -> None:
    resolution = resolve([entry("w", 2, 3)], checkpoint, ignore=["short", "ids", "left.over"])
    mapped = resolution.mapped("w")
    assert mapped is not None and mapped.base is not None


def test_presence_follows_bindings(checkpoint) -> None:
    present = is_present(checkpoint, read_bindings({"format": 1, "bindings": {"a": "w"}}))
    assert present("a") and present("short") and not present("b")
