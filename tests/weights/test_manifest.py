"""The manifest check: every misfit is named, all at once, before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from linnet.dtypes import DType
from linnet.weights import (
    Checkpoint,
    ManifestEntry,
    Resolution,
    WeightsError,
    is_present,
    open_checkpoint,
    read_bindings,
    resolve,
)

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)
STORED = {
    "w": MATRIX,
    "wide": MATRIX + 10,
    "tall": np.arange(8, dtype=np.float32).reshape(4, 2),
    "short": np.ones(2, np.float32),
    "ids": np.arange(2, dtype=np.int64),
    "left.over": np.ones(1, np.float16),
    "model.rotary_emb.inv_freq": np.ones(4, np.float32),
    "h.0.attn.bias": np.ones((1, 1, 4, 4), np.float32),
}
LEFT = ["wide", "tall", "short", "ids", "left.over"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    save_file(STORED, tmp_path / "m.safetensors")
    return open_checkpoint(tmp_path / "m.safetensors")


def entry(path: str, *shape: int, dtype: DType = DType.F32, optional: bool = False):
    return ManifestEntry(path, shape, dtype, optional=optional)


def bound(table: Mapping[str, object]):
    return read_bindings({"format": 1, "bindings": table})


# --- misfits --------------------------------------------------------------------------------


def test_a_misfit_names_every_tensor(checkpoint) -> None:
    bindings = bound({
        "flat": {"tensor": "short", "transpose": True},
        "qkv": {"concat": ["w", "nowhere", "wide"], "axis": 0},
        "joined": {"concat": ["wide", "tall"], "axis": 0},
        "renamed": "away",
    })  # fmt: skip
    manifest = [
        entry("w", 2, 3, dtype=DType.BF16), entry("short", 3), entry("gone", 4), entry("ids", 2),
        entry("left.over", 1, dtype=DType.I32), entry("flat", 2), entry("renamed", 1),
        entry("qkv", 6, 3), entry("joined", 6, 3),
    ]  # fmt: skip
    with pytest.raises(WeightsError) as error:
        resolve(manifest[:-2], checkpoint, bindings)
    assert str(error.value) == (
        f"{checkpoint.path} does not fit the model:\n"
        "  2 missing:\n"
        "    `gone`: f32[4]\n"
        "    `renamed` (bound to `away`): f32[1]\n"
        "  2 misshapen:\n"
        "    `short`: expected [3], found [2]\n"
        "    `flat` (bound to `short` transposed): expected [2], found [2]\n"
        "  3 of another dtype:\n"
        "    `w`: expected bf16, found f32 (give a dtype to convert)\n"
        "    `ids`: expected f32, found i64\n"
        "    `left.over`: expected i32, found f16\n"
        "  2 extra:\n"
        "    `tall`: f32[4, 2]\n"
        "    `wide`: f32[2, 3]"
    )
    with pytest.raises(WeightsError) as error:
        resolve(manifest[-2:], checkpoint, bindings, ignore=LEFT)
    assert str(error.value) == (
        f"{checkpoint.path} does not fit the model:\n"
        "  1 missing:\n"
        "    `qkv` (bound to `w`, `nowhere`, `wide` joined along axis 0): f32[6, 3], without "
        "`nowhere`\n"
        "  1 misshapen:\n"
        "    `joined` (bound to `wide`, `tall` joined along axis 0): expected [6, 3], found "
        "[2, 3], [4, 2]"
    )


def test_an_axis_that_the_tensors_lack_is_a_misfit(checkpoint) -> None:
    bindings = bound({"x": {"concat": ["w", "wide"], "axis": 2}})
    with pytest.raises(WeightsError, match=r"joined along axis 2\): expected \[4, 3\], found"):
        resolve([entry("x", 4, 3)], checkpoint, bindings, ignore=LEFT)


def test_names_from_a_file_are_shown_safely(tmp_path: Path) -> None:
    save_file({"\x1b[2J": MATRIX}, tmp_path / "m.safetensors")
    with pytest.raises(WeightsError, match=r"`\\x1b\[2J`: f32\[2, 3\]"):
        resolve([], open_checkpoint(tmp_path / "m.safetensors"))


@pytest.mark.parametrize(
    ("name", "shape", "is_left"),
    [
        ("model.rotary_emb.inv_freq", (4,), True),
        ("rotary_emb.inv_freq", (4,), True),
        ("h.0.attn.masked_bias", (), True),
        ("h.0.attn.bias", (1, 1, 8, 8), True),
        ("h.0.attn.bias", (8,), False),
        ("h.0.attn.c_attn.bias", (8,), False),
        ("h.0.self_attn.bias", (8,), False),
        ("my_rotary_emb.inv_freq", (4,), False),
    ],
)
def test_only_known_tables_are_left_over(
    tmp_path: Path, name: str, shape: tuple[int, ...], is_left: bool
) -> None:
    save_file({name: np.zeros(shape, np.float32)}, tmp_path / "m.safetensors")
    checkpoint = open_checkpoint(tmp_path / "m.safetensors")
    if is_left:
        assert not resolve([], checkpoint).sources
    else:
        with pytest.raises(WeightsError, match="1 extra"):
            resolve([], checkpoint)


def test_a_conversion_is_to_floats(checkpoint) -> None:
    with pytest.raises(ValueError, match="to a float dtype, not to i8"):
        resolve([], checkpoint, dtype=DType.I8)
    ids = [entry("ids", 2)]
    with pytest.raises(WeightsError, match=r"`ids`: expected f32, found i64$"):
        resolve(ids, checkpoint, dtype=DType.F32, ignore=[*LEFT, "w"])


# --- fits -----------------------------------------------------------------------------------


def test_a_fit_reads_by_path(checkpoint) -> None:
    manifest = [entry("w", 2, 3, dtype=DType.F16), entry("absent", 9, optional=True)]
    resolution = resolve(manifest, checkpoint, dtype=DType.F16, ignore=LEFT)
    assert list(resolution.sources) == ["w"]
    assert resolution.mapped("w") is None
    np.testing.assert_array_equal(resolution.read("w"), MATRIX.astype(np.float16))


def test_equal_dtypes_are_mapped_without_a_copy(checkpoint) -> None:
    manifest = [entry("w", 2, 3), entry("ids", 2, dtype=DType.I64), entry("t", 3, 2)]
    bindings = bound({"t": {"tensor": "w", "transpose": True}})
    resolution = resolve(manifest, checkpoint, bindings, ignore=LEFT)
    for path, expected in {"w": MATRIX, "ids": STORED["ids"], "t": MATRIX.T}.items():
        mapped = resolution.mapped(path)
        assert mapped is not None and mapped.base is not None
        np.testing.assert_array_equal(mapped, expected)


def joined(checkpoint: Checkpoint, dtype: DType = DType.F32) -> Resolution:
    bindings = bound({
        "rows": {"concat": ["w", "wide"], "axis": 0},
        "columns": {"concat": ["w", "wide", "w"], "axis": 1},
        "turned": {"tensor": "w", "transpose": True},
    })  # fmt: skip
    shapes = {"rows": (4, 3), "columns": (2, 9), "turned": (3, 2)}
    manifest = [entry(path, *shape, dtype=dtype) for path, shape in shapes.items()]
    return resolve(manifest, checkpoint, bindings, dtype=dtype, ignore=LEFT)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
def test_tensors_are_joined_and_transposed(checkpoint, dtype: DType) -> None:
    resolution = joined(checkpoint, dtype)
    wide = STORED["wide"]
    for path, expected in {
        "rows": np.concatenate([MATRIX, wide]),
        "columns": np.concatenate([MATRIX, wide, MATRIX], axis=1),
        "turned": MATRIX.T,
    }.items():
        found = resolution.read(path)
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, expected)
    assert resolution.mapped("rows") is None


def test_a_part_of_a_larger_buffer_is_read_into(checkpoint) -> None:
    resolution = joined(checkpoint)
    buffer = np.full((6, 5), -1, np.float32)
    resolution.read_into("rows", buffer[1:5, 1:4])  # Not contiguous.
    np.testing.assert_array_equal(buffer[1:5, 1:4], np.concatenate([MATRIX, STORED["wide"]]))
    assert (buffer[[0, -1]] == -1).all() and (buffer[:, [0, -1]] == -1).all()
    with pytest.raises(ValueError, match=r"`rows` is \[4, 3\], not \[3, 4\]"):
        resolution.read_into("rows", np.empty((3, 4), np.float32))
    with pytest.raises(ValueError, match="is read into a contiguous float32 array"):
        resolution.read_into("rows", np.empty((4, 3), np.float64))


def test_presence_follows_bindings(checkpoint) -> None:
    bindings = bound({"a": "w", "b": {"concat": ["w", "wide"], "axis": 0},
                      "c": {"concat": ["w", "nowhere"], "axis": 0}})  # fmt: skip
    present = is_present(checkpoint, bindings)
    assert present("a") and present("b") and present("short")
    assert not present("c") and not present("d")
