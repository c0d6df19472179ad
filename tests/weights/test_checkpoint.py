"""What opens as a checkpoint, what is refused and how; damaged and incomplete files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from linnet.dtypes import DType
from linnet.weights import CheckpointError, open_checkpoint, read_tensor
from linnet.weights.checkpoint import quoted

ONE = {"a": np.arange(6, dtype=np.float32).reshape(2, 3)}
TWO = {"b": np.ones(2, np.int64)}


def write_gguf(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "test")
    writer.add_tensor("a", ONE["a"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_shards(folder: Path, weight_map: object = None) -> Path:
    save_file(ONE, folder / "one.safetensors")
    save_file(TWO, folder / "two.safetensors")
    index = folder / "model.safetensors.index.json"
    if weight_map is None:
        weight_map = {"a": "one.safetensors", "b": "two.safetensors"}
    index.write_text(json.dumps({"weight_map": weight_map}))
    return index


def test_a_format_is_known_by_its_content(tmp_path: Path) -> None:
    save_file(ONE, tmp_path / "weights")
    write_gguf(tmp_path / "other")
    for name in ("weights", "other"):
        checkpoint = open_checkpoint(tmp_path / name)
        np.testing.assert_array_equal(read_tensor(checkpoint, "a"), ONE["a"])


def test_a_directory_is_its_one_checkpoint(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    assert open_checkpoint(tmp_path).names() == ["a"]
    save_file(TWO, tmp_path / "model.safetensors")
    assert open_checkpoint(tmp_path).names() == ["b"]
    # A second layout of the same weights beside the usual one is common.
    save_file(ONE, tmp_path / "consolidated.safetensors")
    assert open_checkpoint(tmp_path).names() == ["b"]


def test_loose_files_of_a_directory_are_one_checkpoint(tmp_path: Path) -> None:
    save_file(ONE, tmp_path / "one.safetensors")
    save_file(TWO, tmp_path / "two.safetensors")
    assert sorted(open_checkpoint(tmp_path).names()) == ["a", "b"]
    save_file(TWO, tmp_path / "three.safetensors")
    with pytest.raises(CheckpointError, match="`b` stands in another file too"):
        open_checkpoint(tmp_path)


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    index = write_shards(tmp_path)
    for path in (tmp_path, index, str(index)):
        checkpoint = open_checkpoint(path)
        assert sorted(checkpoint.names()) == ["a", "b"]
        assert checkpoint.info("b").dtype == DType.I64


def test_a_hub_cache_links_to_its_files(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    index = write_shards(tmp_path / "blobs")
    for file in (index, index.parent / "one.safetensors", index.parent / "two.safetensors"):
        (tmp_path / "snapshot" / file.name).symlink_to(file)
    assert sorted(open_checkpoint(tmp_path / "snapshot").names()) == ["a", "b"]


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "../one.safetensors"}, "must be in a .safetensors file of the same directory"),
        ({"a": "/etc/one.safetensors"}, "must be in a .safetensors file of the same directory"),
        ({"a": "x\0.safetensors"}, r"found `x\\x00.safetensors`"),
        ({"a": "a" * 300 + ".safetensors"}, "must be in a .safetensors file"),
        ({"a": "pytorch_model.bin"}, "must be in a .safetensors file"),
        ({"a": 1}, "must be in a .safetensors file"),
        ({"a": "missing.safetensors"}, "the shard missing.safetensors is missing"),
        ({"c": "one.safetensors"}, "no shard holds `c`"),
        (["one.safetensors"], "no index with a `weight_map`"),
    ],
)
def test_a_bad_index_is_refused(tmp_path: Path, weight_map: object, message: str) -> None:
    index = write_shards(tmp_path, weight_map)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(index)


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", "[" * 100_000, "\udcff"])
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"is no JSON|no index"):
        open_checkpoint(index)


PICKLE = "a pickle, which runs code when it is loaded: convert it to SafeTensors"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.bin", b"PK\x03\x04", f"x.bin: {PICKLE}"),
        ("x.pt", b"", f"x.pt: {PICKLE}"),
        ("x", b"\x80\x02}q\0.", f"x: {PICKLE}"),
        ("x.npz", b"PK\x03\x04", "is no checkpoint: give a .safetensors file, a directory of them"),
        ("x.txt", b"hello", "is no checkpoint: give a .safetensors file, a directory of them"),
        ("x.gguf", b"", "is no checkpoint"),
        ("x.safetensors", b"", "x.safetensors is empty"),
        ("x.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "run `git lfs pull`"),
        ("x.gguf", b"version https://git-lfs.github.com/spec/v1\n", "run `git lfs pull`"),
    ],
)
def test_what_is_no_checkpoint_is_refused(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(tmp_path / name)
    assert message in str(error.value)


def test_what_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        open_checkpoint(tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"holds no \.safetensors and no \.gguf file"):
        open_checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"holds pytorch_model\.bin: a pickle"):
        open_checkpoint(tmp_path)
    write_gguf(tmp_path / "a.gguf")
    write_gguf(tmp_path / "b.gguf")
    with pytest.raises(CheckpointError, match=r"several checkpoints, give one of them: a\.gguf, b"):
        open_checkpoint(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match="no regular file"):
        open_checkpoint(tmp_path / "x.safetensors")


@pytest.mark.parametrize("write", [write_gguf, lambda path: save_file(ONE, path)])
def test_a_file_cut_short_is_refused_when_opened(tmp_path: Path, write) -> None:
    write(tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    for size in range(20, len(data) - 8, 11):
        (tmp_path / "cut").write_bytes(data[:size])
        with pytest.raises(CheckpointError):
            open_checkpoint(tmp_path / "cut")


@pytest.mark.parametrize("write", [write_gguf, lambda path: save_file(ONE, path)])
def test_reading_asks_for_the_right_array(tmp_path: Path, write) -> None:
    write(tmp_path / "x")
    checkpoint = open_checkpoint(tmp_path / "x")
    wrong = [
        np.empty((3, 2), np.float32),
        np.empty((2, 3), np.float64),
        np.empty((4, 6), np.float32)[::2, ::2],
    ]
    for out in wrong:
        with pytest.raises(ValueError, match=r"`a` of f32\[2, 3\] is read into a contiguous"):
            checkpoint.read_into("a", out, DType.F32)
    with pytest.raises(ValueError, match="`a`: f32 is not converted to i32"):
        checkpoint.read_into("a", np.empty((2, 3), np.int32), DType.I32)
    with pytest.raises(KeyError):
        checkpoint.info("b")


@pytest.mark.parametrize("write", [write_gguf, lambda path: save_file(ONE, path)])
def test_views_outlive_a_closed_checkpoint(tmp_path: Path, write) -> None:
    write(tmp_path / "x")
    checkpoint = open_checkpoint(tmp_path / "x")
    view = checkpoint.mapped("a")
    assert view is not None and not view.flags.writeable
    checkpoint.close()
    np.testing.assert_array_equal(view, ONE["a"])
    assert checkpoint.names() == []


def test_names_from_a_file_are_shown_safely() -> None:
    assert quoted("a.b") == "`a.b`"
    assert quoted("\x1b[2J\ud800") == "`\\x1b[2J\\ud800`"
    assert len(quoted("x" * 10_000)) == 102
