"""Bindings: patterns, joined and transposed tensors, and what is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.weights import Binding, BindingsError, read_bindings

TABLE = {
    "format": 1,
    "bindings": {
        "embedding.weight": "model.embed_tokens.weight",
        "layers.0.up.weight": "first.up",
        "layers.{i}.up.weight": "model.layers.{i}.mlp.up_proj.weight",
        "layers.{layer}.experts.{e}.w": "experts.{e}.of.{layer}",
        "layers.{i}.qkv": {"concat": ["h.{i}.q", "h.{i}.k", "h.{i}.v"], "axis": 0},
        "layers.{i}.fc": {"tensor": "h.{i}.c_fc", "transpose": True},
    },
}


def test_a_path_is_found_by_name_then_by_pattern_then_itself() -> None:
    bindings = read_bindings(TABLE)
    assert bindings.tensor("embedding.weight") == "model.embed_tokens.weight"
    assert bindings.tensor("layers.0.up.weight") == "first.up"
    assert bindings.tensor("layers.12.up.weight") == "model.layers.12.mlp.up_proj.weight"
    assert bindings.tensor("layers.3.experts.7.w") == "experts.7.of.3"
    assert bindings.tensor("layers.x.up.weight") == "layers.x.up.weight"
    assert bindings.tensor("layersX3.up.weight") == "layersX3.up.weight"
    assert bindings.tensor("norm") == "norm"


def test_tensors_are_joined_and_transposed() -> None:
    bindings = read_bindings(TABLE)
    assert bindings.of("layers.4.qkv") == Binding(("h.4.q", "h.4.k", "h.4.v"), axis=0)
    assert bindings.of("layers.4.fc") == Binding(("h.4.c_fc",), transpose=True)
    with pytest.raises(BindingsError) as error:
        bindings.tensor("layers.4.qkv")
    assert str(error.value) == (
        "`layers.4.qkv` is `h.4.q`, `h.4.k`, `h.4.v` joined along axis 0, not a tensor as it is "
        "stored"
    )
    with pytest.raises(BindingsError, match=r"`layers.4.fc` is `h.4.c_fc` transposed, not"):
        bindings.tensor("layers.4.fc")


def bound(value: object, path: str = "a") -> dict[str, object]:
    return {"format": 1, "bindings": {path: value}}


FORMS = 'must be bound to a tensor\'s name, {"concat": ["a", "b"], "axis": 0} or {"tensor": "a", '

BAD = [
    ([], 'must be {"format": 1, "bindings": {…}}'),
    ({"format": 2, "bindings": {}}, 'must be {"format": 1, "bindings": {…}}'),
    ({"format": 1, "bindings": {}, "more": 1}, "unknown key `more`"),
    ({"format": 1, "bindings": []}, "`bindings` must map parameter paths to tensor names"),
    (bound(1), FORMS),
    (bound(""), FORMS),
    (bound("b", path=""), FORMS),
    (bound({"concat": []}), FORMS),
    (bound({"concat": [], "axis": 0}), FORMS),
    (bound({"concat": ["b", 1], "axis": 0}), FORMS),
    (bound({"concat": "bc", "axis": 0}), FORMS),
    (bound({"concat": ["b"], "axis": True}), FORMS),
    (bound({"concat": ["b"], "axis": 0, "transpose": True}), FORMS),
    (bound({"tensor": "b", "transpose": 1}), FORMS),
    (bound({"tensor": "b"}), FORMS),
    (bound({"concat": ["b", "c"], "axis": -1}), "`a`: axis -1 is not from 0 to 7"),
    (bound("b.{j}", path="a.{i}"), "`a.{i}` → `b.{j}`: each index stands once on the left, and"),
    (bound({"tensor": "b.{j}", "transpose": True}), "→ `b.{j}` transposed: each index stands once"),
    (bound("b.{i}", path="a.{i}.{i}"), "each index stands once on the left"),
    (bound("b", path="a.{1}"), "`a.{1}`: braces hold the name of an index, as in {i}"),
    (bound("b.{}", path="a.{i}"), "`b.{}`: braces hold the name of an index, as in {i}"),
    (bound("b", path="a.{i"), "`a.{i`: braces hold the name of an index, as in {i}"),
    (bound("b", path="a.{²}"), "braces hold the name of an index"),
]


@pytest.mark.parametrize(("table", "message"), BAD, ids=[str(table) for table, _ in BAD])
def test_bad_bindings_say_why(table: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bindings.json"
    path.write_text(json.dumps(table))
    with pytest.raises(BindingsError) as error:
        read_bindings(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "is no JSON"),
        (b"\xff", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b'{"format": 1, "bindings": {"a": "b", "a": "c"}}', "`a` stands twice"),
        (b" " * (1 << 20) + b"{}", "is over the limit of 1048576 bytes"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "bindings.json").write_bytes(data)
    with pytest.raises(BindingsError, match=message):
        read_bindings(tmp_path / "bindings.json")


def test_a_file_that_is_absent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BindingsError, match=r"none.json: No such file"):
        read_bindings(tmp_path / "none.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["concat", "axis", "tensor", "transpose", "a.{i}", "b"]), inner, max_size=3
    ),
    max_leaves=8,
)  # fmt: skip


@given(JSON, st.text(max_size=12))
def test_any_table_is_read_or_refused(value: object, path: str) -> None:
    for table in ({"format": 1, "bindings": value}, bound(value, path)):
        with suppress(BindingsError):
            read_bindings(table).of("a.3")
