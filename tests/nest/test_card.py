"""Cards: those that ship are whole; a bad one says where and what."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.check import check_file
from linnet.dtypes import DType
from linnet.nest import CardError, find, names
from linnet.nest.fetch import HubSource, PackageSource, PathSource
from linnet.outline import manifest
from linnet.weights import read_bindings


@pytest.mark.parametrize("name", names())
def test_a_card_that_ships_is_whole(name: str) -> None:
    card = find(name)
    result = check_file(card.source)
    assert result.ok and not result.diagnostics
    assert card.readme.startswith(f"# {card.title}")
    assert card.bindings is not None
    bindings = read_bindings(card.bindings)
    rows = manifest(result.require(), card.root, {**card.generics, "T": card.dtype})
    params = [row for row in rows if row.kind == "param" and not row.optional]
    assert all(bindings.tensor(row.path) != row.path for row in params)


def test_the_cards_of_the_first_release() -> None:
    assert names() == ["smollm2-1.7b-instruct", "smollm2-135m-instruct", "tinyllama-1.1b-chat"]


def test_every_card_has_a_decoder_s_entries() -> None:
    program = check_file(find("tinyllama-1.1b-chat").source).require()
    (block,) = (b for b in program.blocks.values() if b.name == "Llama")
    entries = [name for name, key in block.methods.items()
               if program.functions[key].kind == "entry"]  # fmt: skip
    assert entries == [
        "forward", "next_token", "prefill", "decode", "prefill_slots", "prefill_packed",
        "decode_rows", "decode_first", "prefill_slot", "copy_row", "generate", "generate_until",
        "sample",
    ]  # fmt: skip


def test_an_unknown_name_gets_the_near_ones() -> None:
    with pytest.raises(CardError, match="did you mean smollm2-135m-instruct"):
        find("smollm2-135m")
    with pytest.raises(CardError, match="the registry has"):
        find("../models")


CARD = """
title = "T"
summary = "S"
license = "MIT"
family = "llama"
tags = ["a"]
source = "model.linnet"
root = "B"
dtype = "f32"
[links]
[generics]
H = 4
[weights]
path = "w.safetensors"
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "model.linnet").write_text("module m\npub block B { }\n")
    (tmp_path / "nest.toml").write_text(CARD)
    return tmp_path


def test_a_directory_is_a_card(directory: Path) -> None:
    card = find(directory)
    assert (card.title, card.root, card.dtype, card.generics) == ("T", "B", DType.F32, {"H": 4})
    assert card.weights == PathSource(directory / "w.safetensors")


HUB = 'repository = "a/b"\nrevision = "main"\nfiles = ["x"]'
PACKAGE = 'package = "p==1"\nsha256 = "0"\nfile = "f"\nfile_sha256 = "1"'


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (HUB, HubSource("a/b", "main", ("x",))),
        (PACKAGE, PackageSource("p==1", "0", "f", "1")),
    ],
)
def test_where_weights_come_from(directory: Path, weights: str, expected: object) -> None:
    (directory / "nest.toml").write_text(CARD.replace('path = "w.safetensors"', weights))
    assert find(directory).weights == expected


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "T"', "", "`title` is missing"),
        ('title = "T"', "title = 3", "`title` must be a string, found 3"),
        ('tags = ["a"]', "tags = [1]", "`tags` must be a list of strings"),
        ("H = 4", "H = 4.5", "`H` must be an integer"),
        ("H = 4", "H = true", "`H` must be an integer"),
        ('dtype = "f32"', 'dtype = "f31"', "`dtype` is no dtype: 'f31'"),
        ('source = "model.linnet"', 'source = "x.linnet"', "which is no file"),
        ('root = "B"', 'root = "B"\nsurce = "x"', "unknown key `surce`"),
        ('path = "w.safetensors"', "", r"\[weights\]: give one of"),
        ('path = "w.safetensors"', HUB + "\n" + PACKAGE, r"\[weights\]: give one of"),
        ('path = "w.safetensors"', PACKAGE.replace("==1", ">=1"), "pin a version"),
        ('path = "w.safetensors"', HUB + "\nbranch = 1", "unknown key `branch`"),
        ('title = "T"', "title = ", "nest.toml"),
    ],
)
def test_a_bad_card_says_where(directory: Path, old: str, new: str, message: str) -> None:
    (directory / "nest.toml").write_text(CARD.replace(old, new))
    with pytest.raises(CardError, match=message):
        find(directory)
